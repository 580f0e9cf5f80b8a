"""What users hold: workspaces over sandboxes."""
