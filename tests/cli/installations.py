"""The objects of a healthy installation, as `drawbridge manifests` prints them and a cluster stores them."""

import json
from datetime import UTC, datetime
from functools import cache

import yaml

from cluster import manifests
from tests.cli.running import run

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NAMESPACE = "drawbridge-system"
IMAGE = "registry.example.com/drawbridge:1"


@cache
def printed_manifests():
    """Return the printed objects as JSON, which is read again for each test, because tests change the objects."""
    printed = manifests.parse(run("manifests", "--image", IMAGE).stdout)
    return json.dumps([document.object for document in printed])


def installation():
    """Return the objects of an installation, with the fields that the API server and controllers add."""
    objects = json.loads(printed_manifests())
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
