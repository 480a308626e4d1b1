"""A real API server keeps and drops the fields of translated custom objects as drawbridge predicts."""

import json

import pytest

from cluster import manifests
from tests.cli.running import run
from tests.webhook.definitions import (
    ANY,
    BEFORE_131,
    DROPS_CLAIMS,
    KEEPS_CLAIMS,
    definition,
    object_with,
    pod_spec,
    template,
)
from tests.webhook.pods import EXAMPLES, pod
from webhook.state import custom_kinds

pytestmark = pytest.mark.real
GROUP = "kinds.example.com"
FLEET = ["--inventory", str(EXAMPLES / "fleet"), "--config", str(EXAMPLES / "configuration.yaml"), "--all-kinds"]


def roles(spec):
    """The schema of an object with a pod template for each role."""
    of_role = {"type": "array", "items": object_with("template", template(spec))}
    return object_with("roles", {"type": "object", "additionalProperties": of_role})


# Whether a template can be rewritten, and the versions of its kind; the first is the storage version.
KINDS = {
    "Keeping": (True, roles(KEEPS_CLAIMS)),
    "Open": (True, ANY),
    "Dropping": (False, roles(DROPS_CLAIMS)),
    "Older": (False, roles(BEFORE_131)),
    "Unclaimed": (False, roles(pod_spec(claims=False))),
    "Stored": (False, roles(DROPS_CLAIMS), roles(KEEPS_CLAIMS)),
    "Closed": (False, object_with("roles", {"type": "object", "additionalProperties": True})),
}


def thing(kind, namespace):
    spec = {"roles": {"worker": [{"template": {"spec": pod({"nvidia.com/gpu": 1})["spec"]}}]}}
    version = f"v{len(KINDS[kind]) - 1}"
    metadata = {"name": "tried", "namespace": namespace}
    return {"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": metadata, "spec": spec}


def test_the_server_stores_our_computed_fields(control_plane, created, namespace, tmp_path):
    crds = [definition((GROUP, kind), *versions) for kind, (_, *versions) in KINDS.items()]
    created(*crds)
    names = [crd["metadata"]["name"] for crd in crds]
    control_plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", *names)
    served = tmp_path / "crds.yaml"
    served.write_text(control_plane.kubectl("get", "crd", *names, "-o", "yaml").stdout)
    for kind, (rewritten, *_) in KINDS.items():
        given = tmp_path / f"{kind}.yaml"
        given.write_text(manifests.dump([thing(kind, namespace)]))
        # Without the CRD the kind is unknown, and it is rewritten.
        blind = manifests.parse(run("translate", "-f", str(given), *FLEET).stdout)
        translated = next(document.object for document in blind if document.object["kind"] == kind)
        assert "resourceClaims" in json.dumps(translated), kind
        control_plane.kubectl("create", "--validate=false", "-f", "-", input=manifests.dump([translated]))
        kept = control_plane.read(translated)
        (known,) = custom_kinds([translated, *crds])[GROUP, kind]
        assert kept["spec"] == known.prune(translated)["spec"], kind
        # Claims in a file are reported if the server drops them.
        checked = run("check", "-f", "-", "--inventory", str(served), stdin=manifests.dump([translated])).stdout
        assert ("would drop the claims" in checked) is not rewritten, checked
        # With the server's CRD, only fields that it keeps are written.
        seen = run("translate", "-f", str(given), *FLEET, "--inventory", str(served), "-o", "report").stdout
        assert ("1 object, 1 rewritten" in seen) is rewritten, seen
        control_plane.remove(translated)
        if rewritten:
            made = run("translate", "-f", str(given), *FLEET, "--inventory", str(served)).stdout
            control_plane.kubectl(
                "create", "-f", "-", input=made
            )  # strict validation: an unknown field would be refused
            control_plane.kubectl("delete", "-f", "-", input=made)
