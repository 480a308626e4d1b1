"""`drawbridge doctor` reads an installation with malformed objects: it reports them, and no value causes an exception."""

import copy
import json
import random

import pytest

from tests.cli.installations import NAMESPACE, NOW, installation, lease
from tests.cli.running import manifest, run
from tests.limits import draws
from tests.objects import obj

MALFORMED_VALUES = (None, 0, -1, 1e300, True, "", "x", "%", "tomorrow", [], {}, [1], [None], ["x"], [{}], {"a": 1})


def paths_in(value, *path):
    """Yield the path of each member of an object, at any depth."""
    for key, member in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield (*path, key)
        yield from paths_in(member, *path, key)


def test_an_installation_with_malformed_fields_causes_no_exception(tmp_path):
    draw = random.Random("an installation of any shape")
    secret = {"kind": "Secret", "metadata": {"name": "drawbridge", "namespace": NAMESPACE}, "data": {"tls.crt": "eA=="}}
    healthy_objects = [*json.loads(json.dumps(installation())), secret, lease("n1", "n1", NOW)]
    file = tmp_path / "dump.json"
    for _ in range(draws(160)):
        objects = copy.deepcopy(healthy_objects)
        # Draw the object first: a policy has a hundred times as many fields as a Lease.
        obj = draw.choice(objects)
        *path, last = draw.choice(
            [candidate for candidate in paths_in(obj) if candidate not in (("kind",), ("apiVersion",))]
        )
        parent = obj
        for key in path:
            parent = parent[key]
        parent[last] = draw.choice(MALFORMED_VALUES)
        file.write_text("\n".join(map(json.dumps, objects)))
        result = run("doctor", "-f", file)
        assert "this is a bug" not in result.output, (obj["kind"], path, last, parent[last], result.output[-600:])


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("Deployment", ("metadata", "annotations"), "x"),
        ("ConfigMap", ("data",), "x"),
        ("Namespace", ("metadata", "labels"), -1),
        ("ValidatingWebhookConfiguration", ("webhooks", 0, "matchConditions"), [{"name": "a", "expression": {}}]),
    ],
)
def test_a_malformed_object_is_reported_with_a_json_pointer(kind, path, value, tmp_path):
    objects = json.loads(json.dumps(installation()))
    malformed = next(obj for obj in objects if obj["kind"] == kind)
    parent = malformed
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    (tmp_path / "dump.json").write_text("\n".join(map(json.dumps, objects)))
    result = run("doctor", "-f", tmp_path / "dump.json")
    assert result.exit_code in (1, 3), result.output
    assert f"warning: not read: {kind} " in result.output
    assert "/" + "/".join(map(str, path)) in result.output


def test_an_invalid_renew_time_is_ignored(tmp_path):
    objects = [*json.loads(json.dumps(installation())), lease("n1", "n1", NOW)]
    for stored in objects:
        if stored["kind"] == "Lease":
            stored |= {"apiVersion": "coordination.k8s.io/v1"}
            stored["spec"]["renewTime"] = "yesterday"
    (tmp_path / "dump.json").write_text("\n".join(map(json.dumps, objects)))
    result = run("doctor", "-f", tmp_path / "dump.json")
    assert result.exit_code == 0, result.output


def test_a_deployment_without_a_namespace_belongs_to_namespace_default(tmp_path):
    labels = {"app.kubernetes.io/name": "drawbridge"}
    deployment = obj("Deployment", "drawbridge-allocator", "apps/v1", labels=labels)
    result = run("doctor", "-f", manifest(tmp_path / "file.json", deployment | {"spec": {}}))
    assert "Deployment/default/drawbridge-webhook\n  error O003: it belongs" in result.stdout
    assert "bug" not in result.stderr
