"""The policy of a mixed fleet in the configuration."""

import json

import pytest

from webhook.state.configuration import read_configuration

GPU = "nvidia.com/gpu"
DRA = {"prefer": "dra"}

WRONG = {
    "nothing said": ({GPU: {}}, "/mixed/nvidia.com~1gpu", "nothing selects"),
    "two words": ({GPU: {"prefer": "dra", "percent": 3}}, "/mixed/nvidia.com~1gpu", "more than one field"),
    "no percentage": ({GPU: {"percent": 101}}, "/mixed/nvidia.com~1gpu/percent", "101 is not a percentage"),
    "no side": ({GPU: {"prefer": "both"}}, "/mixed/nvidia.com~1gpu/prefer", ""),
    "an unknown key": ({"example.com/x": DRA}, "/mixed/example.com~1x", "no dialect knows"),
    "no namespace": ({GPU: DRA | {"namespaces": {"A*": DRA}}}, "/mixed/nvidia.com~1gpu/namespaces/A*", "not the name"),
    "nothing for a namespace": ({GPU: DRA | {"namespaces": {"a": {}}}}, "/mixed/nvidia.com~1gpu/namespaces/a", "nothing selects"),
    "one in another": ({GPU: DRA | {"namespaces": {"a": DRA | {"namespaces": {}}}}}, "/mixed/nvidia.com~1gpu/namespaces/a", ""),
    "no mapping": ([], "/mixed", ""),
    "a text": ({GPU: "dra"}, "/mixed/nvidia.com~1gpu", ""),
}  # fmt: skip


@pytest.mark.parametrize(("mixed", "path", "words"), WRONG.values(), ids=WRONG)
def test_an_invalid_policy_is_reported_and_never_in_force(mixed, path, words):
    value = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", "mixed": mixed}
    configuration, findings = read_configuration(json.loads(json.dumps(value)))
    assert configuration is None
    assert any(finding.path.startswith(path) and words in finding.message for finding in findings), findings
