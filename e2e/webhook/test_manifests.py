"""The installation is the same with kustomize and with the command, and the API server stores it unchanged."""

import pytest

from analysis.installation import CLUSTER_WIDE
from cluster import manifests
from e2e.actors.webhook import BASE, SYSTEM

pytestmark = pytest.mark.real


def test_kustomize_and_the_command_print_the_same_objects(control_plane, webhook):
    image = "drawbridge.invalid/name-an-image"
    built = control_plane.kubectl("kustomize", "manifests/base").stdout
    made = webhook.drawbridge("manifests", f"--image={image}")

    def digest(text):
        return {(d.object["kind"], d.object["metadata"]["name"]): d.object for d in manifests.parse(text)}

    ours, other = digest(built), digest(made)
    assert ours.keys() == other.keys()
    for key, built_one in ours.items():
        if key[0] in CLUSTER_WIDE:
            built_one["metadata"].pop("namespace", None)  # kustomize takes some of them for namespaced kinds
        assert built_one == other[key], key


def test_the_server_stores_our_network_policies_as_they_are(control_plane, webhook):
    """This cluster's network does not enforce them; tests/test_installation.py checks what they allow."""
    listed = control_plane.get(f"/apis/networking.k8s.io/v1/namespaces/{SYSTEM}/networkpolicies")["items"]
    stored = {policy["metadata"]["name"]: policy["spec"] for policy in listed}
    written = [d.object for d in manifests.read([BASE / "network.yaml"])]
    assert stored.keys() == {policy["metadata"]["name"] for policy in written}
    for policy in written:
        for rules in (policy["spec"]["ingress"], policy["spec"]["egress"]):
            for port in (port for rule in rules for port in rule["ports"]):
                port.setdefault("protocol", "TCP")
        assert stored[policy["metadata"]["name"]] == policy["spec"]
