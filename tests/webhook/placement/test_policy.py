"""The policy of a mixed fleet in the configuration."""

import pytest

from tests.webhook.state.configurations import mistakes

GPU = "nvidia.com/gpu"
PREFER_DRA = {"prefer": "dra"}

INVALID_POLICIES = {
    "no field": ({GPU: {}}, "/mixed/nvidia.com~1gpu", "nothing selects"),
    "two fields": ({GPU: {"prefer": "dra", "percent": 3}}, "/mixed/nvidia.com~1gpu", "more than one field"),
    "101 percent": ({GPU: {"percent": 101}}, "/mixed/nvidia.com~1gpu/percent", "101 is not from 0 to 100"),
    "an unknown preference": ({GPU: {"prefer": "both"}}, "/mixed/nvidia.com~1gpu/prefer", ""),
    "an unknown key": ({"example.com/x": PREFER_DRA}, "/mixed/example.com~1x", "no dialect knows"),
    "an invalid name of a namespace": ({GPU: PREFER_DRA | {"namespaces": {"A*": PREFER_DRA}}}, "/mixed/nvidia.com~1gpu/namespaces/A*", "not the name"),
    "no field for a namespace": ({GPU: PREFER_DRA | {"namespaces": {"a": {}}}}, "/mixed/nvidia.com~1gpu/namespaces/a", "nothing selects"),
    "namespaces inside a namespace": ({GPU: PREFER_DRA | {"namespaces": {"a": PREFER_DRA | {"namespaces": {}}}}}, "/mixed/nvidia.com~1gpu/namespaces/a", ""),
    "a list": ([], "/mixed", ""),
    "a text": ({GPU: "dra"}, "/mixed/nvidia.com~1gpu", ""),
}  # fmt: skip


@pytest.mark.parametrize(("mixed", "path", "message_part"), INVALID_POLICIES.values(), ids=INVALID_POLICIES)
def test_an_invalid_policy_is_reported_and_never_in_force(mixed, path, message_part):
    reported = mistakes(mixed=mixed)
    assert any(pointer.startswith(path) and message_part in message for pointer, message in reported.items()), reported
