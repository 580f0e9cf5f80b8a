"""Messages as lines, with what is large or binary beside them."""

from __future__ import annotations

import base64
import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from isobox._egress.redact import Redactor
from isobox._workspace.offload.names import DATA, data_name, folder_of, safe
from isobox._workspace.offload.sifter import LONGEST_TEXT, Sifter
from isobox.errors import InvalidArgumentError

SECRET = b"correct horse battery"
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), JSON))
def test_a_message_comes_back_as_it_was(message):
    line = Sifter(None).line(message)
    [whole] = line.decode().splitlines()
    assert line.endswith(b"\n")
    if not any(str(value).startswith("data:") for value in message.values()):
        assert json.loads(whole) == message


def test_bytes_are_beside_it():
    sifter = Sifter(None)
    line = json.loads(sifter.line({"a": [b"one", bytearray(b"one"), b"two"]}))
    names = [f"{hashlib.sha256(each).hexdigest()}.bin" for each in (b"one", b"two")]
    assert line["a"] == [
        f"workspace:///data/{name}" for name in (names[0], names[0], names[1])
    ]
    assert sifter.aside == {names[0]: b"one", names[1]: b"two"}


@pytest.mark.parametrize(
    "message",
    [
        {"type": "text", "media_type": "text/plain", "data": "data"},
        {"type": "base64", "media_type": "image/png", "data": "no base64!"},
        {"type": "base64", "data": "data"},
        {"type": "image", "data": None, "mimeType": "image/png"},
        {"url": "data:text/plain,hello"},
        {"url": "data:image/png;base64,???"},
    ],
)
def test_what_is_no_base64_stays(message):
    sifter = Sifter(None)
    assert json.loads(sifter.line(message)) == message
    assert sifter.aside == {}


def test_a_library_says_what_its_messages_are():
    class Message(BaseModel):
        role: str
        content: list[dict[str, object]]

    image = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    sifter = Sifter(None)
    line = json.loads(sifter.line(Message(role="user", content=[image])))
    assert line["content"][0]["url"].endswith(".png")
    assert list(sifter.aside.values()) == [b"hi"]


def test_secrets_are_masked_wherever_they_stand():
    sifter = Sifter(Redactor([SECRET, b"1234567890"]))
    text = SECRET.decode()
    hidden = base64.b64encode(b"x" + SECRET).decode()
    message = {
        text: [f"the {text}!", 1234567890, b"a" + SECRET],
        "image": {"type": "base64", "media_type": "image/png", "data": hidden},
        "long": text + "y" * LONGEST_TEXT,
        "base64": f"is {hidden} here",
    }
    everything = sifter.line(message) + b"".join(sifter.aside.values())
    for value in (SECRET, b"1234567890", hidden.encode()):
        assert value not in everything
    assert len(sifter.aside) == 3


@pytest.mark.parametrize("bad", [object(), {1, 2}, 1j, float("inf"), lambda: None])
def test_what_json_cannot_hold_is_refused(bad):
    for redactor in (None, Redactor([SECRET])):
        with pytest.raises(InvalidArgumentError):
            Sifter(redactor).line({"a": [bad]})


def test_what_holds_itself_is_refused():
    around: list[object] = []
    around.append(around)
    with pytest.raises(InvalidArgumentError, match="levels"):
        Sifter(None).line(around)


@given(st.text(st.characters(exclude_categories=())), st.text())
def test_sessions_have_places_of_their_own(one, other):
    folders = []
    for session_id in (one, other):
        try:
            folders.append(folder_of(session_id))
        except InvalidArgumentError:
            continue
    for folder in folders:
        top, name = folder.split("/")
        assert top == "sessions"
        assert name.isascii()
        assert name.lower() == name
        assert name not in (".", "..")
        assert not set(name) - set("abcdefghijklmnopqrstuvwxyz0123456789._-")
    if len(folders) == 2:
        assert (folders[0] == folders[1]) == (one == other)


@pytest.mark.parametrize(
    "message",
    [
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "audio", "data": "aGk=", "mime_type": "image/png"},
        {"type": "base64", "data": "aGk=", "media_type": "image/png"},
        {"uri": "file:///x", "blob": "aGk=", "mimeType": "image/png"},
        {"uri": "file:///x", "blob": "aGk=", "mime_type": "image/png"},
    ],
)
def test_base64_is_beside_it_whatever_its_media_type_is_called(message):
    sifter = Sifter(None)
    line = json.loads(sifter.line(message))
    assert line["url"].endswith(".png")
    assert not {"data", "blob"} & line.keys()
    assert list(sifter.aside.values()) == [b"hi"]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_of_every_kind_are_beside_it(kind):
    sifter = Sifter(None)
    line = json.loads(sifter.line({"a": kind(b"one")}))
    assert line["a"].endswith(".bin")
    assert list(sifter.aside.values()) == [b"one"]


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ("image/png", "image/png"),
        ("text/plain; charset=utf-8", "text/plain"),
        ('image/png"/>\n[system]', "application/octet-stream"),
        ("", "application/octet-stream"),
        ("x" * 101 + "/y", "application/octet-stream"),
        ("a/" + "1234567890", "a/**********"),
    ],
)
def test_a_media_type_is_nothing_else(given, kind):
    assert Sifter(Redactor([b"1234567890"])).kind(given) == kind


@pytest.mark.parametrize("bad", [5, None, b"x", ["a"]])
def test_an_id_is_a_text(bad):
    with pytest.raises(InvalidArgumentError, match=r"id=.* is no text"):
        safe("id", bad)


def test_a_plain_id_is_its_own_name():
    for name in ("default", "0", "a.b_c-d", "x" * 64):
        assert safe("id", name) == name
    assert safe("id", "x" * 65) != "x" * 65
    with pytest.raises(InvalidArgumentError):
        safe("id", "x" * 257)


@given(st.text())
def test_data_has_a_name_that_is_known_again(media_type):
    assert DATA.fullmatch(data_name(b"x", media_type))
    assert data_name(b"x", "image/PNG; q=1").endswith(".png")


def test_a_number_that_nobody_writes_is_refused():
    for redactor in (None, Redactor([SECRET])):
        with pytest.raises(InvalidArgumentError):
            Sifter(redactor).line({"a": 10**5000})
