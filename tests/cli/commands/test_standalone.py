"""`drawbridge standalone`: it serves until SIGTERM, and its store survives a kill. Also, `drawbridge webhook` without a kubeconfig."""

import os
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest

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


def start_standalone(*options):
    """Start `drawbridge standalone`; return the process, and the URL to which pods are posted."""
    process = subprocess.Popen([DRAWBRIDGE, "standalone", *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)  # fmt: skip
    lines = [process.stdout.readline() for _ in range(3)]
    return process, lines[1].split()[1]


@pytest.mark.whole
def test_a_store_in_a_file_survives_a_kill(tmp_path):
    data, pod = tmp_path / "store", (EXAMPLES / "pods/nvidia-training.yaml").read_bytes()
    process, pods_url = start_standalone("--data", str(data))
    try:
        with urllib.request.urlopen(pods_url, data=pod) as answer:
            body = answer.read().decode()
    finally:
        process.kill()
        process.communicate()
    assert "✓ training-0" in body
    process, pods_url = start_standalone("--data", str(data))
    try:
        with urllib.request.urlopen(pods_url) as answer:
            body_after_kill = answer.read().decode()
    finally:
        process.kill()
        process.communicate()
    devices = [line for line in body.splitlines() if "runs on" in line]
    assert devices
    assert [line for line in body_after_kill.splitlines() if "runs on" in line] == devices


CREATE_FOREIGN_PATH = {
    "a folder": Path.mkdir,
    "a foreign file": lambda path: path.write_bytes(b"not ours"),
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a pipe": os.mkfifo,
}


@pytest.mark.parametrize("create_path", CREATE_FOREIGN_PATH.values(), ids=CREATE_FOREIGN_PATH)
def test_a_path_that_is_no_store_is_refused_and_kept(tmp_path, create_path):
    data = tmp_path / "store"
    create_path(data)
    mode = data.stat().st_mode
    result = run("standalone", "--data", str(data))
    assert data.stat().st_mode == mode
    assert result.exit_code == 3
    assert str(data) in result.stderr
    assert "--data" in result.stderr
    assert "Traceback" not in result.stderr
    assert not data.is_file() or data.read_bytes() == b"not ours"


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
