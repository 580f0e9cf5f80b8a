"""The host's end of the one duplex stream to a sandbox."""
