"""Keys that a ResourceQuota or a LimitRange limits. A configuration can map a key to a quota on the claims that replace it."""

import pytest

from tests.webhook.pods import WHOLE_GPUS, example_fleet, pod, untouched, verdict_of
from tests.webhook.translate.samples import GPU, PAIRED, fleet_serving
from webhook.state.features import Features


def test_a_key_in_a_limit_range_is_left_unchanged():
    limited = frozenset({"nvidia.com/gpu"})
    verdict = verdict_of(pod(GPU), limit_range=limited, **WHOLE_GPUS)
    assert untouched(verdict)
    assert "a LimitRange" in verdict.warnings[0]
    assert verdict_of(pod(GPU), limit_range=frozenset({"cpu"}), **WHOLE_GPUS).changed
    assert untouched(verdict_of(pod({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1}), limit_range=limited))


def test_a_key_in_a_quota_is_left_unchanged_until_mapped():
    quota = frozenset({"requests.nvidia.com/gpu"})
    verdict = verdict_of(pod(GPU), quota=quota, **WHOLE_GPUS)
    assert untouched(verdict)
    assert "quotas" in verdict.warnings[0]
    mapped = {"nvidia.com/gpu": CLASS_QUOTA_KEY}
    assert verdict_of(pod(GPU), quota=quota | {CLASS_QUOTA_KEY}, **WHOLE_GPUS, quotas=mapped).changed
    assert verdict_of(pod(GPU), quota=frozenset({"requests.cpu"}), **WHOLE_GPUS).changed


CLASS_QUOTA_KEY = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
# The keys that the ResourceQuotas of the namespace limit.
LIMITED_QUOTA_KEYS = frozenset({"requests.nvidia.com/gpu"})


@pytest.mark.parametrize(
    "quota_key",
    [
        CLASS_QUOTA_KEY,
        "requests.deviceclass.resource.kubernetes.io/gpu.nvidia.com",
        "count/resourceclaims.resource.k8s.io",
    ],
)
@pytest.mark.parametrize("approximations", ["warn", "allow", "leave"])
def test_a_key_is_left_until_a_quota_limits_what_it_is_mapped_to(quota_key, approximations):
    mapped = {**WHOLE_GPUS, "quotas": {"nvidia.com/gpu": quota_key}, "approximations": approximations}
    verdict = verdict_of(pod(GPU), quota=LIMITED_QUOTA_KEYS, **mapped)
    assert untouched(verdict)
    [warning] = verdict.warnings
    assert f"to {quota_key}, which no ResourceQuota of the namespace limits" in str(warning)
    assert [decision.code for decision in verdict.decisions] == ["D223"]
    counted = verdict_of(pod(GPU), quota=LIMITED_QUOTA_KEYS | {quota_key}, **mapped)
    assert counted.changed
    assert (counted.warnings, {decision.code for decision in counted.decisions}) == ((), {""})
    assert verdict_of(pod(GPU), quota=frozenset({"requests.cpu"}), **mapped).warnings == (), (
        "the pod has a warning, although no ResourceQuota limits nvidia.com/gpu"
    )


@pytest.mark.parametrize(
    ("quota_key", "features"),
    [
        ("mig.nvidia.com.deviceclass.resource.k8s.io/devices", {}),
        ("requests.nvidia.com/gpu", {}),
        ("requests.example.com/gpu", {}),
        ("requests.deviceclass.resource.kubernetes.io/gpu.nvidia.com", {"DRAExtendedResource": False}),
    ],
)
def test_a_key_is_left_if_its_mapped_quota_misses_the_class(quota_key, features):
    verdict = verdict_of(pod(GPU), quota=LIMITED_QUOTA_KEYS | {quota_key}, **WHOLE_GPUS, quotas={"nvidia.com/gpu": quota_key}, features=Features(gates=features))  # fmt: skip
    assert untouched(verdict)
    [warning] = verdict.warnings
    assert f"to {quota_key}, which counts no claims of class gpu.nvidia.com" in str(warning)


def test_a_quota_counts_claims_of_the_class_serving_its_key():
    quota, gate_off = frozenset({"requests.nvidia.com/gpu"}), Features(gates={"DRAExtendedResource": False})
    manifest, fleet = (
        pod(GPU, nodeSelector={"cloud.google.com/gke-gpu-partition-size": "1g.5gb"}),
        fleet_serving("nvidia.com/gpu"),
    )
    classes = {"mig": "gpu.nvidia.com"}
    assert verdict_of(manifest, quota=quota, fleet=fleet, classes=classes).changed
    assert untouched(
        verdict_of(manifest, quota=quota, fleet=fleet, classes=classes, features=gate_off)
    )  # without the feature gate, the quota does not count the claims


def test_a_quota_on_one_key_leaves_the_pair_unchanged():
    manifest = pod({"nvidia.com/gpu": 1, "example.com/nic": 1})
    pairs = {**PAIRED, "fleet": example_fleet()}
    quota = frozenset({"requests.example.com/nic"})
    assert verdict_of(manifest, **pairs).changed
    verdict = verdict_of(manifest, quota=quota, **pairs)
    assert untouched(verdict)
    assert "a ResourceQuota limits requests.example.com/nic" in verdict.warnings[0]
    nic = "dranet.deviceclass.resource.k8s.io/devices"
    verdict = verdict_of(manifest, quota=quota | {nic}, **pairs, quotas={"example.com/nic": nic})
    assert (verdict.changed, {decision.code for decision in verdict.decisions}) == (True, {""})
