"""Package indexes: one package for pip, one for npm."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import zipfile

from tests.egress.lab.web import Answer, Request

WHEEL = "tiny_lab-1.0-py3-none-any.whl"


def _wheel() -> bytes:
    info = "tiny_lab-1.0.dist-info"
    files = {
        "tiny_lab.py": "ANSWER = 42\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tiny-lab\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\n"
        "Root-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in files)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return packed.getvalue()


def _tarball() -> bytes:
    files = {
        "package/package.json": json.dumps(
            {"name": "tiny-lab", "version": "1.0.0", "main": "index.js"}
        ),
        "package/index.js": "module.exports = 42\n",
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return packed.getvalue()


class Index:
    """What pip asks: PEP 503."""

    def __init__(self) -> None:
        self._wheel = _wheel()

    async def __call__(self, request: Request) -> Answer:
        if request.target == "/simple/tiny-lab/":
            digest = hashlib.sha256(self._wheel).hexdigest()
            link = f'<a href="/files/{WHEEL}#sha256={digest}">{WHEEL}</a>'
            page = f"<!DOCTYPE html><html><body>{link}</body></html>"
            return Answer(200, [("Content-Type", "text/html")], page.encode())
        if request.target == f"/files/{WHEEL}":
            return Answer(200, [("Content-Type", "application/zip")], self._wheel)
        return Answer(404)


class Registry:
    """What npm asks."""

    def __init__(self) -> None:
        self._tarball = _tarball()

    async def __call__(self, request: Request) -> Answer:
        if request.target == "/tiny-lab":
            return Answer(
                200, [("Content-Type", "application/json")], self._packument()
            )
        if request.target == "/tiny-lab/-/tiny-lab-1.0.0.tgz":
            kind = ("Content-Type", "application/octet-stream")
            return Answer(200, [kind], self._tarball)
        return Answer(404)

    def _packument(self) -> bytes:
        digest = base64.b64encode(hashlib.sha512(self._tarball).digest()).decode()
        version = {
            "name": "tiny-lab",
            "version": "1.0.0",
            "dist": {
                "tarball": "https://registry.example.org/tiny-lab/-/tiny-lab-1.0.0.tgz",
                "integrity": f"sha512-{digest}",
            },
        }
        return json.dumps(
            {
                "name": "tiny-lab",
                "dist-tags": {"latest": "1.0.0"},
                "versions": {"1.0.0": version},
            }
        ).encode()
