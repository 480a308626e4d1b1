"""Which containers use a claim. Init containers reuse the devices of later containers, so a pod gets as many as Kubernetes counts for it."""

from hypothesis import given
from hypothesis import strategies as st

from dra.budget import Budget
from dra.objects import ResourceClaimSpec
from tests.loops import every
from tests.webhook.pods import WHOLE_GPUS, container, patched, pod, verdict_of
from webhook.claims import ContainerDemand, share
from webhook.claims.spec import Claims
from webhook.dialects.vocabulary import Demand

GPU = "nvidia.com/gpu"


def container_with_gpus(name: str, count: int, **fields) -> dict:
    return container(name, {GPU: count} if count else {}, **fields)


def devices_and_total(value: dict) -> tuple[dict[str, set[tuple[str, str, int]]], int]:
    """Return the devices that each container uses, and the number of devices of all claims.

    A device is a claim, a request and an index.
    """
    verdict = verdict_of(value, **WHOLE_GPUS)
    assert not verdict.refusals
    spec = patched(value, verdict)["spec"] if verdict.changed else value["spec"]
    counts_by_request = {}
    for entry in spec.get("resourceClaims", []):
        requests = verdict.templates[entry["resourceClaimTemplateName"]]["spec"]["devices"]["requests"]
        counts_by_request[entry["name"]] = {request["name"]: request["exactly"]["count"] for request in requests}
    devices_by_container = {}
    for each_container in (*spec.get("initContainers", []), *spec["containers"]):
        devices_by_container[each_container["name"]] = {
            (claim["name"], name, i)
            for claim in each_container["resources"].get("claims", [])
            for name, count in counts_by_request[claim["name"]].items()
            if claim.get("request", name) == name
            for i in range(count)
        }
    return devices_by_container, sum(count for counts in counts_by_request.values() for count in counts.values())


def effective_request(value: dict) -> int:
    """Return the number of GPUs that Kubernetes counts for a pod (k8s.io/component-helpers/resource, PodRequests)."""
    sidecar_gpus, peak_gpus = 0, 0
    for each_container in value["spec"].get("initContainers", []):
        count = each_container["resources"]["limits"].get(GPU, 0)
        if each_container.get("restartPolicy") == "Always":
            sidecar_gpus += count
            peak_gpus = max(peak_gpus, sidecar_gpus)
        else:
            peak_gpus = max(peak_gpus, sidecar_gpus + count)
    return max(
        peak_gpus,
        sidecar_gpus + sum(container["resources"]["limits"].get(GPU, 0) for container in value["spec"]["containers"]),
    )


@st.composite
def pods(draw, max_gpus: int = 5) -> dict:
    init_containers = [
        container_with_gpus(
            f"i{i}", draw(st.integers(0, max_gpus)), **({"restartPolicy": "Always"} if draw(st.booleans()) else {})
        )
        for i in range(draw(st.integers(0, 4)))
    ]
    manifest = pod(*({GPU: draw(st.integers(0, max_gpus))} for _ in range(draw(st.integers(1, 3)))))
    manifest["spec"]["initContainers"] = init_containers
    return manifest


@given(pods())
def test_each_container_gets_its_number_of_devices_and_shares_none_with_concurrent_containers(value):
    devices_by_container, total = devices_and_total(value)
    assert total == effective_request(value)
    devices_in_use: set = set()
    init_containers = value["spec"]["initContainers"]
    for each_container in (*init_containers, *value["spec"]["containers"]):
        container_devices = devices_by_container[each_container["name"]]
        assert len(container_devices) == each_container["resources"]["limits"].get(GPU, 0)
        assert not container_devices & devices_in_use
        if each_container not in init_containers or each_container.get("restartPolicy") == "Always":
            devices_in_use |= container_devices


def test_an_init_container_reuses_some_devices_of_two_claims():
    # A claim can have 32 devices, so 40 GPUs need two claims.
    manifest = pod({GPU: 40}, init=(container_with_gpus("i", 35),))
    devices_by_container, total = devices_and_total(manifest)
    assert (len(devices_by_container["i"]), len(devices_by_container["c0"]), total) == (35, 40, 40)
    assert devices_by_container["i"] < devices_by_container["c0"]


def claims_and_warnings(*limits: dict, init: dict) -> tuple[dict, tuple[str, ...]]:
    manifest = pod(*limits, init=(container("i", init),))
    verdict = verdict_of(manifest)
    patched_spec = patched(manifest, verdict)["spec"]
    claims_by_container = {
        container["name"]: [claim["name"] for claim in container["resources"]["claims"]]
        for container in (*patched_spec["initContainers"], *patched_spec["containers"])
    }
    return claims_by_container, verdict.warnings


# A pod with this key requests a share of a GPU: the memory in MiB.
MEM = "nvidia.com/gpumem"


def test_an_init_container_with_an_equal_share_reuses_the_claim():
    claims_by_container, _ = claims_and_warnings({MEM: 3000}, init={MEM: 3000})
    assert claims_by_container == {"i": ["drawbridge-c0-gpu"], "c0": ["drawbridge-c0-gpu"]}


def test_a_smaller_init_container_share_uses_the_larger_claim():
    claims_by_container, warnings = claims_and_warnings({MEM: 3000}, init={MEM: 1000})
    assert claims_by_container["i"] == claims_by_container["c0"]
    assert any("larger claim of container c0" in warning for warning in warnings)


def test_a_larger_init_container_share_has_its_own_claim():
    claims_by_container, warnings = claims_and_warnings({MEM: 1000}, init={MEM: 3000})
    assert claims_by_container == {"i": ["drawbridge-i-gpu"], "c0": ["drawbridge-c0-gpu"]}
    assert any("until the pod ends" in warning for warning in warnings)


def test_two_init_containers_with_equal_shares_use_one_claim():
    manifest = pod({}, init=(container("a", {MEM: 1000}), container("b", {MEM: 1000})))
    patched_spec = patched(manifest, verdict_of(manifest))["spec"]
    assert len(patched_spec["resourceClaims"]) == 1


def test_a_sidecar_shares_its_claim_with_no_later_init_container():
    manifest = pod({}, init=(container("s", {MEM: 1000}, restartPolicy="Always"), container("i", {MEM: 1000})))
    patched_spec = patched(manifest, verdict_of(manifest))["spec"]
    assert len(patched_spec["resourceClaims"]) == 2


GPU_SHARE = Demand(target="vgpu", memory=10, cores=10)


@every(
    ("later_demand", "init_demand", "is_reused"),
    [
        (GPU_SHARE, GPU_SHARE, True),
        (GPU_SHARE, Demand(target="vgpu", memory=5, cores=10), True),
        (GPU_SHARE, Demand(target="vgpu", memory=11, cores=10), False),
        (GPU_SHARE, Demand(target="vgpu", memory=5, cores=11), False),
        (GPU_SHARE, Demand(target="vgpu"), False),
        (Demand(target="vgpu"), GPU_SHARE, True),
        (Demand(target="vgpu", cores=10), GPU_SHARE, True),
        (GPU_SHARE, Demand(target="vgpu", cores=10), False),
        (GPU_SHARE, Demand(target="gpu", memory=5, cores=10), False),
        (GPU_SHARE, Demand(target="vgpu", memory=5, cores=10, models=("x",)), False),
        (GPU_SHARE.times(2), GPU_SHARE, True),
        (GPU_SHARE, GPU_SHARE.times(2), False),
        (Demand(target="vgpu", memory_percent=50, cores=0), Demand(target="vgpu", memory_percent=40, cores=0), False),
    ],
)
def test_an_init_container_reuses_only_claims_that_surely_suffice(later_demand, init_demand, is_reused):
    claims = Claims(specs=(ResourceClaimSpec(),), needs=(), base="gpu")
    later_container = ContainerDemand(container="c", demand=later_demand, claims=claims, separable=False, order=1)
    init_container = ContainerDemand(
        container="i", demand=init_demand, claims=claims, separable=False, order=0, init=True
    )
    users = {grant.users for grant in share((later_container, init_container), lambda _: claims, Budget()).grants}
    assert users == ({("c", "i")} if is_reused else {("c",), ("i",)})
