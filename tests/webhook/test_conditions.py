"""The match conditions as an API server evaluates them: equal to their plain form at lower cost, and no pod with our keys is skipped."""

import copy
import random

import pytest

from tests.webhook.admission.reviews import answer, review, state
from tests.webhook.dialects.test_vocabularies import CASES
from tests.webhook.pods import untouched
from tests.webhook.translate.cpu_fleets import verdict_of
from webhook import names
from webhook.admission import review as reviewing
from webhook.dialects.table import Dialect, Outcome, Position, Row
from webhook.registration import Registration, on_mutate, on_validate, validating
from webhook.state import CPUClaims
from webhook.state.configuration import Configuration
from webhook.state.rules import MAX_ROWS

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


# The plain form of the conditions: a loop for each rule, without any optimisation


def plainly(root, resource, annotation, label, parts):
    """Return the condition for a pod or a pod template in its plain form."""
    asks = " || ".join(f"c.?resources.?{part}.orValue({{}}).exists(k, {resource})" for part in parts)
    return " || ".join(
        [
            f"{root}.?spec.?resourceClaims.orValue([]).size() > 0",
            *(f"{root}.?spec.?{some}.orValue([]).exists(c, {asks})" for some in ("containers", "initContainers")),
            f"{root}.?metadata.?annotations.orValue({{}}).exists(k, {annotation})",
            f"{root}.?metadata.?labels.orValue({{}}).exists(k, {label})",
        ]
    )


# Domains of resource names. The conditions need not match names that the webhook always leaves.
DOMAINS, LEFT = (
    sorted({row.name.partition("/")[0] for dialect in BUILT_IN for row in dialect.keys if row.place is Position.RESOURCE and (row.outcome is Outcome.LEFT) is left})
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
    """Return the API server's results for a condition, which never fails."""
    answers = oracle.ask(expression=expression, resource=resource, operation=operation, objects=objects)
    assert not answers.get("compileError")
    assert not [result["error"] for result in answers["outcomes"] if result.get("error")]
    return answers["outcomes"]


def called(oracle, expression, objects, **more):
    return [outcome["called"] for outcome in outcomes(oracle, expression, objects, **more)]


def same(oracle, expression, plain, objects, **more):
    """Check that both forms give equal results for each object, and both results for more than ten objects."""
    here = called(oracle, expression, objects, **more)
    there = called(oracle, plain, objects, **more)
    differ = [obj for obj, ours, theirs in zip(objects, here, there, strict=True) if ours != theirs]
    assert differ == []
    assert 10 < sum(here) < len(here) - 10


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
@pytest.mark.parametrize("table", TABLES)
def test_the_mutation_condition_of_pods_equals_its_plain_form(condition_oracle, table, operation):
    pods = crowd(random_pod, f"{table} {operation}")
    same(condition_oracle, on_mutate(TABLES[table]), plain_on_mutate(table), pods, operation=operation)


def test_the_validation_condition_of_pods_equals_its_plain_form(condition_oracle):
    asks = " || ".join(
        f"object.?spec.?{some}.orValue([]).exists(c, c.?resources.?requests.orValue({{}}).exists(k, {IS_BUILT_IN}))"
        for some in ("containers", "initContainers")
    )
    same(condition_oracle, on_validate(BUILT_IN), asks, crowd(random_pod, "again"))


@pytest.mark.parametrize(("kind", "resource"), [("Deployment", "deployments"), ("CronJob", "cronjobs")])
def test_the_validation_condition_of_workloads_equals_its_plain_form(condition_oracle, kind, resource):
    def workload(rng):
        inner = {"spec": {"template": random_template(rng)}}
        version = "batch/v1" if kind == "CronJob" else "apps/v1"
        spec = {"jobTemplate": inner} if kind == "CronJob" else inner["spec"]
        return {"apiVersion": version, "kind": kind, "spec": spec}

    root = "object.spec.jobTemplate.spec.template" if kind == "CronJob" else "object.spec.template"
    [condition] = [
        entry["expression"]
        for webhook in validating(BUILT_IN, Registration())["webhooks"]
        for entry in webhook.get("matchConditions", [])
        if webhook["name"].startswith("workloads.") and entry["name"] == "names-an-accelerator"
    ]
    plain = plainly(root, *PLAIN["built in"], ["limits", "requests"])
    same(condition_oracle, condition, plain, crowd(workload, kind), resource=resource)


# Every pod of ours is reviewed


def defaulted(value):
    """Return a pod as webhooks receive it from an API server: limits have requests, and extended resources have both."""
    made = copy.deepcopy(value) | {"apiVersion": "v1", "kind": "Pod"}
    for some in ("containers", "initContainers"):
        for container in made["spec"].get(some, []):
            resources = container.setdefault("resources", {})
            requests = resources["requests"] = {**resources.get("limits", {}), **resources.get("requests", {})}
            limits = resources.setdefault("limits", {})
            limits.update({key: amount for key, amount in requests.items() if "/" in key})
    return made


def test_the_match_conditions_select_every_pod_a_dialect_changes(condition_oracle):
    pods = [defaulted(row.pod) for name, row in CASES.values() if not row.config.get("dialects")]
    acting = [pod for pod in pods if not passes(pod)]
    assert len(acting) > 30
    assert all(called(condition_oracle, on_mutate(BUILT_IN), acting))


def test_a_pod_that_the_conditions_skip_would_be_left_anyway(condition_oracle):
    pods = [defaulted(pod) for pod in crowd(random_pod, "alone")]
    here = called(condition_oracle, on_mutate(BUILT_IN), pods)
    kept = [pod for pod, is_called in zip(pods, here, strict=True) if not is_called]
    assert len(kept) > 100
    assert [pod for pod in kept if not passes(pod)] == []


def passes(pod):
    """Return whether the webhook would leave a pod unchanged."""
    here = state(mode="enforce")
    response = answer(reviewing.decide_review("mutate", review(pod, namespace="ns"), here))
    return response["allowed"] and not response.get("patch")


# Cost


def test_a_maximal_dialect_does_not_raise_the_cost_for_others(condition_oracle):
    keys = [Row(name=f"{'d' * 40}{i}.example.org/x", meaning="a card") for i in range(MAX_ROWS)]
    own = Dialect(name="own", title="Own", keys=tuple(keys))
    amounts = {"cpu": "1", f"{'x' * 50}.example.com/{'y' * 60}": "1"}
    containers = [{"name": f"c{i}", "image": "none", "resources": {"requests": amounts}} for i in range(800)]
    pods = [{"apiVersion": "v1", "kind": "Pod", "spec": {"containers": containers}}]
    (plain,), (many,) = (outcomes(condition_oracle, on_mutate(tables), pods) for tables in (BUILT_IN, (*BUILT_IN, own)))
    assert not many["called"]
    assert many["cost"] <= 1.1 * plain["cost"]


def test_match_conditions_cost_ordinary_pods_less_than_the_plain_form(condition_oracle):
    amounts = {"cpu": "1", "memory": "1Gi"}
    container = {"name": "c", "image": "none", "resources": {"limits": amounts, "requests": amounts}}
    annotated = dict.fromkeys([f"example.com/{i}" for i in range(6)], "x")
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container, container]}},
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"annotations": annotated},
            "spec": {"containers": [container]},
        },
    ]
    ours, plain = ([outcome["cost"] for outcome in outcomes(condition_oracle, condition, pods)] for condition in (on_mutate(BUILT_IN), plain_on_mutate("built in")))  # fmt: skip
    assert [cost < 0.9 * other for cost, other in zip(ours, plain, strict=True)] == [True, True], (ours, plain)


# CPUs of Guaranteed pods, if the configuration enables claims for them

HERE = CPUClaims(namespaces={"ns": "translate"})
EVERYWHERE_BUT = CPUClaims(default="translate", namespaces={"other": "leave"})


def guaranteed(rng):
    """A pod in which most containers have requests equal to limits, mostly with whole CPUs."""

    def guaranteed_container(name):
        cpu, memory = rng.choice(("1", "2", "2", "1500m", "500m", "2k")), rng.choice(("1Gi", "1Gi", "2Gi"))
        limits = {"cpu": cpu, "memory": memory}
        requests = dict(limits) if rng.random() < 0.8 else {"cpu": "500m"} if rng.random() < 0.5 else {}
        made = {"name": name, "image": "none", "resources": {"limits": limits, "requests": requests}}
        return made | ({"restartPolicy": "Always"} if name.startswith("i") and rng.random() < 0.5 else {})

    spec = {"containers": [guaranteed_container(f"c{i}") for i in range(rng.randint(1, 2))]}
    if rng.random() < 0.3:
        spec["initContainers"] = [guaranteed_container("i0")]
    if rng.random() < 0.2:
        spec["resources"] = {part: {"cpu": "8", "memory": "8Gi"} for part in ("limits", "requests")}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns"}, "spec": spec}


def test_pods_for_cpu_claims_reach_the_webhook_only_where_enabled(condition_oracle):
    pods = [defaulted(pod) for pod in crowd(guaranteed, "cpus")]
    for pod in pods:
        pod["metadata"] = {"name": "p", "namespace": "ns"}
    here = called(condition_oracle, on_mutate(BUILT_IN, HERE), pods)
    claimed = [not untouched(verdict_of(pod, namespace="ns")) for pod in pods]
    assert 50 < sum(claimed) < sum(here) < len(pods)
    assert [
        pod for pod, is_called, is_claimed in zip(pods, here, claimed, strict=True) if is_claimed and not is_called
    ] == []
    assert called(condition_oracle, on_mutate(BUILT_IN, EVERYWHERE_BUT), pods) == here
    elsewhere = CPUClaims(namespaces={"other": "translate"})
    assert not any(called(condition_oracle, on_mutate(BUILT_IN, elsewhere), pods))
    but = CPUClaims(default="translate", namespaces={"ns": "leave"})
    assert not any(called(condition_oracle, on_mutate(BUILT_IN, but), pods))


def test_a_malformed_pod_causes_no_error_in_the_cpu_conditions(condition_oracle):
    same(condition_oracle, on_mutate(BUILT_IN, HERE), on_mutate(BUILT_IN, EVERYWHERE_BUT), crowd(random_pod, "odd"))
    amounts = {"cpu": "1500m", "memory": "1Gi"}
    crowded = [
        {"name": f"c{i}", "image": "none", "resources": {"limits": amounts, "requests": amounts}} for i in range(800)
    ]
    value = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": crowded}}
    (plain,), (more,) = (
        outcomes(condition_oracle, on_mutate(BUILT_IN, cpus), [value]) for cpus in (CPUClaims(), EVERYWHERE_BUT)
    )
    assert not more["called"]
    assert more["cost"] < 2 * plain["cost"]
