"""Connections of the guest's, where there is no descriptor left."""

from __future__ import annotations

import errno
import os
import socket
from types import SimpleNamespace

import pytest

from isobox._guest import agent


@pytest.mark.parametrize("left", [0, 1])
def test_a_connection_that_cannot_be_carried_is_broken_off(monkeypatch, left):
    lingering, sent = [], []
    guest = SimpleNamespace(
        loop=agent.Loop(),
        linger=lingering.append,
        lingers=lambda _: False,
        linger_no_more=lambda _: None,
    )
    wire = SimpleNamespace(send=lambda *frame: sent.append(frame[0]), full=False)
    peer = SimpleNamespace(guest=guest, wire=wire, streams={})
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
    copies = [os.dup(accepted.fileno()) for _ in range(left)]

    def dup(_):
        if not copies:
            raise OSError(errno.EMFILE, "too many")
        return copies.pop()

    monkeypatch.setattr(os, "dup", dup)
    job = agent.Dialled(peer, 1, accepted)
    assert not job.carry()
    assert sent == [agent.ERROR]
    assert lingering == []
    with client:
        client.settimeout(5)
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    assert accepted.fileno() == -1
