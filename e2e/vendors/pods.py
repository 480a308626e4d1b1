"""Pods that print their devices, for the tests of this directory."""


def runs(node, namespace, item):
    """Create a pod, wait until its container has printed, and return its output."""
    node.cluster.create(item)
    name = item["metadata"]["name"]
    node.cluster.wait_phase(namespace, name, "Running", seconds=90)
    return node.output_of(namespace, name)


def gone(cluster, namespace):
    """Wait until a namespace has no pod and no claim, so that their devices are free."""
    cluster.until("pods and claims are gone", lambda: not any(
        cluster.get(f"{base}/namespaces/{namespace}/{kind}")["items"]
        for base, kind in (("/api/v1", "pods"), ("/apis/resource.k8s.io/v1", "resourceclaims"))
    ), 60)  # fmt: skip
