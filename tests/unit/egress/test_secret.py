"""Secrets: what is taken, what is refused, and how values are read."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from functools import partial

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isobox._egress import sources
from isobox._egress.secret import Command, Secret, SecretError, SigV4
from isobox._egress.sources import Reader, ValueFile, Variable
from isobox.errors import InvalidArgumentError

VALUE = "sk-live-0123456789abcdef"


def secret(**changes) -> Secret:
    given = {"source": "env:TOKEN", "hosts": ["api.example.org"], **changes}
    return Secret("TOKEN", **given)


def reader(source, *, max_age=300.0) -> Reader:
    return Reader("TOKEN", sources.parse(source), max_age=max_age)


async def refusal(source) -> str:
    with pytest.raises(SecretError) as error:
        await reader(source).read()
    assert VALUE not in str(error.value)
    assert error.value.__context__ is None
    return str(error.value)


# -- what a secret says ------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "origin"),
    [
        ("env:TOKEN", Variable("TOKEN")),
        ("file:/run/secrets/token", ValueFile("/run/secrets/token")),
        ("command:op read 'a b'", Command(("op", "read", "a b"))),
        (("command", "op", "read", "a b"), Command(("op", "read", "a b"))),
        (["command", "/usr/bin/op"], Command(("/usr/bin/op",))),
        (Command(("op",)), Command(("op",))),
    ],
)
def test_a_source_is_read_as_it_is_written(source, origin):
    made = secret(source=source)
    assert made.origin == origin
    assert dataclasses.replace(made, env="OTHER").origin == origin


@pytest.mark.parametrize(
    "source",
    [
        VALUE, "", "env:", "env:A B", "env:1A", "file:relative", "file:/a\0b",
        "command:", "command:'open", "command:./get", "command:bin/get",
        ("op", "read"), ("command",), [], ("command", ""), ("command", "a\0b"),
    ],
)  # fmt: skip
def test_a_source_that_says_nothing_is_refused_and_not_repeated(source):
    with pytest.raises(InvalidArgumentError, match="secret TOKEN: ") as error:
        secret(source=source)
    assert VALUE not in str(error.value)


@pytest.mark.parametrize(
    ("host", "applies", "not_there"),
    [
        ("api.example.org", "api.example.org:443", "api.example.org:80"),
        ("API.Example.ORG.", "api.example.org:443", "evilapi.example.org:443"),
        ("*.example.org", "a.b.example.org:443", "example.org:443"),
        ("*.example.org:8443", "a.example.org:8443", "a.example.org:443"),
        ("192.0.2.7:8443", "192.0.2.7:8443", "192.0.2.8:8443"),
        ("[2001:db8::1]:8443", "2001:db8::1:8443", "2001:db8::1:443"),
        ("2001:db8::1", "2001:db8::1:443", "2001:db8::2:443"),
        ("bücher.example", "xn--bcher-kva.example:443", "bucher.example:443"),
    ],
)
def test_a_host_is_a_pattern_and_a_port(host, applies, not_there):
    made = secret(hosts=[host])
    for place, expected in ((applies, True), (not_there, False)):
        name, _, port = place.rpartition(":")
        assert made.applies(name, int(port)) is expected


@pytest.mark.parametrize(
    "hosts",
    [
        [], "api.example.org", ["*"], ["*:443"], ["192.0.2.0/24"], [""],
        ["https://api.example.org"], ["api.example.org/x"], ["api.example.org:0"],
        ["api.example.org:65536"], ["api.example.org:x"], ["a b"], ["2130706433"],
        ["api.example.org\r\n"], ["*.192.0.2.1"], ["api.*.org"],
    ],
)  # fmt: skip
def test_hosts_that_name_no_host_are_refused(hosts):
    with pytest.raises(InvalidArgumentError, match="secret TOKEN: "):
        secret(hosts=hosts)


@pytest.mark.parametrize(
    "wrong",
    [
        {"header": "Authorization"},
        {"header": "Authorization: Bearer"},
        {"header": "Authorization: {} {}"},
        {"header": "Auth orization: {}"},
        {"header": "X: {}\r\nY: z"},
        {"header": ": {}"},
        {"header": "Host: {}"},
        {"header": "content-length: {}"},
        {"query": "key"},
        {"query": "={}"},
        {"query": "key={}{}"},
        {"basic": "a:b"},
        {"basic": "a\r\nb"},
        {"basic": "a", "header": "X: {}"},
        {"env": "A-B"},
        {"env": ""},
        {"max_age": -1},
        {"max_age": float("nan")},
    ],
)
def test_what_no_request_can_carry_is_refused(wrong):
    with pytest.raises(InvalidArgumentError, match="secret TOKEN: "):
        secret(**wrong)


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A" * 65, VALUE, "A\n"])
def test_a_name_that_is_none_is_refused_and_not_repeated(name):
    with pytest.raises(InvalidArgumentError, match="name has letters") as error:
        Secret(name, source="env:TOKEN", hosts=["api.example.org"])
    assert VALUE not in str(error.value)


@pytest.mark.parametrize(
    "wrong", [{"region": "a/b"}, {"service": ""}, {"access_key_id": "A B"}]
)
def test_names_that_aws_does_not_have_are_refused(wrong):
    right = {"access_key_id": "AKIDEXAMPLE", "region": "eu-west-1", "service": "s3"}
    SigV4(**right)
    with pytest.raises(InvalidArgumentError, match="SigV4"):
        SigV4(**{**right, **wrong})


def test_nothing_shows_where_the_value_is():
    held = secret(source=partial(str, VALUE))
    assert VALUE not in repr(held)
    assert VALUE not in str(held)
    assert hash(held) == hash(dataclasses.replace(held))


def test_a_secret_of_the_command_line():
    made = Secret.parse("TOKEN=file:/home/a@b/key@api.example.org,*.example.org:8443")
    assert made.origin == ValueFile("/home/a@b/key")
    assert made.scopes == (("api.example.org", 443), ("*.example.org", 8443))


@pytest.mark.parametrize(
    "text", ["", VALUE, f"TOKEN={VALUE}", f"TOKEN={VALUE}@api.example.org", "A=env:A@"]
)
def test_a_secret_of_the_command_line_that_is_none(text):
    with pytest.raises(InvalidArgumentError) as error:
        Secret.parse(text)
    assert VALUE not in str(error.value)


@settings(deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_a_secret_or_refused(text):
    try:
        made = Secret.parse(text)
    except InvalidArgumentError:
        return
    assert made.scopes


# -- how its value is read ---------------------------------------------------


@pytest.mark.anyio
async def test_a_variable_is_read_when_it_is_asked_for(monkeypatch):
    held = reader("env:ISOBOX_TEST_TOKEN")
    assert "ISOBOX_TEST_TOKEN is not set" in await refusal("env:ISOBOX_TEST_TOKEN")
    for value in (VALUE, "another"):
        monkeypatch.setenv("ISOBOX_TEST_TOKEN", value)
        assert await held.read() == value


@pytest.mark.anyio
async def test_a_file_is_read_anew(tmp_path):
    held = reader(f"file:{tmp_path}/token")
    for data in (b"first\n", b"second\r\n", b"third"):
        (tmp_path / "token").write_bytes(data)
        assert await held.read() == data.decode().strip()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"\n", "empty"),
        (b"a\n\n", "line break"),
        (b"a\nb", "line break"),
        (b"a\rb", "line break"),
        (b"a\r", "line break"),
        (b"a\0b", "control character"),
        (b"a\x1bb", "control character"),
        (b"a\x7f", "control character"),
        (b"\xff\xfe\xfd", "not UTF-8"),
        (b"a" * (64 * 1024 + 1), "more than 65536 bytes"),
    ],
)
async def test_a_value_that_no_header_could_carry_is_refused(tmp_path, data, reason):
    (tmp_path / "token").write_bytes(data)
    assert reason in await refusal(f"file:{tmp_path}/token")


@pytest.mark.anyio
async def test_the_largest_value(tmp_path):
    (tmp_path / "token").write_bytes(b"a" * 65536 + b"\r\n")
    assert len(await reader(f"file:{tmp_path}/token").read()) == 65536


@pytest.mark.anyio
async def test_what_is_no_regular_file_hangs_nobody(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    assert "not a regular one" in await refusal(f"file:{tmp_path}/fifo")
    assert "not a regular one" in await refusal("file:/dev/zero")
    assert "No such file" in await refusal(f"file:{tmp_path}/absent")
    assert "not a regular one" in await refusal(f"file:{tmp_path}")


@pytest.mark.anyio
async def test_a_command_runs_in_the_root_without_shell_or_input(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = "import os,sys; print(os.getcwd(), repr(sys.stdin.read()), *sys.argv[1:])"
    held = reader(("command", sys.executable, "-c", said, "$HOME; x"))
    assert await held.read() == "/ '' $HOME; x"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (f"echo {VALUE} >&2; echo {VALUE}; exit 3", "ended with status 3"),
        ("kill -9 $$", "ended with status -9"),
        ("true", "is empty"),
        ("yes", "more than 65536 bytes"),
        ("yes & yes", "more than 65536 bytes"),
    ],
)
async def test_a_command_that_fails(script, reason):
    assert reason in await refusal(("command", "/bin/sh", "-c", script))


@pytest.mark.anyio
async def test_a_command_that_is_not_there():
    assert "cannot be started" in await refusal("command:/absent/program")
    assert "cannot be started" in await refusal("command:absent-program-of-nobody")


@pytest.mark.anyio
async def test_a_command_that_takes_too_long_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "DEADLINE", 1.5)
    script = f"echo $$ > {tmp_path}/pid; sleep 60 & wait"
    began = time.monotonic()
    assert "more than 1.5 seconds" in await refusal(("command", "sh", "-c", script))
    assert time.monotonic() - began < 20
    group = int((tmp_path / "pid").read_text())
    while _alive(group):
        assert time.monotonic() - began < 30
        await anyio.sleep(0.02)


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.anyio
async def test_callbacks_sync_and_async():
    async def later() -> str:
        await anyio.sleep(0)
        return VALUE

    for source in (lambda: VALUE, later, partial(later), partial(str, VALUE)):
        assert await reader(source).read() == VALUE


@pytest.mark.anyio
async def test_callbacks_that_fail_quote_nothing():
    def raising() -> str:
        raise ValueError(VALUE)

    async def raising_later() -> str:
        raise KeyError(VALUE)

    assert "raised ValueError" in await refusal(raising)
    assert "raised KeyError" in await refusal(raising_later)
    assert "returned no str" in await refusal(VALUE.encode)
    assert "not UTF-8" in await refusal(lambda: "\ud800")
    assert "line break" in await refusal(lambda: f"{VALUE}\r\nX: y")


@pytest.mark.anyio
async def test_callbacks_that_take_too_long(monkeypatch):
    monkeypatch.setattr(sources, "DEADLINE", 0.1)
    assert "callback took more" in await refusal(anyio.sleep_forever)
    assert "callback took more" in await refusal(lambda: time.sleep(0.5) or VALUE)


@pytest.mark.anyio
async def test_many_who_wait_ask_once():
    asked = []

    async def value() -> str:
        asked.append(1)
        await anyio.sleep(0.02)
        return VALUE

    held = reader(value)
    async with anyio.create_task_group() as group:
        for _ in range(50):
            group.start_soon(held.read)
    assert len(asked) == 1


@pytest.mark.anyio
async def test_many_who_wait_fail_once():
    asked, failed = [], []

    async def value() -> str:
        asked.append(1)
        await anyio.sleep(0.02)
        raise OSError

    async def fails() -> None:
        with pytest.raises(SecretError):
            await held.read()
        failed.append(1)

    held = reader(value)
    async with anyio.create_task_group() as group:
        for _ in range(50):
            group.start_soon(fails)
    assert (len(asked), len(failed)) == (1, 50)


@pytest.mark.anyio
async def test_one_who_gives_up_takes_it_from_nobody():
    held = reader(_slow)
    async with anyio.create_task_group() as group:
        group.start_soon(held.read)
        await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    assert await held.read() == VALUE


async def _slow() -> str:
    await anyio.sleep(0.05)
    return VALUE


@pytest.mark.anyio
async def test_a_value_is_asked_for_again_when_it_is_old():
    values = iter(("first", "second", "third"))
    held = reader(lambda: next(values), max_age=0.05)
    assert [await held.read(), await held.read()] == ["first", "first"]
    await anyio.sleep(0.06)
    assert await held.read() == "second"


@pytest.mark.parametrize(
    "wrong",
    [
        {"hosts": 5},
        {"hosts": None},
        {"hosts": [5]},
        {"hosts": "api.example.org"},
        {"hosts": b"api.example.org"},
        {"header": 5},
        {"query": b"k={}"},
        {"basic": 5},
        {"env": 5},
        {"sigv4": "eu-west-1"},
        {"max_age": "300"},
        {"max_age": True},
        {"source": None},
        {"source": 5},
        {"source": ("command", 5)},
        {"source": b"command:x"},
    ],
)
def test_what_is_of_another_type_is_refused(wrong):
    with pytest.raises(InvalidArgumentError, match="secret TOKEN: "):
        secret(**wrong)


def test_what_is_no_name_is_refused():
    with pytest.raises(InvalidArgumentError, match="name has letters"):
        Secret(5, source="env:TOKEN", hosts=["api.example.org"])


@pytest.mark.parametrize("wrong", ["ls", (), (5,), ("a", None)])
def test_a_command_is_a_program_and_its_arguments(wrong):
    with pytest.raises(InvalidArgumentError, match="needs a program"):
        Command(wrong)


@pytest.mark.parametrize(
    "wrong", [{"region": 5}, {"access_key_id": None}, {"session_token": "text"}]
)
def test_what_aws_does_not_take_is_refused(wrong):
    right = {"access_key_id": "AKIDEXAMPLE", "region": "eu-west-1", "service": "s3"}
    with pytest.raises(InvalidArgumentError, match=f"SigV4: {next(iter(wrong))}"):
        SigV4(**{**right, **wrong})


@pytest.mark.parametrize(
    "name",
    [
        "PATH", "HOME", "IFS", "BASH_ENV", "ENV", "PWD", "TERM", "LD_PRELOAD", "LD_X",
        "DYLD_INSERT_LIBRARIES", "HTTPS_PROXY", "https_proxy", "SSL_CERT_FILE",
    ],
)  # fmt: skip
def test_a_variable_that_programs_obey_is_for_no_secret(name):
    for make in (
        lambda: Secret(name, source="env:T", hosts=["api.example.org"]),
        lambda: secret(env=name),
    ):
        with pytest.raises(InvalidArgumentError, match=f": {name} is a variable that"):
            make()
    made = Secret(name, source="env:T", hosts=["api.example.org"], env="OTHER")
    assert made.variable == "OTHER"


def test_what_is_no_text_describes_no_secret():
    with pytest.raises(InvalidArgumentError, match="NAME=SOURCE@HOST"):
        Secret.parse(5)
