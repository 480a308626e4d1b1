"""The match conditions as an API server reads them: they say what their plainest form says, at less cost, and what is ours gets past none."""

import copy
import random

import pytest

from tests.webhook.admission.test_decide import answer, review, state
from tests.webhook.dialects.test_vocabularies import CASES
from tests.webhook.pods import untouched
from tests.webhook.translate.test_cpus import became
from webhook import names
from webhook.admission import review as reviewing
from webhook.dialects.table import Dialect, Outcome, Position, Row
from webhook.registration import Registration, on_mutate, on_validate, validating
from webhook.state import CPUClaims
from webhook.state.configuration import Configuration
from webhook.state.rules import MOST_ROWS

pytestmark = [pytest.mark.oracle, pytest.mark.live]

BUILT_IN = Configuration().dialects
OWN = Dialect(
    name="own",
    title="Own",
    keys=(
        Row(name="gpu.example.org/card", meaning="a card"),
        Row(name="bare-gpu", meaning="a card"),
        Row(name="memory", meaning="a name that every container has"),
        Row(name="it's/quoted", place=Position.ANNOTATION, role="count", meaning="odd"),
        Row(name="example.org/part-<name>", place=Position.ANNOTATION, role="count", meaning="a family"),
        Row(name="example.org/labelled", place=Position.LABEL, role="count", meaning="a label"),
    ),
)
VARYING = Dialect(
    name="varying",
    title="Varying",
    keys=(Row(name="<vendor>.example.org/card", meaning="a card"), Row(name="bare-gpu", meaning="a card")),
)
TABLES = {"built in": BUILT_IN, "of an administrator": (*BUILT_IN, OWN), "varying": (VARYING,)}


# The plainest form: a loop for each rule, nothing left out that could be


def plainly(root, resource, annotation, label, parts):
    """What concerns us about a pod or its template, word by word."""
    asks = " || ".join(f"c.?resources.?{part}.orValue({{}}).exists(k, {resource})" for part in parts)
    return " || ".join(
        [
            f"{root}.?spec.?resourceClaims.orValue([]).size() > 0",
            *(f"{root}.?spec.?{some}.orValue([]).exists(c, {asks})" for some in ("containers", "initContainers")),
            f"{root}.?metadata.?annotations.orValue({{}}).exists(k, {annotation})",
            f"{root}.?metadata.?labels.orValue({{}}).exists(k, {label})",
        ]
    )


# What is left in any case asks nothing of us.
DOMAINS, LEFT = (
    sorted({row.name.partition("/")[0] for one in BUILT_IN for row in one.keys if row.place is Position.RESOURCE and (row.outcome is Outcome.LEFT) is left})
    for left in (False, True)
)  # fmt: skip
IS_BUILT_IN = " || ".join(f"k.startsWith('{domain}/')" for domain in DOMAINS)
IS_OWN = f"{IS_BUILT_IN} || k.startsWith('gpu.example.org/') || k == 'bare-gpu' || k == 'memory'"
IS_MARK = " || ".join(f"k == '{name}'" for name in names.ANNOTATIONS)
PLAIN = {
    "built in": (IS_BUILT_IN, IS_MARK, "false"),
    "of an administrator": (
        IS_OWN,
        rf"{IS_MARK} || k == 'it\'s/quoted' || k.startsWith('example.org/part-')",
        "k == 'example.org/labelled'",
    ),
    "varying": ("k.contains('/') || k == 'bare-gpu'", IS_MARK, "false"),
}


def plain_on_mutate(table):
    replay = f"object.?metadata.?annotations.orValue({{}}).exists(k, k == '{names.ORIGINAL}')"
    return f"request.operation == 'CREATE' ? ({plainly('object', *PLAIN[table], ['requests'])}) : ({replay})"


# Pods of all kinds


RESOURCES = [
    *("cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/foo", "bare-gpu", "gpu.example.org/card"),
    *(f"{domain}/x" for domain in (*DOMAINS, *LEFT)),
    *("xnvidia.com/gpu", "nvidia.com.example/gpu", "requests.nvidia.com/gpu", "example.com/nvidia.com", "cpu/x"),
]
COMMON = ["cpu", "memory", "ephemeral-storage"]
ANNOTATIONS = [*names.ANNOTATIONS, "it's/quoted", "example.org/part-a", "example.org/part", "a/b", "drawbridge", "c"]
LABELS = ["example.org/labelled", "example.org/part-a", names.ORIGINAL, "app"]


def some_of(rng, choices, most):
    return rng.sample(choices, rng.randint(0, most))


def random_container(rng, name):
    made = {"name": name, "image": "none"}
    if rng.random() < 0.8:
        resources = made["resources"] = {}
        for part in ("requests", "limits"):
            if rng.random() < 0.7:
                keys = some_of(rng, COMMON, 3) + (some_of(rng, RESOURCES, 1) if rng.random() < 0.2 else [])
                resources[part] = dict.fromkeys(keys, "1")
    return made


def random_template(rng):
    """Draw a pod's content: sometimes nothing, mostly ordinary fields, now and then a key or label that the webhook reads."""
    metadata, spec = {}, {}
    for field, choices in (("annotations", ANNOTATIONS), ("labels", LABELS)):
        if rng.random() < 0.3:
            metadata[field] = dict.fromkeys(some_of(rng, choices, 2), "x")
    for some, least in (("containers", 1), ("initContainers", 0)):  # a pod without a container is invalid
        spec[some] = [random_container(rng, f"{some.lower()}-{i}") for i in range(rng.randint(least, 3))]
    if rng.random() < 0.2:
        spec["resourceClaims"] = some_of(rng, [{"name": "mine", "resourceClaimName": "x"}], 1)
    return {"metadata": metadata, "spec": spec} if metadata or rng.random() < 0.5 else {"spec": spec}


def crowd(make, seed):
    rng = random.Random(seed)
    return [make(rng) for _ in range(600)]


def random_pod(rng):
    return {"apiVersion": "v1", "kind": "Pod", **random_template(rng)}


def outcomes(oracle, expression, objects, *, operation="CREATE", resource="pods"):
    """What the API server makes of a condition; it never fails."""
    said = oracle.ask(expression=expression, resource=resource, operation=operation, objects=objects)
    assert not said.get("compileError")
    assert not [one["error"] for one in said["outcomes"] if one.get("error")]
    return said["outcomes"]


def called(oracle, expression, objects, **more):
    return [outcome["called"] for outcome in outcomes(oracle, expression, objects, **more)]


def same(oracle, expression, plain, objects, **more):
    """Both forms say the same of each object, and not the same of all."""
    here = called(oracle, expression, objects, **more)
    there = called(oracle, plain, objects, **more)
    differ = [one for one, ours, theirs in zip(objects, here, there, strict=True) if ours != theirs]
    assert differ == []
    assert 10 < sum(here) < len(here) - 10


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
@pytest.mark.parametrize("table", TABLES)
def test_a_pod_reaches_us_as_the_plain_form_has_it(condition_oracle, table, operation):
    pods = crowd(random_pod, f"{table} {operation}")
    same(condition_oracle, on_mutate(TABLES[table]), plain_on_mutate(table), pods, operation=operation)


def test_a_pod_is_looked_at_again_as_the_plain_form_has_it(condition_oracle):
    asks = " || ".join(
        f"object.?spec.?{some}.orValue([]).exists(c, c.?resources.?requests.orValue({{}}).exists(k, {IS_BUILT_IN}))"
        for some in ("containers", "initContainers")
    )
    same(condition_oracle, on_validate(BUILT_IN), asks, crowd(random_pod, "again"))


@pytest.mark.parametrize(("kind", "resource"), [("Deployment", "deployments"), ("CronJob", "cronjobs")])
def test_a_workload_reaches_us_as_the_plain_form_has_it(condition_oracle, kind, resource):
    def workload(rng):
        inner = {"spec": {"template": random_template(rng)}}
        version = "batch/v1" if kind == "CronJob" else "apps/v1"
        spec = {"jobTemplate": inner} if kind == "CronJob" else inner["spec"]
        return {"apiVersion": version, "kind": kind, "spec": spec}

    root = "object.spec.jobTemplate.spec.template" if kind == "CronJob" else "object.spec.template"
    [condition] = [
        one["expression"]
        for webhook in validating(BUILT_IN, Registration())["webhooks"]
        for one in webhook.get("matchConditions", [])
        if webhook["name"].startswith("workloads.") and one["name"] == "names-an-accelerator"
    ]
    plain = plainly(root, *PLAIN["built in"], ["limits", "requests"])
    same(condition_oracle, condition, plain, crowd(workload, kind), resource=resource)


# Every pod of ours is reviewed


def defaulted(value):
    """A pod as an API server shows it to webhooks, a request for each limit, and as it takes it: an unknown resource has both."""
    made = copy.deepcopy(value) | {"apiVersion": "v1", "kind": "Pod"}
    for some in ("containers", "initContainers"):
        for one in made["spec"].get(some, []):
            resources = one.setdefault("resources", {})
            asked = resources["requests"] = {**resources.get("limits", {}), **resources.get("requests", {})}
            limits = resources.setdefault("limits", {})
            limits.update({key: amount for key, amount in asked.items() if "/" in key})
    return made


def test_the_match_conditions_select_every_pod_that_a_dialect_acts_on(condition_oracle):
    pods = [defaulted(row.pod) for name, row in CASES.values() if not row.config.get("dialects")]
    acting = [pod for pod in pods if not passes(pod)]
    assert len(acting) > 30
    assert all(called(condition_oracle, on_mutate(BUILT_IN), acting))


def test_a_pod_that_is_kept_from_us_is_one_that_we_would_leave_alone(condition_oracle):
    pods = [defaulted(one) for one in crowd(random_pod, "alone")]
    here = called(condition_oracle, on_mutate(BUILT_IN), pods)
    kept = [one for one, is_called in zip(pods, here, strict=True) if not is_called]
    assert len(kept) > 100
    assert [one for one in kept if not passes(one)] == []


def passes(one):
    """Whether a pod would come back from us as it was."""
    here = state(mode="enforce")
    said = answer(reviewing.mutate(review(one, namespace="ns"), here))
    return said["allowed"] and not said.get("patch")


# What it costs


def test_a_file_of_as_many_names_as_it_may_have_costs_others_no_more(condition_oracle):
    keys = [Row(name=f"{'d' * 40}{i}.example.org/x", meaning="a card") for i in range(MOST_ROWS)]
    own = Dialect(name="own", title="Own", keys=tuple(keys))
    amounts = {"cpu": "1", f"{'x' * 50}.example.com/{'y' * 60}": "1"}
    containers = [{"name": f"c{i}", "image": "none", "resources": {"requests": amounts}} for i in range(800)]
    pods = [{"apiVersion": "v1", "kind": "Pod", "spec": {"containers": containers}}]
    (plain,), (many,) = (outcomes(condition_oracle, on_mutate(tables), pods) for tables in (BUILT_IN, (*BUILT_IN, own)))
    assert not many["called"]
    assert many["cost"] <= 1.1 * plain["cost"]


def test_match_conditions_cost_less_for_ordinary_pods_than_the_plain_form(condition_oracle):
    amounts = {"cpu": "1", "memory": "1Gi"}
    one = {"name": "c", "image": "none", "resources": {"limits": amounts, "requests": amounts}}
    annotated = dict.fromkeys([f"example.com/{i}" for i in range(6)], "x")
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [one, one]}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"annotations": annotated}, "spec": {"containers": [one]}},
    ]
    ours, plain = ([said["cost"] for said in outcomes(condition_oracle, condition, pods)] for condition in (on_mutate(BUILT_IN), plain_on_mutate("built in")))  # fmt: skip
    assert [cost < 0.9 * other for cost, other in zip(ours, plain, strict=True)] == [True, True], (ours, plain)


# CPUs of Guaranteed pods, where an administrator wants claims for them

HERE = CPUClaims(namespaces={"ns": "translate"})
EVERYWHERE_BUT = CPUClaims(default="translate", namespaces={"other": "leave"})


def guaranteed(rng):
    """A pod of which most containers are held to what they request, most of them to whole CPUs."""

    def one(name):
        cpu, memory = rng.choice(("1", "2", "2", "1500m", "500m", "2k")), rng.choice(("1Gi", "1Gi", "2Gi"))
        limits = {"cpu": cpu, "memory": memory}
        requests = dict(limits) if rng.random() < 0.8 else {"cpu": "500m"} if rng.random() < 0.5 else {}
        made = {"name": name, "image": "none", "resources": {"limits": limits, "requests": requests}}
        return made | ({"restartPolicy": "Always"} if name.startswith("i") and rng.random() < 0.5 else {})

    spec = {"containers": [one(f"c{i}") for i in range(rng.randint(1, 2))]}
    if rng.random() < 0.3:
        spec["initContainers"] = [one("i0")]
    if rng.random() < 0.2:
        spec["resources"] = {part: {"cpu": "8", "memory": "8Gi"} for part in ("limits", "requests")}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns"}, "spec": spec}


def test_pods_for_cpu_claims_reach_the_webhook_where_enabled_and_not_elsewhere(condition_oracle):
    pods = [defaulted(one) for one in crowd(guaranteed, "cpus")]
    for one in pods:
        one["metadata"] = {"name": "p", "namespace": "ns"}
    here = called(condition_oracle, on_mutate(BUILT_IN, HERE), pods)
    claimed = [not untouched(became(pod, namespace="ns")) for pod in pods]
    assert 50 < sum(claimed) < sum(here) < len(pods)
    assert [
        one for one, is_called, is_claimed in zip(pods, here, claimed, strict=True) if is_claimed and not is_called
    ] == []
    assert called(condition_oracle, on_mutate(BUILT_IN, EVERYWHERE_BUT), pods) == here
    elsewhere = CPUClaims(namespaces={"other": "translate"})
    assert not any(called(condition_oracle, on_mutate(BUILT_IN, elsewhere), pods))
    but = CPUClaims(default="translate", namespaces={"ns": "leave"})
    assert not any(called(condition_oracle, on_mutate(BUILT_IN, but), pods))


def test_a_malformed_pod_causes_no_error_in_the_match_conditions_for_cpus(condition_oracle):
    same(condition_oracle, on_mutate(BUILT_IN, HERE), on_mutate(BUILT_IN, EVERYWHERE_BUT), crowd(random_pod, "odd"))
    amounts = {"cpu": "1500m", "memory": "1Gi"}
    crowded = [
        {"name": f"c{i}", "image": "none", "resources": {"limits": amounts, "requests": amounts}} for i in range(800)
    ]
    value = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": crowded}}
    (plain,), (more,) = (
        outcomes(condition_oracle, on_mutate(BUILT_IN, one), [value]) for one in (CPUClaims(), EVERYWHERE_BUT)
    )
    assert not more["called"]
    assert more["cost"] < 2 * plain["cost"]
