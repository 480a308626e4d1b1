"""How `drawbridge allocator` reads its options and its configuration, before it connects to a server."""

import json
import socket

import pytest

from allocator.decisions import PlacementRules
from allocator.strategies import read_placement
from cli.commands.allocator import rules_of
from tests.cli.running import run
from webhook.state.configuration import Configuration, read_configuration

CONFIGURATION_HEAD = "apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\n"
PLACEMENT = {"strategy": "topology=3,CompactFirst=1", "namespaces": {"ml": "LowLoadFirst"}, "mostPodsPerNode": 4}


def configuration_with(**placement):
    configuration, findings = read_configuration(
        {
            "apiVersion": "drawbridge.dev/v1alpha1",
            "kind": "DrawbridgeConfiguration",
            "bridge": {"schedulerName": "drawbridge", "placement": placement},
        }
    )
    assert findings == []
    return configuration


def test_the_configuration_file_sets_the_placement_rules():
    rules = rules_of(configuration_with(**PLACEMENT))
    assert rules == PlacementRules(
        read_placement("topology=3,CompactFirst=1"), {"ml": read_placement("LowLoadFirst")}, most_pods=4
    )
    assert [rules.for_namespace(name) for name in ("ml", "", "default")] == [
        read_placement("LowLoadFirst"),
        *[read_placement("topology=3,CompactFirst=1")] * 2,
    ]


def test_a_configuration_without_a_bridge_has_default_placement_rules():
    assert rules_of(Configuration()) == PlacementRules()


def test_an_unknown_strategy_is_reported_with_file_and_line(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text(f"{CONFIGURATION_HEAD}bridge:\n  schedulerName: drawbridge\n  placement:\n    strategy: best\n")
    result = run("allocator", "--api", "127.0.0.1:0", "--config", file)
    assert result.exit_code == 2
    assert f"{file}:6" in result.stderr
    assert "there is no strategy 'best'; the strategies are CompactFirst" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "no address to listen on is given"),
        (("--api", "127.0.0.1:0", "--config", "nowhere.yaml"), "nowhere.yaml"),
        (("--api", "127.0.0.1:0", "--token-file", "nowhere"), "nowhere"),
        (("--plugin", "0.0.0.0:9440"), "(give --tls-cert, --tls-key and --client-ca, or a unix socket"),
        (("--plugin", "10.0.0.1:9441"), "not on loopback"),
        (("--api", ":9442"), "give --tls-cert, --tls-key and --client-ca"),
        (("--api", "unix:"), "names no socket"),
        (("--api", "127.0.0.1:0", "--tls-cert", "c"), "belong together"),
        (("--api", "127.0.0.1:0", "--client-name", "n"), "give --client-ca"),
        (("--api", "127.0.0.1:0", "--tls-cert", "c", "--tls-key", "k", "--client-ca", "a"), "c cannot be read"),
        (("--api", "127.0.0.1:0", "--reservations", "0.0.0.0:9444"), "in clear text"),
        (("--api", "127.0.0.1:0", "--reservations", "0.0.0.0:9444", "--reservations-certs", "nowhere"), "nowhere/tls.crt"),
        (("--read-only", "--reservations", "127.0.0.1:0"), "--read-only excludes --plugin and --reservations"),
        (("--read-only", "--plugin", "127.0.0.1:0"), "--read-only excludes --plugin and --reservations"),
    ],
)  # fmt: skip
def test_an_invalid_option_is_reported(options, message):
    result = run("allocator", *options)
    assert result.exit_code == 2
    assert message in result.stderr


def test_an_allocator_reports_the_address_that_is_in_use(tmp_path):
    """The allocator opens its ports before it reads the cluster, so the API server of the kubeconfig is never contacted."""
    config = {"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}], "users": [], "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}], "current-context": "c"}  # fmt: skip
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(config))
    with socket.create_server(("127.0.0.1", 0)) as taken_port, socket.socket(socket.AF_UNIX) as taken_socket:
        port = f"127.0.0.1:{taken_port.getsockname()[1]}"
        path = tmp_path / "plugin.sock"
        taken_socket.bind(str(path))
        taken_socket.listen()
        for option, message in ((f"--api={port}", port.replace(":", "', ")), (f"--plugin=unix:{path}", str(path))):
            result = run("allocator", option, "--metrics-listen=127.0.0.1:0", f"--kubeconfig={kubeconfig}")
            assert result.exit_code == 3
            assert message in result.stderr
            assert "stop the process that uses this address" in result.stderr
