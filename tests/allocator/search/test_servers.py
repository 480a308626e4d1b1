"""Our answers equal the answers of the allocators of all minors, with gates on and off, on random fleets and claims."""

import random
from collections import Counter

import pytest

from dra import server as gates
from dra.server import EVERYTHING, NEWEST, OLDEST, Server, server_of
from tests.allocator.differ import difference, ours
from tests.allocator.generate import FAMILIES, case_of
from tests.allocator.servers import any_server, asked_of, named_difference, server_of_case
from tests.referees import referee as running

MINORS = range(OLDEST, NEWEST + 1)
CASES, RECORDED = 25, 10  # cases of each family and minor: 1,400 in all with live referees, 560 with recorded answers
LONG = 1_500


@pytest.fixture(scope="module", params=MINORS)
def minor(request):
    return request.param


@pytest.fixture(scope="module")
def referee(minor, request):
    if minor == NEWEST:
        yield request.getfixturevalue("allocate_oracle")
    else:
        with running(f"allocate-{minor}") as program:
            yield program


def case_for(family, seed, minor):
    """Return a case for a server; three of four are as its API server would have stored them."""
    server = any_server(minor, random.Random(f"server-{minor}-{family}-{seed}"))
    return asked_of(server, case_of(family, seed), fitted=bool(seed % 4))


def compare(referee, family, minor, seeds):
    """Compare a range of cases; fail with the first unexplained difference."""
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
        name = named_difference(case, str(answer.verdict), theirs["verdict"])
        assert name, f"{server_of_case(case)}, {family} {seed}: {differs}"
        counts[name] += 1
    return counts


def check_counts(counts):
    """Check that each verdict is more than 5 % of the compared answers, and that known differences are less than 5 %."""
    # The name of a difference is a sentence, the other counted names are single words.
    known_differences = sum(number for name, number in counts.items() if " " in name)
    assert min(counts[verdict] for verdict in ("feasible", "infeasible", "error")) > counts["compared"] / 20
    assert known_differences < counts["compared"] / 20, counts


@pytest.mark.oracle
def test_each_minor_allocates_the_same_devices_with_any_gates(referee, minor):
    counts = Counter()
    cases = referee.cases(CASES, recorded=RECORDED)
    for family in FAMILIES:
        counts += compare(referee, family, minor, range(cases))
    assert counts["compared"] > cases * len(FAMILIES) * 0.9
    check_counts(counts)


def pool_slice(name, pool, total=1, node="n0", **spec):
    spec |= {"driver": "g", "nodeName": node, "pool": {"name": pool, "generation": 1, "resourceSliceCount": total}}
    return {"metadata": {"name": name}, "spec": spec}


def question(slices, **body):
    exactly = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1} | body
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
SETS = [{"name": "s", "counters": {"m": {"value": "1"}}}]
PART = GPU | {"consumesCounters": [{"counterSet": "s", "counters": {"m": {"value": "1"}}}]}
GROUPED = GPU | {"consumesCounters": [PART["consumesCounters"][0] | {"compatibilityGroups": ["a"]}]}
COUNTED = [pool_slice("a", "p", 2, sharedCounters=SETS), pool_slice("b", "p", 2, devices=[PART])]
FIELDS = {
    "plain": question([pool_slice("a", "p", devices=[GPU])]),
    "counters": question(COUNTED),
    "counters of another node": question([pool_slice("a", "p", devices=[GPU]), pool_slice("b", "q", 2, "n1", sharedCounters=SETS)], allocationMode="All"),
    "groups": question([COUNTED[0], pool_slice("b", "p", 2, devices=[GROUPED])]),
    "half a pool": question([pool_slice("a", "p", 2, devices=[GPU])]),
    "half a pool, one name twice": question([pool_slice("a", "p", 3, devices=[GPU]), pool_slice("b", "p", 3, devices=[GPU])]),
    "binding conditions": question([pool_slice("a", "p", devices=[GPU | {"bindingConditions": ["ready"], "bindingFailureConditions": ["bad"]}])]),
    "taint": question([pool_slice("a", "p", devices=[GPU | {"taints": [{"key": "k", "effect": "NoSchedule"}]}])]),
    "capacity": question([pool_slice("a", "p", devices=[GPU | {"capacity": {"m": {"value": "8"}}}])], capacity={"requests": {"m": "1"}}),
    "admin access": question([pool_slice("a", "p", devices=[GPU])], adminAccess=True),
    "includes": question([pool_slice("a", "p", devices=[GPU | {"attributes": {"m": {"string": "x"}}}])], selectors=[{"cel": {"expression": "device.attributes['g'].m.includes('x')"}}]),
    "node operations": question([pool_slice("a", "p", devices=[GPU], skipNodeOperations=["*"])]),
}  # fmt: skip
# The expected verdict for one device, if the device or the request has a field: for each minor with default gates, where the last verdict also
# applies to later minors; then for the newest minor with all gates.
EXPECTED = {
    "plain": "yes yes yes yes yes",
    "counters": "no no yes yes yes",
    "counters of another node": "yes yes error yes yes",
    "groups": "no no yes no yes",
    "half a pool": "yes no no no no",
    "half a pool, one name twice": "error no no no no",
    "binding conditions": "no no yes yes yes",
    "taint": "yes yes no no no",
    "capacity": "error yes yes yes yes",
    "admin access": "yes yes yes yes yes",
    "includes": "error error yes yes yes",
    "node operations": "yes yes yes yes no",
}
WORDS = {"feasible": "yes", "infeasible": "no", "error": "error"}


@pytest.mark.parametrize("field", FIELDS)
def test_each_minor_has_the_expected_verdict_on_a_field(field):
    servers = [*map(server_of, MINORS), EVERYTHING]
    verdicts = [WORDS[ours(asked_of(server, FIELDS[field])).verdict] for server in servers]
    *by_minor, with_everything = EXPECTED[field].split()
    by_minor += by_minor[-1:] * (len(MINORS) - len(by_minor))
    assert verdicts == [*by_minor, with_everything]


# Of the pool's newest generation only the slice with the counters exists. With the gate of counters off, only the earliest allocators read it.
NEWER = [pool_slice("a", "p", 2, sharedCounters=SETS), pool_slice("b", "p", devices=[GPU])]
NEWER[0]["spec"]["pool"]["generation"] = 2


@pytest.mark.oracle
@pytest.mark.parametrize("enabled_gates", [(), (gates.ALTERNATIVES,), (gates.BINDING, gates.DEVICE_STATUS)])
def test_tolerations_are_copied_except_by_the_earliest_allocators(referee, minor, enabled_gates):
    tolerations = [{"key": "k", "operator": "Exists"}]
    case = asked_of(
        Server(minor, frozenset(enabled_gates)),
        question([pool_slice("a", "p", devices=[GPU])], tolerations=tolerations),
    )
    answer, theirs = ours(case), referee.ask(**case)
    assert difference(answer, theirs) is None
    early = minor == OLDEST or (minor == OLDEST + 1 and not enabled_gates)
    assert ("tolerations" in theirs["allocations"][0]["devices"]["results"][0]) != early


@pytest.mark.oracle
@pytest.mark.parametrize("enabled_gates", [(), (gates.ALTERNATIVES,), (gates.BINDING, gates.DEVICE_STATUS)])
def test_newer_counters_hide_older_devices_where_the_allocator_reads_them(referee, minor, enabled_gates):
    case = asked_of(Server(minor, frozenset(enabled_gates)), question(NEWER))
    verdict = ours(case).verdict
    assert verdict == referee.ask(**case)["verdict"]
    assert WORDS[verdict] == ("no" if minor == OLDEST or (minor == OLDEST + 1 and not enabled_gates) else "yes")


@pytest.mark.oracle
def test_the_upstream_allocator_of_each_minor_gives_the_expected_verdicts(referee, minor):
    for field, case in FIELDS.items():
        verdict = WORDS[referee.ask(**asked_of(server_of(minor), case))["verdict"]]
        assert verdict == EXPECTED[field].split()[minor - OLDEST], field


@pytest.mark.long
@pytest.mark.oracle
@pytest.mark.time_limit(3600, "21,000 cases a minor")
def test_each_minor_gives_the_same_answers_in_long_runs(referee, minor):
    counts = Counter()
    for first in range(0, LONG, 100):
        for family in FAMILIES:
            counts += compare(referee, family, minor, range(2_000_000 + first, 2_000_100 + first))
        print(f"1.{minor}, after {first + 100} cases a family: {dict(counts)}", flush=True)
    check_counts(counts)
