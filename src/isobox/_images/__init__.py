"""Images of container engines, made from a small description."""
