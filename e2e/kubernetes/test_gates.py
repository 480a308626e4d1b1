"""A real API server with disabled gates: it drops the predicted fields, and its metrics show which gates are off."""

import json

import pytest

from cluster.kubernetes import Kubernetes
from dra import server as gates
from dra.pointer import member
from dra.server import server_of
from dra.validation.fields.gates import drop
from e2e.actors.client import ApiError
from e2e.ground.controlplane import ControlPlane
from e2e.kubernetes.test_validation import PATHS
from tests.dra.validation import corpus
from webhook.state import Features

pytestmark = pytest.mark.real

OFF = (gates.CAPACITY, gates.COUNTERS, gates.BINDING)
SERVER = server_of(37, dict.fromkeys(OFF, False))


@pytest.fixture(scope="module")
def closed():
    with ControlPlane(name="gates", feature_gates=dict.fromkeys(OFF, False)) as running:
        yield running


async def test_metrics_show_which_gates_are_off(closed):
    cluster = Kubernetes.connect(kubeconfig=str(closed.kubeconfig))
    try:
        server = await cluster.server()
    finally:
        await cluster.close()
    assert server.gates == {gate: gate not in OFF and stage.on for gate, stage in gates.known_gates(37).items()}
    by_metrics = Features.combine(server.minor, server.gates)
    assert {gate: by_metrics.enabled(gate) for gate in by_metrics.known()} == {
        gate: SERVER.enabled(gate) for gate in by_metrics.known()
    }
    assert by_metrics.likely == by_metrics.server == SERVER
    assert by_metrics.doubts() == ""


def lost(sent, answer, at=""):
    """Yield the paths that were sent and are missing in the answer."""
    if isinstance(sent, dict):
        for name, value in sent.items():
            here = member(at, name)
            if value and name not in answer:
                yield here
            elif value:  # empty is the same as absent
                yield from lost(value, answer[name], here)
    elif isinstance(sent, list):
        for index, value in enumerate(sent):
            yield from lost(value, answer[index], f"{at}/{index}")


def test_the_api_server_drops_exactly_the_predicted_fields(closed):
    taken = dropped = 0
    for original in corpus.VALID.values():
        value = json.loads(json.dumps(original))
        kind = value["kind"]
        value["metadata"].pop("namespace", None)
        value.pop("status", None)
        if kind not in PATHS:
            continue
        _, losses = drop(kind, value, SERVER.gates)
        try:
            answer = closed.post(f"/apis/{corpus.API}/{PATHS[kind]}", value, dryRun="All")
        except ApiError:
            continue  # the object is incomplete without the field
        taken += 1
        dropped += len(losses)
        assert sorted(lost(value["spec"], answer["spec"], "/spec")) == sorted(loss.path for loss in losses)
    assert taken >= 4
    assert dropped >= 3
