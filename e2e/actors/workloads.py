"""Pods, claims and templates for tests, as plain dicts."""

from typing import Any

from e2e.actors.client import Object
from e2e.ground.images import BUSYBOX


def container(name: str = "main", command: str = "env; echo spoken=yes", **fields: Any) -> Object:
    """Make a container that prints its environment, or runs another shell command."""
    return {
        "name": name,
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", command],
        **fields,
    }


def pod(name: str, namespace: str, *containers: Object, node: str = "", **spec: Any) -> Object:
    """Make a pod that runs once; `node` pins it by the node's hostname label."""
    fields: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,  # with 0 the API server deletes a pod before its kubelet has ended it
        "containers": list(containers) or [container()],
    }
    if node:
        fields["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": fields | spec,
    }


def acting_pod(name: str, namespace: str, account: str, **spec: Any) -> Object:
    """Make a pod that has a service account's token; our namespaces admit restricted pods only."""
    container_context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    pod_context = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    return pod(
        name,
        namespace,
        container(securityContext=container_context),
        serviceAccountName=account,
        securityContext=pod_context,
        **spec,
    )


def limits(**amounts: Any) -> Object:
    """Make the resources of a container: `limits(**{"nvidia.com/gpu": 1})`."""
    return {"resources": {"limits": {name: str(amount) for name, amount in amounts.items()}}}


def request(name: str, device_class: str, count: int = 1, **fields: Any) -> Object:
    """Make one request of a claim."""
    return {"name": name, "exactly": {"deviceClassName": device_class, "count": count, **fields}}


def claim(name: str, namespace: str, *requests: Object, **devices: Any) -> Object:
    """Make a claim; further keywords (constraints, config) go beside its requests."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"devices": {"requests": list(requests), **devices}},
    }


def group(name: str, namespace: str, at_least: int, **spec: Any) -> Object:
    """Make a PodGroup: at least this many of its pods are placed together, or none (gate GenericWorkload)."""
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"schedulingPolicy": {"gang": {"minCount": at_least}}} | spec,
    }


def template(name: str, namespace: str, *requests: Object, **devices: Any) -> Object:
    """Make a template of claims, with the same arguments as `claim`."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"spec": claim(name, namespace, *requests, **devices)["spec"]},
    }


def using(claim_name: str) -> Object:
    """Make the pod's entry for a claim that exists under its own name."""
    return {"name": claim_name, "resourceClaimName": claim_name}


def using_template(name: str) -> Object:
    """Make the pod's entry for a claim made from a template."""
    return {"name": name, "resourceClaimTemplateName": name}


def compatibility(name: str, **spec: Any) -> Object:
    """A rule about which devices of a driver are compatible."""
    kind = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DeviceCompatibility"}
    return kind | {"metadata": {"name": name}, "spec": spec}
