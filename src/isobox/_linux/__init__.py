"""The thin layer over the Linux kernel: ctypes, no third-party code."""
