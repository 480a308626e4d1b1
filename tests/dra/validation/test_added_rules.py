"""Objects that Kubernetes 1.38 judges differently: most are refused by 1.38 for one reason only, and accepted by 1.37."""

import pytest

from dra.server import known_gates, server_of
from dra.validation.objects.judge import validate_object
from tests.dra.validation import corpus
from tests.dra.validation.corpus import API
from tests.referees import referee

TWO_SLASHES = "a.example/b/c"


def slice_with(device, **spec):
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d.example", "pool": pool, "allNodes": True, "devices": [{"name": "a", **device}]} | spec
    spec = {field: value for field, value in spec.items() if value is not None}
    return {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec}


def claim_with(*, status=None, constraint=None, **exactly):
    devices = {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", **exactly}}]}
    devices |= {"constraints": [constraint]} if constraint else {}
    value = {"apiVersion": API, "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": {"devices": devices}}
    return value | ({"status": status} if status else {})


def template_with(**exactly):
    value = claim_with(**exactly)
    return value | {"kind": "ResourceClaimTemplate", "spec": {"spec": value["spec"]}}


def selecting(*zones):
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in zones]
    return slice_with({"nodeSelector": {"nodeSelectorTerms": terms}}, allNodes=None, perDeviceNodeSelection=True)


def capacity(**requests):
    return {"capacity": {"requests": requests}}


RESULT = {"request": "r", "driver": "d.example", "pool": "p", "device": "a", "consumedCapacity": {TWO_SLASHES: "1"}}
LONG = "1" + "0" * 18
REFUSED = {
    "attribute with two slashes": slice_with({"attributes": {TWO_SLASHES: {"bool": True}}}),
    "capacity with two slashes": slice_with({"capacity": {TWO_SLASHES: {"value": "1"}}}),
    "long number": slice_with({"attributes": {"v": {"version": f"1.{LONG}.0"}}}),
    "long number before the release": slice_with({"attributes": {"v": {"version": f"1.0.0-a.{LONG}"}}}),
    "two terms": selecting("a", "b"),
    "no capacity name": claim_with(**capacity(**{"1a": "1"})),
    "capacity name with two slashes": template_with(**capacity(**{TWO_SLASHES: "1"})),
    "negative capacity": claim_with(**capacity(memory="-1")),
    "too many capacities": claim_with(**capacity(**{f"c{number}": "1" for number in range(33)})),
    "constraint with two slashes": claim_with(constraint={"matchAttribute": TWO_SLASHES}),
    "consumed capacity with two slashes": claim_with(status={"allocation": {"devices": {"results": [RESULT]}}}),
}
ACCEPTED = {
    "18 digits": slice_with({"attributes": {"v": {"version": f"1.{LONG[:-1]}.0-a{LONG}+{LONG}"}}}),
    "one term": selecting("a"),
    "32 capacities": claim_with(**capacity(**{f"c{number}": "0" for number in range(32)})),
}


# The cost of this expression is bounded only in 1.38.
COMPARISON = "type(device.driver) == string"
COMPARES_TYPES = [{"cel": {"expression": COMPARISON}}]
DERIVED = {"derivedAttributes": [{"name": "d.example/t", "expression": COMPARISON}]}
ACCEPTED_SINCE_38 = {
    "class": {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": "c"}, "spec": {"selectors": COMPARES_TYPES}},
    "claim": claim_with(selectors=COMPARES_TYPES),
    "template": template_with(selectors=COMPARES_TYPES),
    "derived attribute": claim_with(constraint={"matchAttribute": "d.example/t"}, **DERIVED),
}  # fmt: skip


def refusals(value, minor, gates=None):
    judged = validate_object(value, server_of(minor).gates if gates is None else gates, minor)
    return [problem for problem in judged.problems if problem.refuses]


@pytest.mark.parametrize("name", REFUSED)
def test_the_first_server_that_refuses_is_1_38(name):
    assert refusals(REFUSED[name], 37) == []
    assert len(refusals(REFUSED[name], 38)) == 1


@pytest.mark.parametrize("name", ACCEPTED)
def test_values_within_the_limits_are_accepted(name):
    assert refusals(ACCEPTED[name], 38) == []


@pytest.mark.parametrize("name", ACCEPTED_SINCE_38)
def test_the_first_server_that_accepts_is_1_38(name):
    refusals_by_minor = [refusals(ACCEPTED_SINCE_38[name], minor, frozenset(known_gates(minor))) for minor in (37, 38)]
    assert [bool(problems) for problems in refusals_by_minor] == [True, False]


@pytest.fixture(scope="module")
def api_server():
    with referee("validate-38") as program:
        yield program


@pytest.mark.live
@pytest.mark.oracle
@pytest.mark.parametrize("enabled", [server_of(38).gates, frozenset(known_gates(38))], ids=["default", "all"])
def test_1_38_refuses_the_same_objects(api_server, enabled):
    """The objects are those above, and valid objects with one or two changes."""
    objects = [*REFUSED.values(), *ACCEPTED.values(), *ACCEPTED_SINCE_38.values()]
    for valid in corpus.VALID.values():
        objects += [valid, *corpus.sample(valid, 60, seed=38)]
    gates_that_can_be_set = {gate: gate in enabled for gate, stage in known_gates(38).items() if not stage.locked}
    answers = api_server.ask_all({"object": value, "gates": gates_that_can_be_set} for value in objects)
    for value, answer in zip(objects, answers, strict=True):
        errors = [error for error in answer["errors"] if "admin access" not in error["message"]]
        assert bool(answer.get("decode") or errors) == bool(refusals(value, 38, enabled)), corpus.as_json(value)
