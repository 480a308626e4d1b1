"""Which container uses which claim: init containers reuse the devices of later containers, as Kubernetes counts a pod's request."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dra.budget import Budget
from dra.objects import ResourceClaimSpec
from tests.draws import draws
from tests.webhook.pods import WHOLE, container, patched, pod, verdict_of
from webhook.claims import ContainerDemand, share
from webhook.claims.spec import Claims
from webhook.dialects.vocabulary import Demand

GPU = "nvidia.com/gpu"


def sized(name: str, count: int, **more) -> dict:
    return container(name, {GPU: count} if count else {}, **more)


def seen(value: dict) -> tuple[dict[str, set[tuple[str, str, int]]], int]:
    """Return the devices that each container uses, and the number of devices of all claims."""
    done = verdict_of(value, **WHOLE)
    assert not done.refusals
    spec = patched(value, done)["spec"] if done.changed else value["spec"]
    parts = {}
    for entry in spec.get("resourceClaims", []):
        requests = done.templates[entry["resourceClaimTemplateName"]]["spec"]["devices"]["requests"]
        parts[entry["name"]] = {request["name"]: request["exactly"]["count"] for request in requests}
    views = {}
    for each_container in (*spec.get("initContainers", []), *spec["containers"]):
        views[each_container["name"]] = {
            (claim["name"], name, i)
            for claim in each_container["resources"].get("claims", [])
            for name, count in parts[claim["name"]].items()
            if claim.get("request", name) == name
            for i in range(count)
        }
    return views, sum(count for part in parts.values() for count in part.values())


def effective(value: dict) -> int:
    """Kubernetes' effective request of a pod (k8s.io/component-helpers/resource, PodRequests)."""
    lasting, most = 0, 0
    for each_container in value["spec"].get("initContainers", []):
        count = each_container["resources"]["limits"].get(GPU, 0)
        if each_container.get("restartPolicy") == "Always":
            lasting += count
            most = max(most, lasting)
        else:
            most = max(most, lasting + count)
    return max(
        most, lasting + sum(container["resources"]["limits"].get(GPU, 0) for container in value["spec"]["containers"])
    )


@st.composite
def pods(draw, most: int = 5) -> dict:
    inits = [
        sized(f"i{i}", draw(st.integers(0, most)), **({"restartPolicy": "Always"} if draw(st.booleans()) else {}))
        for i in range(draw(st.integers(0, 4)))
    ]
    value = pod(*({GPU: draw(st.integers(0, most))} for _ in range(draw(st.integers(1, 3)))))
    value["spec"]["initContainers"] = inits
    return value


@settings(max_examples=draws(150), deadline=None)
@given(pods())
def test_each_container_sees_its_number_of_devices(value):
    views, total = seen(value)
    assert total == effective(value)
    for each_container in (*value["spec"]["initContainers"], *value["spec"]["containers"]):
        assert len(views[each_container["name"]]) == each_container["resources"]["limits"].get(GPU, 0)


@settings(max_examples=draws(150), deadline=None)
@given(pods())
def test_concurrent_containers_never_share_a_device(value):
    views, _ = seen(value)
    running: set = set()
    for each_container in value["spec"]["initContainers"]:
        mine = views[each_container["name"]]
        assert not mine & running
        if each_container.get("restartPolicy") == "Always":
            running |= mine
    for each_container in value["spec"]["containers"]:
        mine = views[each_container["name"]]
        assert not mine & running
        running |= mine


def test_spans_are_cut_at_a_full_claim():
    value = pod({GPU: 40}, init=(sized("i", 35),))
    views, total = seen(value)
    assert (len(views["i"]), len(views["c0"]), total) == (35, 40, 40)
    assert views["i"] < views["c0"]


def test_a_device_that_an_init_container_reuses_is_counted_once():
    value = pod({GPU: 100}, init=(sized("i", 100),))
    assert seen(value)[1] == 100


def test_a_larger_init_container_gets_extra_devices():
    value = pod({GPU: 1}, init=(sized("i", 3),))
    views, total = seen(value)
    assert (len(views["i"]), total) == (3, 3)
    assert views["c0"] < views["i"]


def shares(*limits: dict, init: dict) -> tuple[dict, tuple[str, ...]]:
    value = pod(*limits, init=(container("i", init),))
    done = verdict_of(value)
    after = patched(value, done)["spec"]
    names = {
        container["name"]: [claim["name"] for claim in container["resources"]["claims"]]
        for container in (*after["initContainers"], *after["containers"])
    }
    return names, done.warnings


MEM = "nvidia.com/gpumem"


def test_equal_shares_are_one_claim():
    names, _ = shares({MEM: 3000}, init={MEM: 3000})
    assert names == {"i": ["drawbridge-c0-gpu"], "c0": ["drawbridge-c0-gpu"]}


def test_a_smaller_share_uses_the_larger_claim_with_a_warning():
    names, warnings = shares({MEM: 3000}, init={MEM: 1000})
    assert names["i"] == names["c0"]
    assert any("larger claim of container c0" in warning for warning in warnings)


def test_a_larger_share_gets_its_own_claim_with_a_warning():
    names, warnings = shares({MEM: 1000}, init={MEM: 3000})
    assert names == {"i": ["drawbridge-i-gpu"], "c0": ["drawbridge-c0-gpu"]}
    assert any("until the pod ends" in warning for warning in warnings)


def test_two_init_containers_share_their_common_devices():
    value = pod({}, init=(container("a", {MEM: 1000}), container("b", {MEM: 1000})))
    after = patched(value, verdict_of(value))["spec"]
    assert len(after["resourceClaims"]) == 1


def test_an_earlier_sidecar_shares_its_devices_with_no_container():
    value = pod({}, init=(container("s", {MEM: 1000}, restartPolicy="Always"), container("i", {MEM: 1000})))
    after = patched(value, verdict_of(value))["spec"]
    assert len(after["resourceClaims"]) == 2


SHARE = Demand(target="vgpu", memory=10, cores=10)


@pytest.mark.parametrize(
    ("large", "small", "yes"),
    [
        (SHARE, SHARE, True),
        (SHARE, Demand(target="vgpu", memory=5, cores=10), True),
        (SHARE, Demand(target="vgpu", memory=11, cores=10), False),
        (SHARE, Demand(target="vgpu", memory=5, cores=11), False),
        (SHARE, Demand(target="vgpu"), False),
        (Demand(target="vgpu"), SHARE, True),
        (Demand(target="vgpu", cores=10), SHARE, True),
        (SHARE, Demand(target="vgpu", cores=10), False),
        (SHARE, Demand(target="gpu", memory=5, cores=10), False),
        (SHARE, Demand(target="vgpu", memory=5, cores=10, models=("x",)), False),
        (SHARE.times(2), SHARE, True),
        (SHARE, SHARE.times(2), False),
        (Demand(target="vgpu", memory_percent=50, cores=0), Demand(target="vgpu", memory_percent=40, cores=0), False),
    ],
)
def test_an_init_container_reuses_a_claim_with_sufficient_amounts(large, small, yes):
    claims = Claims(specs=(ResourceClaimSpec(),), needs=(), base="gpu")
    lasting = ContainerDemand(container="c", demand=large, claims=claims, separable=False, order=1)
    init = ContainerDemand(container="i", demand=small, claims=claims, separable=False, order=0, init=True)
    users = {grant.users for grant in share((lasting, init), lambda _: claims, Budget()).grants}
    assert users == ({("c", "i")} if yes else {("c",), ("i",)})
