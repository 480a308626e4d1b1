"""CPUs of Guaranteed pods by claim: which containers get them."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra import wire
from dra.objects.claim import ResourceClaimSpec
from dra.quantity import parse
from tests.webhook.pods import (
    WHOLE_GPUS,
    configured,
    container,
    containers_with_claims,
    patched,
    pod,
    replay_update,
    untouched,
)
from tests.webhook.translate.cpu_fleets import (
    EVERYWHERE,
    GPU,
    TWO_CPUS,
    cpus_on,
    outcomes_of,
    requested_classes,
    verdict_of,
)
from webhook.dialects.table import Outcome
from webhook.names import DEVICES, ORIGINAL
from webhook.state import State
from webhook.state.features import Features
from webhook.translate.cpus import whole_cpus
from webhook.translate.pod_view import view_pod
from webhook.translate.translate import translate

SIDECAR = {"restartPolicy": "Always"}
CONFIGURATION = configured()


# Which containers get exclusive CPUs: the kubelet's rule, applied to pods to which the API server has added all defaults


def exclusive_cpus_of_kubernetes(value):
    """Return how many CPUs the kubelet's static CPU manager would reserve, by container (qos.ComputePodQOS, guaranteedCPUs)."""
    spec = copy.deepcopy(value["spec"])
    containers = [*spec.get("initContainers", []), *spec["containers"]]
    for each_container in containers:
        each_container.setdefault("resources", {}).setdefault("requests", {})
        for name, amount in each_container["resources"].get("limits", {}).items():
            each_container["resources"]["requests"].setdefault(name, amount)
    pod_resources = spec.get("resources", {})
    pod_level = any(
        name in ("cpu", "memory") for part in ("requests", "limits") for name in pod_resources.get(part, {})
    )
    if pod_level:
        pod_resources.setdefault("requests", {})
        for name in ("cpu", "memory"):
            requests = [
                container["resources"]["requests"]
                for container in containers
                if name in container["resources"]["requests"]
            ]
            if name not in pod_resources["requests"] and requests and pod_resources.get("limits"):
                running_amount = peak = 0
                for container in containers:
                    amount = parse(container["resources"]["requests"].get(name, "0")).nano
                    if container in spec.get("initContainers", []) and container.get("restartPolicy") != "Always":
                        peak = max(peak, running_amount + amount)
                    else:
                        running_amount += amount
                pod_resources["requests"][name] = f"{max(peak, running_amount)}n"
            elif name not in pod_resources["requests"] and name in pod_resources.get("limits", {}):
                pod_resources["requests"][name] = pod_resources["limits"][name]

    def quality(resources):
        requested, limits = resources.get("requests", {}), resources.get("limits", {})
        classes = set()
        for name in ("cpu", "memory"):
            request, limit = (parse(amounts.get(name, "0")).nano for amounts in (requested, limits))
            classes.add("Burstable" if request != limit else "Guaranteed" if request else "BestEffort")
        return classes.pop() if len(classes) == 1 else "Burstable"

    qos_classes = (
        {quality(pod_resources)} if pod_level else {quality(container["resources"]) for container in containers}
    )
    if qos_classes != {"Guaranteed"}:
        return {}
    cpus = {}
    for container in containers:
        amount = parse(container["resources"]["requests"].get("cpu", "0")).nano
        if amount and amount % 10**9 == 0 and (not pod_level or quality(container["resources"]) == "Guaranteed"):
            cpus[container["name"]] = amount // 10**9
    return cpus


AMOUNTS = {"cpu": ("1", "2", "2000m", "1500m", "0", "0.5", "2e0"), "memory": ("1Gi", "1024Mi", "2Gi", "0")}
RESOURCE_LIST = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from(choices) for name, choices in AMOUNTS.items()}
)
# Most containers are drawn as Guaranteed, because otherwise few pods would be.
EQUAL = st.fixed_dictionaries(
    {"cpu": st.sampled_from(("1", "2", "1500m")), "memory": st.sampled_from(("1Gi", "2Gi"))}
).map(lambda limits: {"limits": limits, "requests": dict(limits)})
LIMITED = EQUAL.map(lambda requests: {"limits": requests["limits"]})
ANY = st.fixed_dictionaries({}, optional={"limits": RESOURCE_LIST, "requests": RESOURCE_LIST})
RESOURCES = st.one_of(EQUAL, EQUAL, EQUAL, LIMITED, LIMITED, ANY)


@st.composite
def pods(draw):
    spec = {"containers": [], "initContainers": []}
    for field, max_count in (("containers", 3), ("initContainers", 2)):
        for i in range(draw(st.integers(1 if field == "containers" else 0, max_count))):
            drawn = {"name": f"{field}-{i}", "resources": draw(RESOURCES)}
            if field == "initContainers" and draw(st.booleans()):
                drawn |= SIDECAR
            spec[field].append(drawn)
    if draw(st.integers(0, 2)) == 0:
        spec["resources"] = draw(st.one_of(EQUAL, LIMITED, ANY))
    return {"metadata": {"name": "p"}, "spec": spec}


@given(pods())
def test_exclusive_cpus_match_those_of_the_static_cpu_manager(value):
    view = view_pod(value, CONFIGURATION)
    cpus = whole_cpus(view)
    assert {slot.name: cpus[slot.order] for slot in view.slots if slot.order in cpus} == exclusive_cpus_of_kubernetes(
        value
    )


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
    manifest = pod(TWO_CPUS)
    manifest["spec"]["containers"][0]["resources"] = resources
    assert untouched(verdict_of(manifest))


# The translation of pods with exclusive CPUs


def test_a_guaranteed_container_keeps_its_request_beside_the_claim():
    manifest = pod(TWO_CPUS, {"cpu": 3, "memory": "1Gi"})
    verdict = verdict_of(manifest, fleet_=cpus_on("a", "b"))
    patched_pod = patched(manifest, verdict)
    assert [container["resources"]["limits"] for container in patched_pod["spec"]["containers"]] == [
        TWO_CPUS,
        {"cpu": 3, "memory": "1Gi"},
    ]
    assert containers_with_claims(manifest, verdict) == ["c0", "c1"]
    assert len(patched_pod["spec"]["resourceClaims"]) == 2  # one claim serves one container
    device_requests = [claim.spec["spec"]["devices"]["requests"][0]["exactly"] for claim in verdict.added_claims]
    assert [request["deviceClassName"] for request in device_requests] == ["dra.cpu", "dra.cpu"]
    assert [request["capacity"]["requests"]["dra.cpu/cpu"] for request in device_requests] == ["2", "3"]
    assert [outcome for _, outcome, _ in outcomes_of(verdict)] == [Outcome.TRANSLATED] * 2
    assert verdict.warnings == ()


@pytest.mark.parametrize(
    "value",
    [
        pod({"cpu": "1500m", "memory": "1Gi"}),
        pod({"cpu": "2"}),
        pod(TWO_CPUS, {"cpu": "1"}),
        pod(TWO_CPUS, init=(container("i", {"cpu": "1"}),)),
        pod({"memory": "1Gi"}),
    ],
    ids=["part of a CPU", "no memory", "a container without memory", "an init container without memory", "no CPU"],
)
def test_a_pod_without_exclusive_cpus_is_unchanged(value):
    assert untouched(verdict_of(value))
    assert verdict_of(value).decisions == ()


def test_cpu_requests_become_claims_only_in_configured_namespaces():
    manifest = pod(TWO_CPUS)
    assert untouched(verdict_of(manifest, cpuClaims={}))
    only_batch = {"cpuClaims": {"namespaces": {"batch": "translate"}}}
    assert untouched(verdict_of(manifest, **only_batch))
    assert containers_with_claims(manifest, verdict_of(manifest, namespace="batch", **only_batch)) == ["c0"]
    except_n = {"cpuClaims": {"default": "translate", "namespaces": {"n": "leave"}}}
    assert untouched(verdict_of(manifest, **except_n))
    assert containers_with_claims(manifest, verdict_of(manifest, namespace="", **except_n)) == ["c0"]


def test_an_init_container_gets_a_warning_and_no_cpu_claim():
    manifest = pod(TWO_CPUS, init=(container("first", TWO_CPUS), container("beside", TWO_CPUS, **SIDECAR)))
    verdict = verdict_of(manifest)
    assert containers_with_claims(manifest, verdict) == ["beside", "c0"]
    assert "init container first gets no exclusive CPUs" in verdict.warnings[0]
    assert untouched(verdict_of(manifest, approximations="leave"))
    assert untouched(verdict_of(pod({"cpu": "500m", "memory": "1Gi"}, init=(container("first", TWO_CPUS),))))


def test_with_pod_resources_only_containers_with_limits_get_exclusive_cpus():
    manifest = pod(
        TWO_CPUS,
        {"cpu": "1"},
        resources={"limits": {"cpu": "4", "memory": "4Gi"}, "requests": {"cpu": "4", "memory": "4Gi"}},
    )
    assert containers_with_claims(manifest, verdict_of(manifest)) == ["c0"]
    manifest["spec"]["resources"]["requests"]["cpu"] = "3"
    assert untouched(verdict_of(manifest))
    del manifest["spec"]["resources"]["requests"]  # then the pod requests the sum of its containers, 3 CPUs
    assert untouched(verdict_of(manifest))


def test_a_second_review_and_a_second_apply_change_nothing():
    manifest = pod(TWO_CPUS, init=(container("first", TWO_CPUS),))
    stored = patched(manifest, verdict_of(manifest))
    assert untouched(verdict_of(stored))
    assert verdict_of(stored).decisions == ()
    assert not replay_update(stored, stored).operations
    assert not replay_update(
        {**manifest, "metadata": {**manifest["metadata"], "annotations": stored["metadata"]["annotations"]}}, stored
    ).operations
    # A container that another webhook adds later gets its own claims. The existing claims stay.
    stored["spec"]["containers"].append(container("c1", TWO_CPUS | GPU))
    patched_pod = patched(stored, verdict_of(stored, **WHOLE_GPUS))
    assert [
        [claim["name"] for claim in container["resources"]["claims"]] for container in patched_pod["spec"]["containers"]
    ] == [
        ["drawbridge-c0-cpus"],
        ["drawbridge-c1-gpu", "drawbridge-c1-cpus"],
    ]


def test_translating_a_translated_file_changes_nothing():
    state = State(configuration=configured(**EVERYWHERE))
    manifest = pod(TWO_CPUS)
    stored = patched(manifest, translate(manifest, state, namespace="n"))
    assert ORIGINAL in stored["metadata"]["annotations"]
    assert DEVICES in stored["metadata"]["annotations"]
    assert untouched(translate(stored, state, namespace="n"))


def test_a_pod_with_its_own_cpu_claim_keeps_it():
    cpu_spec = {"devices": {"requests": [{"name": "c", "exactly": {"deviceClassName": "dra.cpu"}}]}}
    gpu_spec = {"devices": {"requests": [{"name": "g", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}
    templates = {
        ("n", name): wire.convert(claim, ResourceClaimSpec) for name, claim in (("cpus", cpu_spec), ("gpu", gpu_spec))
    }

    def pod_with_claim(name):
        return pod(TWO_CPUS, resourceClaims=[{"name": "mine", "resourceClaimTemplateName": name}])

    verdict = verdict_of(pod_with_claim("cpus"), templates=templates)
    assert untouched(verdict)
    assert outcomes_of(verdict) == [("c0", Outcome.LEFT, "the pod requests CPUs through its own claim, mine")]
    assert containers_with_claims(pod_with_claim("gpu"), verdict_of(pod_with_claim("gpu"), templates=templates)) == [
        "c0"
    ]
    unknown = verdict_of(pod_with_claim("not known"), templates=templates)
    assert untouched(unknown)
    assert "may or may not be for CPUs" in outcomes_of(unknown)[0][2]


def test_koordinators_own_claim_for_cpus_is_the_only_one():
    manifest = pod(
        TWO_CPUS | {"koordinator.sh/gpu": 100},
        annotations={"scheduling.koordinator.sh/resource-spec": '{"requiredCPUBindPolicy": "FullPCPUs"}'},
    )
    verdict = verdict_of(manifest, koordinator={"hostResources": {"cpu": "cpu"}})
    assert sorted(requested_classes(verdict)) == ["dra.cpu", "gpu.nvidia.com"]
    assert "Koordinator requests the pod's CPUs through a claim" in {detail for _, _, detail in outcomes_of(verdict)}


def test_quotas_and_limit_ranges_on_cpu_allow_cpu_claims():
    verdict = verdict_of(
        pod(TWO_CPUS), quotas={"n": frozenset({"requests.cpu"})}, limit_ranges={"n": frozenset({"cpu"})}
    )
    assert containers_with_claims(pod(TWO_CPUS), verdict) == ["c0"]


def test_no_pod_is_refused_for_cpus():
    strict = {"notUnderstood": "refuse", "approximations": "leave"}
    foreign_scheduler = verdict_of(pod(TWO_CPUS, scheduler="volcano"), **strict)
    assert untouched(foreign_scheduler)
    assert not foreign_scheduler.refusals
    old_server = verdict_of(
        pod(TWO_CPUS), features=Features(minor=34, gates={"DRAConsumableCapacity": False}), **strict
    )
    assert untouched(old_server)
    assert not old_server.refusals
    queued = pod(TWO_CPUS)
    queued["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
    assert untouched(verdict_of(queued))
    assert containers_with_claims(queued, verdict_of(queued, kueue={"deviceClasses": ["dra.cpu"]})) == ["c0"]
    windows = pod(TWO_CPUS, os={"name": "windows"})
    assert untouched(verdict_of(windows))
