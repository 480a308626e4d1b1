"""Rules of an administrator on a real API server: webhook and API server follow the examples without a restart."""

import copy
from collections import Counter
from pathlib import Path

import pytest
import yaml

from e2e.actors import fleet
from e2e.actors.webhook import CONFIGURATION, claims_of, results_of

pytestmark = pytest.mark.real

RULES = Path(__file__).parents[2] / "manifests/examples/rules"
NODE = "rules-npu-0"
NPU = "npu.example.com"
EXPECTED = {
    "amounts": {fleet.HAMI: 1},
    "words": {fleet.HAMI: 1},
    "devices": {NPU: 2},
    "pairs": {fleet.NVIDIA: 2, fleet.DRANET: 2},
}


@pytest.fixture(scope="module")
def npus(control_plane, fleet_node):
    """A node with what the example's driver publishes on the second of its nodes."""
    made = [
        obj
        for obj in yaml.safe_load_all((RULES / "devices/fleet.yaml").read_text())
        if obj["kind"] == "DeviceClass" or obj.get("spec", {}).get("nodeName") == "npu-2"
    ]
    for obj in made:
        if obj["kind"] == "ResourceSlice":
            obj["spec"] |= {"nodeName": NODE, "pool": obj["spec"]["pool"] | {"name": NODE}}
    try:
        control_plane.add_fake_nodes(1, prefix="rules-npu-", labels={f"{NPU}/model": "N2"})
        control_plane.create(*made)
        yield
    finally:
        control_plane.remove(*made, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})


@pytest.fixture
def webhook_of_the_module(webhook):
    """The webhook, whose rules are removed afterwards."""
    try:
        yield webhook
    finally:
        webhook.follow(CONFIGURATION)
        webhook.register()


def put(webhook, name):
    """Put rules in force as in docs/keys.md, except for the webhook configurations."""
    webhook.configure((RULES / name / "rules.yaml").read_text())


def register(webhook, name):
    webhook.register(f"--config={RULES / name / 'rules.yaml'}")


def example(name, namespace):
    item = yaml.safe_load((RULES / name / "pod.yaml").read_text())
    item["metadata"]["namespace"] = namespace
    return item


@pytest.mark.parametrize("name", EXPECTED)
def test_the_stock_scheduler_serves_an_example_of_rules(control_plane, npus, gated, webhook_of_the_module, name):
    item, webhook = example(name, gated), webhook_of_the_module
    put(webhook, name)
    domain = NPU if name == "devices" else "example.com"
    check = f"[!]webhooks: the API server might not send pods with keys of {domain}"
    control_plane.until("the webhook says what is missing", lambda: check in webhook.get("/readyz?verbose")[1], 20)

    def is_translated():
        return "resourceClaims" in control_plane.create(copy.deepcopy(item), dryRun="All")[0]["spec"]

    control_plane.until("the rules before it are gone", lambda: not is_translated(), 20)
    register(webhook, name)
    control_plane.until("the rules are in force", is_translated, 20)
    control_plane.create(item)
    control_plane.wait_scheduled(gated, item["metadata"]["name"])
    claims = claims_of(control_plane, gated, item["metadata"]["name"])
    results = [result for claim in claims.values() for result in results_of(claim)]
    assert Counter(result["driver"] for result in results) == EXPECTED[name]
    if name == "devices":
        assert {result["device"] for result in results} == {"npu-0", "npu-2"}
    if name == "pairs":
        (claim,) = claims.values()
        configs = claim["status"]["allocation"]["devices"]["config"]
        assert [config["opaque"]["parameters"]["interface"] for config in configs] == [
            {"name": name, "mtu": 9000} for name in ("net0", "net1")
        ]


def test_an_invalid_rules_file_keeps_the_previous_rules(control_plane, fleet_node, gated, webhook_of_the_module):
    item, webhook = example("amounts", gated), webhook_of_the_module
    put(webhook, "amounts")
    register(webhook, "amounts")
    untouched = lambda: "resourceClaims" not in control_plane.create(copy.deepcopy(item), dryRun="All")[0]["spec"]  # noqa: E731
    control_plane.until("the rules are in force", lambda: not untouched(), 20)
    webhook.configure((RULES / "amounts/rules.yaml").read_text().replace("role: memory", "role: memroy"))
    check = "[!]configuration: the new content is invalid, so the last valid one stays in use"
    control_plane.until("the webhook says so", lambda: check in webhook.get("/readyz?verbose")[1], 20)
    assert "did you mean memory?" in webhook.get("/readyz?verbose")[1]
    assert "drawbridge_configuration_good 0.0" in webhook.metrics()
    assert not untouched()
