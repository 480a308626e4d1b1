"""Manifests that are no files here: what `kustomize` builds of a folder (`-k`), and what stands at a web address (`-f https://…`).

An address is asked once, without credentials, for so many bytes and seconds, and followed to so many others. A folder is built by
the kustomize that is installed, or by kubectl.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cluster.manifests import InputProblem, ManifestError

if TYPE_CHECKING:
    from typing import IO

KUSTOMIZE: Final = "kustomize:"  # before the name of a folder that is to be built
_WEB: Final = ("http://", "https://")
MOST_BYTES: Final = 64 << 20
_SECONDS, _ALL_SECONDS = 10.0, 60.0
_BUILD_SECONDS: Final = 120.0
_REDIRECTS: Final = 5


def is_outside(name: str) -> bool:
    """Say whether a name is an address or a folder to be built."""
    return name.startswith((KUSTOMIZE, *_WEB))


def text_of(name: str) -> bytes:
    """Get the text behind such a name; raise ManifestError if there is none to be had."""
    if not name.startswith(KUSTOMIZE):
        return fetch(name)
    folder = name.removeprefix(KUSTOMIZE)
    path = str(Path(folder).resolve())
    commands = {"kustomize": ["kustomize", "build", path], "kubectl": ["kubectl", "kustomize", path]}
    there = [command for name, command in commands.items() if shutil.which(name)]
    if not there:
        remedy = "install one of them, or build it elsewhere and pipe it in: -f -"
        raise _broken(folder, "neither kustomize nor kubectl is here to build it", remedy)
    program = there[0][0]
    try:
        done = subprocess.run(there[0], capture_output=True, timeout=_BUILD_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise _broken(folder, f"{program} has not built it in {_BUILD_SECONDS:.0f} s", "build it by hand") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise _broken(folder, f"{program}: {said[-1] if said else 'failed'}", "name a folder with a kustomization.yaml")
    return done.stdout


def _broken(name: str, message: str, remedy: str) -> ManifestError:
    return ManifestError([InputProblem(name, message, remedy)])


def fetch(address: str) -> bytes:
    """Get the text at a web address; raise ManifestError if there is none to be had."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.parse import urlsplit

    try:
        secret = urlsplit(address).password or urlsplit(address).username
    except ValueError as error:
        raise _broken(address, f"it is not an address: {error}", "check how it is written") from error
    if secret:
        shown = address.rpartition("@")[2]
        raise _broken(shown, "an address with credentials in it is not asked", "download it, and name the file")
    try:
        return download(address)
    except (HTTPException, OSError) as error:
        reason = getattr(error, "reason", "") or error
        if isinstance(error, HTTPError):
            error.close()  # it is the answer, too, with its connection
            reason = error
        remedy = "is it reachable from here? Download it, and name the file"
        raise _broken(address, f"cannot be fetched: {reason}", remedy) from error


def download(address: str) -> bytes:
    """Ask an address, within bounds of bytes, seconds and redirections."""
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class Few(HTTPRedirectHandler):
        max_redirections = _REDIRECTS

        def redirect_request(  # noqa: PLR0917  as the library has it
            self, req: Request, fp: IO[bytes], code: int, msg: str, headers: object, newurl: str
        ) -> Request | None:
            weaker = newurl.startswith("http://") and address.startswith("https://")
            if weaker or not newurl.startswith(_WEB):
                fp.close()
                raise OSError(f"it leads to {newurl}, which is not asked")
            return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]

    until = time.monotonic() + _ALL_SECONDS
    parts: list[bytes] = []
    length = 0
    request = Request(address, headers={"User-Agent": "drawbridge", "Accept": "*/*"})  # noqa: S310  http and https alone
    with build_opener(Few).open(request, timeout=_SECONDS) as answer:
        while part := answer.read1(1 << 16):
            parts.append(part)
            length += len(part)
            if length > MOST_BYTES:
                raise OSError(f"it is larger than {MOST_BYTES >> 20} MiB")
            if time.monotonic() > until:
                raise OSError(f"it has not ended after {_ALL_SECONDS:.0f} s")
    return b"".join(parts)
