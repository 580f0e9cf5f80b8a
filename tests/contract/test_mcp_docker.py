"""MCP servers in containers of a real engine."""

from tests.contract import test_docker

from isobox.testing.contract.mcp import McpContract


class TestDocker(test_docker.Containers, McpContract):
    capabilities = test_docker.TestDocker.capabilities
    can_kill_sandbox = True
