"""The time of whole command-line processes."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.row import Row, median_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

DRAWBRIDGE = str(Path(sys.executable).parent / "drawbridge")
FLEET = Path(__file__).parents[2] / "manifests" / "examples" / "fleet"
PODS = 5_000
DUMPED = 60_000
POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: train-{number}
  labels: {{app: train, run: "{number}"}}
spec:
  containers:
  - name: main
    image: registry.example/train:1
    command: [python, -m, train, --shard, "{number}"]
    env:
    - {{name: SHARD, value: "{number}"}}
    resources:
      requests: {{cpu: "4", memory: 16Gi}}
      limits: {{cpu: "8", memory: 32Gi, nvidia.com/gpu: {gpus}, nvidia.com/gpumem: 3000, nvidia.com/gpucores: 30}}
---
"""


def rows() -> Iterator[Row]:
    """Time whole processes: 5,000 documents through translate and check, then a large dump through survey."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pods.yaml"
        file.write_text("".join(POD.format(number=number, gpus=1 + number % 4) for number in range(PODS)))
        size = file.stat().st_size / 1e6
        for name, options in (("translate", ("--inventory", str(FLEET))), ("check", ())):
            seconds = median_seconds(lambda: run(DRAWBRIDGE, name, "-f", str(file), *options), runs=3)  # noqa: B023  called at once
            yield Row(
                what=f"drawbridge {name} of {PODS:,} pods ({size:.1f} MB)", unit="s", ours=seconds, target="< 3 s"
            )
        yield from _dump_rows(Path(folder))


def _dump_rows(folder: Path) -> Iterator[Row]:
    """Time a survey of what `kubectl get -A -o json` writes, and measure its memory."""
    file = folder / "dump.json"
    write_dump(file)
    survey = (DRAWBRIDGE, "survey", "-f", str(file), "--fail-on", "never", "-o", "json")
    what = f"drawbridge survey of {DUMPED:,} pods ({file.stat().st_size / 1e6:.0f} MB)"
    seconds = median_seconds(lambda: run(*survey), runs=3, warmup=0)
    yield Row(what=what, unit="s", ours=seconds, target="< 15 s")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024  # of the largest child
    yield Row(what=f"{what}, memory", unit="MiB", ours=peak, target="< 512 MiB")


def write_dump(file: Path, pods: int = DUMPED) -> None:
    """Write a List as kubectl does."""
    text = json.dumps(_pod("@name", "@owner", "@team", "@uid", "@node"), indent=1)
    with file.open("w") as out:
        out.write('{"apiVersion": "v1", "kind": "List", "items": [\n')
        for number in range(pods):
            out.write(",\n" if number else "")
            out.write(_filled(text, number))
        out.write("]}\n")


def _filled(text: str, number: int) -> str:
    names = {
        "@name": f"train-{number}",
        "@owner": f"train-{number // 20}",
        "@team": f"team-{number % 50}",
        "@uid": f"u{number}",
        "@node": f"n{number % 2000}",
    }
    for mark, name in names.items():
        text = text.replace(mark, name)
    return text


def _pod(name: str, owner: str, team: str, uid: str, node: str) -> dict[str, Any]:
    """Return a pod as a server returns it, with its managed fields, conditions and variables."""
    fields: dict[str, Any] = {"f:spec": {f"f:field{number}": {} for number in range(40)}}
    variables = [{"name": f"E{number}", "value": "v" * 20} for number in range(20)]
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}
    container = {"name": "main", "image": "i", "env": variables, "resources": {"limits": limits, "requests": limits}}
    conditions = [{"type": type_, "status": "True"} for type_ in ("Initialized", "Ready", "PodScheduled")]
    metadata = {
        "name": name,
        "namespace": team,
        "uid": uid,
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "controller": True}],
        "annotations": {"note": "x" * 800},
        "managedFields": [{"manager": "kubectl", "fieldsV1": fields}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": "Running", "conditions": conditions},
    }


def run(*command: str) -> None:
    """Run a process to its end; exit codes above 1 are errors, because 1 means findings."""
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(command[:2])} ended with {done.returncode}: {done.stderr.decode()[-400:]}")
