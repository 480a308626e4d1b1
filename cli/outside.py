"""Reads manifests that are not files: those that kustomize (`-k`) or helm (`--chart`) builds from a folder, and those at a web address.

An address is read once, without credentials, within limits of bytes, seconds and redirections. A folder is built by the installed program
with its defaults. The folder may be untrusted, so the program runs no plugin and no post-renderer that the folder names, has no network, and
its memory is limited.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import resource
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from cluster.manifests import InputProblem, LeadsOut, ManifestError, UnreadFile, bounds, settled, walk
from dra.objects import versions
from dra.server import CURRENT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import IO

# The prefix of a folder that has to be built.
KUSTOMIZE: Final = "kustomize:"
CHART: Final = "chart:"
_WEB: Final = ("http://", "https://")
MAX_BYTES: Final = 64 << 20
_SECONDS, _ALL_SECONDS = 10.0, 60.0
_BUILD_BYTES: Final = 2 << 30  # in memory


class _Bounds(NamedTuple):
    """How long a program may run, and how much it may write."""

    seconds: float = 120.0
    bytes: int = MAX_BYTES


_OF_BUILD: Final = _Bounds()
_OF_RENDERING: Final = _Bounds(20.0, 8 << 20)
_LONGEST_ERROR: Final = 1 << 16  # bytes of a program's error message
_REDIRECTS: Final = 5
# The revision of a kustomization's base can be an option for git, such as --upload-pack=PROGRAM; git would run the program even offline.
_OFFLINE: Final = {"GIT_ALLOW_PROTOCOL": "none"} | dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
_SOCKET: Final = {
    "x86_64": (0xC000003E, 41),
    "aarch64": (0xC00000B7, 198),
}  # by machine: seccomp's number of the architecture, and the number of the system call `socket`
_ELSEWHERE: Final = "build the folder elsewhere and pipe the result in: -f -"
_ASKED: Final = re.compile(r"transport '\w+' not allowed|dial (?:tcp|udp)|no 'git' program")


def is_outside(name: str) -> bool:
    """Return whether a name is an address, or a folder that has to be built."""
    return name.startswith((KUSTOMIZE, CHART, *_WEB))


def text_of(name: str, values: Sequence[str] = (), kubernetes: str = "", namespace: str = "") -> tuple[bytes, str]:
    """Return the text at an address or of a built folder, and the file that it was built from. Raises ManifestError.

    A chart is rendered with these files of values, for this version of Kubernetes and this namespace.
    """
    if name.startswith(KUSTOMIZE):
        folder = name.removeprefix(KUSTOMIZE)
        path = _resolved(folder)
        commands = [["kustomize", "build", path], ["kubectl", "kustomize", path]]
        files = [
            file
            for file in ("kustomization.yaml", "kustomization.yml", "Kustomization")
            if (Path(path) / file).is_file()
        ]
        return _built(folder, commands), str(Path(folder, *files[:1]))
    if name.startswith(CHART):
        folder = name.removeprefix(CHART)
        command = _template("release-name", _chart(folder), values, kubernetes, namespace)
        return _built(folder, [command]), str(Path(folder) / "Chart.yaml")
    return fetch(name), ""


def _chart(folder: str) -> str:
    """Return the path of a chart without links that lead out of it. Helm follows links, and .Files shows their targets."""
    path = _resolved(folder)
    for parent, folders, files in walk(path, _refuse) if Path(path).is_dir() else ():
        for entry in (*folders, *files):
            _resolved(str(Path(parent) / entry), path)
    return path


def _template(name: str, chart: str, values: Sequence[str], kubernetes: str, namespace: str, *more: str) -> list[str]:
    """Return the command that renders a chart as a release with this name."""
    # Helm's default for the server's version is the newest at the time of Helm's release.
    options = [*more, f"--kube-version={kubernetes or f'1.{CURRENT}'}", f"--api-versions={versions.CURRENT}"]
    options += [f"--namespace={namespace}"] if namespace else []
    # Helm splits a list of files at commas.
    options += [f'--values="{_resolved(file)}"' if "," in file else f"--values={_resolved(file)}" for file in values]
    return ["helm", "template", *options, "--", name, chart]


def _resolved(path: str, root: str = "") -> str:
    """Resolve a path; refuse links that lead out of its root, because a chart or build may be untrusted."""
    try:
        root = root or bounds(path)
        if root:
            settled(path, root)
        return str(Path(path).resolve(strict=True))
    except OSError as error:
        if isinstance(error, UnreadFile):
            _refuse(error)
        remedy = (
            "name the target of the link" if isinstance(error, LeadsOut) else "correct the path, or create the file"
        )
        raise _broken(path, f"cannot be read: {error.strerror or error}", remedy) from error


def _refuse(error: OSError) -> NoReturn:
    raise _broken(
        str(error.filename), f"cannot be read: {error.strerror}", "rename the file or folder, or remove it"
    ) from error


def can_build() -> bool:
    """Return whether a program that builds kustomizations is installed."""
    return bool(installed("kustomize") or installed("kubectl"))


def build_offline(path: str, name: str) -> bytes:
    """Build a copy of a folder without git and without a network; `name` is the folder in messages.

    A kustomization may name files beside its folder, as Argo CD and Flux allow: the copy contains all of them.
    """
    anywhere = "--load-restrictor=LoadRestrictionsNone"
    commands = [["kustomize", "build", anywhere, path], ["kubectl", "kustomize", anywhere, path]]
    return _built(name, commands, {"PATH": "", "HOME": path})


def can_render() -> bool:
    """Return whether helm is installed."""
    return bool(installed("helm"))


def render_offline(chart: str, name: str, namespace: str, kubernetes: str, values: str) -> bytes:
    """Render a packed or unpacked chart with a file of values, without the user's settings, plugins, caches and network of helm."""
    # The schema of values may be at a web address.
    command = _template(name, _chart(chart), [values], kubernetes, namespace, "--skip-schema-validation")
    with tempfile.TemporaryDirectory() as home:
        return _built(chart, [command], {"PATH": "", "HOME": home}, _OF_RENDERING)


def _without_network() -> None:
    """Forbid network sockets to this process and its children. On Linux, seccomp refuses every family except AF_UNIX.

    On other systems only the proxy variables prevent connections, and programs ignore them for local addresses.
    """
    machine = os.uname().machine
    if sys.platform != "linux" or machine not in _SOCKET:
        return
    architecture, number = _SOCKET[machine]
    lines = [
        (0x20, 0, 0, 4),  # the architecture
        (0x15, 0, 5, architecture),
        (0x20, 0, 0, 0),  # the number of the system call
        (0x15, 0, 3, number),
        (0x20, 0, 0, 16),  # its first argument
        (0x15, 1, 0, socket.AF_UNIX),
        (0x06, 0, 0, 0x50000 | errno.EACCES),
        (0x06, 0, 0, 0x7FFF0000),  # allowed
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    program = ctypes.create_string_buffer(struct.pack("HP", len(lines), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    # PR_SET_NO_NEW_PRIVS, and PR_SET_SECCOMP with SECCOMP_MODE_FILTER.
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
        raise OSError(ctypes.get_errno(), "its access to the network cannot be prevented")


def _built(
    folder: str, commands: Sequence[Sequence[str]], env: Mapping[str, str] = os.environ, limits: _Bounds = _OF_BUILD
) -> bytes:
    """Run the first of these programs that is installed, within limits and without a network."""
    commands_found = [[path, *arguments] for program, *arguments in commands if (path := installed(program))]
    if not commands_found:
        names = [program for program, *_ in commands]
        missing_programs = f"neither {' nor '.join(names)} is" if len(names) > 1 else f"{names[0]} is not"
        remedy = "install such a program, or build the folder elsewhere and pipe the result in: -f -"
        raise _broken(folder, f"{missing_programs} installed, so the folder cannot be built", remedy)
    program = Path(commands_found[0][0]).name
    with (
        tempfile.TemporaryFile() as stderr,
        subprocess.Popen(
            commands_found[0],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**env, **_OFFLINE},
            preexec_fn=_without_network,  # noqa: PLW1509  the timer below is the only thread
        ) as process,
    ):
        if sys.platform == "linux":
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (_BUILD_BYTES, _BUILD_BYTES))
        late = threading.Timer(limits.seconds, process.kill)
        late.start()
        try:
            assert process.stdout is not None
            text = process.stdout.read(limits.bytes + 1)
            if len(text) > limits.bytes:
                process.kill()
                raise _broken(folder, f"{program} writes more than {limits.bytes >> 20} MiB", "split the folder")
            process.wait()
            if not late.is_alive():
                message = f"{program} has not ended within {limits.seconds:.0f} s"
                raise _broken(folder, message, _ELSEWHERE)
        finally:
            late.cancel()
        if process.returncode:
            stderr.seek(0)
            stderr_text = stderr.read(_LONGEST_ERROR).decode(errors="replace").strip()
            message, remedy = _failure(program, stderr_text)
            raise _broken(folder, f"{program}: {message}", remedy)
    return text


def _failure(program: str, stderr: str) -> tuple[str, str]:
    """Return why a build failed, and the remedy."""
    if "must specify --enable-helm" in stderr:
        return "the folder renders a chart (helmCharts), and a build runs no Helm", _ELSEWHERE
    if _ASKED.search(stderr):
        return "the folder refers to a remote address, and a build has no network", _ELSEWHERE
    if fatal := re.search(r"fatal(?: error)?: (.+)", stderr):  # a Go program that ran out of memory writes this
        return fatal[1].strip(), _ELSEWHERE
    if program == "helm":
        reason = " ".join(stderr.rpartition("Error: ")[2].partition("Use --debug flag")[0].split())
        if "execution error" in reason or "executing" in reason:
            return reason, "give the values that the chart requires with --values, and its namespace with -n"
        return reason, "name a folder with a chart and its dependencies"
    lines = [line.strip() for line in stderr.split("\n") if any(map(str.isalpha, line))]
    last = lines[-1] if lines else "failed"
    if logged := re.search(r'"command failed" err="((?:[^"\\]|\\.)*)"', last):  # a line of kubectl's log
        last = logged[1].replace('\\"', '"')
    return last, "name a folder with a kustomization.yaml" if "kustomization.yaml" in last else _ELSEWHERE


def installed(program: str) -> str:
    """Find an installed program. A program in the working directory, or in a relative folder of PATH, may be untrusted, and is not used."""
    working_folder = Path.cwd()
    anywhere = working_folder in (Path(working_folder.anchor), Path.home())
    folders = [
        folder
        for folder in os.environ.get("PATH", "").split(os.pathsep)
        if Path(folder).is_absolute() and (anywhere or not Path(folder).resolve().is_relative_to(working_folder))
    ]
    return shutil.which(program, path=os.pathsep.join(folders)) or ""


def _broken(name: str, message: str, remedy: str) -> ManifestError:
    return ManifestError([InputProblem(name, message, remedy)])


def fetch(address: str) -> bytes:
    """Return the text at a web address. Raises ManifestError."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.parse import urlsplit

    try:
        secret = urlsplit(address).password or urlsplit(address).username
    except ValueError as error:
        raise _broken(address, f"this is not a valid address: {error}", "check the spelling of the address") from error
    if secret:
        without_credentials = address.rpartition("@")[2]
        raise _broken(
            without_credentials,
            "an address with credentials is not fetched",
            "download the manifests, and name the file",
        )
    try:
        return download(address)
    except (HTTPException, OSError) as error:
        reason = getattr(error, "reason", "") or error
        if isinstance(error, HTTPError):
            error.close()  # the error is also the response, which holds a connection
            reason = error
        remedy = "check that this machine can reach the address, or download the manifests and name the file"
        raise _broken(address, f"cannot be fetched: {reason}", remedy) from error


def download(address: str) -> bytes:
    """Download an address, within limits of bytes, seconds and redirections."""
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class LimitedRedirects(HTTPRedirectHandler):
        max_redirections = _REDIRECTS

        def redirect_request(  # noqa: PLR0917  as the library has it
            self, req: Request, fp: IO[bytes], code: int, msg: str, headers: object, newurl: str
        ) -> Request | None:
            weaker = newurl.startswith("http://") and address.startswith("https://")
            if weaker or not newurl.startswith(_WEB):
                fp.close()
                raise OSError(f"the address redirects to {newurl}, which is not fetched")
            return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]

    until = time.monotonic() + _ALL_SECONDS
    parts: list[bytes] = []
    length = 0
    request = Request(address, headers={"User-Agent": "drawbridge", "Accept": "*/*"})  # noqa: S310  http and https alone
    with build_opener(LimitedRedirects).open(request, timeout=_SECONDS) as answer:
        while part := answer.read1(1 << 16):
            parts.append(part)
            length += len(part)
            if length > MAX_BYTES:
                raise OSError(f"the response is larger than {MAX_BYTES >> 20} MiB")
            if time.monotonic() > until:
                raise OSError(f"the response has not ended after {_ALL_SECONDS:.0f} s")
    return b"".join(parts)
