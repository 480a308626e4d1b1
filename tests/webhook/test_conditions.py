"""The match conditions, evaluated by an API server. They equal their plain form at lower cost, and skip no pod with our keys."""

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
from webhook.state.configuration_rules import MAX_ROWS

pytestmark = [pytest.mark.oracle, pytest.mark.live]

BUILT_IN = Configuration().dialects
OWN_DIALECT = Dialect(
    name="own",
    title="Own",
    keys=(
        Row(name="gpu.example.org/card", meaning="a card"),
        Row(name="bare-gpu", meaning="a card"),
        Row(name="memory", meaning="a name that every container has"),
        Row(name="it's/quoted", place=Position.ANNOTATION, role="count", meaning="odd"),
        Row(name="example.org/part-<name>", place=Position.ANNOTATION, role="count", meaning="a part"),
        Row(name="example.org/labelled", place=Position.LABEL, role="count", meaning="a label"),
    ),
)
VARYING_DIALECT = Dialect(
    name="varying",
    title="Varying",
    keys=(Row(name="<vendor>.example.org/card", meaning="a card"), Row(name="bare-gpu", meaning="a card")),
)
# Dialects (tables of the keys of one system each) for which the conditions are made.
TABLES = {"built in": BUILT_IN, "of an administrator": (*BUILT_IN, OWN_DIALECT), "varying": (VARYING_DIALECT,)}


# The plain form of the conditions: a loop over the fields for each rule, without optimisation


def plain_condition(root, resource, annotation, label, amount_fields):
    """Return the condition for a pod or a pod template in its plain form.

    `resource`, `annotation` and `label` are the expressions that test a key `k`.
    """
    requests_resource = " || ".join(
        f"c.?resources.?{field}.orValue({{}}).exists(k, {resource})" for field in amount_fields
    )
    return " || ".join(
        [
            f"{root}.?spec.?resourceClaims.orValue([]).size() > 0",
            *(
                f"{root}.?spec.?{field}.orValue([]).exists(c, {requests_resource})"
                for field in ("containers", "initContainers")
            ),
            f"{root}.?metadata.?annotations.orValue({{}}).exists(k, {annotation})",
            f"{root}.?metadata.?labels.orValue({{}}).exists(k, {label})",
        ]
    )


# Domains of resource names. The webhook never translates the names of LEFT_DOMAINS, so the conditions need not match them.
DOMAINS, LEFT_DOMAINS = (
    sorted({row.name.partition("/")[0] for dialect in BUILT_IN for row in dialect.keys if row.place is Position.RESOURCE and (row.outcome is Outcome.LEFT) is is_left})
    for is_left in (False, True)
)  # fmt: skip
IS_BUILT_IN = " || ".join(f"k.startsWith('{domain}/')" for domain in DOMAINS)
IS_OWN = f"{IS_BUILT_IN} || k.startsWith('gpu.example.org/') || k == 'bare-gpu' || k == 'memory'"
IS_OUR_ANNOTATION = " || ".join(f"k == '{name}'" for name in names.ANNOTATIONS)
# For each table: the expressions that test a resource name, an annotation and a label.
KEY_TESTS = {
    "built in": (IS_BUILT_IN, IS_OUR_ANNOTATION, "false"),
    "of an administrator": (
        IS_OWN,
        rf"{IS_OUR_ANNOTATION} || k == 'it\'s/quoted' || k.startsWith('example.org/part-')",
        "k == 'example.org/labelled'",
    ),
    "varying": ("k.contains('/') || k == 'bare-gpu'", IS_OUR_ANNOTATION, "false"),
}


def plain_on_mutate(table):
    """Return the plain form of `on_mutate`."""
    replay = f"object.?metadata.?annotations.orValue({{}}).exists(k, k == '{names.ORIGINAL}')"
    return (
        f"request.operation == 'CREATE' ? ({plain_condition('object', *KEY_TESTS[table], ['requests'])}) : ({replay})"
    )


# Pods of all kinds


RESOURCES = [
    *("cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/foo", "bare-gpu", "gpu.example.org/card"),
    *(f"{domain}/x" for domain in (*DOMAINS, *LEFT_DOMAINS)),
    *("xnvidia.com/gpu", "nvidia.com.example/gpu", "requests.nvidia.com/gpu", "example.com/nvidia.com", "cpu/x"),
]
COMMON_RESOURCES = ["cpu", "memory", "ephemeral-storage"]
ANNOTATIONS = [*names.ANNOTATIONS, "it's/quoted", "example.org/part-a", "example.org/part", "a/b", "drawbridge", "c"]
LABELS = ["example.org/labelled", "example.org/part-a", names.ORIGINAL, "app"]


def random_sample(rng, choices, max_count):
    return rng.sample(choices, rng.randint(0, max_count))


def random_container(rng, name):
    container = {"name": name, "image": "none"}
    if rng.random() < 0.8:
        resources = container["resources"] = {}
        for field in ("requests", "limits"):
            if rng.random() < 0.7:
                keys = random_sample(rng, COMMON_RESOURCES, 3) + (
                    random_sample(rng, RESOURCES, 1) if rng.random() < 0.2 else []
                )
                resources[field] = dict.fromkeys(keys, "1")
    return container


def random_template(rng):
    """Draw metadata and a spec of a pod, with mostly ordinary fields and sometimes a key or label that the webhook reads."""
    metadata, spec = {}, {}
    for field, choices in (("annotations", ANNOTATIONS), ("labels", LABELS)):
        if rng.random() < 0.3:
            metadata[field] = dict.fromkeys(random_sample(rng, choices, 2), "x")
    for containers_field, min_containers in (
        ("containers", 1),
        ("initContainers", 0),
    ):  # a pod without a container is invalid
        spec[containers_field] = [
            random_container(rng, f"{containers_field.lower()}-{i}") for i in range(rng.randint(min_containers, 3))
        ]
    if rng.random() < 0.2:
        spec["resourceClaims"] = random_sample(rng, [{"name": "mine", "resourceClaimName": "x"}], 1)
    return {"metadata": metadata, "spec": spec} if metadata or rng.random() < 0.5 else {"spec": spec}


def random_objects(make, seed):
    rng = random.Random(seed)
    return [make(rng) for _ in range(600)]


def random_pod(rng):
    return {"apiVersion": "v1", "kind": "Pod", **random_template(rng)}


def outcomes(oracle, expression, objects, *, operation="CREATE", resource="pods"):
    """Return the API server's results for a condition, none of which may be an error."""
    answers = oracle.ask(expression=expression, resource=resource, operation=operation, objects=objects)
    assert not answers.get("compileError")
    assert not [result["error"] for result in answers["outcomes"] if result.get("error")]
    return answers["outcomes"]


def is_webhook_called(oracle, expression, objects, **review_fields):
    return [outcome["called"] for outcome in outcomes(oracle, expression, objects, **review_fields)]


def assert_equal_results(oracle, expression, plain, objects, **review_fields):
    """Assert that both forms give equal results for each object, and that more than ten results are true and more than ten false."""
    results = is_webhook_called(oracle, expression, objects, **review_fields)
    plain_results = is_webhook_called(oracle, plain, objects, **review_fields)
    differing = [
        obj for obj, result, plain_result in zip(objects, results, plain_results, strict=True) if result != plain_result
    ]
    assert differing == []
    assert 10 < sum(results) < len(results) - 10


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
@pytest.mark.parametrize("table", TABLES)
def test_the_mutation_condition_of_pods_equals_its_plain_form(condition_oracle, table, operation):
    pods = random_objects(random_pod, f"{table} {operation}")
    assert_equal_results(condition_oracle, on_mutate(TABLES[table]), plain_on_mutate(table), pods, operation=operation)


def test_the_validation_condition_of_pods_equals_its_plain_form(condition_oracle):
    plain = " || ".join(
        f"object.?spec.?{field}.orValue([]).exists(c, c.?resources.?requests.orValue({{}}).exists(k, {IS_BUILT_IN}))"
        for field in ("containers", "initContainers")
    )
    assert_equal_results(condition_oracle, on_validate(BUILT_IN), plain, random_objects(random_pod, "again"))


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
    plain = plain_condition(root, *KEY_TESTS["built in"], ["limits", "requests"])
    assert_equal_results(condition_oracle, condition, plain, random_objects(workload, kind), resource=resource)


# Every pod that the webhook would change is reviewed


def defaulted(value):
    """Return a pod as webhooks receive it from an API server: limits have requests, and extended resources have both."""
    defaulted_pod = copy.deepcopy(value) | {"apiVersion": "v1", "kind": "Pod"}
    for field in ("containers", "initContainers"):
        for container in defaulted_pod["spec"].get(field, []):
            resources = container.setdefault("resources", {})
            requests = resources["requests"] = {**resources.get("limits", {}), **resources.get("requests", {})}
            limits = resources.setdefault("limits", {})
            limits.update({key: amount for key, amount in requests.items() if "/" in key})
    return defaulted_pod


def test_the_match_conditions_select_every_pod_that_is_changed(condition_oracle):
    pods = [defaulted(row.pod) for name, row in CASES.values() if not row.config.get("dialects")]
    changed_pods = [pod for pod in pods if not is_left_unchanged(pod)]
    assert len(changed_pods) > 30
    assert all(is_webhook_called(condition_oracle, on_mutate(BUILT_IN), changed_pods))


def test_pods_that_the_conditions_skip_would_be_left_unchanged(condition_oracle):
    pods = [defaulted(pod) for pod in random_objects(random_pod, "alone")]
    results = is_webhook_called(condition_oracle, on_mutate(BUILT_IN), pods)
    skipped = [pod for pod, is_called in zip(pods, results, strict=True) if not is_called]
    assert len(skipped) > 100
    assert [pod for pod in skipped if not is_left_unchanged(pod)] == []


def is_left_unchanged(pod):
    """Return whether the webhook would leave a pod unchanged."""
    enforcing = state(mode="enforce")
    response = answer(reviewing.decide_review("mutate", review(pod, namespace="ns"), enforcing))
    return response["allowed"] and not response.get("patch")


# Cost


def test_a_maximal_dialect_does_not_make_other_pods_cost_more(condition_oracle):
    keys = [Row(name=f"{'d' * 40}{i}.example.org/x", meaning="a card") for i in range(MAX_ROWS)]
    maximal = Dialect(name="own", title="Own", keys=tuple(keys))
    amounts = {"cpu": "1", f"{'x' * 50}.example.com/{'y' * 60}": "1"}
    containers = [{"name": f"c{i}", "image": "none", "resources": {"requests": amounts}} for i in range(800)]
    pods = [{"apiVersion": "v1", "kind": "Pod", "spec": {"containers": containers}}]
    (without_dialect,), (with_dialect,) = (
        outcomes(condition_oracle, on_mutate(dialects), pods) for dialects in (BUILT_IN, (*BUILT_IN, maximal))
    )
    assert not with_dialect["called"]
    assert with_dialect["cost"] <= 1.1 * without_dialect["cost"]


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
    costs, plain_costs = ([outcome["cost"] for outcome in outcomes(condition_oracle, condition, pods)] for condition in (on_mutate(BUILT_IN), plain_on_mutate("built in")))  # fmt: skip
    assert [cost < 0.9 * plain_cost for cost, plain_cost in zip(costs, plain_costs, strict=True)] == [True, True], (
        costs,
        plain_costs,
    )


# CPUs of Guaranteed pods, if the configuration enables claims for them

CPU_CLAIMS_IN_NS = CPUClaims(namespaces={"ns": "translate"})
CPU_CLAIMS_EXCEPT_IN_OTHER = CPUClaims(default="translate", namespaces={"other": "leave"})


def guaranteed(rng):
    """Draw a pod in which most containers have requests equal to limits, mostly with whole CPUs."""

    def guaranteed_container(name):
        cpu, memory = rng.choice(("1", "2", "2", "1500m", "500m", "2k")), rng.choice(("1Gi", "1Gi", "2Gi"))
        limits = {"cpu": cpu, "memory": memory}
        requests = dict(limits) if rng.random() < 0.8 else {"cpu": "500m"} if rng.random() < 0.5 else {}
        container = {"name": name, "image": "none", "resources": {"limits": limits, "requests": requests}}
        return container | ({"restartPolicy": "Always"} if name.startswith("i") and rng.random() < 0.5 else {})

    spec = {"containers": [guaranteed_container(f"c{i}") for i in range(rng.randint(1, 2))]}
    if rng.random() < 0.3:
        spec["initContainers"] = [guaranteed_container("i0")]
    if rng.random() < 0.2:
        spec["resources"] = {field: {"cpu": "8", "memory": "8Gi"} for field in ("limits", "requests")}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns"}, "spec": spec}


def test_pods_for_cpu_claims_reach_the_webhook_only_where_enabled(condition_oracle):
    pods = [defaulted(pod) for pod in random_objects(guaranteed, "cpus")]
    for pod in pods:
        pod["metadata"] = {"name": "p", "namespace": "ns"}
    results = is_webhook_called(condition_oracle, on_mutate(BUILT_IN, CPU_CLAIMS_IN_NS), pods)
    claimed = [not untouched(verdict_of(pod, namespace="ns")) for pod in pods]
    assert 50 < sum(claimed) < sum(results) < len(pods)
    assert [
        pod for pod, is_called, is_claimed in zip(pods, results, claimed, strict=True) if is_claimed and not is_called
    ] == []
    assert is_webhook_called(condition_oracle, on_mutate(BUILT_IN, CPU_CLAIMS_EXCEPT_IN_OTHER), pods) == results
    elsewhere = CPUClaims(namespaces={"other": "translate"})
    assert not any(is_webhook_called(condition_oracle, on_mutate(BUILT_IN, elsewhere), pods))
    except_ns = CPUClaims(default="translate", namespaces={"ns": "leave"})
    assert not any(is_webhook_called(condition_oracle, on_mutate(BUILT_IN, except_ns), pods))


def test_cpu_conditions_never_fail_on_random_pods_and_cost_little(condition_oracle):
    assert_equal_results(
        condition_oracle,
        on_mutate(BUILT_IN, CPU_CLAIMS_IN_NS),
        on_mutate(BUILT_IN, CPU_CLAIMS_EXCEPT_IN_OTHER),
        random_objects(random_pod, "odd"),
    )
    amounts = {"cpu": "1500m", "memory": "1Gi"}
    crowded = [
        {"name": f"c{i}", "image": "none", "resources": {"limits": amounts, "requests": amounts}} for i in range(800)
    ]
    manifest = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": crowded}}
    (without_claims,), (with_claims,) = (
        outcomes(condition_oracle, on_mutate(BUILT_IN, cpus), [manifest])
        for cpus in (CPUClaims(), CPU_CLAIMS_EXCEPT_IN_OTHER)
    )
    assert not with_claims["called"]
    assert with_claims["cost"] < 2 * without_claims["cost"]
