"""NVIDIA's device plugin: whole GPUs, replicas and MIG devices, and the evidence for which of them a key means."""

import pytest

from tests.loops import every
from tests.webhook.dialects.rows import Row
from tests.webhook.pods import (
    HAMI,
    WHOLE_GPUS,
    exactly,
    expression,
    outcomes,
    patched,
    pod,
    refused,
    required_affinity,
    selected,
    untouched,
    verdict_of,
)
from webhook.dialects.nvidia.gfd import profile_of

ONE_GPU = {"nvidia.com/gpu": 1}


def pod_selecting(selector: str, value: str) -> dict:
    """Return a pod that requests a GPU on nodes with this label."""
    return pod(ONE_GPU, nodeSelector={selector: value})


def pod_with_variable(name: str, value: str) -> dict:
    manifest = pod(ONE_GPU)
    manifest["spec"]["containers"][0]["env"] = [{"name": name, "value": value}]
    return manifest


# Node selectors that stay on the pod and do not affect what a unit of nvidia.com/gpu means.
SELECTORS_WITHOUT_EFFECT = {
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
EXAMPLES_OF_ROWS = {
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
DRAIN_LABELS = ("nvidia.com/gpu-driver-upgrade-drain.skip", "nvidia.com/ofed-driver-upgrade-drain.skip")
ROWS = {
    "nvidia.com/gpu": Row(pod(ONE_GPU), "translated", WHOLE_GPUS),
    "nvidia.com/gpu.shared": Row(
        pod({"nvidia.com/gpu.shared": 1}), "approximated", {"nvidia": {"consumableShares": True}}
    ),
    "nvidia.com/mig-<profile>": MIG,
    "nvidia.com/mig-<profile>.shared": Row(
        pod({"nvidia.com/mig-1g.5gb.shared": 1}), "left", key="nvidia.com/mig-1g.5gb.shared"
    ),
    "nvidia.com/pgpu": Row(pod({"nvidia.com/pgpu": 1}), "left"),
    "NVIDIA_VISIBLE_DEVICES": Row(pod_with_variable("NVIDIA_VISIBLE_DEVICES", "all"), "", WHOLE_GPUS),
    "NVIDIA_IMEX_CHANNELS": Row(pod_with_variable("NVIDIA_IMEX_CHANNELS", "0"), "", WHOLE_GPUS),
    "NVIDIA_MIG_CONFIG_DEVICES": Row(pod_with_variable("NVIDIA_MIG_CONFIG_DEVICES", "all"), "", WHOLE_GPUS),
    "NVIDIA_DRIVER_CAPABILITIES": Row(pod_with_variable("NVIDIA_DRIVER_CAPABILITIES", "all"), "", WHOLE_GPUS),
    "cloud.google.com/gke-gpu-sharing-strategy": Row(
        pod_selecting("cloud.google.com/gke-gpu-sharing-strategy", "mps"), "left", WHOLE_GPUS, key="nvidia.com/gpu"
    ),
    "cloud.google.com/gke-gpu-partition-size": Row(
        pod_selecting("cloud.google.com/gke-gpu-partition-size", "1g.5gb"), "translated", key="nvidia.com/gpu"
    ),
    "nvidia.com/gpu.product": Row(pod_selecting("nvidia.com/gpu.product", "T4-SHARED"), "left", WHOLE_GPUS, key="nvidia.com/gpu"),
    "nvidia.com/gpu.sharing-strategy": Row(pod_selecting("nvidia.com/gpu.sharing-strategy", "none"), "", WHOLE_GPUS),
    "nvidia.com/gpu.slices.<part>": Row(pod_selecting("nvidia.com/gpu.slices.gi", "1"), "left", WHOLE_GPUS, key="nvidia.com/gpu"),
    **{name: Row(pod_selecting(name, value), "", WHOLE_GPUS) for name, value in SELECTORS_WITHOUT_EFFECT.items()},
    **{name: Row(pod_selecting(key, "1"), "", WHOLE_GPUS, key=key) for name, key in EXAMPLES_OF_ROWS.items()},
    **{name: Row(pod(ONE_GPU) | {"metadata": {"name": "p", "namespace": "n", "labels": {name: "true"}}}, "", WHOLE_GPUS) for name in DRAIN_LABELS},
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


def test_a_name_that_only_looks_like_mig_is_left_unchanged():
    verdict = verdict_of(pod({"nvidia.com/mig-1c.3g.20gb": 1}))
    assert untouched(verdict)
    assert verdict.warnings


@pytest.mark.parametrize(
    "selector",
    [
        {"cloud.google.com/gke-gpu-partition-size": "3g.20gb"},
        {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-3g.20gb"},
    ],
)
def test_a_mig_node_selector_requests_a_mig_device_and_stays(selector):
    manifest = pod({"nvidia.com/gpu": 1}, nodeSelector=selector)
    verdict = verdict_of(manifest)
    assert selected(verdict, profile="3g.20gb")
    assert not selected(verdict, profile="1g.5gb")
    assert exactly(verdict)[0]["class"] == "mig.nvidia.com"
    assert patched(manifest, verdict)["spec"]["nodeSelector"] == selector


def affinity_of(terms: list[tuple]) -> dict:
    """Return a required node affinity. An expression of a term is a tuple of a key, an operator and values."""
    return required_affinity(
        *({"matchExpressions": [part for of in term for part in expression(*of)["matchExpressions"]]} for term in terms)
    )


PRODUCT, STRATEGY = "nvidia.com/gpu.product", "nvidia.com/gpu.sharing-strategy"
GKE = "cloud.google.com/gke-"
WHOLE_TERM = ((PRODUCT, "In", "NVIDIA-A100-SXM4-40GB"),)

# Node affinities with which a unit of nvidia.com/gpu may be a replica or a MIG device.
PARTIAL_GPU_AFFINITIES = {
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
    "any sharing strategy of GKE": [((f"{GKE}gpu-sharing-strategy", "Exists"),)],
    "eight shared clients of GKE": [((f"{GKE}max-shared-clients-per-gpu", "In", "8"),)],
    "any number of shared clients of GKE": [((f"{GKE}max-shared-clients-per-gpu", "Exists"),)],
    "a shared MIG product": [((PRODUCT, "In", "A100-MIG-1g.5gb-SHARED"),)],
    "a MIG product that is broken": [((PRODUCT, "In", "A100-MIG-INVALID"),)],
    "MIG single": [(("nvidia.com/mig.strategy", "In", "single"),)],
    "MIG single, by exclusion": [(("nvidia.com/mig.strategy", "NotIn", "none", "mixed"),)],
    "a mixed MIG configuration": [(("nvidia.com/mig.config", "In", "all-balanced"),)],
    "MPS": [(("nvidia.com/mps.capable", "In", "true"),)],
    "any partition size": [((f"{GKE}gpu-partition-size", "Exists"),)],
    "a zone and a sharing strategy": [(("zone", "In", "a"), (STRATEGY, "In", "mps"))],
}


@every("terms", PARTIAL_GPU_AFFINITIES.values())
def test_an_affinity_that_allows_partial_gpus_never_means_whole_gpus(terms):
    verdict = verdict_of(pod(ONE_GPU, affinity=affinity_of(terms)), **WHOLE_GPUS)
    assert untouched(verdict)
    assert outcomes(verdict) == {"nvidia.com/gpu": "left"}


PARTIAL = "may be a replica or a MIG device"
PROFILE = f"the pod selects {PRODUCT}=A100-MIG-1g.5gb"
REASONS = {
    "two shared products": f"is a replica of a shared GPU, because the pod selects {PRODUCT}=A100-SHARED",
    "a MIG term and a whole one": f"{PARTIAL}, because the pod's affinity terms disagree ({PROFILE})",
    "two profiles at once": f"{PARTIAL}, because {PROFILE} and the pod selects nvidia.com/mig.config=all-2g.10gb",
}


@pytest.mark.parametrize("case", REASONS)
def test_the_reason_names_the_selectors_that_show_a_partial_gpu(case):
    [warning] = verdict_of(pod(ONE_GPU, affinity=affinity_of(PARTIAL_GPU_AFFINITIES[case])), **WHOLE_GPUS).warnings
    assert str(warning).endswith(f"left as it is: a unit {REASONS[case]}")


@pytest.mark.parametrize(
    "selector",
    [
        {"nvidia.com/gpu.replicas": "4"},
        {f"{GKE}max-shared-clients-per-gpu": "4"},
        {"nvidia.com/mig.strategy": "single"},
        {"nvidia.com/mig.config": "ours"},
        {f"{GKE}gpu-sharing-strategy": "time-sharing"},
        {STRATEGY: "mps"},
        {PRODUCT: "NVIDIA-A100-SXM4-40GB-SHARED"},
    ],
)
def test_a_node_selector_can_indicate_a_partial_gpu(selector):
    assert untouched(verdict_of(pod(ONE_GPU, nodeSelector=selector), **WHOLE_GPUS))


WHOLE_GPU_AFFINITIES = {
    "plain products": [((PRODUCT, "In", "A100", "H100"),)],
    "no MIG products": [((PRODUCT, "NotIn", "A100-MIG-1g.5gb"),)],
    "no sharing": [((STRATEGY, "NotIn", "mps", "time-slicing"),)],
    "strategy none": [((STRATEGY, "In", "none"),)],
    "MIG off": [(("nvidia.com/mig.config", "In", "all-disabled"),)],
    "no replicas": [(("nvidia.com/gpu.replicas", "In", "1"),)],
    "no sharing strategy of GKE": [((f"{GKE}gpu-sharing-strategy", "DoesNotExist"),)],
    "a whole term and an empty one": [WHOLE_TERM, ()],
    "a strategy without values": [((STRATEGY, "In"),)],
}


@pytest.mark.parametrize("terms", WHOLE_GPU_AFFINITIES.values(), ids=WHOLE_GPU_AFFINITIES)
def test_an_affinity_that_excludes_partial_gpus_means_whole_gpus(terms):
    verdict = verdict_of(pod(ONE_GPU, affinity=affinity_of(terms)), **WHOLE_GPUS)
    assert exactly(verdict) == [{"class": "gpu.nvidia.com", "count": 1}]


@pytest.mark.parametrize(
    "terms",
    [
        [(("nvidia.com/mig.strategy", "In", "single"), ("nvidia.com/mig.config", "In", "all-1g.5gb"))],
        [((PRODUCT, "In", "A100-MIG-1g.5gb", "A30-MIG-1g.5gb"),)],
        [((PRODUCT, "In", "A100-MIG-1g.5gb"),), ((f"{GKE}gpu-partition-size", "In", "1g.5gb"),)],
    ],
)
def test_one_profile_in_every_alternative_is_a_mig_device(terms):
    verdict = verdict_of(pod(ONE_GPU, affinity=affinity_of(terms)), **WHOLE_GPUS)
    assert selected(verdict, profile="1g.5gb")
    assert exactly(verdict)[0]["class"] == "mig.nvidia.com"


def test_a_preferred_affinity_is_ignored():
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [{"key": STRATEGY, "operator": "In", "values": ["mps"]}]}}
    ]}  # fmt: skip
    assert exactly(verdict_of(pod(ONE_GPU, affinity={"nodeAffinity": preferred}), **WHOLE_GPUS))


def test_pods_for_custom_plugin_configurations_need_a_declared_meaning():
    manifest = pod_selecting("nvidia.com/device-plugin.config", "shared-4")
    assert untouched(verdict_of(manifest))
    assert "device-plugin.config" in verdict_of(manifest).warnings[0]
    assert exactly(verdict_of(manifest, **WHOLE_GPUS)) == [{"class": "gpu.nvidia.com", "count": 1}]


@pytest.mark.parametrize(
    "malformed", [None, 1, "x", [], [None], [{"matchExpressions": 1}], [{"matchExpressions": [1]}]]
)
def test_a_malformed_affinity_does_not_affect_the_translation(malformed):
    affinity = required_affinity()
    affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] = malformed
    verdict = verdict_of(pod(ONE_GPU, affinity=affinity), **WHOLE_GPUS)
    assert exactly(verdict) == [{"class": "gpu.nvidia.com", "count": 1}]


def test_a_gpu_and_a_mig_device_are_two_claims():
    manifest = pod({"nvidia.com/gpu": 1, "nvidia.com/mig-1g.5gb": 1})
    verdict = verdict_of(manifest, **WHOLE_GPUS)
    claims = patched(manifest, verdict)["spec"]["containers"][0]["resources"]["claims"]
    assert claims == [{"name": "drawbridge-c0-gpu"}, {"name": "drawbridge-c0-mig"}]


def test_the_declared_meaning_of_a_unit_decides_what_is_requested():
    manifest = pod({"nvidia.com/gpu": 1})
    assert exactly(verdict_of(manifest, meanings={"nvidia.com/gpu": "mig:1g.5gb"}))[0]["class"] == "mig.nvidia.com"
    assert exactly(verdict_of(manifest, meanings={"nvidia.com/gpu": "hami"})) == [{"class": HAMI, "count": 1}]
    assert untouched(verdict_of(manifest, meanings={"nvidia.com/gpu": "leave"}))
    assert untouched(verdict_of(manifest, meanings={"nvidia.com/gpu": "shared"}))


def test_a_mig_profile_gets_its_plus_sign_back():
    verdict = verdict_of(pod({"nvidia.com/mig-1g.5gb.me": 1}))
    cel = 'device.attributes["gpu.nvidia.com"].?profile.orValue("") == "1g.5gb+me"'
    assert exactly(verdict) == [{"class": "mig.nvidia.com", "count": 1, "cel": [cel]}]


def test_a_zero_request_makes_no_claim():
    assert untouched(verdict_of(pod({"nvidia.com/gpu": 0}), **WHOLE_GPUS))


def test_the_users_claims_are_kept():
    manifest = pod({"nvidia.com/gpu": 1}, resourceClaims=[{"name": "mine", "resourceClaimName": "x"}])
    manifest["spec"]["containers"][0]["resources"]["claims"] = [{"name": "mine"}]
    patched_spec = patched(manifest, verdict_of(manifest, **WHOLE_GPUS))["spec"]
    assert patched_spec["resourceClaims"][0] == {"name": "mine", "resourceClaimName": "x"}
    assert [claim["name"] for claim in patched_spec["containers"][0]["resources"]["claims"]] == [
        "mine",
        "drawbridge-c0-gpu",
    ]


@pytest.mark.parametrize(
    "resources",
    [{"requests": {"nvidia.com/gpu": 1}}, {"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}}],
    ids=["requests only", "unequal"],
)
def test_requests_that_differ_from_the_limits_are_refused(resources):
    manifest = pod({})
    manifest["spec"]["containers"][0]["resources"] = resources
    assert refused(verdict_of(manifest, **WHOLE_GPUS))
