"""What a sandbox can do beyond what all of them must."""

from __future__ import annotations

from typing import Final, Literal

Capability = Literal[
    "tty",  # commands on a terminal
    "dial",  # connections to ports inside
    "copy",  # a private view of a directory: diff, apply, discard
    "snapshot",  # saving and restoring the files
    "rlimits",  # resource limits of a single command
    "kill_tree",  # every descendant of a command dies with it
    "isolated",  # commands cannot reach the host's files and processes
    "no_network",  # commands have no route out
    "listen",  # ports inside that reach the host
    "capture",  # traffic led to the host's filter
    "read_only",  # a workspace that commands cannot write to
    "persistent",  # files outlive the sandbox
    "user",  # commands as another user
    "reattach",  # commands that outlive their host, and that another one finds
]

CAPABILITIES: Final[frozenset[Capability]] = frozenset(
    (
        "tty",
        "dial",
        "copy",
        "snapshot",
        "rlimits",
        "kill_tree",
        "isolated",
        "no_network",
        "listen",
        "capture",
        "read_only",
        "persistent",
        "user",
        "reattach",
    )
)
