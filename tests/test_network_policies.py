"""Which connections our NetworkPolicies allow, by the rules of networking.k8s.io/v1, for the pods of our Deployments.

No network enforces policies here, so this file evaluates their rules (k8s.io/api/networking/v1/types.go: pods that no policy selects
are open, a rule without `from` matches all peers, a rule without ports matches all ports).
e2e/webhook/test_manifests.py shows that an API server stores the policies unchanged.
"""

from functools import cache
from ipaddress import ip_address, ip_network
from typing import NamedTuple

import pytest

from tests.installed_objects import objects_for
from tests.loops import every

OUR_NAMESPACE = "drawbridge-system"
API_SERVER = "10.0.0.10"
API_SERVER_CIDRS = (f"{API_SERVER}/32",)
# Ports that the rules name, and others.
CHECKED_PORTS = (1, 22, 53, 80, 443, 2379, 6443, 8080, 8443, 9090, 9443, 10250, 16443, 65535)


class Peer(NamedTuple):
    """The other end of a connection: a pod of a namespace, or an address outside of the cluster."""

    address: str
    pod: dict | None = None
    namespace: dict | None = None


API_SERVER_PEER = Peer(API_SERVER)
UNKNOWN_PEER = Peer("192.0.2.1")
TENANT_POD = Peer("10.1.0.7", {"app": "x"}, {"kubernetes.io/metadata.name": "team-a"})
PROMETHEUS_POD = Peer("10.1.0.8", {"app": "prometheus"}, {"drawbridge.dev/metrics": "true"})
POD_OF_OURS = Peer("10.1.0.9", {"app.kubernetes.io/name": "drawbridge"}, {"kubernetes.io/metadata.name": OUR_NAMESPACE})


def matches(selector, labels):
    assert not selector.keys() - {"matchLabels"}, "this test evaluates only matchLabels"
    return selector.get("matchLabels", {}).items() <= labels.items()


def matches_peer(entry, peer):
    """Return whether one entry of `from` or `to` matches a peer."""
    if "ipBlock" in entry:
        block = entry["ipBlock"]
        address = ip_address(peer.address)
        is_excepted = any(address in ip_network(excepted_range) for excepted_range in block.get("except", ()))
        return address in ip_network(block["cidr"]) and not is_excepted
    if peer.pod is None:
        return False
    is_in_namespace = (
        entry.get("namespaceSelector") is not None or peer.namespace["kubernetes.io/metadata.name"] == OUR_NAMESPACE
    )
    return is_in_namespace and matches(entry.get("namespaceSelector", {}), peer.namespace) and matches(entry.get("podSelector", {}), peer.pod)  # fmt: skip


def allows(policies, labels, direction, peer, port, protocol="TCP"):  # noqa: PLR0917  a sentence: pod, direction, peer, port
    """Return whether a peer may reach pods with these labels on a port; for the direction "out", whether these pods may reach the peer."""
    kind, key = ("Ingress", "from") if direction == "in" else ("Egress", "to")
    policies_of_pod = [policy["spec"] for policy in policies if matches(policy["spec"]["podSelector"], labels)]
    policies_of_direction = [spec for spec in policies_of_pod if kind in spec["policyTypes"]]
    if not policies_of_direction:
        return True
    for rule in [rule for spec in policies_of_direction for rule in spec.get(kind.lower(), ())]:
        ports = rule.get("ports")
        is_port_allowed = not ports or any(
            entry["port"] == port and entry.get("protocol", "TCP") == protocol for entry in ports
        )
        is_peer_allowed = not rule.get(key) or any(matches_peer(entry, peer) for entry in rule[key])
        if is_port_allowed and is_peer_allowed:
            return True
    return False


@cache
def policies_and_pods(*api_servers):
    """Return the NetworkPolicies, and by component the labels and ports of the pods of its Deployment."""
    objects = objects_for(networkPolicy={"apiServers": list(api_servers)})
    pods = {}
    for deployment in (obj for obj in objects if obj["kind"] == "Deployment"):
        template = deployment["spec"]["template"]
        (container,) = template["spec"]["containers"]
        labels = template["metadata"]["labels"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        pods[labels["app.kubernetes.io/component"]] = labels, ports
    return [obj for obj in objects if obj["kind"] == "NetworkPolicy"], pods


@every(
    ("component", "port", "peer", "admitted_by_default", "admitted_with_api_server"),
    [
        ("webhook", "webhook", API_SERVER_PEER, True, True),
        ("webhook", "webhook", UNKNOWN_PEER, True, False),
        ("webhook", "webhook", TENANT_POD, True, False),
        ("webhook", "webhook", POD_OF_OURS, True, False),
        ("webhook", "metrics", PROMETHEUS_POD, True, True),
        ("webhook", "metrics", TENANT_POD, False, False),
        ("webhook", "metrics", API_SERVER_PEER, False, False),
        ("controller", "metrics", PROMETHEUS_POD, True, True),
        ("controller", "metrics", TENANT_POD, False, False),
        ("authority", "metrics", PROMETHEUS_POD, True, True),
        ("authority", "metrics", TENANT_POD, False, False),
        ("authority", "metrics", POD_OF_OURS, False, False),
    ],
)
def test_network_policies_admit_the_expected_peers_to_each_port(
    component, port, peer, admitted_by_default, admitted_with_api_server
):
    for servers, expected in (((), admitted_by_default), (API_SERVER_CIDRS, admitted_with_api_server)):
        policies, pods = policies_and_pods(*servers)
        labels, ports = pods[component]
        assert allows(policies, labels, "in", peer, ports[port]) is expected, servers


@pytest.mark.parametrize("component", ["webhook", "controller", "authority"])
def test_our_pods_reach_only_ports_of_api_servers_and_dns(component):
    policies, pods = policies_and_pods(*API_SERVER_CIDRS)
    labels, _ = pods[component]
    reached = {port for port in CHECKED_PORTS if allows(policies, labels, "out", UNKNOWN_PEER, port)}
    assert reached == {53, 443, 6443, 8443, 16443}
    assert allows(policies, labels, "out", UNKNOWN_PEER, 53, "UDP")
    assert not allows(policies, labels, "out", UNKNOWN_PEER, 6443, "UDP")


def test_network_policies_open_no_port_without_a_listener():
    policies, pods = policies_and_pods()
    for labels, ports in pods.values():
        all_peers = (API_SERVER_PEER, TENANT_POD, PROMETHEUS_POD, POD_OF_OURS)
        opened = {port for port in CHECKED_PORTS for peer in all_peers if allows(policies, labels, "in", peer, port)}
        assert opened == set(ports.values())


def test_no_policy_of_ours_selects_foreign_pods():
    policies, _ = policies_and_pods()
    for labels in ({}, {"app.kubernetes.io/component": "webhook"}, {"app.kubernetes.io/name": "drawbridge"}):
        assert allows(policies, labels, "in", TENANT_POD, 8443)
        assert allows(policies, labels, "out", TENANT_POD, 25)
