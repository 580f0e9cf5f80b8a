"""Many connections at once.

Reads a list of [how, host, port] in JSON; prints for each what came of it: the
status of a proxy's answer or of the server's, or what failed. All of them are
open before the first one asks for anything. A host is asked for its own name and
told ours, which is the first argument.
"""

import asyncio
import json
import sys

PROXY = ("127.0.0.1", 3128)
OPENING = asyncio.Semaphore(200)


async def opened(how, host, port):
    # The kernel lets so many wait to be accepted, and no more.
    async with OPENING:
        where = (host, port) if how == "direct" else PROXY
        return await asyncio.wait_for(asyncio.open_connection(*where), 60)


async def answer(reader, writer, text):
    writer.write(text.encode())
    return (await reader.readuntil(b"\r\n")).split(b" ")[1].decode()


async def http(reader, writer, host, port):
    target = f"http://{host}:{port}/{name}"
    return await answer(reader, writer, request(target, f"{host}:{port}"))


async def connect(reader, writer, host, port):
    head = f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"
    status = await answer(reader, writer, head)
    if status != "200":
        return status
    await reader.readuntil(b"\r\n")
    return await direct(reader, writer, host, port)


async def socks5(reader, writer, host, port):
    packed = bytes([len(host)]) + host.encode() + port.to_bytes(2, "big")
    writer.write(b"\x05\x01\x00\x05\x01\x00\x03" + packed)
    code = (await reader.readexactly(12))[3]
    return await direct(reader, writer, host, port) if code == 0 else f"socks {code}"


async def direct(reader, writer, host, port):
    return await answer(reader, writer, request(f"/{name}", f"{host}:{port}"))


def request(target, host):
    host = host.removesuffix(":80")
    return f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"


async def one(how, host, port, everybody):
    try:
        reader, writer = await opened(how, host, port)
    except (TimeoutError, OSError) as error:
        await everybody()
        return type(error).__name__
    await everybody()
    ways = {"http": http, "connect": connect, "socks5": socks5, "direct": direct}
    try:
        return await asyncio.wait_for(ways[how](reader, writer, host, port), 60)
    except (TimeoutError, OSError, EOFError) as error:
        return type(error).__name__
    finally:
        writer.close()


async def main(jobs):
    left = len(jobs)
    ready = asyncio.Event()

    async def everybody():
        nonlocal left
        left -= 1
        if not left:
            ready.set()
        await ready.wait()

    return await asyncio.gather(*(one(*job, everybody) for job in jobs))


name = sys.argv[1]
print(json.dumps(asyncio.run(main(json.load(sys.stdin)))))
