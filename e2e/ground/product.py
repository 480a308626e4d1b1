"""Makes the image of drawbridge like the Dockerfile, from this machine's Python, the pinned packages and our wheel.

This machine's Python and the libraries that it loads replace the Dockerfile's base image. All else is the same: a virtual environment in
/opt/drawbridge with the packages of requirements.runtime.lock only. So a package that is missing here is missing in the Dockerfile's image.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from e2e.build import program
from e2e.ground.cache import cache, locked
from e2e.ground.images import Image, Layer, add, add_folders, layer, write
from webhook.names import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ROOT = Path(__file__).parents[2]
NAME = f"localhost/drawbridge:{VERSION}"
SCHEDULER = "localhost/drawbridge-scheduler:e2e"
HOME = "opt/drawbridge"
SITE = f"{HOME}/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
USER = "65532:65532"
LOCK = ROOT / "requirements.runtime.lock"
PYTHON = Path(sys.executable).resolve()
LIBRARY = Path(sysconfig.get_path("stdlib"))
LEFT_OUT = {
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "turtledemo",
    "lib2to3",
    "ensurepip",
    "site-packages",
    "dist-packages",
}
START = """#!/opt/drawbridge/bin/python
import sys

from cli import begin

sys.exit(begin())
"""


def archive(folder: Path) -> Path:
    """Write an archive into a folder, with the images of drawbridge and our scheduler."""
    with locked("product"):
        key = hashlib.sha256(LOCK.read_bytes() + Path(__file__).read_bytes() + str((sys.version, PYTHON)).encode())
        base = layer(cache() / f"layer-{key.hexdigest()[:16]}.tar", _base)
    site = unpack_wheel(folder / "wheel")
    our_layer = layer(folder / "ours.tar", lambda tar: _ours(tar, site))
    drawbridge = Image(
        NAME, [base, our_layer], {"User": USER, "Entrypoint": [f"/{HOME}/bin/drawbridge"], "Cmd": ["--help"]}
    )
    path = folder / "product.tar"
    # Like the Dockerfile's target `scheduler`.
    scheduler_image = image_of(folder, SCHEDULER, program("drawbridge-scheduler"), "drawbridge-scheduler")
    write(path, [drawbridge, scheduler_image])
    return path


def image_of(folder: Path, name: str, binary: Path, path: str) -> Image:
    """Return an image with one static program and nothing else."""

    def fill(tar: tarfile.TarFile) -> None:
        add(tar, path, binary.read_bytes(), 0o755)

    filled: Layer = layer(folder / f"{binary.name}.tar", fill)
    return Image(name, [filled], {"User": USER, "Entrypoint": [f"/{path}"], "Env": ["PATH=/usr/local/bin"]})


def run(argv: Sequence[str | Path]) -> str:
    """Run one of our commands and return its output."""
    return subprocess.run([*map(str, argv)], capture_output=True, text=True, check=True, timeout=60).stdout


def unpack_wheel(folder: Path) -> Path:
    """Build the wheel and unpack it where an installer would put it."""
    folder.mkdir()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    [wheel] = folder.glob("*.whl")
    site = folder / "site"
    zipfile.ZipFile(wheel).extractall(site)
    _compile(site)
    return site


def _compile(site: Path) -> None:
    """Compile bytecode as pip does: a container with a read-only root would compile all imports at each start."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [
        sys.executable,
        "-m",
        "compileall",
        "-qq",
        "-j",
        "0",
        "--invalidation-mode",
        "unchecked-hash",
        str(site),
    ]
    subprocess.run(command, env=variables, check=False, timeout=300)  # templates of some packages do not compile


def _ours(tar: tarfile.TarFile, site: Path) -> None:
    add(tar, f"{HOME}/bin/drawbridge", START.encode(), 0o755)
    tar.add(site, SITE, filter=_readable_by_all)


def _base(tar: tarfile.TarFile) -> None:
    add_folders(tar)
    tar.add(PYTHON, str(PYTHON).lstrip("/"), filter=_readable_by_all)
    tar.add(LIBRARY, str(LIBRARY).lstrip("/"), filter=_without_left_out)
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder)
        for file, inside in _packages():
            target = site / inside
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
        _compile(site)
        tar.add(site, SITE, filter=_readable_by_all)
        libraries = libraries_of([PYTHON, *LIBRARY.rglob("lib-dynload/*.so"), *site.rglob("*.so*")])
    for library in sorted(libraries):
        tar.add(Path(library).resolve(), library.lstrip("/"), filter=_readable_by_all)
    add(tar, f"{HOME}/pyvenv.cfg", f"home = {PYTHON.parent}\ninclude-system-site-packages = false\n".encode())
    # As in every base image; without this file the C library queries DNS before /etc/hosts.
    add(tar, "etc/nsswitch.conf", b"hosts: files dns\n")
    link = tarfile.TarInfo(f"{HOME}/bin/python")
    link.type, link.linkname = tarfile.SYMTYPE, str(PYTHON)
    tar.addfile(link)


def _packages() -> Iterator[tuple[Path, str]]:
    """Yield the files of the pinned packages as installed here: their paths, and their places below site-packages."""
    for name in re.findall(r"^([a-zA-Z0-9_.-]+)==", LOCK.read_text(), re.MULTILINE):
        for file in importlib.metadata.files(name) or ():
            path = Path(str(file.locate()))
            if ".." not in file.parts and path.is_file():
                yield path, str(file)


def libraries_of(files: Iterable[Path]) -> set[str]:
    """Return the libraries that the loader needs for these files, except for those of tkinter."""
    wanted = [file for file in files if "_tkinter" not in file.name]
    result = subprocess.run(["ldd", *map(str, wanted)], capture_output=True, text=True, check=False, timeout=60)
    return set(re.findall(r"(?:=> |^\s+)(/\S+)", result.stdout, re.MULTILINE))


def _without_left_out(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    parts = Path(entry.name).relative_to(str(LIBRARY).lstrip("/")).parts
    left_out = (
        bool(LEFT_OUT.intersection(parts)) or entry.name.endswith(".opt-1.pyc") or entry.name.endswith(".opt-2.pyc")
    )
    return None if left_out or (parts[:1] and parts[0].startswith("config-")) else _readable_by_all(entry)


def _readable_by_all(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Make a file readable for every user, with root as its owner."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode |= 0o755 if entry.isdir() or entry.mode & 0o100 else 0o444
    return entry
