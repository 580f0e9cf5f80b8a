"""Brings a channel to a daemon: its own standard input and output.

This text is an argument of a command that the engine runs in the container, as
another user than the workload. It reads the key, hands it over with the two
descriptors, and waits until the daemon is done with them. No byte of the channel
goes through it, and it imports nothing that is not built in: whoever attaches
waits for it.
"""

import _socket
import posix
import sys
import time

_KEY = 64
_ATTEMPTS, _PAUSE = 500, 0.02


def _end(code: int, why: bytes) -> None:
    posix.write(2, why)
    posix._exit(code)


def _key() -> bytes:
    key = b""
    while len(key) < _KEY:
        # Never more than the key: what follows is the daemon's to read.
        piece = posix.read(0, _KEY - len(key))
        if not piece:
            _end(4, b"the relay was given no key")
        key += piece
    return key


def _connected(name: bytes) -> _socket.socket:
    for _ in range(_ATTEMPTS):
        sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        try:
            sock.connect(b"\0" + name)
        except OSError:
            sock.close()
            time.sleep(_PAUSE)  # the container may have just begun
        else:
            return sock
    _end(3, b"the guest's daemon is not there")
    raise SystemExit


def _bring() -> None:
    key = _key()
    sock = _connected(sys.argv[1].encode())
    ends = b"".join(end.to_bytes(4, sys.byteorder) for end in (0, 1))
    try:
        sock.recv(1)  # from now on the daemon is told who sends
        sock.sendmsg([key], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, ends)])
        answer = sock.recv(1)
    except OSError:
        answer = b""
    if not answer:
        _end(4, b"the guest's daemon refused the relay")
    posix.close(0)
    posix.close(1)
    sock.recv(1)
    posix._exit(0)


if __name__ == "__main__":
    _bring()
