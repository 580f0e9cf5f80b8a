"""The filter on the host through which allowed traffic leaves a sandbox."""
