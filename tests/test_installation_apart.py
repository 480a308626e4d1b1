"""The bridge in two pods: each finds the other, by the files that both were given, and neither has the other's rights."""

import pytest

from analysis.installation import bridge
from cluster import manifests
from tests.cli.running import run

IMAGES = ("registry.example/drawbridge:1", "registry.example/kube-scheduler:v1.37.1")


def made(namespace="drawbridge-system"):
    return {(o["kind"], o["metadata"]["name"]): o for o in bridge(namespace, *IMAGES, way="apart")}


def only_container(found, name):
    [container] = found["Deployment", name]["spec"]["template"]["spec"]["containers"]
    return container


def options_of(container):
    return dict(argument.removeprefix("--").split("=") for argument in container["args"][1:])


def extender_of(found):
    [document] = manifests.parse(found["ConfigMap", "drawbridge-scheduler"]["data"]["scheduler.yaml"])
    [profile], [extender] = document.object["profiles"], document.object["extenders"]
    assert {"name": "DynamicResources"} in profile["plugins"]["multiPoint"]["disabled"]
    return extender


def files_of(found, name):
    """What a pod finds of its Secret, by folder, as three keys."""
    spec = found["Deployment", name]["spec"]["template"]["spec"]
    [volume] = [one["name"] for one in spec["volumes"] if one.get("secret") == {"secretName": name}]
    [folder] = [one["mountPath"] for one in spec["containers"][0]["volumeMounts"] if one["name"] == volume]
    return {key: f"{folder}/{key}" for key in ("tls.crt", "tls.key", "ca.crt")}


@pytest.mark.parametrize("namespace", ["drawbridge-system", "elsewhere"])
def test_the_scheduler_asks_the_service_behind_which_the_allocator_listens(namespace):
    found = made(namespace)
    service = found["Service", "drawbridge-allocator"]
    allocator = found["Deployment", "drawbridge-allocator"]["spec"]["template"]
    assert service["spec"]["selector"] == allocator["metadata"]["labels"]
    [port] = service["spec"]["ports"]
    [listens] = [one["containerPort"] for one in only_container(found, "drawbridge-allocator")["ports"] if one["name"] == port["targetPort"]]  # fmt: skip
    assert options_of(only_container(found, "drawbridge-allocator"))["extender"] == f"0.0.0.0:{listens}"
    extender = extender_of(found)
    host = f"drawbridge-allocator.{namespace}.svc"
    assert extender["urlPrefix"] == f"https://{host}:{port['port']}/extender"
    assert extender["tlsConfig"]["serverName"] == host
    assert {one["metadata"].get("namespace", namespace) for one in found.values()} == {namespace}


def test_both_show_what_their_secrets_hold_and_believe_the_bridges_authority():
    found = made()
    theirs = files_of(found, "drawbridge-scheduler")
    tls = extender_of(found)["tlsConfig"]
    assert (tls["certFile"], tls["keyFile"], tls["caFile"]) == tuple(theirs.values())
    options = options_of(only_container(found, "drawbridge-allocator"))
    ours = files_of(found, "drawbridge-allocator")
    assert (options["tls-cert"], options["tls-key"], options["client-ca"]) == tuple(ours.values())
    assert options["client-name"] == "scheduler"


def test_neither_has_the_others_rights():
    found = made()
    bindings = [one for key, one in found.items() if key[0] == "ClusterRoleBinding"]
    who = {binding["roleRef"]["name"]: [subject["name"] for subject in binding["subjects"]] for binding in bindings}
    schedulers = ["system:kube-scheduler", "system:volume-scheduler"]
    assert who == {key: ["drawbridge-scheduler"] for key in schedulers} | {
        "drawbridge-allocator": ["drawbridge-allocator"]
    }
    for name in ("drawbridge-allocator", "drawbridge-scheduler"):
        assert found["Deployment", name]["spec"]["template"]["spec"]["serviceAccountName"] == name


def test_only_the_schedulers_pod_is_let_through_to_the_port():
    found = made()
    policy = found["NetworkPolicy", "drawbridge-allocator"]["spec"]
    asking, _ = policy["ingress"]
    labels = found["Deployment", "drawbridge-scheduler"]["spec"]["template"]["metadata"]["labels"]
    assert asking["from"] == [{"podSelector": {"matchLabels": labels}}]
    assert [one["port"] for one in asking["ports"]] == [9441]
    allocator = found["Deployment", "drawbridge-allocator"]["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"] == {"matchLabels": allocator}


def test_the_images_are_the_commands():
    found = made()
    names = ("drawbridge-allocator", "drawbridge-scheduler")
    assert tuple(only_container(found, name)["image"] for name in names) == IMAGES


def test_two_pods_without_a_bridge_are_a_broken_usage():
    done = run("manifests", "--image", IMAGES[0], "--apart")
    assert done.exit_code == 2
    assert "add --bridge" in done.stderr
    asked = run("manifests", "--image", IMAGES[0], "--bridge", "--apart", "--scheduler-image", IMAGES[1])
    assert "name: drawbridge-scheduler" in asked.stdout
