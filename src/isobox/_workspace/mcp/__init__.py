"""MCP servers of a workspace: declared, started, spoken with, watched."""
