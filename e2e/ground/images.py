"""The container images of the real node: OCI archives made from a static busybox, since no registry is reachable."""

import gzip
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

from e2e.ground.cache import cache
from e2e.ground.packages import BUSYBOX as PROGRAM

PAUSE = "localhost/pause:e2e"
BUSYBOX = "localhost/busybox:e2e"  # pods that use it say `imagePullPolicy: Never`
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
APPLETS = "cat cp date echo env false id ls mkdir nc printenv ps rm sh sleep stat test touch true wget"
INIT = "trap exit TERM; while :; do sleep 3600 & wait; done"
TYPE = "application/vnd.oci.image."


def archive() -> Path:
    """Return an OCI archive with both images, made once for each busybox."""
    program = PROGRAM.read_bytes()
    key = hashlib.sha256(program + Path(__file__).read_bytes()).hexdigest()[:16]
    path = cache() / f"images-{key}.tar"
    if not path.exists():
        whole = path.with_suffix(f".{os.getpid()}")
        whole.write_bytes(build(program))
        whole.rename(path)
    return path


def build(program: bytes) -> bytes:
    """Build the archive: one layer, two configurations, two manifests, one index."""
    blobs: list[bytes] = []

    def blob(content: bytes, kind: str) -> dict[str, object]:
        blobs.append(content)
        return {"mediaType": TYPE + kind, "digest": digest(content), "size": len(content)}

    plain = layer(program)
    packed = gzip.compress(plain, mtime=0)
    manifests = []
    for name, command in ((PAUSE, ["/bin/sh", "-c", INIT]), (BUSYBOX, ["/bin/sh"])):
        configuration = {
            "architecture": ARCHITECTURES[os.uname().machine],
            "os": "linux",
            "config": {"Env": ["PATH=/bin"], "Cmd": command},
            "rootfs": {"type": "layers", "diff_ids": [digest(plain)]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": TYPE + "manifest.v1+json",
            "config": blob(encode(configuration), "config.v1+json"),
            "layers": [blob(packed, "layer.v1.tar+gzip")],
        }
        manifests.append(
            blob(encode(manifest), "manifest.v1+json") | {"annotations": {"io.containerd.image.name": name}}
        )
    index = {"schemaVersion": 2, "mediaType": TYPE + "index.v1+json", "manifests": manifests}
    files = {"oci-layout": encode({"imageLayoutVersion": "1.0.0"}), "index.json": encode(index)}
    files |= {f"blobs/sha256/{digest(content).partition(':')[2]}": content for content in blobs}
    with io.BytesIO() as target:
        with tarfile.open(fileobj=target, mode="w") as tar:
            for name, content in files.items():
                add(tar, name, content, 0o644)
        return target.getvalue()


def layer(program: bytes) -> bytes:
    """Build the root file system: busybox, its names, and the directories that containers expect."""
    with io.BytesIO() as target:
        with tarfile.open(fileobj=target, mode="w") as tar:
            for name in ("bin", "dev", "etc", "proc", "sys", "tmp", "var"):
                folder = tarfile.TarInfo(name)
                folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
                tar.addfile(folder)
            add(tar, "bin/busybox", program, 0o755)
            for name in APPLETS.split():
                link = tarfile.TarInfo(f"bin/{name}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(link)
        return target.getvalue()


def add(tar: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def encode(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
