"""The manifests of manifests/examples on a real API server, with the webhook before it and the inventory of public drivers behind it.

One of each dialect that is translated is created: kube-controller-manager makes its claims, and the stock scheduler places it on nodes that
no kubelet runs. All others are put to the server as a dry run, and so is what is made of pods that are made up.
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
from tests.cli.dialect_examples import CONFIGURATION, DRIVERS, FILES, OPTIONAL, OPTIONAL_FILES, example, inventory
from tests.webhook.dialects.test_vocabularies import CASES
from tests.webhook.pods import configured, state_of_files
from webhook.admission import decide_object
from webhook.claims import template
from webhook.refusals import INVALID

pytestmark = pytest.mark.real

EXAMPLES = {one.name: one for one in map(example, FILES)}
OPTED_IN = [example(path) for path in OPTIONAL_FILES]
BESIDE = [
    {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"},
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "koord-prod"}, "value": 9000},
]


def chosen() -> dict[str, str]:
    """The first of each dialect whose claims are all that it asks for, so that a node without a kubelet can take it."""
    first: dict[str, str] = {}
    for name, one in EXAMPLES.items():
        if one.devices and not one.left and len(pods_of(one.object)) == 1:
            first.setdefault(one.path.parent.name, name)
    return first


def pods(one, namespace):
    """Its pods in a namespace of the test, without the owners that do not exist."""
    found = []
    for made, _ in pods_of(one.object):
        metadata = {
            **made["metadata"],
            "namespace": namespace,
            "name": f"{one.path.parent.name}-{made['metadata']['name']}",
        }
        metadata.pop("ownerReferences", None)
        found.append({**made, "metadata": metadata})
    return found


@pytest.fixture(scope="module")
def drivers(control_plane, webhook):
    """The nodes, classes and slices of the inventory, and the configuration that goes with it."""
    every = inventory()
    nodes = [value for value in every if value["kind"] == "Node"]
    objects = [value for value in every if value["kind"] != "Node"] + BESIDE
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
def known(control_plane, gated, drivers):
    """The namespace, once the webhook translates what rests on the last of what was made and declared, and the API server knows what stands beside."""
    witnesses = [pods(EXAMPLES[name], gated)[0] for name in chosen().values()]
    named = {"priorityClassName": "koord-prod", "runtimeClassName": "nvidia", "containers": [container("plain")]}
    plain = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain", "namespace": gated}, "spec": named}

    def translated():
        control_plane.create(plain, dryRun="All")
        told = [control_plane.create(pod, dryRun="All")[0] for pod in witnesses]
        return all("resourceClaims" in pod["spec"] for pod in told)

    control_plane.until("the webhook knows the drivers", translated, 30)
    return gated


def test_a_pod_of_each_dialect_is_claimed_and_placed(control_plane, known):
    names = chosen()
    assert len(names) >= 8, names
    made = {name: pods(EXAMPLES[name], known)[0] for name in names.values()}
    control_plane.create(*made.values())
    given = {}
    for name, pod in made.items():
        key = pod["metadata"]["name"]
        control_plane.wait_scheduled(known, key)
        results = [result for claim in claims_of(control_plane, known, key).values() for result in results_of(claim)]
        given[name] = Counter(result["driver"] for result in results)
    assert given == {name: Counter(EXAMPLES[name].devices) for name in made}


def judged(cluster, examples, namespace):
    """What the API server makes of manifests, and what they say that it does."""
    told, expected = {}, {}
    for one in examples:
        claims = 0
        said = ""
        for pod in pods(one, namespace):
            try:
                (stored,) = cluster.create(pod, dryRun="All")
            except ApiError as error:
                said = error.message
            else:
                claims += len(stored["spec"].get("resourceClaims", ()))
        told[one.name] = f"[{one.refused}]" in said if one.refused else (bool(claims), said)
        expected[one.name] = True if one.refused else (bool(one.devices), "")
    return told, expected


def test_the_api_server_takes_or_refuses_every_manifest_as_it_says(control_plane, known):
    told, expected = judged(control_plane, EXAMPLES.values(), known)
    assert told == expected


@pytest.fixture
def opted_in(control_plane, webhook, known):
    """The namespace, where annotations are translated as well, and the API server sends such pods."""
    registered = ("--opt-in", "--failure-policy=Fail")
    witness = pods(next(one for one in OPTED_IN if one.devices), known)[0]
    try:
        webhook.follow(OPTIONAL.read_text())
        webhook.register(*registered, f"--config={OPTIONAL}")
        control_plane.until("every webhook is called", webhook.is_called, 30)
        control_plane.until(
            "the API server sends such pods",
            lambda: "resourceClaims" in control_plane.create(witness, dryRun="All")[0]["spec"],
            30,
        )
        yield known
    finally:
        webhook.register(*registered)
        control_plane.until("every webhook is called", webhook.is_called, 30)
        webhook.follow(CONFIGURATION.read_text())


def test_pods_that_ask_by_annotation_are_claimed_and_placed_where_an_option_says_so(control_plane, opted_in):
    told, expected = judged(control_plane, OPTED_IN, opted_in)
    assert told == expected
    moved = {one.name: (one, pods(one, opted_in)[0]) for one in OPTED_IN if one.devices}
    control_plane.create(*[pod for _, pod in moved.values()])
    for one, pod in moved.values():
        key = pod["metadata"]["name"]
        control_plane.wait_scheduled(opted_in, key)
        results = [result for claim in claims_of(control_plane, opted_in, key).values() for result in results_of(claim)]
        assert Counter(result["driver"] for result in results) == Counter(one.devices), one.name
        stored = control_plane.read(pod)
        asked = [name for name in stored["metadata"]["annotations"] if name.startswith(("gpu-", "tensor-fusion.ai/"))]
        assert set(asked) <= {"tensor-fusion.ai/qos"}
        # The same manifest once more asks for nothing again.
        again = control_plane.patch(
            f"/api/v1/namespaces/{opted_in}/pods/{key}", {"metadata": {"annotations": pod["metadata"]["annotations"]}}
        )
        assert [
            name for name in again["metadata"]["annotations"] if name.startswith(("gpu-", "tensor-fusion.ai/"))
        ] == asked


# Made up of all dialects' words


AMOUNTS = (0, 1, 1, 1, 2, 2, 3, 8, 16, 33, 50, 100, 101, 200, 4000, 24576, "1k", "8Gi", "0.5", "1500m", "-1", "x", "")
WHOLE = {"nvidia.com/gpu": "whole"}
WORDS = defaultdict(list)
for case, (_, row) in CASES.items():
    WORDS[case.partition(":")[0]].append(row.pod)


def made_up(dice, dialect, namespace):
    """A pod with some words of a dialect, and now and then one of another, over some containers and with amounts of any kind."""
    said = dice.sample(WORDS[dialect], min(len(WORDS[dialect]), dice.randint(1, 3)))
    if dice.random() < 0.2:
        said.append(dice.choice(WORDS[dice.choice(sorted(WORDS))]))
    metadata = {"name": "made-up", "namespace": namespace, "annotations": {}, "labels": {}}
    spec = {"nodeSelector": {}, "containers": [container(f"c{i}") for i in range(dice.randint(1, 2))]}
    if dice.random() < 0.3:
        restart = dice.choice(({}, {"restartPolicy": "Always"}))
        spec["initContainers"] = [container("i0") | restart]
    everywhere = [*spec["containers"], *spec.get("initContainers", [])]
    for one in said:
        for name in ("annotations", "labels"):
            metadata[name] |= one["metadata"].get(name, {})
        spec["nodeSelector"] |= one["spec"].get("nodeSelector", {})
        spec |= {name: one["spec"][name] for name in ("schedulerName", "affinity") if name in one["spec"]}
        for asking in one["spec"]["containers"]:
            into = dice.choice(everywhere)
            into["env"] += asking.get("env", [])
            for key, amount in asking.get("resources", {}).get("limits", {}).items():
                into["resources"]["limits"][key] = str(dice.choice((amount, amount, dice.choice(AMOUNTS))))
    for one in everywhere:
        limits = one["resources"]["limits"]
        if limits and dice.random() < 0.2:
            one["resources"]["requests"] = dict(limits)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def container(name):
    return {"name": name, "image": BUSYBOX, "env": [], "resources": {"limits": {}}}


def refusal(cluster, value):
    """Why the API server does not take an object; nothing if it does."""
    try:
        cluster.create(value, dryRun="All")
    except ApiError as error:
        if error.code not in (400, 403, 422):
            raise
        return error.message
    return ""


@pytest.fixture(scope="module")
def world():
    """The inventory of all drivers. Whether a node could serve it is another question, so it is not asked here."""
    configuration = configured(approximations="allow", meanings=WHOLE, nvidia={"consumableShares": True})
    known = state_of_files(manifests.read([DRIVERS]), configuration)
    return msgspec.structs.replace(known, stock=None)


@pytest.mark.parametrize("seed", [1, 20, 300, 4000])
def test_the_api_server_rejects_translated_random_pods_exactly_as_predicted(control_plane, namespace, world, seed):
    """And what is said to be the server's own refusal is one."""
    dice = random.Random(seed)
    changed, refused, templates = Counter(), Counter(), {}
    for number in range(30 * len(WORDS)):
        dialect = sorted(WORDS)[number % len(WORDS)]
        asked = made_up(dice, dialect, namespace)
        done = decide_object(asked, world)
        codes = {decision.code for decision in done.decisions if decision.outcome == "refused"}
        by_server = {code for code in codes if code[0] == "D" or code in INVALID}
        if codes - by_server:
            continue  # the legacy system's refusal: the server knows nothing of it
        said = refusal(control_plane, apply_json_patch(asked, done.operations))
        assert bool(said) == bool(by_server), (asked, codes, said)
        changed[dialect] += done.changed
        refused[dialect] += bool(said)
        templates |= done.templates
    assert sum(changed.values()) >= 100
    assert len(+changed) >= 10
    assert sum(refused.values()) >= 20
    assert len(templates) >= 40
    for name, spec in templates.items():
        (stored,) = control_plane.create(template.object_of(name, spec, namespace), dryRun="All")
        assert template.name_of({"spec": stored["spec"]["spec"]}) == name
