"""CPUs of Guaranteed pods by claim: which containers get them."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dra import wire
from dra.objects.claim import ResourceClaimSpec
from dra.quantity import parse
from tests.draws import draws
from tests.webhook.pods import WHOLE, configured, container, patched, pod, replayed, untouched
from tests.webhook.translate.cpu_fleets import EVERYWHERE, GPU, TWO, cpus_on, exactly_of, outcomes_of, users, verdict_of
from webhook.dialects.table import Outcome
from webhook.names import DEVICES, ORIGINAL
from webhook.state import State
from webhook.state.features import Features
from webhook.translate.cpus import whole_cpus
from webhook.translate.pod_view import view_pod
from webhook.translate.translate import translate

SIDECAR = {"restartPolicy": "Always"}
CONFIGURATION = configured()


# Which pods are Guaranteed: Kubernetes' rule, written out on pods with all defaults


def by_kubernetes(value):
    """Return the containers for which the kubelet's static CPU manager would reserve CPUs, and how many (qos.ComputePodQOS, guaranteedCPUs)."""
    spec = copy.deepcopy(value["spec"])
    containers = [*spec.get("initContainers", []), *spec["containers"]]
    for each_container in containers:
        each_container.setdefault("resources", {}).setdefault("requests", {})
        for name, amount in each_container["resources"].get("limits", {}).items():
            each_container["resources"]["requests"].setdefault(name, amount)
    whole = spec.get("resources", {})
    pod_level = any(name in ("cpu", "memory") for part in ("requests", "limits") for name in whole.get(part, {}))
    if pod_level:
        whole.setdefault("requests", {})
        for name in ("cpu", "memory"):
            requests = [
                container["resources"]["requests"]
                for container in containers
                if name in container["resources"]["requests"]
            ]
            if name not in whole["requests"] and requests and whole.get("limits"):
                lasting = most = 0
                for container in containers:
                    amount = parse(container["resources"]["requests"].get(name, "0")).nano
                    if container in spec.get("initContainers", []) and container.get("restartPolicy") != "Always":
                        most = max(most, lasting + amount)
                    else:
                        lasting += amount
                whole["requests"][name] = f"{max(most, lasting)}n"
            elif name not in whole["requests"] and name in whole.get("limits", {}):
                whole["requests"][name] = whole["limits"][name]

    def quality(resources):
        requested, limits = resources.get("requests", {}), resources.get("limits", {})
        kinds = set()
        for name in ("cpu", "memory"):
            request, limit = (parse(some.get(name, "0")).nano for some in (requested, limits))
            kinds.add("Burstable" if request != limit else "Guaranteed" if request else "BestEffort")
        return kinds.pop() if len(kinds) == 1 else "Burstable"

    of_pod = {quality(whole)} if pod_level else {quality(container["resources"]) for container in containers}
    if of_pod != {"Guaranteed"}:
        return {}
    cpus = {}
    for container in containers:
        amount = parse(container["resources"]["requests"].get("cpu", "0")).nano
        if amount and amount % 10**9 == 0 and (not pod_level or quality(container["resources"]) == "Guaranteed"):
            cpus[container["name"]] = amount // 10**9
    return cpus


AMOUNTS = {"cpu": ("1", "2", "2000m", "1500m", "0", "0.5", "2e0"), "memory": ("1Gi", "1024Mi", "2Gi", "0")}
LIST = st.fixed_dictionaries({}, optional={name: st.sampled_from(some) for name, some in AMOUNTS.items()})
# Most containers are drawn as Guaranteed, because otherwise few pods would be.
EQUAL = st.fixed_dictionaries(
    {"cpu": st.sampled_from(("1", "2", "1500m")), "memory": st.sampled_from(("1Gi", "2Gi"))}
).map(lambda some: {"limits": some, "requests": dict(some)})
LIMITED = EQUAL.map(lambda requests: {"limits": requests["limits"]})
ANY = st.fixed_dictionaries({}, optional={"limits": LIST, "requests": LIST})
RESOURCES = st.one_of(EQUAL, EQUAL, EQUAL, LIMITED, LIMITED, ANY)


@st.composite
def pods(draw):
    spec = {"containers": [], "initContainers": []}
    for some, most in (("containers", 3), ("initContainers", 2)):
        for i in range(draw(st.integers(1 if some == "containers" else 0, most))):
            drawn = {"name": f"{some}-{i}", "resources": draw(RESOURCES)}
            if some == "initContainers" and draw(st.booleans()):
                drawn |= SIDECAR
            spec[some].append(drawn)
    if draw(st.integers(0, 2)) == 0:
        spec["resources"] = draw(st.one_of(EQUAL, LIMITED, ANY))
    return {"metadata": {"name": "p"}, "spec": spec}


@settings(max_examples=draws(2_000), deadline=None)
@given(pods())
def test_exclusive_cpus_match_those_of_the_static_cpu_manager(value):
    view = view_pod(value, CONFIGURATION)
    cpus = whole_cpus(view)
    assert {slot.name: cpus[slot.order] for slot in view.slots if slot.order in cpus} == by_kubernetes(value)


@pytest.mark.parametrize(
    "resources",
    [
        {"limits": {"cpu": None, "memory": "1Gi"}},
        {"limits": {"cpu": "two", "memory": "1Gi"}},
        {"limits": {"cpu": "٢", "memory": "1Gi"}},
        {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": None}},
        {"limits": {"cpu": "-2", "memory": "1Gi"}, "requests": {"cpu": "-2"}},
        {"limits": ["cpu"]},
    ],
)
def test_invalid_amounts_request_no_cpus(resources):
    manifest = pod(TWO)
    manifest["spec"]["containers"][0]["resources"] = resources
    assert untouched(verdict_of(manifest))


# Their translation


def test_a_guaranteed_container_keeps_its_request_beside_the_claim():
    manifest = pod(TWO, {"cpu": 3, "memory": "1Gi"})
    verdict = verdict_of(manifest, given=cpus_on("a", "b"))
    patched_pod = patched(manifest, verdict)
    assert [container["resources"]["limits"] for container in patched_pod["spec"]["containers"]] == [
        TWO,
        {"cpu": 3, "memory": "1Gi"},
    ]
    assert users(manifest, verdict) == ["c0", "c1"]
    assert len(patched_pod["spec"]["resourceClaims"]) == 2  # one claim serves one container
    device_requests = [claim.spec["spec"]["devices"]["requests"][0]["exactly"] for claim in verdict.added_claims]
    assert [request["deviceClassName"] for request in device_requests] == ["dra.cpu", "dra.cpu"]
    assert [request["capacity"]["requests"] for request in device_requests] == [
        {"dra.cpu/cpu": "2"},
        {"dra.cpu/cpu": "3"},
    ]
    assert [outcome for _, outcome, _ in outcomes_of(verdict)] == [Outcome.TRANSLATED] * 2
    assert verdict.warnings == ()


@pytest.mark.parametrize(
    "value",
    [
        pod({"cpu": "1500m", "memory": "1Gi"}),
        pod({"cpu": "2"}),
        pod(TWO, {"cpu": "1"}),
        pod(TWO, init=(container("i", {"cpu": "1"}),)),
        pod({"memory": "1Gi"}),
    ],
    ids=["a part", "no memory", "another container", "an init container", "no CPU"],
)
def test_a_pod_without_exclusive_cpus_is_unchanged(value):
    assert untouched(verdict_of(value))
    assert verdict_of(value).decisions == ()


def test_cpu_requests_become_claims_only_in_configured_namespaces():
    manifest = pod(TWO)
    assert untouched(verdict_of(manifest, cpuClaims={}))
    only = {"cpuClaims": {"namespaces": {"batch": "translate"}}}
    assert untouched(verdict_of(manifest, **only))
    assert users(manifest, verdict_of(manifest, namespace="batch", **only)) == ["c0"]
    but = {"cpuClaims": {"default": "translate", "namespaces": {"n": "leave"}}}
    assert untouched(verdict_of(manifest, **but))
    assert users(manifest, verdict_of(manifest, namespace="", **but)) == ["c0"]


def test_an_init_container_gets_a_warning_and_no_cpu_claim():
    manifest = pod(TWO, init=(container("first", TWO), container("beside", TWO, **SIDECAR)))
    verdict = verdict_of(manifest)
    assert users(manifest, verdict) == ["beside", "c0"]
    assert "init container first gets no exclusive CPUs" in verdict.warnings[0]
    assert untouched(verdict_of(manifest, approximations="leave"))
    assert untouched(verdict_of(pod({"cpu": "500m", "memory": "1Gi"}, init=(container("first", TWO),))))


def test_with_pod_resources_only_containers_with_limits_get_exclusive_cpus():
    manifest = pod(
        TWO,
        {"cpu": "1"},
        resources={"limits": {"cpu": "4", "memory": "4Gi"}, "requests": {"cpu": "4", "memory": "4Gi"}},
    )
    assert users(manifest, verdict_of(manifest)) == ["c0"]
    manifest["spec"]["resources"]["requests"]["cpu"] = "3"
    assert untouched(verdict_of(manifest))


def test_a_second_look_and_a_second_application_change_nothing():
    manifest = pod(TWO, init=(container("first", TWO),))
    stored = patched(manifest, verdict_of(manifest))
    assert untouched(verdict_of(stored))
    assert verdict_of(stored).decisions == ()
    assert not replayed(stored, stored).operations
    assert not replayed(
        {**manifest, "metadata": {**manifest["metadata"], "annotations": stored["metadata"]["annotations"]}}, stored
    ).operations
    # A container that another webhook adds later gets its own claim, beside the existing ones.
    stored["spec"]["containers"].append(container("c1", TWO | GPU))
    patched_pod = patched(stored, verdict_of(stored, **WHOLE))
    assert [
        [claim["name"] for claim in container["resources"]["claims"]] for container in patched_pod["spec"]["containers"]
    ] == [
        ["drawbridge-c0-cpus"],
        ["drawbridge-c1-gpu", "drawbridge-c1-cpus"],
    ]


def test_translating_a_translated_file_changes_nothing():
    state = State(configuration=configured(**EVERYWHERE))
    manifest = pod(TWO)
    stored = patched(manifest, translate(manifest, state, namespace="n"))
    assert ORIGINAL in stored["metadata"]["annotations"]
    assert DEVICES in stored["metadata"]["annotations"]
    assert untouched(translate(stored, state, namespace="n"))


def test_a_pod_with_its_own_cpu_claim_keeps_it():
    spec = {"devices": {"requests": [{"name": "c", "exactly": {"deviceClassName": "dra.cpu"}}]}}
    other = {"devices": {"requests": [{"name": "g", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}
    templates = {
        ("n", name): wire.convert(claim, ResourceClaimSpec) for name, claim in (("cpus", spec), ("gpu", other))
    }

    def of(name):
        return pod(TWO, resourceClaims=[{"name": "mine", "resourceClaimTemplateName": name}])

    verdict = verdict_of(of("cpus"), templates=templates)
    assert untouched(verdict)
    assert outcomes_of(verdict) == [("c0", Outcome.LEFT, "the pod requests CPUs through its own claim, mine")]
    assert users(of("gpu"), verdict_of(of("gpu"), templates=templates)) == ["c0"]
    unknown = verdict_of(of("not known"), templates=templates)
    assert untouched(unknown)
    assert "may or may not be for CPUs" in outcomes_of(unknown)[0][2]


def test_koordinators_own_claim_for_cpus_is_the_only_one():
    manifest = pod(
        TWO | {"koordinator.sh/gpu": 100},
        annotations={"scheduling.koordinator.sh/resource-spec": '{"requiredCPUBindPolicy": "FullPCPUs"}'},
    )
    verdict = verdict_of(manifest, koordinator={"hostResources": {"cpu": "cpu"}})
    assert sorted(request["class"] for request in exactly_of(verdict)) == ["dra.cpu", "gpu.nvidia.com"]
    assert "Koordinator requests the pod's CPUs through a claim" in {detail for _, _, detail in outcomes_of(verdict)}


def test_quotas_and_ranges_keep_counting_the_request():
    verdict = verdict_of(pod(TWO), quotas={"n": frozenset({"requests.cpu"})}, limit_ranges={"n": frozenset({"cpu"})})
    assert users(pod(TWO), verdict) == ["c0"]


def test_no_pod_is_refused_for_cpus():
    strict = {"notUnderstood": "refuse", "approximations": "leave"}
    foreign = verdict_of(pod(TWO, scheduler="volcano"), **strict)
    assert untouched(foreign)
    assert not foreign.refusals
    old = verdict_of(pod(TWO), features=Features(minor=34, gates={"DRAConsumableCapacity": False}), **strict)
    assert untouched(old)
    assert not old.refusals
    queued = pod(TWO)
    queued["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
    assert untouched(verdict_of(queued))
    assert users(queued, verdict_of(queued, kueue={"deviceClasses": ["dra.cpu"]})) == ["c0"]
    windows = pod(TWO, os={"name": "windows"})
    assert untouched(verdict_of(windows))
