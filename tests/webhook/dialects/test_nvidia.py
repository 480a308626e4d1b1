"""NVIDIA's device plugin: whole GPUs, replicas and MIG devices, and the evidence for which of them a key means."""

import pytest

from tests.webhook.dialects.rows import Row
from tests.webhook.pods import (
    HAMI,
    WHOLE,
    exactly,
    outcomes,
    patched,
    pod,
    refused,
    selected,
    untouched,
    verdict_of,
)
from webhook.dialects.plugins.gfd import profile_of

ONE = {"nvidia.com/gpu": 1}


def on(selector: str, value: str) -> dict:
    """A pod that requests a GPU on nodes with this label."""
    return pod(ONE, nodeSelector={selector: value})


def with_variable(name: str, value: str) -> dict:
    made = pod(ONE)
    made["spec"]["containers"][0]["env"] = [{"name": name, "value": value}]
    return made


# Node selectors that stay, and do not affect the meaning of a unit.
QUIET = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.memory": "40960",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/gpu.replicas": "1",
    "nvidia.com/gpu.family": "ampere",
    "nvidia.com/gpu.machine": "DGX",
    "nvidia.com/gpu.clique": "a.1",
    "nvidia.com/gpu.mode": "compute",
    "nvidia.com/gpu.multiprocessors": "14",
    "nvidia.com/mig.capable": "true",
    "nvidia.com/mig.strategy": "mixed",
    "nvidia.com/mig.config": "all-disabled",
    "nvidia.com/mps.capable": "false",
    "nvidia.com/device-plugin.config": "default",
    "cloud.google.com/gke-accelerator": "nvidia-tesla-a100",
    "cloud.google.com/gke-max-shared-clients-per-gpu": "1",
    "cloud.google.com/gke-accelerator-count": "1",
    "cloud.google.com/gke-gpu-driver-version": "latest",
}
FAMILIES = {
    "nvidia.com/gpu.compute.<part>": "nvidia.com/gpu.compute.major",
    "nvidia.com/gpu.engines.<part>": "nvidia.com/gpu.engines.copy",
    "nvidia.com/cuda.<part>": "nvidia.com/cuda.driver.major",
    "nvidia.com/vgpu.<part>": "nvidia.com/vgpu.host-driver-version",
    "nvidia.com/gpu.deploy.<part>": "nvidia.com/gpu.deploy.dcgm",
}
# The table has two rows of this name: a resource, and a node selector without effect.
MIG = Row(
    pod({"nvidia.com/mig-1g.5gb": 1}, nodeSelector={"nvidia.com/mig-1g.5gb": "x"}), "translated", key="nvidia.com/mig-1g.5gb"
)  # fmt: skip
DRAINS = ("nvidia.com/gpu-driver-upgrade-drain.skip", "nvidia.com/ofed-driver-upgrade-drain.skip")
ROWS = {
    "nvidia.com/gpu": Row(pod(ONE), "translated", WHOLE),
    "nvidia.com/gpu.shared": Row(
        pod({"nvidia.com/gpu.shared": 1}), "approximated", {"nvidia": {"consumableShares": True}}
    ),
    "nvidia.com/mig-<profile>": MIG,
    "nvidia.com/mig-<profile>.shared": Row(
        pod({"nvidia.com/mig-1g.5gb.shared": 1}), "left", key="nvidia.com/mig-1g.5gb.shared"
    ),
    "nvidia.com/pgpu": Row(pod({"nvidia.com/pgpu": 1}), "left"),
    "NVIDIA_VISIBLE_DEVICES": Row(with_variable("NVIDIA_VISIBLE_DEVICES", "all"), "", WHOLE),
    "NVIDIA_IMEX_CHANNELS": Row(with_variable("NVIDIA_IMEX_CHANNELS", "0"), "", WHOLE),
    "NVIDIA_MIG_CONFIG_DEVICES": Row(with_variable("NVIDIA_MIG_CONFIG_DEVICES", "all"), "", WHOLE),
    "NVIDIA_DRIVER_CAPABILITIES": Row(with_variable("NVIDIA_DRIVER_CAPABILITIES", "all"), "", WHOLE),
    "cloud.google.com/gke-gpu-sharing-strategy": Row(
        on("cloud.google.com/gke-gpu-sharing-strategy", "mps"), "left", WHOLE, key="nvidia.com/gpu"
    ),
    "cloud.google.com/gke-gpu-partition-size": Row(
        on("cloud.google.com/gke-gpu-partition-size", "1g.5gb"), "translated", key="nvidia.com/gpu"
    ),
    "nvidia.com/gpu.product": Row(on("nvidia.com/gpu.product", "T4-SHARED"), "left", WHOLE, key="nvidia.com/gpu"),
    "nvidia.com/gpu.sharing-strategy": Row(on("nvidia.com/gpu.sharing-strategy", "none"), "", WHOLE),
    "nvidia.com/gpu.slices.<part>": Row(on("nvidia.com/gpu.slices.gi", "1"), "left", WHOLE, key="nvidia.com/gpu"),
    **{name: Row(on(name, value), "", WHOLE) for name, value in QUIET.items()},
    **{name: Row(on(key, "1"), "", WHOLE, key=key) for name, key in FAMILIES.items()},
    **{name: Row(pod(ONE) | {"metadata": {"name": "p", "namespace": "n", "labels": {name: "true"}}}, "", WHOLE) for name in DRAINS},
}  # fmt: skip


@pytest.mark.parametrize(
    ("suffix", "profile"),
    [
        ("1g.5gb", "1g.5gb"),
        ("1g.5gb.me", "1g.5gb+me"),
        ("1g.24gb.me.all", "1g.24gb+me.all"),
        ("1g.24gb.gfx", "1g.24gb+gfx"),
        ("1g.24gb-me", "1g.24gb-me"),
        ("1c.3g.20gb", ""),
        ("5g.x", ""),
    ],
)
def test_mig_names_become_profiles(suffix, profile):
    assert profile_of(suffix) == profile


def test_a_name_that_only_looks_like_mig_is_left():
    done = verdict_of(pod({"nvidia.com/mig-1c.3g.20gb": 1}))
    assert untouched(done)
    assert done.warnings


@pytest.mark.parametrize(
    "selector",
    [
        {"cloud.google.com/gke-gpu-partition-size": "3g.20gb"},
        {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-3g.20gb"},
    ],
)
def test_a_mig_node_selector_requests_a_mig_device_and_stays(selector):
    value = pod({"nvidia.com/gpu": 1}, nodeSelector=selector)
    done = verdict_of(value)
    assert selected(done, profile="3g.20gb")
    assert not selected(done, profile="1g.5gb")
    assert exactly(done)[0]["class"] == "mig.nvidia.com"
    assert patched(value, done)["spec"]["nodeSelector"] == selector


def test_a_required_affinity_is_a_selector_too():
    expression = {"key": "nvidia.com/gpu.sharing-strategy", "operator": "In", "values": ["time-slicing"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert untouched(verdict_of(pod({"nvidia.com/gpu": 1}, affinity=affinity), **WHOLE))
    expression["operator"] = "NotIn"
    assert verdict_of(pod({"nvidia.com/gpu": 1}, affinity=affinity), **WHOLE).changed


def required(*terms: tuple) -> dict:
    """A required node affinity: terms of (key, operator, values)."""
    written = [
        {"matchExpressions": [{"key": key, "operator": how, "values": list(values)} for key, how, *values in term]}
        for term in terms
    ]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": written}}}


PRODUCT, STRATEGY = "nvidia.com/gpu.product", "nvidia.com/gpu.sharing-strategy"
GKE = "cloud.google.com/gke-"
WHOLE_TERM = ((PRODUCT, "In", "NVIDIA-A100-SXM4-40GB"),)

# Node affinities with which a unit of nvidia.com/gpu may be a replica or a MIG device.
NOT_WHOLE = {
    "two shared products": [((PRODUCT, "In", "A100-SHARED", "T4-SHARED"),)],
    "a shared and a whole product": [((PRODUCT, "In", "A100-SHARED", "T4"),)],
    "two terms of shared products": [((PRODUCT, "In", "A100-SHARED"),), ((PRODUCT, "In", "T4-SHARED"),)],
    "a whole term and a shared one": [WHOLE_TERM, ((PRODUCT, "In", "T4-SHARED"),)],
    "a MIG term and a whole one": [((PRODUCT, "In", "A100-MIG-1g.5gb"),), WHOLE_TERM],
    "two profiles": [((PRODUCT, "In", "A100-MIG-1g.5gb", "A100-MIG-2g.10gb"),)],
    "two profiles at once": [
        ((PRODUCT, "In", "A100-MIG-1g.5gb"), ("nvidia.com/mig.config", "In", "all-2g.10gb")),
    ],
    "any strategy but none": [((STRATEGY, "NotIn", "none"),)],
    "one strategy or the other": [((STRATEGY, "In", "mps", "time-slicing"),)],
    "a strategy or none": [((STRATEGY, "In", "mps", "none"),)],
    "replicas": [(("nvidia.com/gpu.replicas", "In", "4"),)],
    "more than one replica": [(("nvidia.com/gpu.replicas", "Gt", "1"),)],
    "not one replica": [(("nvidia.com/gpu.replicas", "NotIn", "1"),)],
    "GKE's sharing is there": [((f"{GKE}gpu-sharing-strategy", "Exists"),)],
    "GKE's clients": [((f"{GKE}max-shared-clients-per-gpu", "In", "8"),)],
    "GKE's clients are there": [((f"{GKE}max-shared-clients-per-gpu", "Exists"),)],
    "a shared MIG product": [((PRODUCT, "In", "A100-MIG-1g.5gb-SHARED"),)],
    "a MIG product that is broken": [((PRODUCT, "In", "A100-MIG-INVALID"),)],
    "MIG single": [(("nvidia.com/mig.strategy", "In", "single"),)],
    "MIG single, by exclusion": [(("nvidia.com/mig.strategy", "NotIn", "none", "mixed"),)],
    "a mixed MIG configuration": [(("nvidia.com/mig.config", "In", "all-balanced"),)],
    "MPS": [(("nvidia.com/mps.capable", "In", "true"),)],
    "some partition size": [((f"{GKE}gpu-partition-size", "Exists"),)],
    "beside another demand": [(("zone", "In", "a"), (STRATEGY, "In", "mps"))],
}


@pytest.mark.parametrize("terms", NOT_WHOLE.values(), ids=NOT_WHOLE)
def test_an_affinity_that_allows_partial_gpus_never_means_whole_gpus(terms):
    done = verdict_of(pod(ONE, affinity=required(*terms)), **WHOLE)
    assert untouched(done)
    assert outcomes(done) == {"nvidia.com/gpu": "left"}


PARTIAL = "may be a replica or a MIG device"
PROFILE = f"the pod selects {PRODUCT}=A100-MIG-1g.5gb"
REASONS = {
    "two shared products": f"is a replica of a shared GPU, because the pod selects {PRODUCT}=A100-SHARED",
    "a MIG term and a whole one": f"{PARTIAL}, because the pod's affinity terms disagree ({PROFILE})",
    "two profiles at once": f"{PARTIAL}, because {PROFILE} and the pod selects nvidia.com/mig.config=all-2g.10gb",
}


@pytest.mark.parametrize("case", REASONS)
def test_the_reason_names_the_selectors_that_show_a_partial_gpu(case):
    [warning] = verdict_of(pod(ONE, affinity=required(*NOT_WHOLE[case])), **WHOLE).warnings
    assert str(warning).endswith(f"left as it is: a unit {REASONS[case]}")


@pytest.mark.parametrize(
    "selector",
    [
        {"nvidia.com/gpu.replicas": "4"},
        {f"{GKE}max-shared-clients-per-gpu": "4"},
        {"nvidia.com/mig.strategy": "single"},
        {"nvidia.com/mig.config": "ours"},
    ],
)
def test_a_node_selector_can_indicate_a_partial_gpu(selector):
    assert untouched(verdict_of(pod(ONE, nodeSelector=selector), **WHOLE))


STILL_WHOLE = {
    "plain products": [((PRODUCT, "In", "A100", "H100"),)],
    "no MIG products": [((PRODUCT, "NotIn", "A100-MIG-1g.5gb"),)],
    "no sharing": [((STRATEGY, "NotIn", "mps", "time-slicing"),)],
    "none": [((STRATEGY, "In", "none"),)],
    "MIG off": [(("nvidia.com/mig.config", "In", "all-disabled"),)],
    "no replicas": [(("nvidia.com/gpu.replicas", "In", "1"),)],
    "sharing is not there": [((f"{GKE}gpu-sharing-strategy", "DoesNotExist"),)],
    "an empty term beside": [WHOLE_TERM, ()],
    "no values": [((STRATEGY, "In"),)],
}


@pytest.mark.parametrize("terms", STILL_WHOLE.values(), ids=STILL_WHOLE)
def test_selectors_that_exclude_partial_gpus_change_nothing(terms):
    done = verdict_of(pod(ONE, affinity=required(*terms)), **WHOLE)
    assert exactly(done) == [{"class": "gpu.nvidia.com", "count": 1}]


@pytest.mark.parametrize(
    "terms",
    [
        [(("nvidia.com/mig.strategy", "In", "single"), ("nvidia.com/mig.config", "In", "all-1g.5gb"))],
        [((PRODUCT, "In", "A100-MIG-1g.5gb", "A30-MIG-1g.5gb"),)],
        [((PRODUCT, "In", "A100-MIG-1g.5gb"),), ((f"{GKE}gpu-partition-size", "In", "1g.5gb"),)],
    ],
)
def test_one_profile_in_every_alternative_is_a_mig_device(terms):
    done = verdict_of(pod(ONE, affinity=required(*terms)), **WHOLE)
    assert selected(done, profile="1g.5gb")
    assert exactly(done)[0]["class"] == "mig.nvidia.com"


def test_a_preferred_affinity_is_ignored():
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [{"key": STRATEGY, "operator": "In", "values": ["mps"]}]}}
    ]}  # fmt: skip
    assert exactly(verdict_of(pod(ONE, affinity={"nodeAffinity": preferred}), **WHOLE))


def test_a_custom_plugin_configuration_is_left_unless_declared_whole():
    value = on("nvidia.com/device-plugin.config", "shared-4")
    assert untouched(verdict_of(value))
    assert "device-plugin.config" in verdict_of(value).warnings[0]
    assert exactly(verdict_of(value, **WHOLE)) == [{"class": "gpu.nvidia.com", "count": 1}]


@pytest.mark.parametrize("odd", [None, 1, "x", [], [None], [{"matchExpressions": 1}], [{"matchExpressions": [1]}]])
def test_an_odd_affinity_is_left_to_the_api_server(odd):
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": odd}}}
    assert exactly(verdict_of(pod(ONE, affinity=affinity), **WHOLE)) == [{"class": "gpu.nvidia.com", "count": 1}]


def test_a_plain_product_selector_stays_and_changes_nothing():
    selector = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    assert exactly(verdict_of(pod({"nvidia.com/gpu": 1}, nodeSelector=selector), **WHOLE)) == [
        {"class": "gpu.nvidia.com", "count": 1}
    ]


def test_a_gpu_and_a_mig_device_are_two_claims():
    value = pod({"nvidia.com/gpu": 1, "nvidia.com/mig-1g.5gb": 1})
    done = verdict_of(value, **WHOLE)
    claims = patched(value, done)["spec"]["containers"][0]["resources"]["claims"]
    assert claims == [{"name": "drawbridge-c0-gpu"}, {"name": "drawbridge-c0-mig"}]


def test_the_declared_meaning_decides():
    value = pod({"nvidia.com/gpu": 1})
    assert exactly(verdict_of(value, meanings={"nvidia.com/gpu": "mig:1g.5gb"}))[0]["class"] == "mig.nvidia.com"
    assert exactly(verdict_of(value, meanings={"nvidia.com/gpu": "hami"})) == [{"class": HAMI, "count": 1}]
    assert untouched(verdict_of(value, meanings={"nvidia.com/gpu": "leave"}))
    assert untouched(verdict_of(value, meanings={"nvidia.com/gpu": "shared"}))


def test_two_whole_gpus_are_one_request():
    assert exactly(verdict_of(pod({"nvidia.com/gpu": 2}), **WHOLE)) == [{"class": "gpu.nvidia.com", "count": 2}]


def test_a_mig_name_gets_its_plus_sign_back():
    done = verdict_of(pod({"nvidia.com/mig-1g.5gb.me": 1}))
    cel = 'device.attributes["gpu.nvidia.com"].?profile.orValue("") == "1g.5gb+me"'
    assert exactly(done) == [{"class": "mig.nvidia.com", "count": 1, "cel": [cel]}]


@pytest.mark.parametrize("key", ["rdma/hca_shared_devices_a", "nvidia.com/hostdev"])
def test_names_other_than_gpus_are_left(key):
    done = verdict_of(pod({key: 1}), **WHOLE)
    assert untouched(done)
    assert outcomes(done) == {key: "left"}


def test_a_nic_beside_a_gpu_stays_where_it_is():
    value = pod({"nvidia.com/gpu": 8, "nvidia.com/hostdev": 8})
    after = patched(value, verdict_of(value, **WHOLE))
    assert after["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/hostdev": 8}


def test_a_zero_request_makes_no_claim():
    assert untouched(verdict_of(pod({"nvidia.com/gpu": 0}), **WHOLE))


def test_the_users_claims_are_kept():
    value = pod({"nvidia.com/gpu": 1}, resourceClaims=[{"name": "mine", "resourceClaimName": "x"}])
    value["spec"]["containers"][0]["resources"]["claims"] = [{"name": "mine"}]
    after = patched(value, verdict_of(value, **WHOLE))["spec"]
    assert after["resourceClaims"][0] == {"name": "mine", "resourceClaimName": "x"}
    assert [claim["name"] for claim in after["containers"][0]["resources"]["claims"]] == ["mine", "drawbridge-c0-gpu"]


@pytest.mark.parametrize(
    "resources",
    [{"requests": {"nvidia.com/gpu": 1}}, {"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}}],
    ids=["requests only", "unequal"],
)
def test_requests_that_are_not_the_limits_are_refused(resources):
    value = pod({})
    value["spec"]["containers"][0]["resources"] = resources
    assert refused(verdict_of(value, **WHOLE))


def test_gpus_with_several_nics_each_are_split_between_pairs():
    value = pod({"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 32})
    done = verdict_of(
        value,
        **WHOLE,
        joint=[{"primary": "nvidia.com/gpu", "secondary": "vpc.amazonaws.com/efa"}],
    )
    (spec,) = done.templates.values()  # two claims of one template
    parts = spec["spec"]["devices"]
    assert len(parts["constraints"]) == 4
    assert sum(request["exactly"]["count"] for request in parts["requests"]) == 20
    assert len(patched(value, done)["spec"]["resourceClaims"]) == 2
