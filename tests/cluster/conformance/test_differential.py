"""Random histories, written to the embedded store and to a real API server: all answers are equal.

The comparison leaves out what each server generates (uids, versions, times) and managedFields.
"""

import asyncio
import itertools

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cluster import Merge
from cluster.embedded.embedded import Embedded
from cluster.errors import ApiError
from cluster.kubernetes.client import Kubernetes
from cluster.patch import Operations
from cluster.protocol import Change
from cluster.resources import CONFIG_MAPS, NAMESPACES, RESOURCE_CLAIMS
from tests.cluster.conftest import delete_pods_and_claims
from tests.cluster.objects import allocation, claim, config_map
from tests.limits import PATIENCE

pytestmark = pytest.mark.real
_history_numbers = itertools.count(1)

names = st.sampled_from("ab")
words = st.sampled_from(["x", "y"])
data = st.dictionaries(st.sampled_from("klm"), words | st.none(), max_size=3)
finalizers = st.lists(st.sampled_from(["example.com/a", "example.com/b"]), max_size=2, unique=True)
labels = st.dictionaries(st.sampled_from(["p", "q"]), words, max_size=2)
paths = st.sampled_from(["/data/k", "/data/l", "/data", "/metadata/labels/p", "/data/k/z", "/metadata/name", ""])
# `replace` and `copy` are not drawn: if the path of a `replace` or the source of a `copy` is missing, the API server accepts the operation,
# but RFC 6902 and the embedded store refuse it.
json_patch_operations = st.lists(
    st.builds(
        lambda op, path, source, value: {"op": op, "path": path, "from": source, "value": value},
        st.sampled_from(["add", "remove", "test", "move"]),
        paths,
        paths,
        words,
    ),
    min_size=1,
    max_size=3,
)
# The data of a new ConfigMap is drawn like labels, because a value of None is valid only in a patch.
CREATE_STEPS = st.tuples(st.just("create"), names, labels, finalizers, labels)
MERGE_STEPS = st.tuples(st.just("merge"), names, data, st.none() | finalizers, labels)
JSON_PATCH_STEPS = st.tuples(st.just("json"), names, json_patch_operations)
DELETE_STEPS = st.tuples(st.just("delete"), names)
node_names = st.sampled_from(["", "node-a", "node-b"])
users = st.lists(st.sampled_from("pq"), max_size=2, unique=True)
# Claims are reserved for consumers of this invented kind, not for pods, because a controller of real clusters removes missing pods from
# `reservedFor`. No controller knows robots, so only the steps of the history change a claim.
ROBOT_KIND = {"apiGroup": "example.com", "resource": "robots"}
CREATE_CLAIM_STEPS = st.tuples(st.just("claim"), names)
CLAIM_STATUS_STEPS = st.tuples(st.just("status"), names, st.none() | node_names, st.none() | users)
CLAIM_SPEC_STEPS = st.tuples(st.just("spec"), names, words)
DELETE_CLAIM_STEPS = st.tuples(st.just("unclaim"), names)


async def perform(cluster, namespace, step):
    """Perform one step of a history; return the answer of the cluster."""
    match step:
        case ("create", name, data, finalizers, labels):
            return await cluster.create(
                CONFIG_MAPS.raw,
                config_map(name, data=data, metadata={"finalizers": finalizers, "labels": labels}),
                namespace,
            )
        case ("merge", name, data, finalizers, labels):
            body = {"data": data, "metadata": {"finalizers": finalizers, "labels": labels}}
            return await cluster.patch(CONFIG_MAPS.raw, name, Merge(body), namespace)
        case ("json", name, operations):
            return await cluster.patch(CONFIG_MAPS.raw, name, Operations(tuple(operations)), namespace)
        case ("delete", name):
            return await cluster.delete(CONFIG_MAPS, name, namespace)
        case ("claim", name):
            return await cluster.create(RESOURCE_CLAIMS.raw, claim(name), namespace)
        case ("status", name, node, users):
            entries = None if users is None else [ROBOT_KIND | {"name": user, "uid": f"uid-{user}"} for user in users]
            status = {"allocation": None if node is None else allocation(node), "reservedFor": entries}
            return await cluster.patch(
                RESOURCE_CLAIMS.raw, name, Merge({"status": status}), namespace, subresource="status"
            )
        case ("spec", name, word):
            request = {"op": "replace", "path": "/spec/devices/requests/0/name", "value": word}
            return await cluster.patch(RESOURCE_CLAIMS.raw, name, Operations((request,)), namespace)
        case ("unclaim", name):
            return await cluster.delete(RESOURCE_CLAIMS, name, namespace)
    raise AssertionError(f"unknown step: {step}")


def comparable(value):
    """Return what the test compares of an answer: the class of an error, or an object without the uncompared fields and without empty fields."""
    if isinstance(value, ApiError):
        return type(value).__name__
    if value is None:
        return None
    uncompared_fields = (
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "managedFields",
        "deletionGracePeriodSeconds",
        "namespace",
    )
    meta = {name: item for name, item in value["metadata"].items() if name not in uncompared_fields}
    if "deletionTimestamp" in meta:
        meta["deletionTimestamp"] = "set"
    return without_empty_values({**value, "metadata": meta})


def without_empty_values(value):
    if isinstance(value, dict):
        return {
            name: inner for name, item in value.items() if (inner := without_empty_values(item)) not in (None, {}, [])
        }
    return [without_empty_values(item) for item in value] if isinstance(value, list) else value


async def answers(cluster, namespace, steps):
    """Return a cluster's answer to each step, and the events of its watches."""
    await cluster.create(NAMESPACES, {"metadata": {"name": namespace}})
    starts = [
        (resource, (await cluster.list(resource, namespace)).resource_version)
        for resource in (CONFIG_MAPS.raw, RESOURCE_CLAIMS.raw)
    ]
    results = []
    for step in steps:
        try:
            results.append((step, comparable(await perform(cluster, namespace, step))))
        except ApiError as error:
            results.append((step, comparable(error)))
    watched = [await events(cluster, resource, namespace, version) for resource, version in starts]
    await delete_pods_and_claims(cluster, namespace)
    return results, watched


async def events(cluster, resource, namespace, version):
    """Return the events after a resourceVersion, up to the creation of the object the-end."""
    await cluster.create(
        resource, config_map("the-end") if resource.kind == "ConfigMap" else claim("the-end"), namespace
    )
    received = []
    async with cluster.watch(resource, namespace, resource_version=version) as changes:
        async for change in changes:
            if not isinstance(change, Change):
                continue
            match change.object["metadata"]["name"]:
                case "the-end":
                    return received
                case "kube-root-ca.crt":  # a controller of real clusters creates it in every namespace
                    continue
            received.append((change.type, comparable(change.object)))
    raise AssertionError("the watch ended before the object the-end")


def compare(control_plane, steps):
    namespace = f"history-{next(_history_numbers)}"

    async def answers_of_both():
        real = Kubernetes.connect(kubeconfig=str(control_plane.kubeconfig))
        try:
            async with asyncio.timeout(PATIENCE):
                return await answers(Embedded(), namespace, steps), await answers(real, namespace, steps)
        finally:
            await real.close()

    embedded_answers, real_answers = asyncio.run(answers_of_both())
    assert embedded_answers == real_answers


def settings_for(examples):
    """Return Hypothesis settings for this number of histories. Shrinking a failed history would take minutes on a real cluster."""
    return settings(max_examples=examples, derandomize=True, phases=[Phase.generate])


HISTORIES = {
    "created, patched and deleted": st.lists(
        st.one_of(CREATE_STEPS, MERGE_STEPS, JSON_PATCH_STEPS, DELETE_STEPS), min_size=4, max_size=20
    ),
    "claims, allocated, reserved and freed": st.lists(
        st.one_of(CREATE_CLAIM_STEPS, CLAIM_STATUS_STEPS, CLAIM_STATUS_STEPS, CLAIM_SPEC_STEPS, DELETE_CLAIM_STEPS),
        min_size=4,
        max_size=20,
    ),
}


@pytest.mark.parametrize("history", HISTORIES)
def test_both_clusters_answer_random_histories_equally(control_plane, history):
    @settings_for(12)
    @given(steps=HISTORIES[history])
    def compare_history(steps):
        compare(control_plane, steps)

    compare_history()


@pytest.mark.long
@pytest.mark.parametrize("history", HISTORIES)
def test_both_clusters_answer_many_random_histories_equally(control_plane, history):
    @settings_for(400)
    @given(steps=HISTORIES[history])
    def compare_history(steps):
        compare(control_plane, steps)

    compare_history()
