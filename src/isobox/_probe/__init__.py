"""Measures from inside what a sandbox lets through."""
