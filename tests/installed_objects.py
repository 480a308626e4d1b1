"""The objects of manifests/base, by kind and name, and the rights that its roles grant."""

from analysis.installation import BASE
from certs.store import allocators_name, authority_name, signature_name
from cluster import manifests


def objects():
    return [
        d.object
        for d in manifests.read([path for path in sorted(BASE.glob("*.yaml")) if path.name != "kustomization.yaml"])
    ]


def base_objects(kind, name=None):
    return [o for o in objects() if o["kind"] == kind and name in (None, o["metadata"]["name"])]


def every_rule(*names):
    roles = [o for kind in ("ClusterRole", "Role") for o in base_objects(kind)]
    return [rule for o in roles if o["metadata"]["name"] in names for rule in o["rules"]]


def rules(*names):
    """Return the rules of roles about objects, without the rules about URLs."""
    return [rule for rule in every_rule(*names) if "nonResourceURLs" not in rule]


SERVING, AUTHORITYS, SIGNING = "drawbridge", authority_name("drawbridge"), signature_name("drawbridge")
DOOR = allocators_name("drawbridge")
READS = {
    "drawbridge-webhook": [SERVING, SIGNING],
    "drawbridge-controller": [SIGNING],
    "drawbridge-authority": [SERVING, AUTHORITYS, SIGNING, DOOR],
}
ACCOUNTS = [*READS]
