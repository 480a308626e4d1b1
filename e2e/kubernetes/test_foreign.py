"""The harness starts no node beside a foreign one."""

import shutil
import subprocess

import pytest

from e2e.ground import foreign

pytestmark = [pytest.mark.real, pytest.mark.node]


def test_a_foreign_kubelet_is_named_and_our_own_is_not(control_plane, node_cluster, tmp_path):
    assert not {node_cluster.kubelet.pid, node_cluster.containerd.pid} & set(foreign.running())
    shutil.copy(shutil.which("sleep"), tmp_path / "kubelet")
    with subprocess.Popen([tmp_path / "kubelet", "60"]) as other:
        control_plane.until("the other one has its name", lambda: other.pid in foreign.running())
        with pytest.raises(foreign.ForeignError, match=rf"kubelet \(pid {other.pid}\)"):
            foreign.refuse()
        other.kill()
    assert other.pid not in foreign.running()
