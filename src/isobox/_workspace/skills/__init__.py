"""Skills: directories with instructions that a model reads when it needs them."""
