"""Which of core's quotas count the same devices is said to a pod that is turned back."""

import pytest

from allocator.quota import core_lines
from allocator.quota.quota_admission import MOST
from dra.objects import DeviceClass
from dra.stock import ONE
from dra.wire import convert
from tests.objects import resource_quota, typed

WANTED = {("gpu", "devices"): ONE, ("*", "devices"): ONE}
CLASSES = {
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
    said = core_lines([core_quota("core", {key: 4}, {key: 3})], "team", WANTED, CLASSES)
    assert said == f"ResourceQuota also counts: core: {key} 3 of 4 used"
    assert core_lines([core_quota("core", {key: 4})], "team", WANTED, CLASSES).endswith(f"{key} ? of 4 used")


@pytest.mark.parametrize(
    "other",
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
    ids=["another class", "another namespace", "scopes", "a selector"],
)
def test_an_unrelated_resource_quota_is_not_named(other):
    assert core_lines([other], "team", WANTED, CLASSES) == ""


def test_very_many_are_named_in_part():
    many = [core_quota(f"core-{at}", {"requests.example.com/gpu": 4}) for at in range(50)]
    said = core_lines(many, "team", WANTED, CLASSES)
    assert said.count(" used") == MOST
    assert said.endswith(" and more")
