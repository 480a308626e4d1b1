"""A refusal names the core ResourceQuotas that count the same devices."""

import pytest

from allocator.quota import core_lines
from allocator.quota.quota_admission import MAX_LISTED
from dra.objects import DeviceClass
from dra.stock import ONE
from dra.wire import convert
from tests.objects import resource_quota, typed

REQUESTED_AMOUNTS = {("gpu", "devices"): ONE, ("*", "devices"): ONE}
CLASS_BY_NAME = {
    "gpu": convert({"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}}, DeviceClass)
}


def core_quota(name, hard, used=None, namespace="team", **spec):
    return typed(resource_quota(name, hard, namespace, status={"used": used or {}}, **spec))


@pytest.mark.parametrize(
    "key",
    [
        "gpu.deviceclass.resource.k8s.io/devices",
        "requests.deviceclass.resource.kubernetes.io/gpu",
        "requests.example.com/gpu",
        "count/resourceclaims.resource.k8s.io",
    ],
)
def test_each_core_quota_key_is_named_with_its_usage(key):
    text = core_lines([core_quota("core", {key: 4}, {key: 3})], "team", REQUESTED_AMOUNTS, CLASS_BY_NAME)
    assert text == f"ResourceQuotas count the same devices: core: {key} 3 of 4 used"
    assert core_lines([core_quota("core", {key: 4})], "team", REQUESTED_AMOUNTS, CLASS_BY_NAME).endswith(
        f"{key} ? of 4 used"
    )


@pytest.mark.parametrize(
    "quota",
    [
        core_quota("core", {"other.deviceclass.resource.k8s.io/devices": 4, "requests.cpu": 4, "pods": 9}),
        core_quota("core", {"requests.example.com/gpu": 4}, namespace="another"),
        core_quota("core", {"requests.example.com/gpu": 4}, scopes=["Terminating"]),
        core_quota(
            "core",
            {"requests.example.com/gpu": 4},
            scopeSelector={"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["a"]}]},
        ),
    ],
    ids=[
        "a quota of another class",
        "a quota of another namespace",
        "a quota with a scope",
        "a quota with a scope selector",
    ],
)
def test_an_unrelated_resource_quota_is_not_named(quota):
    assert core_lines([quota], "team", REQUESTED_AMOUNTS, CLASS_BY_NAME) == ""


def test_a_refusal_names_a_limited_number_of_core_quotas():
    quotas = [core_quota(f"core-{i}", {"requests.example.com/gpu": 4}) for i in range(50)]
    text = core_lines(quotas, "team", REQUESTED_AMOUNTS, CLASS_BY_NAME)
    assert text.count(" used") == MAX_LISTED
    assert text.endswith(" and more")
