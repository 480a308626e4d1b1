"""`drawbridge standalone`: it serves until SIGTERM. Also, `drawbridge webhook` without a kubeconfig."""

import signal
import subprocess
import urllib.request

from cli.commands.demo import EXAMPLES
from tests.cli.commands.playgrounds import DRAWBRIDGE, OBJECT_OF_UNKNOWN_KIND
from tests.cli.running import run
from tests.limits import PATIENCE


def test_standalone_serves_until_sigterm():
    process = subprocess.Popen([DRAWBRIDGE, "standalone"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        lines = [process.stdout.readline() for _ in range(4)]
        assert [line.split()[0] for line in lines] == ["reviews", "pods", "metrics", "dashboard"]
        pods_url, dashboard_url = (lines[index].split()[1] for index in (1, 3))
        with urllib.request.urlopen(pods_url, data=(EXAMPLES / "pods/nvidia-training.yaml").read_bytes()):
            pass
        with urllib.request.urlopen(f"{dashboard_url}/pods/team-a/training-0", timeout=60) as page:
            body = page.read().decode()
        assert "gpu.nvidia.com/train-1/gpu-" in body, "the dashboard does not show the posted pod"
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
        assert "Traceback" not in errors
    finally:
        process.kill()
        process.wait()


def test_the_webhook_exits_with_3_without_a_kubeconfig(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    result = run("webhook", "--kubeconfig", tmp_path / "none")
    assert result.exit_code == 3
    assert "error:" in result.stderr
    assert "Traceback" not in result.stderr


def test_standalone_ignores_objects_of_unknown_kinds(tmp_path):
    file = tmp_path / "thing.yaml"
    file.write_text(OBJECT_OF_UNKNOWN_KIND)
    process = subprocess.Popen([DRAWBRIDGE, "standalone", "--inventory", file, "--inventory", str(EXAMPLES / "fleet")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    try:
        lines = [process.stdout.readline() for _ in range(6)]
        assert lines[5].startswith("1 object ignored"), lines
        assert lines[5].endswith(": 1 Thing\n"), lines
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)
