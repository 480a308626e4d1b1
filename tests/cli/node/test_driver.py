"""How `drawbridge driver` reads its options and its inventory, before it connects to a server."""

import tempfile
from pathlib import Path

import pytest

from tests.cli.running import run
from tests.node.machines import EXAMPLES

INVENTORY_HEAD = "apiVersion: drawbridge.dev/v1alpha1\nkind: DeviceInventory\ndriver: devices.example.com\n"


def write_inventory(tmp_path, text):
    file = tmp_path / "i.yaml"
    file.write_text(INVENTORY_HEAD + text)
    return file


FIRST_GPU = "name: gpu-0, uuid: u, memory: 40Gi"


@pytest.mark.parametrize(
    ("gpus", "errors"),
    [
        (f"- {{{FIRST_GPU}}}\n- {{name: g, uuid: v, memmory: 40Gi}}", ("i.yaml:6", "memory")),
        (f"- {{{FIRST_GPU}, layout: a}}\n- {{name: g, uuid: u, memory: 1Gi}}", ("no layout 'a'", "u is used 2 times")),
    ],
    ids=("a misspelt field, with its line", "two errors"),
)
def test_errors_of_an_inventory_are_reported(gpus, errors, tmp_path):
    result = run("driver", "--inventory", write_inventory(tmp_path, f"gpus:\n{gpus}\n"), "--node-name", "n")
    assert (result.exit_code, [error in result.stderr for error in errors]) == (2, [True, True])


@pytest.mark.parametrize(
    ("options", "message"), [((), "give --node-name"), (("--node-name", "n", "--color", "x"), "color")]
)
def test_a_missing_node_name_or_unknown_option_exits_with_2(tmp_path, options, message):
    file = write_inventory(tmp_path, "gpus: []\n")
    result = run("driver", "--inventory", file, *options)
    assert result.exit_code == 2
    assert message in result.stderr


def test_an_inventory_file_of_two_objects_is_refused(tmp_path):
    file = write_inventory(tmp_path, f"---\n{INVENTORY_HEAD}")
    result = run("driver", "--inventory", file, "--node-name", "n")
    assert (result.exit_code, "holds 2 objects" in result.stderr) == (2, True)


@pytest.fixture
def short_folder():
    """Yield a folder whose path is short enough for a socket in this folder."""
    with tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as name:
        yield Path(name)


def test_a_damaged_checkpoint_ends_the_driver_with_a_remedy(short_folder):
    state = short_folder / "plugins" / "devices.drawbridge.dev"
    state.mkdir(parents=True)
    for name in ("plugins_registry", "pods"):
        (short_folder / name).mkdir()
    (state / "checkpoint").write_bytes(b"drawbridge-checkpoint 1 1 3 00\n{}\n")
    kubeconfig = short_folder / "kubeconfig"
    kubeconfig.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]\n"
        "users: [{name: u, user: {token: t}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
    )
    result = run(
        "driver", "--inventory", EXAMPLES / "sriov-edge.yaml", "--node-name", "n", "--kubelet-dir", short_folder,
        "--cdi-dir", short_folder / "cdi", "--kubeconfig", kubeconfig,
    )  # fmt: skip
    assert result.exit_code == 3
    assert "checkpoint cannot be read: it does not begin with a checkpoint header" in result.stderr
    assert "drain the node" in result.stderr


def test_discovered_devices_are_printed_as_a_valid_inventory_file(tmp_path):
    numa_node = tmp_path / "devices/system/node/node0"
    numa_node.mkdir(parents=True)
    (numa_node / "cpulist").write_text("0-3\n")
    result = run("driver", "--discover", "devices.example.com", "--sysfs", tmp_path, "--print")
    assert (result.exit_code, "cpus: '0-3'" in result.stdout) == (0, True)
    file = tmp_path / "i.yaml"
    file.write_text(result.stdout)
    assert run("driver", "--inventory", file, "--print").stdout == result.stdout


@pytest.mark.parametrize("options", [(), ("--inventory", "i.yaml", "--discover", "devices.example.com")])
def test_exactly_one_source_of_devices_is_required(options):
    result = run("driver", *options)
    assert (result.exit_code, "either --inventory FILE, --discover DRIVER or --adapt DIR" in result.stderr) == (2, True)


def test_an_invalid_driver_name_is_reported(tmp_path):
    result = run("driver", "--discover", "Not A Driver", "--sysfs", tmp_path)
    assert (result.exit_code, "API server would reject" in result.stderr) == (2, True)
