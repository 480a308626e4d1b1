"""A store whose folder of CDI files is on a full disk reports an error and loses no file. Runs in its own mount namespace."""

import subprocess
import sys
from pathlib import Path

from node.guard import Guard
from node.service.disk import Disk
from node.service.prepared_store import PreparedStore
from tests.node.machines import NODE, claim, gpu, machine, reference, result

MACHINE = machine(gpus=[gpu(0), gpu(1)])


def prepare(store, claim):
    return store.prepare([reference(claim.metadata.name)], {claim.metadata.uid: claim})[claim.metadata.uid]


def main(root):
    """Prepare on an empty disk, on a full one, and when there is room again."""
    cdi, filler = root / "cdi", root / "cdi" / "filler"
    cdi.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", cdi], check=True)
    store = PreparedStore(Guard(MACHINE, NODE), Disk(), str(root), str(cdi), pods="")
    first, second = claim("a", result("gpu-0")), claim("b", result("gpu-1"))
    answer = prepare(store, first)
    assert answer.error == "", answer
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            print(f"the disk is full: {error}")
    refused = prepare(store, second)
    assert "No space left on device" in refused.error, refused
    assert prepare(store, first) == answer
    assert sorted(path.name for path in cdi.iterdir() if path != filler) == [
        "drawbridge_devices.example.com_uid-a.json"
    ]
    filler.unlink()
    assert prepare(store, second).error == ""
    store.unprepare([reference("a"), reference("b")])
    assert list(cdi.iterdir()) == []
    print("nothing was lost")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
