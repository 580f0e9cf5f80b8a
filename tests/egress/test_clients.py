"""The programs that people use work where they may, and fail clearly elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest
from tests.egress.inside import PROGRAMS, run
from tests.egress.lab import zone

from isobox import NetworkRule

pytestmark = pytest.mark.anyio

HOSTS = (
    "www.example.org",
    "git.example.org",
    "pypi.example.org",
    "registry.example.org",
)
#: What may be reached, by how it is said: in the second, the filter reads TLS.
RULES = {
    "names": HOSTS,
    "requests": [NetworkRule(host=host, methods=("GET", "POST")) for host in HOSTS],
}


def needs(*programs: str) -> None:
    """Skip what this machine has no programs for."""
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)}")


#: Pairs of how traffic comes to the filter and what it goes by.
CAUGHT = [("caught", "names"), ("caught", "requests"), ("relayed fully", "names")]
ALL = [*CAUGHT, ("relayed", "requests")]


def options_of(pair, trust) -> dict:
    kind, rules = pair
    # Where TLS is read, the workspace says itself whom to trust.
    env = trust if rules == "names" else {}
    return {"kind": kind, "network": RULES[rules], "env": env}


@pytest.fixture(params=ALL, ids=" ".join)
def options(request, trust):
    """A workspace's options, for programs that ask a proxy."""
    return options_of(request.param, trust)


@pytest.fixture(params=CAUGHT, ids=" ".join)
def catching(request, trust):
    """A workspace's options, for programs that know of no proxy."""
    return options_of(request.param, trust)


@pytest.fixture
def fetch(tmp_path):
    """Mounts of the small programs."""
    return [(str(PROGRAMS / "fetch.py"), "/lab/fetch.py")]


async def git(workspace, *arguments: str):
    return await run(workspace, "git", *arguments, env={"GIT_TERMINAL_PROMPT": "0"})


def page(result) -> dict:
    """Return what `fetch` programs print: the server's word, after its status."""
    assert result.exit_code == 0, result.stderr
    status, _, body = result.stdout.partition("\n")
    assert status == "200", result.stdout
    return json.loads(body)


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_curl(internet, make, options, scheme):
    async with make(**options) as workspace:
        result = await run(workspace, "curl", "-sS", f"{scheme}://www.example.org/a")
        assert result.exit_code == 0, result.stderr
        assert json.loads(result.stdout)["target"] == "/a"
        assert result.denials == ()
        refused = await run(workspace, "curl", "-sS", f"{scheme}://evil.test/a")
    if scheme == "http":
        assert "isobox denies evil.test:80" in refused.stdout
    else:
        assert refused.exit_code == 56
        assert "response 403" in refused.stderr
    (denial,) = refused.denials
    assert (denial.host, denial.port) == ("evil.test", 80 if scheme == "http" else 443)
    assert {seen.address for seen in internet.connections} == {zone.WEB}


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_curl_without_proxy(internet, make, catching, scheme):
    direct = ("curl", "-sS", "--noproxy", "*")
    async with make(**catching) as workspace:
        result = await run(workspace, *direct, f"{scheme}://www.example.org/a")
        assert result.exit_code == 0, result.stderr
        assert json.loads(result.stdout)["target"] == "/a"
        refused = await run(workspace, *direct, f"{scheme}://evil.test/a")
        literal = await run(workspace, *direct, f"{scheme}://{zone.EVIL}/a")
    assert (refused.exit_code, refused.stdout) == (6, "")
    assert "Could not resolve host: evil.test" in refused.stderr
    assert refused.denials[0].host == "evil.test"
    assert literal.exit_code in (7, 35, 52, 56)
    if catching["kind"] == "caught":
        assert literal.denials[0].host == zone.EVIL
    assert {seen.address for seen in internet.connections} == {zone.WEB}


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_curl_over_socks(internet, make, options, scheme):
    over = ("curl", "-sS", "-x", "socks5h://127.0.0.1:3128")
    async with make(**options) as workspace:
        result = await run(workspace, *over, f"{scheme}://www.example.org/a")
        assert result.exit_code == 0, result.stderr
        assert json.loads(result.stdout)["target"] == "/a"
        refused = await run(workspace, *over, f"{scheme}://evil.test/a")
    assert refused.exit_code == 97
    assert refused.denials[0].host == "evil.test"
    assert {seen.address for seen in internet.connections} == {zone.WEB}


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_python(internet, make, options, fetch, scheme):
    async with make(mounts=fetch, **options) as workspace:
        program = ("python3", "/lab/fetch.py")
        assert page(await run(workspace, *program, f"{scheme}://www.example.org/"))
        refused = await run(workspace, *program, f"{scheme}://evil.test/")
    text = refused.stdout + refused.stderr
    assert "isobox denies evil.test:80" in text or "403" in text
    assert refused.denials[0].host == "evil.test"
    assert {seen.address for seen in internet.connections} == {zone.WEB}


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_python_without_proxy(internet, make, catching, fetch, scheme):
    async with make(mounts=fetch, **catching) as workspace:
        program = ("python3", "/lab/fetch.py", "-")
        assert page(await run(workspace, *program, f"{scheme}://www.example.org/"))
        refused = await run(workspace, *program, f"{scheme}://evil.test/")
    assert "Name or service not known" in refused.stderr
    assert {seen.address for seen in internet.connections} == {zone.WEB}


async def test_pip(internet, make, options):
    def install(index: str):
        return (
            *("python3", "-m", "pip", "install", "--no-cache-dir", "--retries"),
            *("1", "--disable-pip-version-check", "--target", "installed"),
            *("--index-url", f"https://{index}/simple/", "tiny-lab"),
        )

    async with make(**options) as workspace:
        if (await run(workspace, "python3", "-m", "pip", "--version")).exit_code:
            pytest.skip("no pip for /usr/bin/python3")
        result = await run(workspace, *install("pypi.example.org"))
        assert result.exit_code == 0, result.stderr
        text = await workspace.read_text("installed/tiny_lab.py")
        assert text == "ANSWER = 42\n"
        refused = await run(workspace, *install("evil.test"))
    assert refused.exit_code == 1
    assert "Tunnel connection failed: 403" in refused.stderr
    assert refused.denials[0].host == "evil.test"
    assert {seen.address for seen in internet.connections} == {zone.PACKAGES}


async def test_npm(internet, make, options):
    needs("node", "npm")

    def install(registry: str):
        return (
            *("npm", "install", "--fetch-retries", "0", "--cache", "/tmp/npm"),
            *("--no-audit", "--no-update-notifier"),
            *("--registry", f"https://{registry}/", "tiny-lab"),
        )

    async with make(**options) as workspace:
        if (await run(workspace, "npm", "--version")).exit_code:
            pytest.skip("npm is not below /usr")
        result = await run(workspace, *install("registry.example.org"))
        assert result.exit_code == 0, result.stderr
        text = await workspace.read_text("node_modules/tiny-lab/index.js")
        assert text == "module.exports = 42\n"
        await run(workspace, "rm", "-r", "node_modules", "package-lock.json")
        refused = await run(workspace, *install("evil.test"))
    assert refused.exit_code != 0
    assert refused.denials[0].host == "evil.test"
    assert {seen.address for seen in internet.connections} == {zone.PACKAGES}


async def test_git_clone(internet, make, options):
    async with make(**options) as workspace:
        result = await git(workspace, "clone", "https://git.example.org/tiny.git", "a")
        assert result.exit_code == 0, result.stderr
        assert await workspace.read_text("a/README") == "tiny\n"
        refused = await git(workspace, "clone", "https://evil.test/tiny.git", "b")
    assert refused.exit_code == 128
    assert "403" in refused.stderr
    assert refused.denials[0].host == "evil.test"
    assert {seen.address for seen in internet.connections} == {zone.FORGE}


async def test_git_push(internet, make, options):
    async with make(**options) as workspace:
        await git(workspace, "clone", "-q", "https://git.example.org/tiny.git", "a")
        push = ("-C", "a", "push", "-q", "origin")
        result = await git(workspace, *push, "HEAD:refs/heads/pushed")
        assert result.exit_code == 0, result.stderr
        assert "pushed" in internet.forge.branches()
        await git(workspace, *push, ":refs/heads/pushed")
    assert internet.forge.branches() == ["main"]


@pytest.fixture(scope="session")
def java(tmp_path_factory):
    needs("java", "javac")
    folder = tmp_path_factory.mktemp("java")
    folder.chmod(0o755)
    source = str(PROGRAMS / "Fetch.java")
    subprocess.run(["javac", "-d", str(folder), source], check=True)
    return [(str(folder), "/lab/java")]


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_java(internet, make, catching, java, scheme):
    async with make(mounts=java, **catching) as workspace:
        if (await run(workspace, "java", "-version")).exit_code:
            pytest.skip("java is not below /usr")
        program = ("java", "-XX:TieredStopAtLevel=1", "-cp", "/lab/java", "Fetch")
        assert page(await run(workspace, *program, f"{scheme}://www.example.org/"))
        refused = await run(workspace, *program, f"{scheme}://evil.test/")
    assert refused.exit_code == 1
    assert "java.net.UnknownHostException: evil.test" in refused.stderr
    assert {seen.address for seen in internet.connections} == {zone.WEB}


@pytest.fixture(scope="session")
def go(tmp_path_factory):
    needs("go")
    program = tmp_path_factory.mktemp("go") / "fetch"
    subprocess.run(
        ["go", "build", "-o", str(program), str(PROGRAMS / "fetch.go")],
        check=True,
        env={**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"},
    )
    return [(str(program), "/lab/fetch")]


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_go(internet, make, catching, go, scheme):
    async with make(mounts=go, **catching) as workspace:
        assert page(await run(workspace, "/lab/fetch", f"{scheme}://www.example.org/"))
        refused = await run(workspace, "/lab/fetch", f"{scheme}://evil.test/")
    assert refused.exit_code == 1
    assert "no such host" in refused.stderr
    assert {seen.address for seen in internet.connections} == {zone.WEB}
