"""`drawbridge migrate accept` with NVIDIA's own DRA driver, whose GPU driver is not in the root folder, as on Talos Linux."""

from pathlib import Path

import pytest

from e2e.driver.test_accept import CHECKS, run
from e2e.vendors import nvidia

pytestmark = [pytest.mark.real, pytest.mark.node, pytest.mark.timeout(400)]


def test_the_right_driver_root_passes(node_cluster, driver_root):
    with nvidia.installed(node_cluster, driver_root):
        assert run(node_cluster) == (CHECKS, {})


def test_a_wrong_driver_root_is_found(node_cluster, driver_root):
    with nvidia.installed(node_cluster, driver_root, host_root=Path("/")):
        passed, failed = run(node_cluster)
    assert passed == CHECKS[:2]
    assert "host paths of the CDI files missing" in failed["CDI files"]
    assert "start" in failed
