"""The command as a whole process: what a person waits for."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bench.row import Row, median_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

DRAWBRIDGE = str(Path(sys.executable).parent / "drawbridge")
FLEET = Path(__file__).parents[2] / "manifests" / "examples" / "fleet"
PODS = 5_000
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
    """Time whole processes: start-up, then 5,000 documents through translate and check."""
    bare = median_seconds(lambda: run(sys.executable, "-c", ""), runs=9)
    yield Row(
        what="drawbridge --help",
        unit="ms",
        ours=median_seconds(lambda: run(DRAWBRIDGE, "--help"), runs=9) * 1e3,
        peer="bare interpreter",
        theirs=bare * 1e3,
        target="< 150 ms",
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pods.yaml"
        file.write_text("".join(POD.format(number=number, gpus=1 + number % 4) for number in range(PODS)))
        size = file.stat().st_size / 1e6
        for name, options in (("translate", ("--inventory", str(FLEET))), ("check", ())):
            seconds = median_seconds(lambda: run(DRAWBRIDGE, name, "-f", str(file), *options), runs=3)  # noqa: B023  called at once
            yield Row(
                what=f"drawbridge {name} of {PODS:,} pods ({size:.1f} MB)", unit="s", ours=seconds, target="< 3 s"
            )


def run(*command: str) -> None:
    """Run a process to its end; a refusal (1) is an answer, anything else an error."""
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(command[:2])} ended with {done.returncode}: {done.stderr.decode()[-400:]}")
