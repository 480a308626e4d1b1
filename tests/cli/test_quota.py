"""`check` and `translate` report what a DeviceQuota would refuse, before and after the translation."""

import json

import pytest

from tests.cli.running import run, run_json

CLASS_AND_CONFIGURATION = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.nvidia.com}
---
apiVersion: drawbridge.dev/v1alpha1
kind: DrawbridgeConfiguration
meanings: {nvidia.com/gpu: whole}
"""
QUOTA = """
apiVersion: drawbridge.dev/v1alpha1
kind: DeviceQuota
metadata: {name: team, namespace: ml}
spec: {hard: {gpu.nvidia.com/devices: HARD}}
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: serve, namespace: ml}
spec:
  replicas: 3
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train, namespace: ml}
spec:
  parallelism: 4
  template:
    spec: {restartPolicy: Never, containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 2}}}]}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: late, namespace: ml}
spec: {containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 4}}}]}
"""
CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: one, namespace: ml}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.nvidia.com, count: 2}}]}}
"""
TEMPLATE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: two, namespace: ml}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.nvidia.com, count: 2}}]}}}
"""
JOB_SET = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: set, namespace: ml}
spec:
  replicatedJobs:
  - name: workers
    replicas: 2
    template:
      spec:
        parallelism: 3
        template:
          spec:
            containers: [{name: c, image: i, resources: {claims: [{name: d}]}}]
            resourceClaims: [{name: d, resourceClaimTemplateName: two}]
"""
USE_BY_SERVE = "3 of 8 used, including 3 by pods that wait for devices; at most 5 can be requested"


def text_of(*parts, hard=8):
    return "\n---\n".join((CLASS_AND_CONFIGURATION, QUOTA.replace("HARD", str(hard)), *parts))


def quota_findings(text, *options):
    """Return the code, object and message of each finding of `check` about a quota."""
    _, answer = run_json("check", "-f", "-", *options, stdin=text)
    return [
        (finding["code"], finding["object"], finding["message"])
        for finding in answer["findings"]
        if finding["code"] in ("D216", "D217", "R024")
    ]


def test_requests_that_fit_a_quota_are_not_mentioned():
    assert quota_findings(text_of(DEPLOYMENT, POD)) == []


def test_quota_findings_are_in_input_order_with_fitting_replicas():
    prefix = "quota ml/team: gpu.nvidia.com/devices"
    assert quota_findings(text_of(DEPLOYMENT, JOB, POD, CLAIM)) == [
        ("D217", "Job/ml/train", f"{prefix}: 8 requested by 4 replicas, {USE_BY_SERVE}, enough for 2 of the replicas"),
        ("D216", "Pod/ml/late", f"{prefix}: 4 requested, 7 of 8 used, including 7 by pods that wait for devices; at most 1 can be requested"),
        ("D216", "ResourceClaim/ml/one", f"{prefix}: 2 requested, 7 of 8 used, including 7 by pods that wait for devices; at most 1 can be requested"),
    ]  # fmt: skip


def test_a_template_counts_once_per_nested_replica():
    [(code, name, message)] = quota_findings(text_of(TEMPLATE, JOB_SET))
    assert (code, name) == ("D217", "JobSet/ml/set")
    assert (
        "12 requested by 6 replicas, 0 of 8 used; at most 8 can be requested, enough for 4 of the replicas" in message
    )


def test_a_quota_without_room_for_any_replica_is_a_warning():
    text = text_of(POD, JOB, hard=5)
    [(code, _, message)] = quota_findings(text)
    assert code == "D216"
    assert message.endswith("at most 1 can be requested, enough for 0 of the replicas")
    assert run("check", "-f", "-", stdin=text).exit_code == 0
    assert run("check", "-f", "-", "--fail-on", "warning", stdin=text).exit_code == 1


@pytest.mark.parametrize(
    ("objects", "name"), [(POD, "Pod/ml/late"), (JOB, "Job/ml/train"), (CLAIM, "ResourceClaim/ml/one")]
)
def test_a_request_beyond_the_whole_quota_is_refused(objects, name):
    text = text_of(objects, hard=1)
    [(code, refused_object, message)] = quota_findings(text)
    assert (code, refused_object) == ("R024", name)
    assert "the whole quota is 1" in message
    assert run("check", "-f", "-", stdin=text).exit_code == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("metadata: {name: late, ", "metadata: {uid: u, name: late, "),
        ("namespace: ml", "namespace: other"),
        ("nvidia.com/gpu: 4", "cpu: 4"),
        ("kind: Pod", "kind: PodTemplate"),
    ],
    ids=["an existing pod", "another namespace", "no devices", "a template without pods"],
)
def test_an_object_that_uses_no_quota_is_not_reported(old, new):
    assert quota_findings(text_of(DEPLOYMENT, POD, hard=5))
    assert quota_findings(text_of(DEPLOYMENT, POD.replace(old, new), hard=5)) == []


def test_a_quota_for_a_priority_class_counts_only_its_pods():
    scope = "scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In, values: [high]}]}"
    text = text_of(hard=1).replace("spec: {hard:", f"spec: {{{scope}, hard:")
    assert quota_findings(f"{text}\n---\n{POD}") == []
    important = POD.replace("spec: {", "spec: {priorityClassName: high, ")
    assert [code for code, *_ in quota_findings(f"{text}\n---\n{important}")] == ["R024"]


def test_untranslated_requests_are_not_counted():
    assert quota_findings(text_of(DEPLOYMENT, POD, hard=5), "--mode", "observe") == []


def test_only_replicas_beyond_the_existing_ones_are_counted(tmp_path):
    """The snapshot has three replicas and the claims of two of them. The manifests have three and five replicas."""
    snapshot = tmp_path / "snapshot.yaml"
    claims = [
        CLAIM.replace("{name: one,", f"{{name: serve-{number}, uid: u{number},").replace("count: 2", "count: 1")
        for number in range(2)
    ]
    stored_deployment = DEPLOYMENT.replace("{name: serve,", "{name: serve, uid: d,")
    snapshot.write_text(text_of(stored_deployment, *claims, hard=3))
    scaled_up = DEPLOYMENT.replace("replicas: 3", "replicas: 5")
    for text, expected in ((DEPLOYMENT, []), (scaled_up, ["2 requested by 2 replicas, 2 of 3 used"])):
        messages = [message for _, _, message in quota_findings(text, "--inventory", str(snapshot))]
        assert len(messages) == len(expected)
        assert all(text_expected in message for text_expected, message in zip(expected, messages, strict=True))


def test_huge_replica_counts_are_computed_without_creating_pods():
    [(_, _, message)] = quota_findings(text_of(DEPLOYMENT.replace("replicas: 3", f"replicas: {10**15}")))
    assert "by 2147483647 replicas" in message  # the maximum of the API server, an int32


@pytest.mark.parametrize(
    "unreadable",
    [
        POD.replace("spec: {", "spec: {resourceClaims: 7, "),
        POD.replace("spec: {", "spec: {priorityClassName: [a], "),
        CLAIM.replace("name: one", "name: broken").replace("requests: [", "requests: [7, "),
    ],
    ids=["malformed resourceClaims", "malformed priorityClassName", "malformed requests"],
)
def test_an_unreadable_object_does_not_change_other_findings(unreadable):
    [finding] = quota_findings(text_of(CLAIM, hard=1))
    assert finding in quota_findings(text_of(unreadable, CLAIM, hard=1))


def test_translate_reports_a_quota_in_each_format():
    text = text_of(DEPLOYMENT, JOB)
    [(_, _, message)] = quota_findings(text)
    report = run("translate", "-f", "-", "-o", "report", stdin=text).stdout
    assert [line.split(maxsplit=1) for line in report.splitlines()].count(["beyond", message]) == 1
    plain = run("translate", "-f", "-", stdin=text)
    assert plain.exit_code == 0
    assert f"warning: Job/ml/train: {message}\n" in plain.stderr
    assert "D217" in run("translate", "-f", "-", "-o", "github", stdin=text).stdout
    quotas = json.loads(run("translate", "-f", "-", "-o", "json", stdin=text).stdout)["quotas"]
    assert [(quota["object"], quota["path"], quota["replicas"], quota["replicasLeft"]) for quota in quotas] == [
        ("Deployment/ml/serve", "/spec/template", 3, 3),
        ("Job/ml/train", "/spec/template", 4, 2),
    ]
    assert [line["exceeded"] for quota in quotas for line in quota["lines"]] == [False, True]


def test_without_a_quota_there_is_no_message():
    text = f"{CLASS_AND_CONFIGURATION}\n---\n{DEPLOYMENT}"
    assert quota_findings(text) == []
    assert "within" not in run("translate", "-f", "-", "-o", "report", stdin=text).stdout
