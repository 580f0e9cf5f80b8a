"""A process that claims workspaces of a store, and leaves a file where it has one.

`python -m tests.claimers WHERE DIRECTORY HOLDER ROUNDS KEYS MOST`. It says how
often it was granted, and what it saw that nobody may see.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
from collections import Counter

import anyio
from tests.stores import LONG, asked

from isobox.manager.records import Full, Granted, Tenant
from isobox.manager.sql import SqlStore


async def main(arguments):
    """Claim, have and give up, round after round."""
    where, directory, holder, rounds, keys, most = arguments
    seen = Counter()
    async with SqlStore(where) as store:
        await store.beat(holder, 0, LONG, {})
        for _ in range(int(rounds)):
            name = str(random.randrange(int(keys)))
            how = {"most": int(most), "tenant": Tenant(user="u"), "most_of_user": 5}
            answer = await store.claim(asked(holder, name, **how), 1)
            seen[type(answer).__name__] += 1
            if isinstance(answer, Full):
                await anyio.sleep(random.uniform(0, 0.01))
            if isinstance(answer, Granted):
                await have(store, f"{directory}/{name}", holder, name, seen, int(most))
        await store.leave(holder, 1)
    print(json.dumps(seen))


async def have(store, path, holder, name, seen, most):
    """Have a workspace; a file says so to the others."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        seen["two have one"] += 1
    seen["too many"] += len(os.listdir(os.path.dirname(path))) > most
    seen["lost"] += not await store.made(f"w-{name}", holder, 1)
    seen["not given up"] += not await store.release(f"w-{name}", holder, 1, 1)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    await store.closed(f"w-{name}", holder, 1)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1:])
