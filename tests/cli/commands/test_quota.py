"""`drawbridge quota`: the used, pending and free amount of each line, the holders, and the keys without effect.

A line of a quota limits the amount of one key.
"""

import json

import pytest

from tests.cli.commands.surveys import HAMI_CONTAINER, workload_object
from tests.cli.running import manifest, run, run_json
from tests.objects import obj, pod

DUMP = """
apiVersion: drawbridge.dev/v1alpha1
kind: DeviceQuota
metadata: {name: limits, namespace: team}
spec: {hard: {gpu/devices: 4, gpu/memory: 100Gi, "gpu": 1}}
---
apiVersion: drawbridge.dev/v1alpha1
kind: DeviceQuota
metadata: {name: limits, namespace: other}
spec: {hard: {"*/devices": 1}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: d.example
  pool: {name: p, generation: 1, resourceSliceCount: 1}
  nodeName: node-a
  devices: [{name: a, capacity: {memory: {value: 40Gi}}}, {name: b, capacity: {memory: {value: 40Gi}}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: held, namespace: team, uid: held}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}
status:
  allocation: {devices: {results: [{request: r, driver: d.example, pool: p, device: a}]}}
  reservedFor: [{resource: pods, name: train, uid: train}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one, namespace: team}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: waits, namespace: team, uid: waits}
spec:
  containers: [{name: c, image: i}]
  resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]
"""


@pytest.fixture
def dump(tmp_path):
    file = tmp_path / "dump.yaml"
    file.write_text(DUMP)
    return file


def test_each_line_shows_used_pending_and_remaining_amounts(dump):
    result = run("quota", "-f", dump, "-n", "team", "-o", "wide")
    assert result.exit_code == 0, result.stderr
    printed_lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert printed_lines[:8] == [
        "1 DeviceQuota: 0 of 2 lines used up",
        "",
        "team/limits",
        "LINE HARD USED PENDING REMAINING",
        "gpu/devices 4 1 1 2",
        "1: team/held of train",
        "gpu/memory 100Gi 40Gi 0 60Gi",
        "40Gi: team/held of train",
    ]
    assert printed_lines[8].startswith("these keys limit nothing: 'gpu'")


def test_all_namespaces_are_the_default_and_json_names_the_holders(dump):
    answer = json.loads(run("quota", "-f", dump, "-o", "json").stdout)
    assert [quota["quota"] for quota in answer["quotas"]] == ["other/limits", "team/limits"]
    first_line = answer["quotas"][1]["lines"][0]
    assert first_line["holders"] == [{"claim": "team/held", "pods": ["train"], "amount": "1"}]


def test_contradicting_options_are_refused_and_a_missing_quota_is_reported(dump, tmp_path):
    assert run("quota", "-f", dump, "-n", "team", "-A").exit_code == 2
    file_without_quota = tmp_path / "empty.yaml"
    file_without_quota.write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n")
    assert "devices are not limited" in run("quota", "-f", file_without_quota).stdout


def test_pods_with_legacy_keys_are_pending_with_their_future_claims(tmp_path):
    """`check` counts the same pods."""
    quota = obj("DeviceQuota", "limits", "drawbridge.dev/v1alpha1", namespace="team", hard={"*/devices": 3})
    pods = [pod(f"p{number}", namespace="team", containers=[HAMI_CONTAINER]) for number in range(2)]
    workload = workload_object("Deployment", "train", HAMI_CONTAINER)
    workload["metadata"]["namespace"] = "team"
    workload["spec"]["replicas"] = 2
    file = manifest(tmp_path / "dump.yaml", quota, *pods, workload)
    [answer] = run_json("quota", "-f", file)[1]["quotas"]
    assert [(line["pending"], line["remaining"]) for line in answer["lines"]] == [("4", "0")]
    codes = [finding["code"] for finding in run_json("check", "-f", file)[1]["findings"]]
    assert codes == ["D217"]
