"""Every operation from a POSIX shell inside: for images without Python."""
