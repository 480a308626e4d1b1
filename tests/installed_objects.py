"""The objects of manifests/base, by kind and name, and the rights that its roles grant."""

from analysis.installation import BASE
from certs.store import allocators_name, authority_name, signature_name
from cluster import manifests
from tests.cli.running import run_manifests


def objects():
    return [
        document.object
        for document in manifests.read(
            [path for path in sorted(BASE.glob("*.yaml")) if path.name != "kustomization.yaml"]
        )
    ]


def objects_for(image="x", **values):
    """Return what `drawbridge manifests` prints for these values, without the webhook configurations."""
    result = run_manifests("--only", "rest", "--image", image, **values)
    assert result.exit_code == 0, result.stderr
    return [document.object for document in manifests.parse(result.stdout)]


def base_objects(kind, name=None):
    return [obj for obj in objects() if obj["kind"] == kind and name in (None, obj["metadata"]["name"])]


def every_rule(*names):
    roles = [role for kind in ("ClusterRole", "Role") for role in base_objects(kind)]
    return [rule for role in roles if role["metadata"]["name"] in names for rule in role["rules"]]


def rules(*names):
    """Return the rules of roles about objects, without the rules about URLs."""
    return [rule for rule in every_rule(*names) if "nonResourceURLs" not in rule]


SERVING_SECRET, AUTHORITY_SECRET, SIGNING_SECRET = (
    "drawbridge",
    authority_name("drawbridge"),
    signature_name("drawbridge"),
)
ALLOCATOR_SECRET = allocators_name("drawbridge")
SECRETS_READ_BY_ACCOUNT = {
    "drawbridge-webhook": [SERVING_SECRET, SIGNING_SECRET],
    "drawbridge-controller": [SIGNING_SECRET],
    "drawbridge-authority": [SERVING_SECRET, AUTHORITY_SECRET, SIGNING_SECRET, ALLOCATOR_SECRET],
}
ACCOUNTS = [*SECRETS_READ_BY_ACCOUNT]
