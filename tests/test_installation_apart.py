"""The layout `apart` of the bridge has the scheduler and the allocator in two pods, which use TLS and have no rights of each other."""

import pytest

from analysis.installation import bridge
from cluster import manifests
from tests.cli.running import run

IMAGES = ("registry.example/drawbridge:1", "registry.example/kube-scheduler:v1.37.1")


def rendered_objects(namespace="drawbridge-system"):
    return {(obj["kind"], obj["metadata"]["name"]): obj for obj in bridge(namespace, *IMAGES, way="apart")}


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


def secret_files_of(objects, name):
    """Return the paths of a Secret's three keys in the container of a Deployment."""
    spec = objects["Deployment", name]["spec"]["template"]["spec"]
    [volume] = [volume["name"] for volume in spec["volumes"] if volume.get("secret") == {"secretName": name}]
    [folder] = [mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"] if mount["name"] == volume]
    return {key: f"{folder}/{key}" for key in ("tls.crt", "tls.key", "ca.crt")}


@pytest.mark.parametrize("namespace", ["drawbridge-system", "elsewhere"])
def test_the_scheduler_calls_the_service_of_the_allocator(namespace):
    objects = rendered_objects(namespace)
    service = objects["Service", "drawbridge-allocator"]
    allocator = objects["Deployment", "drawbridge-allocator"]["spec"]["template"]
    assert service["spec"]["selector"] == allocator["metadata"]["labels"]
    [port] = service["spec"]["ports"]
    [container_port] = [port_entry["containerPort"] for port_entry in only_container(objects, "drawbridge-allocator")["ports"] if port_entry["name"] == port["targetPort"]]  # fmt: skip
    assert options_of(only_container(objects, "drawbridge-allocator"))["extender"] == f"0.0.0.0:{container_port}"
    extender = extender_of(objects)
    host = f"drawbridge-allocator.{namespace}.svc"
    assert extender["urlPrefix"] == f"https://{host}:{port['port']}/extender"
    assert extender["tlsConfig"]["serverName"] == host
    assert {obj["metadata"].get("namespace", namespace) for obj in objects.values()} == {namespace}


def test_each_pod_uses_the_files_of_its_own_secret():
    objects = rendered_objects()
    scheduler_files = secret_files_of(objects, "drawbridge-scheduler")
    tls = extender_of(objects)["tlsConfig"]
    assert (tls["certFile"], tls["keyFile"], tls["caFile"]) == tuple(scheduler_files.values())
    options = options_of(only_container(objects, "drawbridge-allocator"))
    allocator_files = secret_files_of(objects, "drawbridge-allocator")
    assert (options["tls-cert"], options["tls-key"], options["client-ca"]) == tuple(allocator_files.values())
    assert options["client-name"] == "scheduler"


def test_neither_pod_has_permissions_of_the_other_pod():
    objects = rendered_objects()
    bindings = [obj for key, obj in objects.items() if key[0] == "ClusterRoleBinding"]
    accounts_by_role = {
        binding["roleRef"]["name"]: [subject["name"] for subject in binding["subjects"]] for binding in bindings
    }
    scheduler_roles = ["system:kube-scheduler", "system:volume-scheduler"]
    assert accounts_by_role == {key: ["drawbridge-scheduler"] for key in scheduler_roles} | {
        "drawbridge-allocator": ["drawbridge-allocator"]
    }
    for name in ("drawbridge-allocator", "drawbridge-scheduler"):
        assert objects["Deployment", name]["spec"]["template"]["spec"]["serviceAccountName"] == name


def test_only_the_schedulers_pod_reaches_the_extender_port():
    objects = rendered_objects()
    policy = objects["NetworkPolicy", "drawbridge-allocator"]["spec"]
    extender_rule, _ = policy["ingress"]
    labels = objects["Deployment", "drawbridge-scheduler"]["spec"]["template"]["metadata"]["labels"]
    assert extender_rule["from"] == [{"podSelector": {"matchLabels": labels}}]
    assert [port["port"] for port in extender_rule["ports"]] == [9441]
    allocator = objects["Deployment", "drawbridge-allocator"]["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"] == {"matchLabels": allocator}


def test_each_deployment_has_the_image_that_was_given_for_it():
    objects = rendered_objects()
    names = ("drawbridge-allocator", "drawbridge-scheduler")
    assert tuple(only_container(objects, name)["image"] for name in names) == IMAGES


def test_the_option_apart_without_bridge_is_a_usage_error():
    result = run("manifests", "--image", IMAGES[0], "--apart")
    assert result.exit_code == 2
    assert "add --bridge" in result.stderr
    enabled = run("manifests", "--image", IMAGES[0], "--bridge", "--apart", "--scheduler-image", IMAGES[1])
    assert "name: drawbridge-scheduler" in enabled.stdout
