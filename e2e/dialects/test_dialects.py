"""The manifests of manifests/examples on a real API server, with the webhook and the inventory of public drivers.

One pod of each dialect is created: kube-controller-manager creates its claims, and the stock scheduler places it on fake nodes.
All other pods, and random pods, are created in dry runs only.
"""

import random
from collections import Counter, defaultdict

import msgspec
import pytest

from cli.playground import pods_of
from cluster import manifests
from cluster.patch import apply_json_patch
from e2e.actors.client import ApiError
from e2e.actors.webhook import CONFIGURATION as PLAIN
from e2e.actors.webhook import claims_of, results_of
from e2e.ground.images import BUSYBOX
from tests.cli.dialect_examples import (
    CONFIGURATION,
    DRIVERS,
    FILES,
    OPTIONAL_CONFIGURATION,
    OPTIONAL_FILES,
    example,
    inventory,
)
from tests.webhook.dialects.test_vocabularies import CASES
from tests.webhook.pods import configured, state_of_files
from webhook.admission import decide_object
from webhook.claims import template
from webhook.refusals import INVALID

pytestmark = pytest.mark.real

EXAMPLES = {example.name: example for example in map(example, FILES)}
ANNOTATION_EXAMPLES = [example(path) for path in OPTIONAL_FILES]
OTHER_OBJECTS = [
    {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"},
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "koord-prod"}, "value": 9000},
]


def first_examples() -> dict[str, str]:
    """The first example of each dialect that needs nothing but its claims, so that a fake node can run it."""
    first: dict[str, str] = {}
    for name, case in EXAMPLES.items():
        if case.devices and not case.left and len(pods_of(case.object)) == 1:
            first.setdefault(case.path.parent.name, name)
    return first


def pods(case, namespace):
    """The pods of an example in a namespace of the test, without owners that do not exist."""
    result = []
    for item, _ in pods_of(case.object):
        metadata = {
            **item["metadata"],
            "namespace": namespace,
            "name": f"{case.path.parent.name}-{item['metadata']['name']}",
        }
        metadata.pop("ownerReferences", None)
        result.append({**item, "metadata": metadata})
    return result


@pytest.fixture(scope="module")
def drivers(control_plane, webhook):
    """The nodes, classes and slices of the inventory, and its configuration."""
    objects_of_inventory = inventory()
    nodes = [value for value in objects_of_inventory if value["kind"] == "Node"]
    objects = [value for value in objects_of_inventory if value["kind"] != "Node"] + OTHER_OBJECTS
    for slice_ in objects:
        if slice_["kind"] == "ResourceSlice":
            slice_["spec"]["nodeName"] += "0"  # nodes without a kubelet are numbered
    try:
        webhook.follow(CONFIGURATION.read_text())
        for node in nodes:
            metadata, amounts = node["metadata"], node["status"]["allocatable"]
            (metadata["name"],) = control_plane.add_fake_nodes(
                1, prefix=metadata["name"], labels=metadata["labels"], allocatable=amounts
            )
        control_plane.create(*objects)
        yield
    finally:
        webhook.follow(PLAIN)
        control_plane.remove(*objects, *nodes)


@pytest.fixture
def ready_namespace(control_plane, gated, drivers):
    """The namespace, once the webhook knows the last declared object and the API server knows the inventory."""
    probes = [pods(EXAMPLES[name], gated)[0] for name in first_examples().values()]
    spec = {"priorityClassName": "koord-prod", "runtimeClassName": "nvidia", "containers": [container("plain")]}
    plain = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain", "namespace": gated}, "spec": spec}

    def is_translated():
        control_plane.create(plain, dryRun="All")
        stored = [control_plane.create(pod, dryRun="All")[0] for pod in probes]
        return all("resourceClaims" in pod["spec"] for pod in stored)

    control_plane.until("the webhook knows the drivers", is_translated, 30)
    return gated


def test_a_pod_of_each_dialect_is_claimed_and_placed(control_plane, ready_namespace):
    names = first_examples()
    assert len(names) >= 8, names
    pods_by_example = {name: pods(EXAMPLES[name], ready_namespace)[0] for name in names.values()}
    control_plane.create(*pods_by_example.values())
    drivers_by_example = {}
    for name, pod in pods_by_example.items():
        key = pod["metadata"]["name"]
        control_plane.wait_scheduled(ready_namespace, key)
        results = [
            result for claim in claims_of(control_plane, ready_namespace, key).values() for result in results_of(claim)
        ]
        drivers_by_example[name] = Counter(result["driver"] for result in results)
    assert drivers_by_example == {name: Counter(EXAMPLES[name].devices) for name in pods_by_example}


def results_of_examples(cluster, examples, namespace):
    """Return the API server's results for manifests, and those that the manifests declare."""
    results, expected = {}, {}
    for case in examples:
        claims = 0
        message = ""
        for pod in pods(case, namespace):
            try:
                (stored,) = cluster.create(pod, dryRun="All")
            except ApiError as error:
                message = error.message
            else:
                claims += len(stored["spec"].get("resourceClaims", ()))
        results[case.name] = f"[{case.refused}]" in message if case.refused else (bool(claims), message)
        expected[case.name] = True if case.refused else (bool(case.devices), "")
    return results, expected


def test_the_api_server_accepts_or_refuses_each_example_as_documented(control_plane, ready_namespace):
    results, expected = results_of_examples(control_plane, EXAMPLES.values(), ready_namespace)
    assert results == expected


@pytest.fixture
def annotations_namespace(control_plane, webhook, ready_namespace):
    """The namespace, once the webhook translates requests by annotation, and the API server sends the webhook pods with such requests."""
    probe = pods(next(example for example in ANNOTATION_EXAMPLES if example.devices), ready_namespace)[0]
    try:
        webhook.follow(OPTIONAL_CONFIGURATION.read_text())
        webhook.register(f"--config={OPTIONAL_CONFIGURATION}")
        control_plane.until("every registered webhook has a CA bundle and rules", webhook.is_called, 30)
        control_plane.until(
            "the webhook translates a pod that requests by annotation",
            lambda: "resourceClaims" in control_plane.create(probe, dryRun="All")[0]["spec"],
            30,
        )
        yield ready_namespace
    finally:
        webhook.register()
        control_plane.until("every registered webhook has a CA bundle and rules", webhook.is_called, 30)
        webhook.follow(CONFIGURATION.read_text())


def test_requests_by_annotation_are_placed_if_an_option_enables_them(control_plane, annotations_namespace):
    answers, expected = results_of_examples(control_plane, ANNOTATION_EXAMPLES, annotations_namespace)
    assert answers == expected
    translated = {
        example.name: (example, pods(example, annotations_namespace)[0])
        for example in ANNOTATION_EXAMPLES
        if example.devices
    }
    control_plane.create(*[pod for _, pod in translated.values()])
    for case, pod in translated.values():
        key = pod["metadata"]["name"]
        control_plane.wait_scheduled(annotations_namespace, key)
        results = [
            result
            for claim in claims_of(control_plane, annotations_namespace, key).values()
            for result in results_of(claim)
        ]
        assert Counter(result["driver"] for result in results) == Counter(case.devices), case.name
        stored = control_plane.read(pod)
        annotations = [
            name for name in stored["metadata"]["annotations"] if name.startswith(("gpu-", "tensor-fusion.ai/"))
        ]
        assert set(annotations) <= {"tensor-fusion.ai/qos"}
        # The same manifest a second time requests nothing more.
        patched = control_plane.patch(
            f"/api/v1/namespaces/{annotations_namespace}/pods/{key}",
            {"metadata": {"annotations": pod["metadata"]["annotations"]}},
        )
        assert [
            name for name in patched["metadata"]["annotations"] if name.startswith(("gpu-", "tensor-fusion.ai/"))
        ] == annotations


# Random pods with the words of all dialects


AMOUNTS = (0, 1, 1, 1, 2, 2, 3, 8, 16, 33, 50, 100, 101, 200, 4000, 24576, "1k", "8Gi", "0.5", "1500m", "-1", "x", "")
WHOLE = {"nvidia.com/gpu": "whole"}
WORDS = defaultdict(list)
for case, (_, row) in CASES.items():
    WORDS[case.partition(":")[0]].append(row.pod)


def random_pod(dice, dialect, namespace):
    """A random pod that requests devices with some keys of a dialect, sometimes with one of another dialect, and with any amounts."""
    samples = dice.sample(WORDS[dialect], min(len(WORDS[dialect]), dice.randint(1, 3)))
    if dice.random() < 0.2:
        samples.append(dice.choice(WORDS[dice.choice(sorted(WORDS))]))
    metadata = {"name": "made-up", "namespace": namespace, "annotations": {}, "labels": {}}
    spec = {"nodeSelector": {}, "containers": [container(f"c{i}") for i in range(dice.randint(1, 2))]}
    if dice.random() < 0.3:
        restart = dice.choice(({}, {"restartPolicy": "Always"}))
        spec["initContainers"] = [container("i0") | restart]
    containers = [*spec["containers"], *spec.get("initContainers", [])]
    for sample in samples:
        for name in ("annotations", "labels"):
            metadata[name] |= sample["metadata"].get(name, {})
        spec["nodeSelector"] |= sample["spec"].get("nodeSelector", {})
        spec |= {name: sample["spec"][name] for name in ("schedulerName", "affinity") if name in sample["spec"]}
        for source in sample["spec"]["containers"]:
            target = dice.choice(containers)
            target["env"] += source.get("env", [])
            for key, amount in source.get("resources", {}).get("limits", {}).items():
                target["resources"]["limits"][key] = str(dice.choice((amount, amount, dice.choice(AMOUNTS))))
    for container_ in containers:
        limits = container_["resources"]["limits"]
        if limits and dice.random() < 0.2:
            container_["resources"]["requests"] = dict(limits)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def container(name):
    return {"name": name, "image": BUSYBOX, "env": [], "resources": {"limits": {}}}


def refusal(cluster, value):
    """Return why the API server refuses an object; "" if it accepts it."""
    try:
        cluster.create(value, dryRun="All")
    except ApiError as error:
        if error.code not in (400, 403, 422):
            raise
        return error.message
    return ""


@pytest.fixture(scope="module")
def webhook_state():
    """The inventory of all drivers, without its devices, so that no pod is refused because no node can serve it."""
    configuration = configured(approximations="allow", meanings=WHOLE, nvidia={"consumableShares": True})
    state = state_of_files(manifests.read([DRIVERS]), configuration)
    return msgspec.structs.replace(state, stock=None)


@pytest.mark.parametrize("seed", [1, 20, 300, 4000])
def test_the_api_server_rejects_translated_random_pods_as_predicted(control_plane, namespace, webhook_state, seed):
    """The API server refuses a pod exactly if one of its own refusals is predicted."""
    dice = random.Random(seed)
    changed, refused, templates = Counter(), Counter(), {}
    for number in range(30 * len(WORDS)):
        dialect = sorted(WORDS)[number % len(WORDS)]
        pod = random_pod(dice, dialect, namespace)
        answer = decide_object(pod, webhook_state)
        codes = {decision.code for decision in answer.decisions if decision.outcome == "refused"}
        server_codes = {code for code in codes if code[0] == "D" or code in INVALID}
        if codes - server_codes:
            continue  # a refusal for the rules of the legacy system, which the server does not know
        message = refusal(control_plane, apply_json_patch(pod, answer.operations))
        assert bool(message) == bool(server_codes), (pod, codes, message)
        changed[dialect] += answer.changed
        refused[dialect] += bool(message)
        templates |= answer.templates
    assert sum(changed.values()) >= 100
    assert len(+changed) >= 10
    assert sum(refused.values()) >= 20
    assert len(templates) >= 40
    for name, spec in templates.items():
        (stored,) = control_plane.create(template.object_of(name, spec, namespace), dryRun="All")
        assert template.name_of({"spec": stored["spec"]["spec"]}) == name
