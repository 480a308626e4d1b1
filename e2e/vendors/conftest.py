"""What the tests of this directory share. The programs that no Go module proxy serves are tested only where a directory has them."""

import os
import shutil
from pathlib import Path

import pytest

from e2e.vendors import hardware

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
