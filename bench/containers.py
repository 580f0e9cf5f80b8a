"""Print how fast containers answer, against what else speaks to an engine.

    python bench/containers.py

It needs root, `dockerd`, `docker`, `debootstrap` and `runsc`. The engine is one of the
bench's own. The image takes half a minute and the distribution's mirror; with
`ISOBOX_TEST_CACHE`, a directory, it is made once.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import environment
from measure import duration, interleaved, medians, timed
from table import Line, faster, markdown

TRUE = ["/bin/true"]
DATA = os.urandom(4096)
AT_MOST = 0.15


def main() -> None:
    """Run it in the bench's own environment."""
    python = environment.prepare()
    if "inner" not in sys.argv:
        program = [str(python), __file__, "inner"]
        sys.exit(subprocess.run(program, check=False).returncode)
    sys.path.insert(0, str(environment.BENCH.parent))
    with _engine() as place:
        lines = asyncio.run(_measured(place))
    print(markdown(lines))


@dataclass(frozen=True, slots=True)
class Place:
    """An engine and an image that it has."""

    url: str
    image: str

    def workspace(self, **options: Any) -> Any:
        from isobox import DockerWorkspace  # noqa: PLC0415

        return DockerWorkspace(image=self.image, engine=self.url, **options)


@contextlib.contextmanager
def _engine() -> Iterator[Place]:
    from tests import engines, trees  # noqa: PLC0415 - now they are found

    with tempfile.TemporaryDirectory(prefix="bench-engine-") as directory:
        cache = os.environ.get("ISOBOX_TEST_CACHE") or f"{directory}/archives"
        archives = trees.archives(Path(cache))
        base = Path(directory, "engine")
        base.mkdir()
        engine = engines.Engine(base)
        try:
            if not engine.answers():
                raise RuntimeError(f"dockerd: {engine.log.read_text()[-500:]}")
            engine.add(archives.python, engines.PYTHON_IMAGE)
            yield Place(engine.url, engines.PYTHON_IMAGE)
        finally:
            engine.stop()


async def _measured(place: Place) -> list[Line]:
    import gvisor  # noqa: PLC0415 - it needs isobox

    lines: list[Line] = []
    async with place.workspace() as workspace, _agentscope(place) as rival:
        lines += await _commands(place, workspace, rival)
        lines += await _files(workspace, rival)
    lines.append(await _attach(place))
    return [*lines, *await gvisor.exec_()]


@contextlib.asynccontextmanager
async def _agentscope(place: Place) -> AsyncIterator[Any]:
    """AgentScope's backend, on a container as its workspace makes it."""
    import aiodocker  # noqa: PLC0415
    from agentscope.workspace._docker._docker_backend import (  # noqa: PLC0415
        DockerBackend,
    )

    config = {
        "Image": place.image,
        "Cmd": ["sleep", "infinity"],
        "WorkingDir": "/workspace",
        "HostConfig": {"NetworkMode": "none"},
    }
    async with aiodocker.Docker(url=place.url) as client:
        container = await client.containers.create_or_replace("agentscope", config)
        try:
            await container.start()
            yield DockerBackend(container, "/workspace")
        finally:
            await container.delete(force=True)


async def _commands(place: Place, workspace: Any, rival: Any) -> list[Line]:
    from rivals import plain  # noqa: PLC0415

    client = ["docker", "--host", place.url, "exec", "agentscope", *TRUE]

    async def theirs() -> None:
        assert (await rival.exec_shell(TRUE)).ok()

    took = medians(
        await interleaved(
            {
                "isobox": timed(lambda: workspace.run(TRUE, check=True)),
                "docker exec": timed(lambda: plain(client)),
                "agentscope": timed(theirs),
            },
            rounds=15,
            warmup=2,
            at_a_time=5,
        )
    )
    work, ours = 'run(["/bin/true"]) in a container', took["isobox"]
    return [
        faster(work, ours, "docker exec", took["docker exec"], 30),
        faster(work, ours, "AgentScope exec_shell", took["agentscope"], None),
    ]


async def _files(workspace: Any, rival: Any) -> list[Line]:
    """4 KB each way, on files that are there."""
    await workspace.write("f", DATA)
    await rival.write_file("/workspace/f", DATA)
    assert await workspace.read_bytes("f") == DATA
    assert await rival.read_file("/workspace/f") == DATA
    contenders = {
        "read": (
            lambda: workspace.read_bytes("f"),
            lambda: rival.read_file("/workspace/f"),
        ),
        "write": (
            lambda: workspace.write("f", DATA),
            lambda: rival.write_file("/workspace/f", DATA),
        ),
    }
    lines: list[Line] = []
    for what, (ours, theirs) in contenders.items():
        took = medians(
            await interleaved(
                {"isobox": timed(ours), "agentscope": timed(theirs)},
                rounds=15,
                warmup=2,
                at_a_time=5,
            )
        )
        name = f"AgentScope {what}_file"
        work = f"{what} 4 KB in a container"
        lines.append(faster(work, took["isobox"], name, took["agentscope"], 50))
    return lines


async def _attach(place: Place) -> Line:
    """A second host object comes to a container that lives, and asks something."""

    async def arrive() -> float:
        start = time.perf_counter()
        second = place.workspace(workspace_id="bench")
        await second.initialize()
        await second.run(TRUE, check=True)
        took = time.perf_counter() - start
        assert second.arrival.how == "attached"
        await second.detach()
        return took

    async with place.workspace(workspace_id="bench"):
        samples = await interleaved({"attach": arrive}, rounds=20, warmup=2)
        took = medians(samples)["attach"]
    return Line(
        "attach to a container that lives, until a command's result",
        duration(took),
        "",
        "",
        f"≤ {duration(AT_MOST)}",
        took <= AT_MOST,
    )


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    main()
