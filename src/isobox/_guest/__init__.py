"""The program that runs inside a sandbox, and how it gets there."""
