"""In files without an inventory, a key has its most common meaning. For other keys the message has a configuration to copy."""

import re

import pytest
import yaml

from cluster import manifests
from tests.webhook.pods import EXAMPLES, configured, pod
from webhook.admission import decide_object
from webhook.state import Inventory, State
from webhook.translate import translate

FLEET_OF_FILES = Inventory(assumes=True)
FOLDERS = ("amazon", "amd", "hami", "intel", "nics", "nvidia", "pods", "volcano")
_CONFIGURATION = re.compile(r"`(\w+: [{\[].*)` \(docs/configuration\.md\)")


@pytest.mark.parametrize("key", ["nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe"])
def test_a_whole_device_is_assumed_only_in_files(key):
    manifest = pod({key: 1})
    [decision] = translate(manifest, State(fleet=FLEET_OF_FILES), namespace="n").decisions
    assert (decision.outcome, decision.meaning_assumed) == ("translated", True)
    for other_fleet in (Inventory(), Inventory(known=True, assumes=True)):
        verdict = translate(manifest, State(fleet=other_fleet), namespace="n")
        assert [decision.outcome for decision in verdict.decisions] == ["left"]
        assert not verdict.operations


def test_node_selectors_and_declared_meanings_take_precedence_over_assumptions():
    shared = pod({"nvidia.com/gpu": 1}, nodeSelector={"nvidia.com/gpu.product": "NVIDIA-L4-SHARED"})
    assert translate(shared, State(fleet=FLEET_OF_FILES), namespace="n").decisions[0].outcome == "left"
    declared = configured(meanings={"nvidia.com/gpu": "mig:1g.5gb"})
    verdict = translate(pod({"nvidia.com/gpu": 1}), State(configuration=declared, fleet=FLEET_OF_FILES), namespace="n")
    assert (verdict.decisions[0].meaning_assumed, "mig.nvidia.com" in verdict.decisions[0].detail) == (False, True)


def test_every_configuration_in_a_message_resolves_its_decision():
    tables = {}
    for document in manifests.read([EXAMPLES / folder for folder in FOLDERS]):
        for decision in decide_object(document.object, State(fleet=FLEET_OF_FILES)).decisions:
            if match := _CONFIGURATION.search(decision.detail):
                tables[match[1]] = document.object, decision
    options = {table.partition(":")[0] for table in tables}
    assert options == {"models", "nics", "nvidia", "amazon", "schedulers"}
    for table, (obj, left_decision) in tables.items():
        declared = configured(**yaml.safe_load(table.replace("SIZE", "80Gi")))
        later_decisions = decide_object(obj, State(configuration=declared, fleet=FLEET_OF_FILES)).decisions
        outcomes = {
            decision.outcome
            for decision in later_decisions
            if (decision.container, decision.key) == (left_decision.container, left_decision.key)
        }
        assert outcomes <= {"translated", "approximated"}, table
