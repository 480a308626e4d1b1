"""The claim that kube-scheduler creates for a pod's extended resources, compared with the scheduler's own code."""

import random

import pytest

from dra import wire
from dra.objects import DeviceClass, Pod
from dra.objects.extended_resources import amount_problem, extended_claim, serve_resources, served_resources
from dra.quantity import from_json, parse
from tests.forms import SPELLINGS
from tests.oracles import MINORS_WITH_CREATED_CLAIMS
from tests.referees import referee

GPU = "nvidia.com/gpu"
NAMES = (GPU, "amd.com/gpu", "example.com/a", "requests.example.com/a", "deviceclass.resource.kubernetes.io/gpu", "deviceclass.resource.kubernetes.io/b")  # fmt: skip
AMOUNTS = ("0", "1", "2", "3", "5", "1k", "16", "2e0", "0.5e1")


def requesting_pod(*requests, init=()):
    """Return a pod with the fields that the scheduler's code reads. Each argument has the requests of a container."""

    def container(name, requests, **fields):
        return {"name": name, "resources": {"requests": requests}, **fields}

    spec = {
        "containers": [container(f"c{index}", amounts) for index, amounts in enumerate(requests)],
        "initContainers": [container(f"i{index}", amounts, **fields) for index, (amounts, fields) in enumerate(init)],
    }
    return {"metadata": {"name": "p", "namespace": "n"}, "spec": spec}


def serving_class(name, extended=None, created="2026-01-01T00:00:00Z"):
    metadata = {"name": name, "creationTimestamp": created}
    return {"metadata": metadata, "spec": {"extendedResourceName": extended} if extended else {}}


def claim_for(document, classes, allocatable=None):
    serving = serve_resources(wire.convert(device_class, DeviceClass) for device_class in classes)
    amounts = {name: parse(text) for name, text in (allocatable or {}).items()}
    return extended_claim(wire.convert(document, Pod), serving, amounts)


def test_requests_are_named_by_the_positions_of_container_and_resource():
    document = requesting_pod({"cpu": "1", GPU: "2"}, {GPU: "1", "a.example.com/x": "1"})
    extended = claim_for(document, [serving_class("gpu.nvidia.com", GPU)])
    requests = extended.claim.spec.devices.requests
    counts = {request.name: (request.exactly.device_class_name, request.exactly.count) for request in requests}
    assert counts == {"container-0-request-1": ("gpu.nvidia.com", 2), "container-1-request-1": ("gpu.nvidia.com", 1)}
    assert extended.claim.metadata.generate_name == "p-extended-resources-"
    assert extended.claim.metadata.annotations == {"resource.kubernetes.io/extended-resource-claim": "true"}


def test_no_claim_is_created_for_a_device_plugins_resource():
    classes = [serving_class("gpu.nvidia.com", GPU)]
    assert claim_for(requesting_pod({GPU: "2"}), classes, {GPU: "8"}) is None
    assert claim_for(requesting_pod({GPU: "2"}), classes, {GPU: "0"}) is not None
    assert claim_for(requesting_pod({GPU: "0"}), classes) is None


@pytest.mark.parametrize("spell", SPELLINGS, ids=lambda spell: str(spell(9)))
def test_each_spelling_of_a_whole_number_requests_as_many_devices(spell):
    for number in (1, 9, 12, 1000, 9_007_199_254_740_992):
        extended = claim_for(requesting_pod({GPU: spell(number)}), [serving_class("gpu.nvidia.com", GPU)])
        assert [request.exactly.count for request in extended.claim.spec.devices.requests] == [number]
        assert amount_problem(from_json(spell(number))) == ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1500m", "is not a whole number"),
        ("1.5", "is not a whole number"),
        ("1n", "is not a whole number"),
        ("-1", "is less than zero"),
        ("9223372036854776", "exceeds the maximum of 2^63-1"),
        ("999999999n", ""),  # the API server rounds this amount up to 1000m
    ],
)
def test_amounts_that_the_api_server_refuses(text, problem):
    assert amount_problem(parse(text)) == problem


def _random_pod(rng):
    def requests():
        names = rng.sample(NAMES, rng.randrange(0, 4)) + rng.sample(["cpu", "memory", "zeta.example.com/z"], 1)
        return {name: rng.choice(AMOUNTS) for name in names}

    init = [(requests(), {"restartPolicy": "Always"} if rng.random() < 0.4 else {}) for _ in range(rng.randrange(0, 5))]
    return requesting_pod(*[requests() for _ in range(rng.randrange(1, 13))], init=init)


def _random_classes(rng):
    names = rng.sample(["gpu", "b", "c", "d"], rng.randrange(0, 5))
    dates = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z", "2025-12-31T23:59:59Z"]
    return [serving_class(name, rng.choice([None, *NAMES[:3]]), rng.choice(dates)) for name in names]


# Older schedulers give the same answers as the newest one. Their answers are not recorded, so these tests run the schedulers' programs.
OLDER = [pytest.param(f"extended-{minor}", marks=pytest.mark.live) for minor in MINORS_WITH_CREATED_CLAIMS]


@pytest.fixture(scope="module", params=["extended", *OLDER])
def scheduler(request):
    """The code of each Kubernetes minor whose scheduler creates claims for extended resources."""
    if request.param == "extended":  # shared with other tests
        yield request.getfixturevalue("extended_oracle")
        return
    with referee(request.param) as oracle:
        yield oracle


@pytest.mark.oracle
def test_random_pods_get_the_claim_that_kube_scheduler_creates(scheduler):
    rng = random.Random(5004)
    cases = []
    for _ in range(scheduler.cases(4000, recorded=400)):
        allocatable = {name: rng.choice(["0", "4"]) for name in rng.sample(NAMES, rng.randrange(0, 3))}
        cases.append({"pod": _random_pod(rng), "classes": _random_classes(rng), "allocatable": allocatable})
    claims = 0
    for case, answer in zip(cases, scheduler.ask_all(cases), strict=True):
        serving = serve_resources(wire.convert(class_, DeviceClass) for class_ in case["classes"])
        served_names = served_resources(wire.convert(case["pod"], Pod), serving)
        assert {name: serving[name] for name in served_names} == answer["classes"], case
        extended = claim_for(case["pod"], case["classes"], case["allocatable"])
        claims += extended is not None
        requests = [wire.builtins(request) for request in extended.claim.spec.devices.requests] if extended else []
        mappings = [wire.builtins(mapping) for mapping in extended.mappings] if extended else []
        assert (requests, mappings) == (answer["requests"] or [], answer["mappings"] or []), case
    assert claims > len(cases) / 4
