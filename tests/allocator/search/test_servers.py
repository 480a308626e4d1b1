"""For each supported minor of Kubernetes, our answers equal those of its in-tree allocator, with random gates, fleets and claims.

Each in-tree allocator runs in a program of its own, a referee.
"""

import random
from collections import Counter

import pytest

from allocator.all_nodes import fleet
from dra import server as gates
from dra import wire
from dra.objects import DeviceClass, Node, ResourceClaim, ResourceSlice
from dra.server import CURRENT, EVERYTHING, NEWEST, OLDEST, Server, server_of
from dra.stock import Stock
from tests.allocator.differ import difference, ours
from tests.allocator.generate import FAMILIES, case_of
from tests.allocator.servers import any_server, asked_of, named_difference, server_of_case
from tests.loops import every
from tests.referees import referee as start_referee

MINORS = range(OLDEST, NEWEST + 1)
# A family is a kind of generated case. All families and minors together have 1,750 cases with live referees, and 700 with recorded answers.
CASES_PER_FAMILY, RECORDED_CASES_PER_FAMILY = 25, 10
CASES_OF_A_LONG_RUN = 1_500


@pytest.fixture(scope="module", params=MINORS)
def minor(request):
    return request.param


@pytest.fixture(scope="module")
def referee(minor, request):
    if minor == CURRENT:
        yield request.getfixturevalue("allocate_oracle")
    else:
        with start_referee(f"allocate-{minor}") as program:
            yield program


def case_for(family, seed, minor):
    """Return a case for a server of a minor. In three of four cases, the claims lack the fields that the API server drops."""
    server = any_server(minor, random.Random(f"server-{minor}-{family}-{seed}"))
    return asked_of(server, case_of(family, seed), fitted=bool(seed % 4))


def compare(referee, family, minor, seeds):
    """Compare a range of cases; return how often each verdict and known difference occurred. Fail at the first unknown difference."""
    counts = Counter()
    cases = [case_for(family, seed, minor) for seed in seeds]
    for seed, case, theirs in zip(seeds, cases, referee.ask_all(cases), strict=True):
        answer = ours(case)
        if theirs["verdict"] == "timeout" or answer.verdict == "undecided":
            continue
        counts["compared"] += 1
        counts[theirs["verdict"]] += 1
        differs = difference(answer, theirs)
        if differs is None:
            continue
        explanation = named_difference(case, str(answer.verdict), theirs["verdict"])
        assert explanation, f"{server_of_case(case)}, {family} {seed}: {differs}"
        counts[explanation] += 1
    return counts


def check_counts(counts):
    """Check that each verdict is more than 5 % of the compared answers, and that known differences are less than 5 %."""
    # The explanation of a difference is a sentence; the other counted names are single words.
    known_differences = sum(number for name, number in counts.items() if " " in name)
    assert min(counts[verdict] for verdict in ("feasible", "infeasible", "error")) > counts["compared"] / 20
    assert known_differences < counts["compared"] / 20, counts


@pytest.mark.oracle
def test_each_minor_allocates_the_same_devices_with_any_gates(referee, minor):
    counts = Counter()
    cases = referee.cases(CASES_PER_FAMILY, recorded=RECORDED_CASES_PER_FAMILY)
    for family in FAMILIES:
        counts += compare(referee, family, minor, range(cases))
    assert counts["compared"] > cases * len(FAMILIES) * 0.9
    check_counts(counts)


def pool_slice(name, pool, total=1, node="n0", **spec):
    spec |= {"driver": "g", "nodeName": node, "pool": {"name": pool, "generation": 1, "resourceSliceCount": total}}
    return {"metadata": {"name": name}, "spec": spec}


def case_with(slices, **request_fields):
    exactly = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1} | request_fields
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    claim = {"metadata": {"name": "c", "namespace": "d", "uid": "u"}, "spec": spec}
    class_ = {"metadata": {"name": "any"}, "spec": {}}
    return {
        "node": {"metadata": {"name": "n0"}},
        "slices": slices,
        "classes": [class_],
        "claims": [claim],
        "allocatedClaims": [],
    }


GPU = {"name": "gpu"}
COUNTER_SETS = [{"name": "s", "counters": {"m": {"value": "1"}}}]
GPU_WITH_COUNTERS = GPU | {"consumesCounters": [{"counterSet": "s", "counters": {"m": {"value": "1"}}}]}
GPU_WITH_GROUPS = GPU | {
    "consumesCounters": [GPU_WITH_COUNTERS["consumesCounters"][0] | {"compatibilityGroups": ["a"]}]
}
SLICES_WITH_COUNTERS = [
    pool_slice("a", "p", 2, sharedCounters=COUNTER_SETS),
    pool_slice("b", "p", 2, devices=[GPU_WITH_COUNTERS]),
]
CASES_BY_FIELD = {
    "plain": case_with([pool_slice("a", "p", devices=[GPU])]),
    "counters": case_with(SLICES_WITH_COUNTERS),
    "counters of another node": case_with([pool_slice("a", "p", devices=[GPU]), pool_slice("b", "q", 2, "n1", sharedCounters=COUNTER_SETS)], allocationMode="All"),
    "groups": case_with([SLICES_WITH_COUNTERS[0], pool_slice("b", "p", 2, devices=[GPU_WITH_GROUPS])]),
    "incomplete pool": case_with([pool_slice("a", "p", 2, devices=[GPU])]),
    "incomplete pool with a duplicate name": case_with([pool_slice("a", "p", 3, devices=[GPU]), pool_slice("b", "p", 3, devices=[GPU])]),
    "binding conditions": case_with([pool_slice("a", "p", devices=[GPU | {"bindingConditions": ["ready"], "bindingFailureConditions": ["bad"]}])]),
    "taint": case_with([pool_slice("a", "p", devices=[GPU | {"taints": [{"key": "k", "effect": "NoSchedule"}]}])]),
    "capacity": case_with([pool_slice("a", "p", devices=[GPU | {"capacity": {"m": {"value": "8"}}}])], capacity={"requests": {"m": "1"}}),
    "admin access": case_with([pool_slice("a", "p", devices=[GPU])], adminAccess=True),
    "includes": case_with([pool_slice("a", "p", devices=[GPU | {"attributes": {"m": {"string": "x"}}}])], selectors=[{"cel": {"expression": "device.attributes['g'].m.includes('x')"}}]),
    "node operations": case_with([pool_slice("a", "p", devices=[GPU], skipNodeOperations=["*"])]),
}  # fmt: skip
# The expected verdicts on these cases: one for each minor with default gates, in ascending order (later minors have the verdict of the last
# one), and at the end one for the newest release with all gates.
EXPECTED_VERDICTS = {
    "plain": "yes yes yes yes yes",
    "counters": "no no yes yes yes",
    "counters of another node": "yes yes error yes yes",
    "groups": "no no yes no yes",
    "incomplete pool": "yes no no no no",
    "incomplete pool with a duplicate name": "error no no no no",
    "binding conditions": "no no yes yes yes",
    "taint": "yes yes no no no",
    "capacity": "error yes yes yes yes",
    "admin access": "yes yes yes yes yes",
    "includes": "error error yes yes yes",
    "node operations": "yes yes yes yes no",
}
SHORT_VERDICTS = {"feasible": "yes", "infeasible": "no", "error": "error"}


def expected_verdicts(field):
    *by_minor, with_everything = EXPECTED_VERDICTS[field].split()
    return [*by_minor, *by_minor[-1:] * (len(MINORS) - len(by_minor)), with_everything]


@every("field", CASES_BY_FIELD)
def test_a_field_gets_the_expected_verdict_from_each_minor(field):
    servers = [*map(server_of, MINORS), EVERYTHING]
    verdicts = [SHORT_VERDICTS[ours(asked_of(server, CASES_BY_FIELD[field])).verdict] for server in servers]
    assert verdicts == expected_verdicts(field)


# Of the pool's newest generation, only the slice with the counters exists. With the gate of counters off, only the earliest allocators read
# that slice.
SLICES_WITH_NEWER_COUNTERS = [pool_slice("a", "p", 2, sharedCounters=COUNTER_SETS), pool_slice("b", "p", devices=[GPU])]
SLICES_WITH_NEWER_COUNTERS[0]["spec"]["pool"]["generation"] = 2


@pytest.mark.oracle
@pytest.mark.parametrize("enabled_gates", [(), (gates.ALTERNATIVES,), (gates.BINDING, gates.DEVICE_STATUS)])
def test_tolerations_are_copied_except_by_the_earliest_allocators(referee, minor, enabled_gates):
    tolerations = [{"key": "k", "operator": "Exists"}]
    case = asked_of(
        Server(minor, frozenset(enabled_gates)),
        case_with([pool_slice("a", "p", devices=[GPU])], tolerations=tolerations),
    )
    answer, theirs = ours(case), referee.ask(**case)
    assert difference(answer, theirs) is None
    is_early_allocator = minor == OLDEST or (minor == OLDEST + 1 and not enabled_gates)
    assert ("tolerations" in theirs["allocations"][0]["devices"]["results"][0]) != is_early_allocator


@pytest.mark.oracle
@pytest.mark.parametrize("enabled_gates", [(), (gates.ALTERNATIVES,), (gates.BINDING, gates.DEVICE_STATUS)])
def test_newer_counters_hide_older_devices_from_the_earliest_allocators(referee, minor, enabled_gates):
    case = asked_of(Server(minor, frozenset(enabled_gates)), case_with(SLICES_WITH_NEWER_COUNTERS))
    verdict = ours(case).verdict
    assert verdict == referee.ask(**case)["verdict"]
    assert SHORT_VERDICTS[verdict] == (
        "no" if minor == OLDEST or (minor == OLDEST + 1 and not enabled_gates) else "yes"
    )


@pytest.mark.oracle
def test_the_upstream_allocator_of_each_minor_gives_the_expected_verdicts(referee, minor):
    for field, case in CASES_BY_FIELD.items():
        verdict = SHORT_VERDICTS[referee.ask(**asked_of(server_of(minor), case))["verdict"]]
        assert verdict == expected_verdicts(field)[minor - OLDEST], field


SHARED = {"name": "gpu", "allowMultipleAllocations": True, "capacity": {"m": {"value": "8"}}}
SHARED_WITH_DOMAIN = SHARED | {"capacity": {"g/m": {"value": "8"}}}
SHARED_WITH_MINIMUM = SHARED | {
    "capacity": {"m": {"value": "8", "requestPolicy": {"default": "2", "validRange": {"min": "2", "step": "2"}}}}
}
BUILDS = [{"name": name, "attributes": {"v": {"version": f"1.0.0+{name}"}}} for name in ("a", "b")]


def requesting(device, **amounts):
    return case_with([pool_slice("a", "p", devices=[device])], capacity={"requests": amounts})


def constrained(devices, **constraint):
    case = case_with([pool_slice("a", "p", devices=devices)], count=len(devices))
    case["claims"][0]["spec"]["devices"]["constraints"] = [constraint]
    return case


# The verdicts of 1.37 and 1.38.
CHANGED_IN_38 = {
    "a capacity by its full name": (requesting(SHARED, **{"g/m": "1"}), "no yes"),
    "a capacity by its short name": (requesting(SHARED_WITH_DOMAIN, m="1"), "no yes"),
    "a capacity by both names": (requesting(SHARED, **{"m": "1", "g/m": "1"}), "no error"),
    "a capacity of another domain": (requesting(SHARED, **{"h/m": "1"}), "no no"),
    "a negative amount below a minimum": (requesting(SHARED_WITH_MINIMUM, m="-1"), "yes error"),
    "equal versions of different builds": (constrained(BUILDS, matchAttribute="g/v"), "no yes"),
    "distinct builds of a version": (constrained(BUILDS, distinctAttribute="g/v"), "yes no"),
    "a missing list beside a condition that is true": (case_with([pool_slice("a", "p", devices=[GPU])], selectors=[{"cel": {"expression": "device.attributes['g'].m.distinct() == [] || true"}}]), "error yes"),
    "all devices of an incomplete pool": (case_with([pool_slice("a", "p", 2, devices=[GPU])], allocationMode="All"), "error error"),
}  # fmt: skip


@every("name", CHANGED_IN_38)
def test_the_allocator_of_1_38_differs_from_its_predecessor(name):
    case, verdicts = CHANGED_IN_38[name]
    answers = [ours(asked_of(server_of(minor), case)) for minor in (37, 38)]
    assert [SHORT_VERDICTS[answer.verdict] for answer in answers] == verdicts.split()


@pytest.mark.parametrize("minor", [37, 38])
@pytest.mark.parametrize("slices", [[pool_slice("a", "p", 2, devices=[GPU])], [pool_slice("a", "p", devices=[GPU, GPU])]], ids=["incomplete", "invalid"])  # fmt: skip
def test_a_pod_for_all_devices_is_placed_beside_a_node_whose_pool_is_not_usable(minor, slices):
    """kube-scheduler 1.37 ends the attempt for all nodes, 1.38 excludes the node. The allocator excludes it for both."""
    case = case_with([*slices, pool_slice("b", "q", node="n1", devices=[GPU])], allocationMode="All")
    objects = {kind: [wire.convert(obj, type_) for obj in case[kind]] for kind, type_ in (("slices", ResourceSlice), ("classes", DeviceClass), ("claims", ResourceClaim))}  # fmt: skip
    nodes = [wire.convert({"metadata": {"name": name}}, Node) for name in ("n0", "n1")]
    stock = Stock.of(**objects, nodes=nodes, server=server_of(minor))
    answers = fleet(stock, objects["claims"])
    assert {name: SHORT_VERDICTS[answers[name].verdict] for name in answers} == {"n0": "error", "n1": "yes"}


@pytest.mark.oracle
def test_the_changes_of_1_38_are_those_of_the_upstream_allocator(referee, minor):
    for name, (case, _) in CHANGED_IN_38.items() if minor >= CURRENT else ():
        asked = asked_of(server_of(minor), case)
        assert difference(ours(asked), referee.ask(**asked)) is None, name


@pytest.mark.long
@pytest.mark.oracle
@pytest.mark.timeout(3600)
def test_each_minor_gives_the_same_answers_in_long_runs(referee, minor):
    counts = Counter()
    for first in range(0, CASES_OF_A_LONG_RUN, 100):
        for family in FAMILIES:
            counts += compare(referee, family, minor, range(2_000_000 + first, 2_000_100 + first))
        print(f"1.{minor}, after {first + 100} cases a family: {dict(counts)}", flush=True)
    check_counts(counts)
