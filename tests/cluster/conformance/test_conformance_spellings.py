"""Patches of claims whose opaque parameters are JSON in unusual spellings: each field that a patch does not name keeps its bytes."""

import json

import pytest

from cluster import Apply, Merge
from cluster.embedded.embedded import Embedded
from cluster.errors import Conflict, Invalid
from cluster.resources import RESOURCE_CLAIMS
from tests.cluster.objects import allocation, claim

DRIVER = "gpu.example.com"
# Consumers that are no pods, because kube-controller-manager removes pods that do not exist from reservedFor.
CONSUMER = {"apiGroup": "batch", "resource": "jobs", "name": "p", "uid": "p"}
OTHER_CONSUMER = {"apiGroup": "batch", "resource": "jobs", "name": "q", "uid": "q"}
SPELLINGS = {
    "as Go writes it": '{"a":1}',
    "one blank": '{"a": 1}',
    "blanks all over": '{ "a" : 1 , "b" : [ 1 , 2 ] } ',
    "line breaks": '{\n  "a": 1\n}',
    "a tab": '{\t"a":1}',
    "keys out of order": '{"b":1,"a":2}',
    "a key twice": '{"a":1,"a":2}',
    "escaped letters": '{"a":"\\u00e9\\u4e2d\\/"}',
    "unescaped letters": '{"a":"é中"}',
    "a line separator": '{"a":"\u2028"}',
    "HTML characters": '{"a":"<b>&</b>"}',
    "escaped HTML characters": '{"a":"\\u003cb\\u003e"}',
    "a big number": '{"a":123456789012345678901234567890}',
    "an exponent": '{"a":1e3}',
    "a decimal point": '{"a":1.0}',
    "negative zero": '{"a":-0}',
    "nested values": '{"b": {"d": [1, {"c": null}], "a": {}}}',
    "an empty object": "{}",
    "an empty object with a blank": "{ }",
    "a null value": '{"a":null}',
}


@pytest.fixture(params=SPELLINGS)
def spelling(request):
    return SPELLINGS[request.param]


@pytest.fixture
async def spelled_claim(cluster, namespace, request, spelling):
    """Create a claim whose parameters have this spelling; return an object that allocates the claim and checks the stored parameters."""
    config = {"opaque": {"driver": DRIVER, "parameters": "PARAMETERS"}}
    body = claim("c")
    body["spec"]["devices"]["config"] = [config]
    if isinstance(cluster, Embedded):
        await cluster.create(RESOURCE_CLAIMS, json.loads(json.dumps(body).replace('"PARAMETERS"', spelling)), namespace)
        return EmbeddedClaim(cluster, namespace, spelling)
    server_claim = ServerClaim(cluster, namespace, spelling, request.getfixturevalue("control_plane"))
    server_claim.send("POST", "", body)
    return server_claim


class EmbeddedClaim:
    """A claim in the embedded store, which keeps the values of parameters but not their spelling."""

    def __init__(self, cluster, namespace, spelling):
        self.cluster, self.namespace, self.spelling = cluster, namespace, spelling

    async def allocate(self):
        """Write an allocation that copies the parameters of the claim, as kube-scheduler does."""
        status = {"allocation": allocation_with_parameters(json.loads(self.spelling)), "reservedFor": [CONSUMER]}
        await self.cluster.patch(RESOURCE_CLAIMS, "c", Merge({"status": status}), self.namespace, subresource="status")

    def check(self, stored_claim):
        values = [config["opaque"]["parameters"] for config in configs(stored_claim)]
        assert values == [json.loads(self.spelling)] * len(values)


class ServerClaim(EmbeddedClaim):
    """A claim on a real server, which keeps the bytes of the parameters."""

    def __init__(self, cluster, namespace, spelling, control_plane):
        super().__init__(cluster, namespace, spelling)
        self.control_plane = control_plane
        self.path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"

    def send(self, method, path, body=None, accept="application/json"):
        text = json.dumps(body).replace('"PARAMETERS"', self.spelling).encode() if body is not None else None
        headers = {"Authorization": f"Bearer {self.control_plane.token}", "Content-Type": "application/json"}
        code, answer = self.control_plane.send(method, self.path + path, text, headers | {"Accept": accept})
        assert code < 300, answer
        return answer

    async def allocate(self):
        body = json.loads(self.send("GET", "/c"))
        body["status"] = {"allocation": allocation_with_parameters("PARAMETERS"), "reservedFor": [CONSUMER]}
        self.send("PUT", "/c/status", body)

    def check(self, stored_claim):
        claim_bytes = self.send("GET", "/c", accept="application/vnd.kubernetes.protobuf")
        parameters = self.spelling.strip().encode()
        encoded_parameters = b"\x0a%c%b" % (len(parameters), parameters)
        assert claim_bytes.count(encoded_parameters) == len(configs(stored_claim))


def allocation_with_parameters(parameters):
    config = {"source": "FromClaim", "requests": ["gpu"], "opaque": {"driver": DRIVER, "parameters": parameters}}
    claim_allocation = allocation()
    claim_allocation["devices"]["config"] = [config]
    return claim_allocation


def configs(stored_claim):
    """Return the device configurations in the spec and in the allocation of a claim."""
    allocated = stored_claim.get("status", {}).get("allocation", {}).get("devices", {}).get("config", [])
    return [*stored_claim["spec"]["devices"]["config"], *allocated]


async def read_claim(cluster, namespace):
    return await cluster.get(RESOURCE_CLAIMS.raw, "c", namespace)


async def test_a_patch_of_metadata_changes_nothing_else(cluster, namespace, spelled_claim):
    claim_before = await read_claim(cluster, namespace)
    version = claim_before["metadata"]["resourceVersion"]
    for finalizers in (["example.com/a", "example.com/b"], ["example.com/b"]):
        body = {"resourceVersion": version, "finalizers": finalizers, "annotations": {"a": "é", "b": None}}
        patched = await cluster.patch(RESOURCE_CLAIMS, "c", Merge({"metadata": body}), namespace)
        version = patched.metadata.resource_version
        assert (list(patched.metadata.finalizers), patched.metadata.annotations) == (finalizers, {"a": "é"})
    patch = Merge({"metadata": {"uid": patched.metadata.uid, "finalizers": None, "annotations": {"a": None, "b": "2"}}})
    await cluster.patch(RESOURCE_CLAIMS, "c", patch, namespace, dry_run=True)
    assert (await read_claim(cluster, namespace))["metadata"]["finalizers"] == ["example.com/b"]
    await cluster.patch(RESOURCE_CLAIMS, "c", patch, namespace)
    claim_after = await read_claim(cluster, namespace)
    assert "finalizers" not in claim_after["metadata"]
    assert claim_after["metadata"]["annotations"] == {"b": "2"}
    assert claim_after["spec"] == claim_before["spec"]
    spelled_claim.check(claim_after)


@pytest.mark.parametrize(
    ("stale_metadata", "refusal"),
    [({"resourceVersion": "1"}, Conflict), ({"uid": "another"}, Invalid)],
    ids=["another version", "another object"],
)
async def test_a_patch_for_another_version_or_object_is_refused(
    cluster, namespace, spelled_claim, stale_metadata, refusal
):
    body = Merge({"metadata": {"finalizers": ["example.com/a"], **stale_metadata}})
    with pytest.raises(refusal):
        await cluster.patch(RESOURCE_CLAIMS, "c", body, namespace)
    assert "finalizers" not in (await read_claim(cluster, namespace))["metadata"]
    spelled_claim.check(await read_claim(cluster, namespace))


async def test_a_patch_of_the_status_keeps_another_writers_allocation(cluster, namespace, spelled_claim):
    await spelled_claim.allocate()
    device = {"driver": DRIVER, "pool": "p", "device": "gpu-0"}
    for consumers in ([CONSUMER, OTHER_CONSUMER], [OTHER_CONSUMER]):
        body = Merge({"status": {"reservedFor": consumers}})
        await cluster.patch(RESOURCE_CLAIMS, "c", body, namespace, subresource="status")
    for status in ("False", "True"):
        condition = {"type": "Ready", "status": status, "reason": "Prepared", "message": "é", "lastTransitionTime": "2026-01-01T00:00:01Z"}  # fmt: skip
        device_status = device | {"conditions": [condition], "networkData": {"interfaceName": "eth1"}}
        type_and_name = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}}
        patch = Apply(type_and_name | {"status": {"devices": [device_status]}}, manager=DRIVER)
        await cluster.patch(RESOURCE_CLAIMS, "c", patch, namespace, subresource="status")
    stored_claim = await read_claim(cluster, namespace)
    assert stored_claim["status"]["devices"] == [device_status]
    assert stored_claim["status"]["reservedFor"] == [OTHER_CONSUMER]
    spelled_claim.check(stored_claim)
    body = Merge({"status": {"allocation": None, "reservedFor": None, "devices": None}})
    await cluster.patch(RESOURCE_CLAIMS, "c", body, namespace, subresource="status")
    stored_claim = await read_claim(cluster, namespace)
    assert "allocation" not in stored_claim.get("status", {})
    spelled_claim.check(stored_claim)


async def test_a_change_of_an_immutable_field_is_refused(cluster, namespace, spelled_claim):
    for body in (
        {"spec": {"devices": {"config": None}}},
        {"metadata": {"finalizers": ["example.com/a"]}, "spec": {"devices": {"config": None}}},
    ):
        with pytest.raises(Invalid, match="immutable"):
            await cluster.patch(RESOURCE_CLAIMS, "c", Merge(body), namespace)
    spelled_claim.check(await read_claim(cluster, namespace))
