"""A git server: `git http-backend` behind HTTP."""

from __future__ import annotations

import asyncio
import os
import subprocess
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tests.egress.lab.web import Answer, Request

if TYPE_CHECKING:
    from pathlib import Path


class Forge:
    """Serves `tiny.git`, which has one file and takes pushes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.bare = folder / "tiny.git"
        work = folder / "work"
        self._git("init", "--quiet", "--initial-branch=main", str(work))
        (work / "README").write_text("tiny\n")
        self._git("-C", str(work), "add", "README")
        self._git("-C", str(work), "commit", "--quiet", "--message", "First")
        self._git("clone", "--quiet", "--bare", str(work), str(self.bare))
        self._git("-C", str(self.bare), "config", "http.receivepack", "true")

    def branches(self) -> list[str]:
        """Return the branches that it has."""
        listed = self._git("-C", str(self.bare), "branch", "--format=%(refname:short)")
        return listed.split()

    async def __call__(self, request: Request) -> Answer:
        """Answer as the CGI program does."""
        url = urlsplit(request.target)
        program = await asyncio.create_subprocess_exec(
            *("git", "http-backend"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={
                **self._environment,
                "GIT_PROJECT_ROOT": str(self._folder),
                "GIT_HTTP_EXPORT_ALL": "1",
                "REQUEST_METHOD": request.method,
                "PATH_INFO": url.path,
                "QUERY_STRING": url.query,
                "CONTENT_TYPE": "".join(request.header("content-type")),
                "CONTENT_LENGTH": str(len(request.body)),
                "HTTP_CONTENT_ENCODING": "".join(request.header("content-encoding")),
                "GIT_PROTOCOL": "".join(request.header("git-protocol")),
                "REMOTE_USER": "tester",
            },
        )
        output, _ = await program.communicate(request.body)
        head, _, body = output.partition(b"\r\n\r\n")
        headers = [
            (name, value.strip())
            for name, _, value in (
                line.partition(":") for line in head.decode().split("\r\n")
            )
        ]
        status = next((v for k, v in headers if k == "Status"), "200 OK")
        return Answer(
            int(status.split()[0]),
            [each for each in headers if each[0] != "Status"],
            body,
        )

    @property
    def _environment(self) -> dict[str, str]:
        someone = {"NAME": "Tester", "EMAIL": "tester@example.org"}
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self._folder),
            "GIT_CONFIG_NOSYSTEM": "1",
            **{f"GIT_AUTHOR_{key}": value for key, value in someone.items()},
            **{f"GIT_COMMITTER_{key}": value for key, value in someone.items()},
        }

    def _git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments],
            env=self._environment,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout
