"""Functions that write manifests, and functions that return the findings about manifests."""

from cluster import manifests
from dra.server import CURRENT, Server
from dra.validation.fields import gates
from dra.validation.review import review

API = "resource.k8s.io/v1"


def codes_and_paths(text, inventory="", enabled=gates.ALL):
    """Return the codes and paths of the findings about manifests."""
    objects = [document.object for document in manifests.parse(text)]
    inventory_objects = [document.object for document in manifests.parse(inventory)]
    return {
        (finding.code, finding.path)
        for of_object in review(objects, inventory_objects, Server(CURRENT, enabled))
        for finding in of_object
    }


def codes(text, inventory="", enabled=gates.ALL):
    return {code for code, _ in codes_and_paths(text, inventory, enabled)}


def messages(text, inventory=""):
    objects = [document.object for document in manifests.parse(text)]
    inventory_objects = [document.object for document in manifests.parse(inventory)]
    return [
        finding.message + " " + finding.remedy
        for of_object in review(objects, inventory_objects, Server(CURRENT, gates.ALL))
        for finding in of_object
    ]


def join(*texts):
    return "\n---\n".join(texts)


def slice_(
    name="s",
    devices="",
    *,
    counters="",
    count=1,
    generation=1,
    nodes="nodeName: node",
    driver="gpu.example.com",
    pool="p",
):
    body = f"  sharedCounters:\n{counters}" if counters else f"  devices:\n{devices}" if devices else ""
    return f"""
apiVersion: {API}
kind: ResourceSlice
metadata: {{name: {name}}}
spec:
  driver: {driver}
  {nodes}
  pool: {{name: {pool}, generation: {generation}, resourceSliceCount: {count}}}
{body}
"""


def class_(name="gpu", spec="selectors: []"):
    return f"apiVersion: {API}\nkind: DeviceClass\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"


def claim(requests, fields="", name="c"):
    return f"""
apiVersion: {API}
kind: ResourceClaim
metadata: {{name: {name}}}
spec:
  devices:
    requests:
{requests}
{fields}
"""


def request(name="r", exactly="deviceClassName: gpu"):
    return f"    - {{name: {name}, exactly: {{{exactly}}}}}"


def cel(expression):
    quoted = expression.replace("'", "''")
    return f"selectors: [{{cel: {{expression: '{quoted}'}}}}]"


def rule(name="rule", spec=""):
    return f"""
apiVersion: drawbridge.dev/v1alpha1
kind: DeviceCompatibility
metadata: {{name: {name}}}
spec: {{driver: gpu.example.com, {spec}}}
"""
