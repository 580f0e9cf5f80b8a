"""Connections as no well-behaved client makes them, and what came of them.

Reads a list of jobs in JSON, does them one after the other or, with an argument,
so many at once, and prints a list of what came of them. A job has

    dial    "proxy", or "direct", "connect", "socks5" to `host` and `port`
    tls     the name to ask for in TLS, "" for none; no TLS if it is missing
    send    pieces to send: Latin-1 text, a number of seconds to wait, or null for
            the end of what is sent
    want    text on which reading ends; else it reads to the end
    timeout seconds that reading may take

and its outcome `said`, what was received, and `end`: "end" or "want", "reset",
"timeout", or what failed.
"""

import json
import os
import socket
import ssl
import sys
import time
from concurrent.futures import ThreadPoolExecutor

PROXY = ("127.0.0.1", 3128)


class RefusedError(Exception):
    """What stands between us and the host said no; its words are the argument."""


def dial(job):
    how, where = job["dial"], (job.get("host"), job.get("port"))
    if how == "direct":
        return socket.create_connection(where, job["timeout"])
    sock = socket.create_connection(PROXY, job["timeout"])
    if how == "connect":
        through_http(sock, *where)
    elif how == "socks5":
        through_socks(sock, *where)
    return sock


def through_http(sock, host, port):
    target = f"{host}:{port}".encode("latin-1")
    sock.sendall(b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (target, target))
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = sock.recv(1)
        if not byte:
            raise RefusedError("closed " + head.decode("latin-1"))
        head += byte
    if b" 200 " not in head.split(b"\r\n")[0]:
        raise RefusedError((head + everything(sock)).decode("latin-1"))


def through_socks(sock, host, port):
    name = host.encode("latin-1")
    sock.sendall(b"\x05\x01\x00")
    if exactly(sock, 2) != b"\x05\x00":
        raise RefusedError("no method")
    asked = b"\x05\x01\x00\x03" + bytes([len(name)]) + name + port.to_bytes(2, "big")
    sock.sendall(asked)
    answer = exactly(sock, 10)
    if answer[1]:
        raise RefusedError(f"socks {answer[1]}")


def exactly(sock, size):
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise RefusedError("closed")
        data += more
    return data


def everything(sock):
    data = b""
    while True:
        more = sock.recv(65536)
        if not more:
            return data
        data += more


def secured(sock, name):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(sock, server_hostname=name or None)


def converse(sock, job, said):
    for piece in job.get("send", ()):
        if isinstance(piece, str):
            sock.sendall(piece.encode("latin-1"))
        elif piece is None:
            sock.shutdown(socket.SHUT_WR)
        else:
            time.sleep(piece)
    want = job.get("want", "\0never\0").encode("latin-1")
    while want not in said:
        more = sock.recv(65536)
        if not more:
            return "end"
        said += more
    return "want"


def outcome(job):
    job.setdefault("timeout", 10)
    said = bytearray()
    sock = None
    try:
        sock = dial(job)
        if "tls" in job:
            sock = secured(sock, job["tls"])
        end = converse(sock, job, said)
    except RefusedError as refusal:
        said += str(refusal).encode("latin-1")
        end = "refused"
    except (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError):
        end = "reset"
    except TimeoutError:
        end = "timeout"
    except socket.gaierror:
        end = "no such name"
    except ssl.SSLError as error:
        end = f"tls: {error.reason}"
    except OSError as error:
        end = os.strerror(error.errno) if error.errno else str(error)
    finally:
        if sock is not None:
            sock.close()
    return {"said": said.decode("latin-1"), "end": end}


def main():
    jobs = json.load(sys.stdin)
    at_once = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    with ThreadPoolExecutor(at_once) as pool:
        print(json.dumps(list(pool.map(outcome, jobs))))


main()
