"""A dump of a cluster says of a pod what its API server answers: drawn fleets, claims, quotas, taints and names that core serves."""

import random
from collections import Counter

import pytest

from analysis.configuration import configuration_in_force, given_configuration
from cluster import manifests
from cluster.patch import apply_json_patch
from e2e.actors.client import ApiError
from e2e.actors.webhook import CONFIGURATION, MODE, Webhook
from e2e.ground.controlplane import ControlPlane
from tests.cli.test_files_and_webhook import fleet_of, limits_of, pod_of, ranges_of
from tests.limit_ranger import admitted, with_requests
from tests.webhook.pods import state_of_files
from webhook.admission import decide_object, out_of_bounds
from webhook.names import WAY_OUT
from webhook.state import Features

pytestmark = [
    pytest.mark.real,
    pytest.mark.time_limit(420, "a control plane starts, and some dozens of fleets are made"),
]

SPACE = "n"
DUMPED = (
    "/api/v1/nodes",
    "/api/v1/namespaces",
    "/apis/resource.k8s.io/v1/resourceslices",
    "/apis/resource.k8s.io/v1/deviceclasses",
    "/apis/resource.k8s.io/v1beta2/devicetaintrules",
    f"/apis/resource.k8s.io/v1/namespaces/{SPACE}/resourceclaims",
    f"/apis/resource.k8s.io/v1/namespaces/{SPACE}/resourceclaimtemplates",
    f"/api/v1/namespaces/{SPACE}/resourcequotas",
    f"/api/v1/namespaces/{SPACE}/limitranges",
)
CONFIGURATIONS = {
    "left": "",
    "translated": "extendedResources: {default: translate}\n",
    "fenced": "bridge: {schedulerName: drawbridge, drivers: [gpu.nvidia.com], fence: true}\n",
}
SEEDS = 10  # of each configuration, with three pods each
OURS = "pods.mutate.drawbridge.dev"


@pytest.fixture(scope="module")
def cluster():
    with ControlPlane(name="drawn") as running:
        running.namespace(SPACE)
        yield running


@pytest.fixture(scope="module")
def installed(cluster):
    """drawbridge on that control plane; it ends with it."""
    return Webhook(cluster).install()


def dump_of(cluster):
    """All that there is, as `kubectl get -o yaml` writes it."""
    found = []
    for path in DUMPED:
        answer = cluster.get(path)
        kind = answer["kind"].removesuffix("List")
        found += [{"apiVersion": answer["apiVersion"], "kind": kind, **one} for one in answer["items"]]
    return manifests.parse(manifests.dump(found))


def make(cluster, objects):
    """Bring objects into the cluster with the status that they are drawn with."""
    for obj in objects:
        made = {key: value for key, value in obj.items() if key != "status"}
        cluster.create(made)
        if status := obj.get("status"):
            cluster.patch(f"{cluster.path_of(made)}/status", {"status": status})


def at_the_server(cluster, pod):
    """What creating a pod comes to: why drawbridge refuses it, or the pod; where others refuse it None, and their words."""
    try:
        [became] = cluster.create(pod, dryRun="All")
    except ApiError as error:
        _, ours, said = error.message.partition(f'admission webhook "{OURS}" denied the request: ')
        return (said, None) if ours else (None, error.message)
    return "", became


def outline(pod):
    """What drawbridge decides about a pod."""
    spec = pod["spec"]
    claims = sorted((one["name"], one.get("resourceClaimTemplateName", "")) for one in spec.get("resourceClaims", ()))
    asked = {
        one["name"]: (
            {key: str(value) for key, value in one.get("resources", {}).get("limits", {}).items()},
            sorted(entry["name"] for entry in one.get("resources", {}).get("claims", ())),
        )
        for one in (*spec["containers"], *spec.get("initContainers", ()))
    }
    return claims, asked, spec.get("schedulerName", "default-scheduler")


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_dump_says_what_the_server_answers(cluster, installed, tmp_path, name):
    file = tmp_path / "drawbridge.yaml"
    file.write_text(CONFIGURATION + CONFIGURATIONS[name])
    installed.follow(file.read_text())
    configuration = configuration_in_force(given_configuration(str(file))).configuration
    met = Counter()
    for seed in range(SEEDS):
        rng = random.Random(f"files and server {name} {seed}")
        limits = [limit for limit in limits_of(rng) if limit["kind"] != "Namespace"]
        objects = [*fleet_of(rng), *limits, *ranges_of(random.Random(f"ranges {name} {seed}"))]
        # The API server asks about names in the domains of the dialects alone (docs/translation.md#names-that-core-serves).
        drawn = [one for one in (pod_of(rng) for _ in range(6)) if "example.com/gpu" not in str(one)]
        pods = [one | {"metadata": {"name": f"p{at}", "namespace": SPACE}} for at, one in enumerate(drawn[:3])]
        # Without its label the namespace has no reviews: what stands there may well ask for what there is not.
        cluster.patch(f"/api/v1/namespaces/{SPACE}", {"metadata": {"labels": {MODE: None}}})
        make(cluster, objects)
        cluster.patch(f"/api/v1/namespaces/{SPACE}", {"metadata": {"labels": {MODE: "enforce"}}})
        try:
            for pod in pods:
                met["filled in"] += admitted(
                    pod, [obj for obj in objects if obj["kind"] == "LimitRange"]
                ) != with_requests(pod)
                met[agreed(cluster, pod, configuration, (name, seed))] += 1
        finally:
            cluster.remove(*reversed(objects))
            for one in objects:
                cluster.until("it is gone", lambda one=one: cluster.read(one) is None)
    assert met["refused"] >= 3, met
    assert met["filled in"] >= 3, met
    assert met["changed" if name == "translated" else "as it was"] >= 3, met


def agreed(cluster, pod, configuration, seed):
    """Wait until server and files say the same, as the webhook learns of the fleet some moments later.

    An API server believes for half a minute what it once read of LimitRanges where it follows none.
    """
    told = []

    def agree():
        dump = dump_of(cluster)
        state = state_of_files(dump, configuration, Features(minor=37))
        done = decide_object(pod, state)
        said, became = at_the_server(cluster, pod)
        beyond = out_of_bounds(pod, state)
        if said is None:
            ranged = " usage per Container is " in became or " usage per Pod is " in became
            told[:] = [ranged, beyond]
            return ("out of bounds" if ranged else "refused by others") if ranged == bool(beyond) else None
        mine = "; ".join(map(str, done.refusals))
        # The file keeps what it says, and the API server fills it in.
        ranges = [one.object for one in dump if one.object["kind"] == "LimitRange"]
        after = admitted(apply_json_patch(pod, done.operations) if done.changed else pod, ranges)
        told[:] = [mine, said, outline(after), became and outline(became)]
        if mine or said:
            return "refused" if mine == said.removesuffix(f"; {WAY_OUT}") else None
        if outline(after) != outline(became) or beyond:
            return None
        return "changed" if done.changed else "as it was"

    try:
        return cluster.until("the dump says what the server answers", agree, 45)
    except AssertionError as error:
        raise AssertionError(f"{seed}: {error}: {told}: {pod}") from None
