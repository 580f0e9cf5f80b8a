"""Print what the network filter costs: isobox's against none, and mitmproxy.

    bench/.venv/bin/python bench/egress.py
    bench/.venv/bin/python bench/egress.py --only kept --rounds 3

`bench/run.py` makes the environment. It needs root, nginx, and a C compiler with
OpenSSL's headers (apt-get install nginx-light gcc libssl-dev).
"""

import argparse
import asyncio
import contextlib
import gc
import json
import os
import platform
import resource
import shutil
import ssl
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import intercepting
import loads
import origin
from loads import HTTP, KEYED, KINDS, Kind, Report, Way
from measure import interleaved, resident
from origin import LARGE, LENGTH, OPEN, SECRET, SMALL, VALUE
from rivals import plain
from table import Line, markdown

from isobox import BubblewrapWorkspace, Network, NetworkRule, Secret

BENCH = Path(__file__).resolve().parent


class Bench:
    """Runs the client outside and inside.

    Args:
        load: The client.
        ws: A workspace that has it.
        proxy: The filter's own proxy inside, HOST:PORT.
        trust: By side, the certificates that the client there trusts.
    """

    def __init__(
        self,
        load: Path,
        ws: BubblewrapWorkspace,
        proxy: str,
        trust: dict[str, Path],
    ) -> None:
        self._load = load
        self._ws = ws
        self.ways = loads.ways(proxy)
        self._trust = trust

    async def outside(self, side: str, words: Sequence[str]) -> Report:
        """Run it beside the server."""
        trusted = f"SSL_CERT_FILE={self._trust[side]}"
        return _report(await plain(["env", trusted, str(self._load), *words]))

    async def inside(self, way: Way, words: Sequence[str]) -> Report:
        """Run it in the sandbox."""
        result = await self._ws.run([f"./{self._load.name}", *words], check=True)
        report = _report(result.stdout_bytes)
        if not report["issuer"].startswith(way.issuer):
            raise RuntimeError(f"{way.title}: the certificate is {report['issuer']}'s")
        return report

    def contenders(self, kind: Kind) -> dict[str, Callable[[], Awaitable[float]]]:
        """Return everyone who takes part in a measurement."""
        proxy = ("-p", f"127.0.0.1:{intercepting.PORT}")
        found: dict[str, Callable[[], Awaitable[float]]] = {}
        for name, to in loads.DIRECT.items():
            found[name] = self._measured(kind, to, lambda w: self.outside("none", w))
        for way in self.ways:
            found[way.title] = self._measured(
                kind, way.to, lambda w, way=way: self.inside(way, w)
            )
        for name, to in (("mitmproxy HTTP", HTTP), ("mitmproxy HTTPS", KEYED)):
            found[name] = self._measured(
                kind, (*proxy, *to), lambda w: self.outside("mitmproxy", w)
            )
        return found

    def _measured(
        self,
        kind: Kind,
        to: Sequence[str],
        run: Callable[[Sequence[str]], Awaitable[Report]],
    ) -> Callable[[], Awaitable[float]]:
        async def call() -> float:
            report = await run([*kind.load, *to, kind.path])
            size = LENGTH if kind.path == LARGE else origin.SIZE
            if report["bytes"] != report["requests"] * size:
                raise RuntimeError(f"{to}: {report['bytes']} bytes")
            return kind.value(report)

        return call

    async def compare(self, kind: Kind, rounds: int) -> list[Line]:
        """Measure in turns; return the lines of the table."""
        samples = await interleaved(self.contenders(kind), rounds=rounds, warmup=1)
        for name, values in samples.items():
            said = ", ".join(loads.said(kind, value) for value in sorted(values))
            print(f"  {name}: {said}", file=sys.stderr)
        found = {name: statistics.median(values) for name, values in samples.items()}
        return [loads.line(kind, way, found) for way in self.ways]

    async def weigh(self, connections: int) -> list[Line]:
        """Return what the filter's memory grows by with open connections.

        All stay open until the last are: memory that some leave would serve others.
        """
        words = ["-k", "-c", str(connections), "-n", str(connections), "-w", "60"]
        lines: list[Line] = []
        async with contextlib.AsyncExitStack() as held:
            for way in (self.ways[0], self.ways[-1]):
                gc.collect()
                before = resident()
                client = [f"./{self._load.name}", *words, *way.to, SMALL]
                process = await held.enter_async_context(await self._ws.start(client))
                await anext(aiter(process))
                grown = (resident() - before) / connections
                work = f"memory of an open connection, of {connections}: {way.title}"
                lines.append(Line(work, f"{grown / 1024:.0f} KiB", "", "", "", None))
        return lines


def _report(output: bytes) -> Report:
    found: Report = json.loads(output)
    return found


def compiled(folder: Path) -> Path:
    """Compile the client."""
    made = folder / "load"
    command = ["cc", "-O2", "-D_GNU_SOURCE", "-o", made, BENCH / "load.c"]
    subprocess.run([*command, "-lssl", "-lcrypto"], check=True)
    return made


@contextlib.asynccontextmanager
async def bench(folder: Path) -> AsyncIterator[Bench]:
    """Start the server, mitmproxy and a workspace."""
    work, lab = folder / "work", folder / "lab"
    work.mkdir()
    lab.mkdir()
    load = compiled(work)
    origin.connect(lab)
    with origin.served(lab) as authority:
        os.environ["SSL_CERT_FILE"] = str(authority)
        network = Network(
            rules=(
                NetworkRule(host=OPEN, ports=(80,)),
                NetworkRule(host=OPEN, ports=(443,), passthrough=True),
                NetworkRule(host=SECRET, ports=(443,)),
                # Not a public address: it has to be named.
                NetworkRule(host=origin.ADDRESS, ports="*"),
            ),
            connections=2000,
            per_second=1_000_000,
        )
        secret = Secret(
            "KEY",
            source=lambda: VALUE[7:],
            hosts=[SECRET],
            header="Authorization: Bearer {}",
        )
        with intercepting.proxied(lab, authority) as theirs:
            async with BubblewrapWorkspace(
                work, network=network, secrets=[secret]
            ) as ws:
                told = await ws.run(["printenv", "HTTP_PROXY"], check=True)
                proxy = told.stdout.strip().removeprefix("http://")
                trust = {"none": authority, "mitmproxy": theirs}
                yield Bench(load, ws, proxy, trust)


async def main() -> None:
    """Measure and print the table."""
    options = _arguments()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        lines: list[Line] = []
        async with bench(Path(folder)) as made:
            for name in options.only or KINDS:
                kind = KINDS[name]
                print(kind.title, file=sys.stderr)
                lines += await made.compare(kind, options.rounds)
            lines += await made.weigh(500)
        print(markdown(lines), *_machine(), sep="\n")


def _machine() -> Iterator[str]:
    yield ""
    nginx = subprocess.run(["nginx", "-v"], check=True, capture_output=True, text=True)
    yield ", ".join(
        (
            f"{os.cpu_count()} cores",
            f"Linux {platform.release()}",
            f"Python {platform.python_version()}",
            ssl.OPENSSL_VERSION,
            nginx.stderr.strip().removeprefix("nginx version: "),
            intercepting.REQUIREMENT,
            "load {:.1f} {:.1f} {:.1f}".format(*os.getloadavg()),
        )
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", action="append", choices=list(KINDS))
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    for tool in ("nginx", "cc", "unshare", "ip"):
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is missing (apt-get install nginx-light gcc libssl-dev)")
    _arguments()
    intercepting.prepare()
    origin.enter()
    asyncio.run(main())
