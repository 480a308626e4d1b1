"""Container images for the real node: OCI archives made here, since no registry is reachable. Every node has the images PAUSE and BUSYBOX."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from e2e.ground.cache import cache
from e2e.ground.packages import BUSYBOX as PROGRAM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

PAUSE = "localhost/pause:e2e"
BUSYBOX = "localhost/busybox:e2e"  # pods that use it set `imagePullPolicy: Never`
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
APPLETS = "cat cp date echo env false id ls mkdir nc printenv ps rm sh sleep stat test touch true wget"
INIT = "trap exit TERM; while :; do sleep 3600 & wait; done"
TYPE = "application/vnd.oci.image."
FOLDERS = ("bin", "dev", "etc", "proc", "run", "sys", "tmp", "var")


class Layer(NamedTuple):
    """A layer, as the file of a plain tar."""

    path: Path
    digest: str
    size: int


class Image(NamedTuple):
    """An image: its name, its layers, and how it is started."""

    name: str
    layers: Sequence[Layer]
    settings: dict[str, object]


def archive() -> Path:
    """Return an OCI archive with the images PAUSE and BUSYBOX, which is written once for each version of busybox."""
    path = cache() / f"images-{_key()}.tar"
    if not path.exists():
        environment = {"Env": ["PATH=/bin"]}
        pause = Image(PAUSE, [busybox()], environment | {"Cmd": ["/bin/sh", "-c", INIT]})
        shell = Image(BUSYBOX, [busybox()], environment | {"Cmd": ["/bin/sh"]})
        write(path, [pause, shell])
    return path


def busybox() -> Layer:
    """Return the layer of busybox, on which other images are built, too."""
    return layer(cache() / f"layer-{_key()}.tar", _busybox)


def _key() -> str:
    return hashlib.sha256(PROGRAM.read_bytes() + Path(__file__).read_bytes()).hexdigest()[:16]


def layer(path: Path, fill: Callable[[tarfile.TarFile], None]) -> Layer:
    """Write a layer, unless the file exists: its path identifies the content."""
    if not path.exists():
        temporary = path.with_suffix(f".{os.getpid()}")
        with tarfile.open(temporary, mode="w") as tar:
            fill(tar)
        temporary.rename(path)
    with path.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return Layer(path, f"sha256:{digest}", path.stat().st_size)


def write(path: Path, images: Iterable[Image]) -> None:
    """Write a complete archive: its layers, a configuration and a manifest for each image, and one index."""
    temporary = path.with_suffix(f".{os.getpid()}")
    with tarfile.open(temporary, mode="w") as tar:
        written: set[str] = set()
        manifests = [_add_image(tar, image, written) for image in images]
        index = {"schemaVersion": 2, "mediaType": TYPE + "index.v1+json", "manifests": manifests}
        add(tar, "oci-layout", encode({"imageLayoutVersion": "1.0.0"}))
        add(tar, "index.json", encode(index))
    temporary.rename(path)


def _add_image(tar: tarfile.TarFile, image: Image, written: set[str]) -> dict[str, object]:
    configuration = {
        "architecture": ARCHITECTURES[os.uname().machine],
        "os": "linux",
        "config": image.settings,
        "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in image.layers]},
    }
    for layer_ in image.layers:
        if layer_.digest not in written:
            written.add(layer_.digest)
            tar.add(layer_.path.resolve(), f"blobs/sha256/{layer_.digest.partition(':')[2]}")
    manifest = {
        "schemaVersion": 2,
        "mediaType": TYPE + "manifest.v1+json",
        "config": _add_blob(tar, encode(configuration), "config.v1+json"),
        "layers": [
            {"mediaType": TYPE + "layer.v1.tar", "digest": layer.digest, "size": layer.size} for layer in image.layers
        ],
    }
    name_annotation = {"annotations": {"io.containerd.image.name": image.name}}
    return _add_blob(tar, encode(manifest), "manifest.v1+json") | name_annotation


def _add_blob(tar: tarfile.TarFile, content: bytes, kind: str) -> dict[str, object]:
    digest = hashlib.sha256(content).hexdigest()
    add(tar, f"blobs/sha256/{digest}", content)
    return {"mediaType": TYPE + kind, "digest": f"sha256:{digest}", "size": len(content)}


def _busybox(tar: tarfile.TarFile) -> None:
    """Fill a root file system: busybox, its names, and the directories that containers expect."""
    add_folders(tar)
    add(tar, "bin/busybox", PROGRAM.read_bytes(), 0o755)
    for name in APPLETS.split():
        link = tarfile.TarInfo(f"bin/{name}")
        link.type, link.linkname = tarfile.SYMTYPE, "busybox"
        tar.addfile(link)


def add_folders(tar: tarfile.TarFile) -> None:
    for name in FOLDERS:
        folder = tarfile.TarInfo(name)
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
        tar.addfile(folder)


def add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def encode(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
