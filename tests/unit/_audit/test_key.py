"""Where the key of an audit file comes from."""

from __future__ import annotations

import pytest

from isobox._audit.key import key_of_environment, key_of_file
from isobox._audit.sinks import sink_for
from isobox._audit.verify import verify

KEY = "0123456789abcdef"


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_file_has_it(tmp_path, end):
    (tmp_path / "key").write_text(KEY + end)
    assert key_of_file(tmp_path / "key") == KEY.encode()


def test_the_environment_names_a_file_or_has_it(tmp_path):
    (tmp_path / "key").write_text(KEY)
    named = {"ISOBOX_AUDIT_KEY_FILE": str(tmp_path / "key")}
    assert key_of_environment(named) == KEY.encode()
    assert key_of_environment({"ISOBOX_AUDIT_KEY": "x"}) == b"x"
    assert key_of_environment(named | {"ISOBOX_AUDIT_KEY": "x"}) == KEY.encode()
    assert key_of_environment({}) is None
    with pytest.raises(FileNotFoundError):
        key_of_environment({"ISOBOX_AUDIT_KEY_FILE": str(tmp_path / "absent")})


def test_a_named_file_is_sealed_with_it(tmp_path, monkeypatch):
    monkeypatch.setenv("ISOBOX_AUDIT_KEY", KEY)
    sink = sink_for(tmp_path / "a")
    sink.put({"n": 1})
    sink.close()
    assert verify(tmp_path / "a", key=KEY.encode()).findings == []
    assert verify(tmp_path / "a").findings
