"""A dump of a cluster gives the same verdicts as its API server: random fleets, claims, quotas, taints and extended resources."""

import random
from collections import Counter

import pytest

from analysis.configuration import configuration_in_force
from cli.configuration import given_configuration
from cluster import manifests
from cluster.patch import apply_json_patch
from e2e.actors.client import ApiError
from e2e.actors.webhook import CONFIGURATION, MODE, Webhook
from e2e.ground.controlplane import ControlPlane
from tests.cli.test_files_and_webhook import random_fleet, random_limit_ranges, random_namespace, random_pod
from tests.limit_ranger import admitted, with_requests
from tests.webhook.pods import state_of_files
from webhook.admission import decide_object, out_of_bounds
from webhook.names import BYPASS_HINT
from webhook.state import Features

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(420),
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
    """Return all objects, as `kubectl get -o yaml` writes them."""
    objects = []
    for path in DUMPED:
        answer = cluster.get(path)
        kind = answer["kind"].removesuffix("List")
        objects += [{"apiVersion": answer["apiVersion"], "kind": kind, **item} for item in answer["items"]]
    return manifests.parse(manifests.dump(objects))


def make(cluster, objects):
    """Create objects with their drawn status."""
    for obj in objects:
        made = {key: value for key, value in obj.items() if key != "status"}
        cluster.create(made)
        if status := obj.get("status"):
            cluster.patch(f"{cluster.path_of(made)}/status", {"status": status})


def at_the_server(cluster, pod):
    """Create a pod: return drawbridge's refusal, or the pod; for other refusals None, and the message."""
    try:
        [became] = cluster.create(pod, dryRun="All")
    except ApiError as error:
        _, ours, message = error.message.partition(f'admission webhook "{OURS}" denied the request: ')
        return (message, None) if ours else (None, error.message)
    return "", became


def outline(pod):
    """The decisions of drawbridge about a pod."""
    spec = pod["spec"]
    claims = sorted(
        (entry["name"], entry.get("resourceClaimTemplateName", "")) for entry in spec.get("resourceClaims", ())
    )
    requested = {
        container["name"]: (
            {key: str(value) for key, value in container.get("resources", {}).get("limits", {}).items()},
            sorted(entry["name"] for entry in container.get("resources", {}).get("claims", ())),
        )
        for container in (*spec["containers"], *spec.get("initContainers", ()))
    }
    return claims, requested, spec.get("schedulerName", "default-scheduler")


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_dump_gives_the_same_answers_as_the_server(cluster, installed, tmp_path, name):
    file = tmp_path / "drawbridge.yaml"
    file.write_text(CONFIGURATION + CONFIGURATIONS[name])
    installed.follow(file.read_text())
    configuration = configuration_in_force(given_configuration(str(file))).configuration
    met = Counter()
    for seed in range(SEEDS):
        rng = random.Random(f"files and server {name} {seed}")
        limits = [limit for limit in random_namespace(rng) if limit["kind"] != "Namespace"]
        objects = [*random_fleet(rng), *limits, *random_limit_ranges(random.Random(f"ranges {name} {seed}"))]
        # The API server sends only resources of the dialects' domains (docs/translation.md#names-that-kubernetes-serves).
        drawn = [pod for pod in (random_pod(rng) for _ in range(6)) if "example.com/gpu" not in str(pod)]
        pods = [pod | {"metadata": {"name": f"p{at}", "namespace": SPACE}} for at, pod in enumerate(drawn[:3])]
        # Without the label the webhook does not review the namespace, so objects may refer to objects that do not exist yet.
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
            for obj in objects:
                cluster.until("it is gone", lambda item=obj: cluster.read(item) is None)
    assert met["refused"] >= 3, met
    assert met["filled in"] >= 3, met
    assert met["changed" if name == "translated" else "as it was"] >= 3, met


def agreed(cluster, pod, configuration, seed):
    """Wait until server and files agree, because the webhook sees changes of the fleet some moments later.

    An API server without a watch of LimitRanges caches them for half a minute.
    """
    details = []

    def agree():
        dump = dump_of(cluster)
        state = state_of_files(dump, configuration, Features(minor=37))
        done = decide_object(pod, state)
        message, became = at_the_server(cluster, pod)
        beyond = out_of_bounds(pod, state)
        if message is None:
            ranged = " usage per Container is " in became or " usage per Pod is " in became
            details[:] = [ranged, beyond]
            return ("out of bounds" if ranged else "refused by others") if ranged == bool(beyond) else None
        mine = "; ".join(map(str, done.refusals))
        # The file is unchanged; the API server adds its defaults.
        ranges = [document.object for document in dump if document.object["kind"] == "LimitRange"]
        after = admitted(apply_json_patch(pod, done.operations) if done.changed else pod, ranges)
        details[:] = [mine, message, outline(after), became and outline(became)]
        if mine or message:
            return "refused" if mine == message.removesuffix(f"; {BYPASS_HINT}") else None
        if outline(after) != outline(became) or beyond:
            return None
        return "changed" if done.changed else "as it was"

    try:
        return cluster.until("the dump says what the server answers", agree, 45)
    except AssertionError as error:
        raise AssertionError(f"{seed}: {error}: {details}: {pod}") from None
