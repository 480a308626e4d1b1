"""The layout `apart` of the bridge has the scheduler and the allocator in two pods, which use TLS and have no rights of each other."""

import pytest

from analysis.installation import bridge
from cluster import manifests
from tests.cli.running import run

IMAGES = ("registry.example/drawbridge:1", "registry.example/kube-scheduler:v1.37.1")


def made(namespace="drawbridge-system"):
    return {(o["kind"], o["metadata"]["name"]): o for o in bridge(namespace, *IMAGES, way="apart")}


def only_container(objects, name):
    [container] = objects["Deployment", name]["spec"]["template"]["spec"]["containers"]
    return container


def options_of(container):
    return dict(argument.removeprefix("--").split("=") for argument in container["args"][1:])


def extender_of(objects):
    [document] = manifests.parse(objects["ConfigMap", "drawbridge-scheduler"]["data"]["scheduler.yaml"])
    [profile], [extender] = document.object["profiles"], document.object["extenders"]
    assert {"name": "DynamicResources"} in profile["plugins"]["multiPoint"]["disabled"]
    return extender


def files_of(objects, name):
    """Return the paths of a Secret's three keys in the container of a Deployment."""
    spec = objects["Deployment", name]["spec"]["template"]["spec"]
    [volume] = [volume["name"] for volume in spec["volumes"] if volume.get("secret") == {"secretName": name}]
    [folder] = [mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"] if mount["name"] == volume]
    return {key: f"{folder}/{key}" for key in ("tls.crt", "tls.key", "ca.crt")}


@pytest.mark.parametrize("namespace", ["drawbridge-system", "elsewhere"])
def test_the_scheduler_calls_the_service_of_the_allocator(namespace):
    objects = made(namespace)
    service = objects["Service", "drawbridge-allocator"]
    allocator = objects["Deployment", "drawbridge-allocator"]["spec"]["template"]
    assert service["spec"]["selector"] == allocator["metadata"]["labels"]
    [port] = service["spec"]["ports"]
    [listens] = [offered["containerPort"] for offered in only_container(objects, "drawbridge-allocator")["ports"] if offered["name"] == port["targetPort"]]  # fmt: skip
    assert options_of(only_container(objects, "drawbridge-allocator"))["extender"] == f"0.0.0.0:{listens}"
    extender = extender_of(objects)
    host = f"drawbridge-allocator.{namespace}.svc"
    assert extender["urlPrefix"] == f"https://{host}:{port['port']}/extender"
    assert extender["tlsConfig"]["serverName"] == host
    assert {obj["metadata"].get("namespace", namespace) for obj in objects.values()} == {namespace}


def test_both_pods_use_their_own_secret_and_the_bridges_authority():
    objects = made()
    theirs = files_of(objects, "drawbridge-scheduler")
    tls = extender_of(objects)["tlsConfig"]
    assert (tls["certFile"], tls["keyFile"], tls["caFile"]) == tuple(theirs.values())
    options = options_of(only_container(objects, "drawbridge-allocator"))
    ours = files_of(objects, "drawbridge-allocator")
    assert (options["tls-cert"], options["tls-key"], options["client-ca"]) == tuple(ours.values())
    assert options["client-name"] == "scheduler"


def test_neither_pod_has_permissions_of_the_other():
    objects = made()
    bindings = [obj for key, obj in objects.items() if key[0] == "ClusterRoleBinding"]
    who = {binding["roleRef"]["name"]: [subject["name"] for subject in binding["subjects"]] for binding in bindings}
    schedulers = ["system:kube-scheduler", "system:volume-scheduler"]
    assert who == {key: ["drawbridge-scheduler"] for key in schedulers} | {
        "drawbridge-allocator": ["drawbridge-allocator"]
    }
    for name in ("drawbridge-allocator", "drawbridge-scheduler"):
        assert objects["Deployment", name]["spec"]["template"]["spec"]["serviceAccountName"] == name


def test_only_the_schedulers_pod_reaches_the_extender_port():
    objects = made()
    policy = objects["NetworkPolicy", "drawbridge-allocator"]["spec"]
    asking, _ = policy["ingress"]
    labels = objects["Deployment", "drawbridge-scheduler"]["spec"]["template"]["metadata"]["labels"]
    assert asking["from"] == [{"podSelector": {"matchLabels": labels}}]
    assert [port["port"] for port in asking["ports"]] == [9441]
    allocator = objects["Deployment", "drawbridge-allocator"]["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"] == {"matchLabels": allocator}


def test_each_deployment_has_its_image_from_the_command():
    objects = made()
    names = ("drawbridge-allocator", "drawbridge-scheduler")
    assert tuple(only_container(objects, name)["image"] for name in names) == IMAGES


def test_apart_without_bridge_is_a_usage_error():
    result = run("manifests", "--image", IMAGES[0], "--apart")
    assert result.exit_code == 2
    assert "add --bridge" in result.stderr
    enabled = run("manifests", "--image", IMAGES[0], "--bridge", "--apart", "--scheduler-image", IMAGES[1])
    assert "name: drawbridge-scheduler" in enabled.stdout
