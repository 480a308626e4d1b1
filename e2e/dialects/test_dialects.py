"""The manifests of manifests/examples on a real API server, with the gate before it and the inventory of public drivers behind it.

One of each dialect that is translated is created: kube-controller-manager makes its claims, and the stock scheduler places it on nodes that
nobody runs. All others are put to the server as a dry run.
"""

from collections import Counter

import pytest

from cli.playground import pods_of
from e2e.actors.client import ApiError
from e2e.actors.gate import CONFIGURATION as PLAIN
from e2e.actors.gate import claims_of, results_of
from tests.cli.dialect_examples import CONFIGURATION, FILES, example, inventory

pytestmark = pytest.mark.real

EXAMPLES = {one.name: one for one in map(example, FILES)}
BESIDE = [
    {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"},
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "koord-prod"}, "value": 9000},
]


def chosen() -> dict[str, str]:
    """The first of each dialect whose claims are all that it asks for, so that a node which nobody runs can take it."""
    first: dict[str, str] = {}
    for name, one in EXAMPLES.items():
        if one.devices and not one.left and len(pods_of(one.object)) == 1:
            first.setdefault(one.path.parent.name, name)
    return first


def pods(one, namespace):
    """Its pods in a namespace of the test, without the owners that nobody made."""
    found = []
    for made in pods_of(one.object):
        metadata = {
            **made["metadata"],
            "namespace": namespace,
            "name": f"{one.path.parent.name}-{made['metadata']['name']}",
        }
        metadata.pop("ownerReferences", None)
        found.append({**made, "metadata": metadata})
    return found


@pytest.fixture(scope="module")
def drivers(control_plane, gate):
    """The nodes, classes and slices of the inventory, and the configuration that goes with it."""
    every = inventory()
    nodes = [value for value in every if value["kind"] == "Node"]
    objects = [value for value in every if value["kind"] != "Node"] + BESIDE
    for slice_ in objects:
        if slice_["kind"] == "ResourceSlice":
            slice_["spec"]["nodeName"] += "0"  # nodes that nobody runs are numbered
    try:
        gate.configure(CONFIGURATION.read_text())
        for node in nodes:
            metadata, amounts = node["metadata"], node["status"]["allocatable"]
            (metadata["name"],) = control_plane.add_fake_nodes(
                1, prefix=metadata["name"], labels=metadata["labels"], allocatable=amounts
            )
        control_plane.create(*objects)
        yield
    finally:
        gate.configure(PLAIN)
        control_plane.remove(*objects, *nodes)


@pytest.fixture
def known(control_plane, gated, drivers):
    """The namespace, once the gate translates what rests on the last of what was made and declared."""
    witnesses = [pods(EXAMPLES[name], gated)[0] for name in chosen().values()]

    def translated():
        told = [control_plane.create(pod, dryRun="All")[0] for pod in witnesses]
        return all("resourceClaims" in pod["spec"] for pod in told)

    control_plane.until("the gate knows the drivers", translated, 30)
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


def test_the_api_server_takes_or_refuses_every_manifest_as_it_says(control_plane, known):
    told, expected = {}, {}
    for name, one in EXAMPLES.items():
        claims = 0
        said = ""
        for pod in pods(one, known):
            try:
                (stored,) = control_plane.create(pod, dryRun="All")
            except ApiError as error:
                said = error.message
            else:
                claims += len(stored["spec"].get("resourceClaims", ()))
        told[name] = f"[{one.refused}]" in said if one.refused else (bool(claims), said)
        expected[name] = True if one.refused else (bool(one.devices), "")
    assert told == expected
