"""How `drawbridge allocator` reads its options and its configuration, before it connects to a server."""

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
        (("--config", "nowhere.yaml"), "nowhere.yaml"),
        (("--token-file", "nowhere"), "nowhere"),
        (("--plugin", "0.0.0.0:9440"), "(give --tls-cert, --tls-key and --client-ca, or a unix socket"),
        (("--reservations", "0.0.0.0:9444"), "in clear text"),
        (("--reservations", "0.0.0.0:9444", "--reservations-certs", "nowhere"), "nowhere/tls.crt"),
        (("--read-only", "--reservations", "127.0.0.1:0"), "--read-only excludes"),
    ],
)
def test_an_invalid_option_is_reported(options, message):
    result = run("allocator", "--api", "127.0.0.1:0", *options)
    assert result.exit_code == 2
    assert message in result.stderr
