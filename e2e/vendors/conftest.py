"""Fixtures of this directory. Programs that no Go module proxy serves are tested only if DRAWBRIDGE_DRIVERS has them."""

import os
import shutil
from pathlib import Path

import pytest

from e2e.vendors import hardware

CARD = Path(os.environ["DRAWBRIDGE_CARD"]) if os.environ.get("DRAWBRIDGE_CARD") else None
PROGRAMS = Path(os.environ.get("DRAWBRIDGE_DRIVERS", "/nonexistent"))
NEEDED = {
    "test_plugin.py": "generic-device-plugin",
    "test_cluster_autoscaler.py": "cluster-autoscaler*",
    "test_memory_driver.py": "dramemory",
}
collect_ignore = [file for file, needed in NEEDED.items() if not any(PROGRAMS.glob(needed))]


@pytest.fixture(scope="module")
def driver_root(node_cluster):
    """The folder in which NVIDIA's GPU driver is installed."""
    root = node_cluster.root / "nvidia"
    hardware.install(root)
    yield root
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def card_root(node_cluster, request):
    """The folder of the GPU driver of a real card, from DRAWBRIDGE_CARD; without it, of the driver without hardware."""
    if not CARD:
        return request.getfixturevalue("driver_root")
    # An image of the GPU driver may have an empty /dev. NVIDIA's DRA driver looks for device files in it.
    if (CARD / "dev").is_dir() and not any((CARD / "dev").iterdir()):
        node_cluster.box.run("mount", "--rbind", "/dev", CARD / "dev")
    return CARD
