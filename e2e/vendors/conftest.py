"""What the tests of this directory share. The programs that no Go module proxy serves are tested only where a directory has them."""

import os
import shutil

import pytest

from e2e.vendors import hardware

collect_ignore = [] if os.environ.get("DRAWBRIDGE_DRIVERS") else ["test_plugin.py"]


@pytest.fixture(scope="module")
def driver_root(node_cluster):
    """The folder in which NVIDIA's GPU driver is installed."""
    root = node_cluster.root / "nvidia"
    hardware.install(root)
    yield root
    shutil.rmtree(root)
