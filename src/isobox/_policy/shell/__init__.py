"""What a shell script would run, as facts: used to ask more, never to allow more.

A script is hostile text, and no reading of it is a boundary: the sandbox is.
What is read here lets a rule recognise a command, and a person see what a
question is about. Whatever cannot be read with certainty is a doubt, and a
script with a doubt is not understood.
"""

from __future__ import annotations

from isobox._policy.shell.facts import Command, Facts
from isobox._policy.shell.reading import facts, facts_of_argv

__all__ = ["Command", "Facts", "facts", "facts_of_argv"]
