"""Patches of claims whose opaque parameters are spelled in every JSON form: a field that a patch does not name keeps its bytes."""

import json

import pytest

from cluster import Apply, Merge
from cluster.embedded.embedded import Embedded
from cluster.errors import Conflict, Invalid
from cluster.resources import RESOURCE_CLAIMS
from tests.cluster.objects import allocation, claim

DRIVER = "gpu.example.com"
# Consumers that are no pods, because kube-controller-manager removes pods that do not exist from reservedFor.
ONE = {"apiGroup": "batch", "resource": "jobs", "name": "p", "uid": "p"}
OTHER = {"apiGroup": "batch", "resource": "jobs", "name": "q", "uid": "q"}
SPELLINGS = {
    "as Go writes it": '{"a":1}',
    "a blank": '{"a": 1}',
    "blanks all over": '{ "a" : 1 , "b" : [ 1 , 2 ] } ',
    "lines": '{\n  "a": 1\n}',
    "a tab": '{\t"a":1}',
    "order of keys": '{"b":1,"a":2}',
    "a key twice": '{"a":1,"a":2}',
    "escapes": '{"a":"\\u00e9\\u4e2d\\/"}',
    "letters": '{"a":"é中"}',
    "a line separator": '{"a":"\u2028"}',
    "signs of HTML": '{"a":"<b>&</b>"}',
    "escaped signs of HTML": '{"a":"\\u003cb\\u003e"}',
    "a big number": '{"a":123456789012345678901234567890}',
    "an exponent": '{"a":1e3}',
    "a fraction of nothing": '{"a":1.0}',
    "less than nothing": '{"a":-0}',
    "nested": '{"b": {"d": [1, {"c": null}], "a": {}}}',
    "nothing": "{}",
    "nothing and a blank": "{ }",
    "null": '{"a":null}',
}


@pytest.fixture(params=SPELLINGS)
def spelling(request):
    return SPELLINGS[request.param]


@pytest.fixture
async def spelled(cluster, home, request, spelling):
    """Create a claim with these parameters; return an object that allocates the claim and checks its stored parameters."""
    config = {"opaque": {"driver": DRIVER, "parameters": "PARAMETERS"}}
    body = claim("c")
    body["spec"]["devices"]["config"] = [config]
    if isinstance(cluster, Embedded):
        await cluster.create(RESOURCE_CLAIMS, json.loads(json.dumps(body).replace('"PARAMETERS"', spelling)), home)
        return Stored(cluster, home, spelling)
    stored = Bytes(cluster, home, spelling, request.getfixturevalue("control_plane"))
    stored.send("POST", "", body)
    return stored


class Stored:
    """A claim in the embedded store, which keeps values and not their spelling."""

    def __init__(self, cluster, home, spelling):
        self.cluster, self.home, self.spelling = cluster, home, spelling

    async def allocate(self):
        """Write an allocation that copies the parameters of the claim, as kube-scheduler does."""
        status = {"allocation": given(json.loads(self.spelling)), "reservedFor": [ONE]}
        await self.cluster.patch(RESOURCE_CLAIMS, "c", Merge({"status": status}), self.home, subresource="status")

    def check(self, claim):
        values = [config["opaque"]["parameters"] for config in configs(claim)]
        assert values == [json.loads(self.spelling)] * len(values)


class Bytes(Stored):
    """A claim on a real server, which keeps the bytes of the parameters."""

    def __init__(self, cluster, home, spelling, control_plane):
        super().__init__(cluster, home, spelling)
        self.control_plane = control_plane
        self.path = f"/apis/resource.k8s.io/v1/namespaces/{home}/resourceclaims"

    def send(self, method, path, body=None, accept="application/json"):
        text = json.dumps(body).replace('"PARAMETERS"', self.spelling).encode() if body is not None else None
        headers = {"Authorization": f"Bearer {self.control_plane.token}", "Content-Type": "application/json"}
        code, answer = self.control_plane.send(method, self.path + path, text, headers | {"Accept": accept})
        assert code < 300, answer
        return answer

    async def allocate(self):
        body = json.loads(self.send("GET", "/c"))
        body["status"] = {"allocation": given("PARAMETERS"), "reservedFor": [ONE]}
        self.send("PUT", "/c/status", body)

    def check(self, claim):
        stored = self.send("GET", "/c", accept="application/vnd.kubernetes.protobuf")
        raw = self.spelling.strip().encode()
        assert stored.count(b"\x0a%c%b" % (len(raw), raw)) == len(configs(claim))


def given(parameters):
    config = {"source": "FromClaim", "requests": ["gpu"], "opaque": {"driver": DRIVER, "parameters": parameters}}
    made = allocation()
    made["devices"]["config"] = [config]
    return made


def configs(claim):
    allocated = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("config", [])
    return [*claim["spec"]["devices"]["config"], *allocated]


async def read(cluster, home):
    return await cluster.get(RESOURCE_CLAIMS.raw, "c", home)


async def test_metadata_is_patched_and_nothing_else_changes(cluster, home, spelled):
    before = await read(cluster, home)
    version = before["metadata"]["resourceVersion"]
    for finalizers in (["example.com/a", "example.com/b"], ["example.com/b"]):
        body = {"resourceVersion": version, "finalizers": finalizers, "annotations": {"a": "é", "b": None}}
        made = await cluster.patch(RESOURCE_CLAIMS, "c", Merge({"metadata": body}), home)
        version = made.metadata.resource_version
        assert (list(made.metadata.finalizers), made.metadata.annotations) == (finalizers, {"a": "é"})
    patch = Merge({"metadata": {"uid": made.metadata.uid, "finalizers": None, "annotations": {"a": None, "b": "2"}}})
    await cluster.patch(RESOURCE_CLAIMS, "c", patch, home, dry_run=True)
    assert (await read(cluster, home))["metadata"]["finalizers"] == ["example.com/b"]
    await cluster.patch(RESOURCE_CLAIMS, "c", patch, home)
    after = await read(cluster, home)
    assert "finalizers" not in after["metadata"]
    assert after["metadata"]["annotations"] == {"b": "2"}
    assert after["spec"] == before["spec"]
    spelled.check(after)


@pytest.mark.parametrize(
    ("stale", "refusal"),
    [({"resourceVersion": "1"}, Conflict), ({"uid": "another"}, Invalid)],
    ids=["a version", "an object"],
)
async def test_a_patch_for_another_is_refused(cluster, home, spelled, stale, refusal):
    body = Merge({"metadata": {"finalizers": ["example.com/a"], **stale}})
    with pytest.raises(refusal):
        await cluster.patch(RESOURCE_CLAIMS, "c", body, home)
    assert "finalizers" not in (await read(cluster, home))["metadata"]
    spelled.check(await read(cluster, home))


async def test_status_is_patched_beside_an_allocation_of_another_writer(cluster, home, spelled):
    await spelled.allocate()
    device = {"driver": DRIVER, "pool": "p", "device": "gpu-0"}
    for users in ([ONE, OTHER], [OTHER]):
        body = Merge({"status": {"reservedFor": users}})
        await cluster.patch(RESOURCE_CLAIMS, "c", body, home, subresource="status")
    for status in ("False", "True"):
        condition = {"type": "Ready", "status": status, "reason": "Prepared", "message": "é", "lastTransitionTime": "2026-01-01T00:00:01Z"}  # fmt: skip
        device_status = device | {"conditions": [condition], "networkData": {"interfaceName": "eth1"}}
        head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}}
        wanted = Apply(head | {"status": {"devices": [device_status]}}, manager=DRIVER, force=True)
        await cluster.patch(RESOURCE_CLAIMS, "c", wanted, home, subresource="status")
    claim = await read(cluster, home)
    assert claim["status"]["devices"] == [device_status]
    assert claim["status"]["reservedFor"] == [OTHER]
    spelled.check(claim)
    body = Merge({"status": {"allocation": None, "reservedFor": None, "devices": None}})
    await cluster.patch(RESOURCE_CLAIMS, "c", body, home, subresource="status")
    claim = await read(cluster, home)
    assert "allocation" not in claim.get("status", {})
    spelled.check(claim)


async def test_a_change_of_an_immutable_field_is_refused(cluster, home, spelled):
    for body in (
        {"spec": {"devices": {"config": None}}},
        {"metadata": {"finalizers": ["example.com/a"]}, "spec": {"devices": {"config": None}}},
    ):
        with pytest.raises(Invalid, match="immutable"):
            await cluster.patch(RESOURCE_CLAIMS, "c", Merge(body), home)
    spelled.check(await read(cluster, home))
