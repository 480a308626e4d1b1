"""The objects of a healthy installation, as `drawbridge manifests` prints them and a cluster stores them."""

from datetime import UTC, datetime

import yaml

from tests.cli.running import run

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NAMESPACE = "drawbridge-system"
IMAGE = "registry.example.com/drawbridge:1"
PRINTED_MANIFESTS = run("manifests", "--image", IMAGE).stdout


def installation():
    """Return the objects of an installation, with the fields that the API server and controllers add."""
    objects = list(yaml.safe_load_all(PRINTED_MANIFESTS))
    for obj in objects:
        if obj["kind"] == "Deployment":
            obj["status"] = {"observedGeneration": 1, "replicas": 2, "readyReplicas": 2}
        if obj["kind"].endswith("WebhookConfiguration"):
            rules_by_name = yaml.safe_load(obj["metadata"]["annotations"]["drawbridge.dev/rules"])
            for hook in obj["webhooks"]:
                hook["rules"] = rules_by_name[hook["name"]]
                hook["clientConfig"]["caBundle"] = "eA=="
    objects.append(lease("drawbridge", "drawbridge-controller-0", NOW))
    return objects


def lease(name, holder, renewed):
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed.isoformat()}
    return {"kind": "Lease", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def object_named(objects, kind, name):
    [match] = [obj for obj in objects if (obj["kind"], obj["metadata"]["name"]) == (kind, name)]
    return match
