"""The contract over the fake in memory."""

from isobox.testing.memory_contract import MemoryContract


class TestMemory(MemoryContract):
    pass
