"""Karpenter beside an installed drawbridge: it creates a node, or none, as the webhook has predicted.

Its provider takes instance types from a file and starts no machine (kwok in kubernetes-sigs/karpenter): a node is visible as a
NodeClaim. The webhook reads the version of Karpenter from a Deployment; Karpenter's process runs in no pod.
"""

import json

import pytest

from e2e.actors.workloads import container, limits, pod
from e2e.build import program, source_of
from e2e.ground.controlplane import free_port
from e2e.installed.conftest import CONFIGURATION, VALUES
from e2e.installed.installation import printed_manifests, until_pods_are_translated

pytestmark = [pytest.mark.real, pytest.mark.node, pytest.mark.timeout(480)]

MODULE = "sigs.k8s.io/karpenter"
VERSION = "1.14.1"
NAMESPACE = "karpenter"
GPU = "nvidia.com/gpu"
LARGE = {  # twice as large as the existing node
    "name": "large",
    "architecture": "amd64",
    "operatingSystems": ["linux"],
    "resources": {"cpu": "16", "memory": "64Gi", "pods": "110", "ephemeral-storage": "100Gi", GPU: "4"},
    "offerings": [
        {
            "Price": 1,
            "Available": True,
            "Requirements": [
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-a"]},
            ],
        }
    ],
}
POOL = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "gpus"},
    "spec": {
        "template": {
            "spec": {
                "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}],
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            },
        },
    },
}
NODE_CLASS = {
    "apiVersion": "karpenter.kwok.sh/v1alpha1",
    "kind": "KWOKNodeClass",
    "metadata": {"name": "default"},
    "spec": {"nodeRegistrationDelay": "1h"},
}
NODE_CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"


def deployment(*flags):
    """The Deployment of a Karpenter that runs in pods."""
    name = {"app": "karpenter"}
    controller = {"name": "controller", "image": f"localhost/karpenter/controller:{VERSION}", "args": list(flags)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "karpenter", "namespace": NAMESPACE},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": name},
            "template": {"metadata": {"labels": name}, "spec": {"containers": [controller]}},
        },
    }


class Karpenter:
    """The running Karpenter."""

    def __init__(self, cluster, types):
        self.cluster = cluster
        self.types = types
        self.process = None

    def start(self, *flags):
        """Start Karpenter, or restart it with other flags, and update its Deployment."""
        self.stop()
        ports = [f"--metrics-port={free_port()}", f"--health-probe-port={free_port()}"]
        options = ["--disable-leader-election=true", f"--instance-types-file-path={self.types}", *ports, *flags]
        variables = {"KUBECONFIG": str(self.cluster.kubeconfig), "SYSTEM_NAMESPACE": NAMESPACE}
        self.process = self.cluster.spawn("karpenter", [program("karpenter"), *options], env=variables)
        self.cluster.kubectl(
            "apply", "--server-side", "--force-conflicts", "-f", "-", input=json.dumps(deployment(*flags))
        )

    def stop(self):
        if self.process:
            self.process.stop()

    def event_notes(self, namespace, name):
        """Return the messages of Karpenter's events about a pod."""
        self.process.check()
        path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        events = [event for event in self.cluster.get(path)["items"] if event["regarding"].get("name") == name]
        return [event["note"] for event in events if event["reportingController"] == "karpenter"]


@pytest.fixture(scope="module")
def karpenter(installation, tenants):
    """Karpenter with a pool whose nodes are larger than the existing node, and a webhook that reads Karpenter's objects."""
    cluster = installation.cluster
    source = source_of("karpenter", MODULE)
    kinds = (source / "kwok/charts/crds", source / "kwok/apis/crds")
    for folder in kinds:
        cluster.kubectl("apply", "--server-side", "-f", str(folder))
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    cluster.until("the API server serves Karpenter's kinds", lambda: cluster.create(NODE_CLASS, POOL) or True, 30)
    running = Karpenter(cluster, cluster.write_json("types.json", [LARGE]))
    configuration = CONFIGURATION | {"evidence": {"namespaces": [NAMESPACE]}}
    try:
        running.start()
        installation.apply(printed_manifests(cluster, configuration, **VALUES))
        until_pods_are_translated(cluster, tenants)
        yield running
    finally:
        cluster.kubectl("delete", "nodepool", "--all", "--wait=false")
        running.stop()
        installation.apply(printed_manifests(cluster, CONFIGURATION, **VALUES))
        for folder in kinds:
            cluster.kubectl("delete", "-f", str(folder), "--wait=false")
        cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def node_claims(cluster):
    """The nodes that Karpenter has requested from its provider."""
    return cluster.get(NODE_CLAIMS)["items"]


def gpu_pod(name, tenants, count, **spec):
    item = pod(name, tenants, container(**limits(**{GPU: count, "cpu": "100m"})), **spec)
    item["spec"]["tolerations"] = [{"operator": "Exists"}]
    return item


def until_warned(cluster, item, words):
    """Wait until the webhook warns about a pod with these words; return the whole warning."""

    def warning():
        done = cluster.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(item), check=False)
        return done.returncode == 0 and words in done.stderr and done.stderr

    return cluster.until(f"the webhook warns that {words}", warning, 60)


def test_the_warning_names_karpenter_if_a_pod_fits_no_node(karpenter, tenants):
    """A new node could serve the pod, so the webhook admits it."""
    warning = until_warned(karpenter.cluster, gpu_pod("dry", tenants, 3), "R023")
    assert "Karpenter (NodePool gpus) creates no node for a pod with claims" in warning


def test_karpenter_creates_no_node_for_a_pod_with_claims(karpenter, tenants):
    cluster = karpenter.cluster
    item = gpu_pod("claims", tenants, 3, schedulerName="default-scheduler")
    until_warned(cluster, item, "creates no node for a pod with claims")
    cluster.create(item)
    try:
        cluster.until("Karpenter has an event about the pod", lambda: karpenter.event_notes(tenants, "claims"), 60)
        assert any("Dynamic Resource Allocation" in event for event in karpenter.event_notes(tenants, "claims"))
        assert node_claims(cluster) == []
    finally:
        cluster.delete(f"/api/v1/namespaces/{tenants}/pods/claims", gracePeriodSeconds=0)


def test_karpenter_creates_a_node_for_an_untranslated_pod(karpenter, tenants):
    cluster = karpenter.cluster
    item = gpu_pod("kept", tenants, 3, schedulerName="default-scheduler")
    item["metadata"]["labels"] = {"drawbridge.dev/skip": "true"}
    cluster.create(item)
    try:
        (node,) = cluster.until("Karpenter requests a node", lambda: node_claims(cluster), 60)
        assert node["spec"]["resources"]["requests"][GPU] == "3"
    finally:
        cluster.delete(f"/api/v1/namespaces/{tenants}/pods/kept", gracePeriodSeconds=0)
        cluster.kubectl("delete", "nodeclaims", "--all", "--wait=false")
        cluster.until("the NodeClaim is deleted", lambda: not node_claims(cluster), 60)


def test_karpenter_with_its_dra_flag_considers_claims_without_a_warning(karpenter, tenants):
    """The provider of fake nodes declares no devices for its instance types, so no type fits the claim."""
    cluster = karpenter.cluster
    karpenter.start("--ignore-dra-requests=false")
    item = gpu_pod("considered", tenants, 3, schedulerName="default-scheduler")

    def names_no_karpenter():
        done = cluster.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(item), check=False)
        return "R023" in done.stderr and "Karpenter (" not in done.stderr

    cluster.until("the webhook has read the flag", names_no_karpenter, 60)
    cluster.create(item)
    try:
        cluster.until("Karpenter has an event about the pod", lambda: karpenter.event_notes(tenants, "considered"), 60)
        assert not any("not yet supported" in event for event in karpenter.event_notes(tenants, "considered"))
    finally:
        cluster.delete(f"/api/v1/namespaces/{tenants}/pods/considered", gracePeriodSeconds=0)
