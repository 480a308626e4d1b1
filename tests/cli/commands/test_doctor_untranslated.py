"""What `drawbridge doctor` reports about pods that the webhook did not translate, and about classes, keys and names that are missing or misspelt."""

from datetime import UTC, datetime, timedelta

import pytest
import yaml

from analysis.configuration import given_configuration
from analysis.doctor import diagnose, survey
from tests.allocator.service.sidecar import DRIVER, device_class, gpus, loaded, node, pod
from tests.cli.commands.faults import BRIDGE_SETTINGS, CONFIGURATION, FLEET, audit_event, unused_template, waiting_pod
from tests.cli.installations import installation, object_named
from tests.cli.running import manifest, run, run_json
from tests.objects import resource_quota

NVIDIA = "gpu.nvidia.com"  # also the name of the driver's class
EMPTY_CONFIGURATION = {key: CONFIGURATION[key] for key in ("apiVersion", "kind")}
NVIDIA_FLEET = [device_class(NVIDIA), *FLEET[1:]]


async def test_key_domains_missing_from_the_webhook_configuration_are_reported(tmp_path):
    table = {"name": "ours", "title": "Ours", "keys": [{"name": "our.org/gpu", "meaning": "GPUs", "role": "count"}]}
    config = manifest(tmp_path / "configuration.yaml", EMPTY_CONFIGURATION | {"dialects": [table]})
    registered = [yaml.safe_load(run("manifests", "--only", "webhooks", *arguments).stdout.partition("---")[0]) for arguments in ([], ["--config", config])]  # fmt: skip
    assert {obj["kind"] for obj in registered} == {"MutatingWebhookConfiguration"}
    old, new = (
        manifest(tmp_path / f"{i}.yaml", *FLEET, pod("p"), configuration) for i, configuration in enumerate(registered)
    )
    _, answer = run_json("doctor", "-f", old, "--config", config)
    [finding] = [reported for reported in answer["findings"] if reported["code"] == "O016"]
    assert "admitted as written: our.org" in finding["message"]
    assert "manifests --only webhooks" in finding["remedy"]
    for file, options in ((new, ("--config", config)), (old, ())):
        _, answer = run_json("doctor", "-f", file, *options)
        assert {finding["code"] for finding in answer["findings"]} == {"O008"}  # the configuration has no CA bundle yet
    for configuration, unsent in zip(registered, [("our.org",), ()], strict=True):
        seen = await survey(loaded(*FLEET, configuration), datetime.now(UTC), given_configuration(str(config)))
        messages = [finding.message for finding in diagnose(seen) if finding.code == "O016"]
        assert [f"admitted as written: {name}" in message for name, message in zip(unsent, messages, strict=True)] == [
            True
        ] * len(unsent)


def untranslated_pod(**meta):
    """An unschedulable pod that requests a whole GPU by the key of a device plugin."""
    resources = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}
    obj = waiting_pod(containers=[{"name": "c", "resources": resources}])
    obj["metadata"] |= meta
    return obj


def namespace_in(mode):
    labels = {"drawbridge.dev/mode": mode} if mode else {}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": labels}}


def quota_of(key):
    return resource_quota("q", {key: "4"})


OWNED = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}]
# Objects of a cluster with a pod, and parts of the message and the remedy; empty if the pod is not reported.
NOT_TRANSLATED = [
    ([namespace_in("enforce"), untranslated_pod(ownerReferences=OWNED)], "webhook was down", "delete the pod, and Job j creates another"),
    ([namespace_in("enforce"), untranslated_pod()], "webhook was down", "delete the pod and create it again"),
    ([namespace_in("warn"), untranslated_pod()], "has the label drawbridge.dev/mode=warn", "set drawbridge.dev/mode=enforce on its namespace; then"),
    ([untranslated_pod()], "the configuration sets mode: observe", "set drawbridge.dev/mode=enforce on its namespace; then"),
    ([namespace_in("enforce"), untranslated_pod(), quota_of("requests.nvidia.com/gpu")], "ResourceQuota", "correct the name"),
    ([namespace_in("enforce"), untranslated_pod(labels={"drawbridge.dev/skip": "true"})], "keeps it from the webhook", "remove the label"),
    ([namespace_in("enforce"), untranslated_pod(annotations={"drawbridge.dev/original": "x"})], "", ""),
    ([namespace_in("enforce"), untranslated_pod(), node("n1", allocatable={"nvidia.com/gpu": "8"})], "", ""),
    ([namespace_in("enforce"), untranslated_pod(), device_class("g", extendedResourceName="nvidia.com/gpu")], "", ""),
]  # fmt: skip


@pytest.mark.parametrize(("objects", "message", "remedy"), NOT_TRANSLATED)
def test_an_untranslated_pod_that_no_node_can_serve_is_reported(objects, message, remedy, tmp_path):
    findings = [finding for finding in findings_with(tmp_path, *objects) if finding["code"] in ("O103", "O104")]
    assert [message in finding["message"] and remedy in finding["remedy"] for finding in findings] == [True] * bool(
        message
    )


@pytest.mark.parametrize(
    ("stopped", "status", "first"),
    [
        (["webhook"], {"readyReplicas": 0}, "Deployment/drawbridge-system/drawbridge-webhook (O009: "),
        (["authority", "webhook"], {"readyReplicas": 0}, "Deployment/drawbridge-system/drawbridge-authority (O009: "),
        (["webhook"], {"readyReplicas": 1}, ""),
        (["controller"], {"readyReplicas": 0}, ""),
    ],
)
def test_the_remedy_mends_the_webhook_before_it_recreates_the_pod(stopped, status, first, tmp_path):
    objects = [obj for obj in installation() if "apiVersion" in obj]
    for name in stopped:
        object_named(objects, "Deployment", f"drawbridge-{name}")["status"] |= status
    [finding] = [
        reported
        for reported in findings_with(tmp_path, namespace_in("enforce"), untranslated_pod(), *objects)
        if reported["code"] == "O103"
    ]
    remedy = finding["remedy"]
    assert remedy.endswith("delete the pod and create it again")
    assert remedy.startswith(f"first mend {first}" if first else "delete the pod")


def findings_with(tmp_path, *objects, fleet=NVIDIA_FLEET):
    """The findings about these objects in a fleet with NVIDIA's driver, in mode observe."""
    config = manifest(tmp_path / "configuration.yaml", EMPTY_CONFIGURATION | {"mode": "observe"})
    manifest(dump := tmp_path / "dump.yaml", *fleet, *objects)
    dump.write_text(dump.read_text().replace(DRIVER, NVIDIA))
    return run_json("doctor", "-f", str(dump), "--config", config)[1]["findings"]


def nvidia_slice(type_):
    """A slice of NVIDIA's driver with a device of this type."""
    obj = gpus("n0", 1)
    obj["spec"]["devices"][0]["attributes"] = {"type": {"string": type_}}
    return obj


@pytest.mark.parametrize(
    ("objects", "settings", "missing"),
    [
        ([device_class("other"), nvidia_slice("gpu")], {}, {NVIDIA: "driver gpu.nvidia.com (target gpu)"}),
        ([device_class(NVIDIA), nvidia_slice("mig")], {}, {"mig.nvidia.com": "driver gpu.nvidia.com (target mig)"}),
        ([device_class(NVIDIA), nvidia_slice("gpu")], {}, {}),
        ([device_class("hami-core-gpu.project-hami.io"), nvidia_slice("gpu")], {}, {}),
        ([device_class("ours"), nvidia_slice("gpu")], {"classes": {"gpu": "ours"}}, {}),
        ([device_class("other"), nvidia_slice("gpu")], {"classes": {"gpu": "ours"}}, {"ours": "the configuration (classes.gpu)"}),
        ([device_class("a")], {"kueue": {"deviceClasses": ["a", "b"]}}, {"b": "the configuration (kueue.deviceClasses)"}),
        ([nvidia_slice("gpu")], {}, {}),
        ([device_class("other"), nvidia_slice("gpu")], None, {}),
        ([device_class("other"), unused_template()], {}, {"gpu": f"ResourceClaimTemplate/default/{unused_template()['metadata']['name']}"}),
    ],
)  # fmt: skip
def test_a_class_missing_for_future_pods_is_reported(tmp_path, objects, settings, missing):
    given = []
    if settings is not None:
        given = ["--config", manifest(tmp_path / "configuration.yaml", EMPTY_CONFIGURATION | settings)]
    manifest(dump := tmp_path / "dump.yaml", node("n0"), pod("p"), *objects)
    dump.write_text(dump.read_text().replace(DRIVER, NVIDIA))
    findings = run_json("doctor", "-f", str(dump), *given)[1]["findings"]
    messages = {finding["object"]: finding["message"] for finding in findings if finding["code"] == "O107"}
    assert messages.keys() == {f"DeviceClass/{name}" for name in missing}
    assert [name for name, by in missing.items() if by not in messages[f"DeviceClass/{name}"]] == []


def test_a_key_without_a_class_is_reported_with_its_pods(tmp_path):
    """The missing class is a single finding, for an administrator."""
    two = [untranslated_pod(), untranslated_pod(name="q", uid="q")]
    findings = findings_with(tmp_path, namespace_in("enforce"), *two, fleet=FLEET[1:])
    [finding] = [reported for reported in findings if reported["code"] == "O104"]
    assert "no DeviceClass of a whole GPU exists" in finding["message"]
    assert "default/p" in finding["message"]
    assert "default/q" in finding["message"]


def misspelt_pod(**changes):
    obj = untranslated_pod(**changes)
    obj["spec"]["containers"][0]["resources"] = {"limits": {"nvdia.com/gpu": "1"}}
    return obj


@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_a_misspelt_key_is_reported_with_a_suggestion(tmp_path, mode):
    findings = findings_with(tmp_path, namespace_in(mode), misspelt_pod(), misspelt_pod(name="q", uid="q"))
    [finding] = [reported for reported in findings if reported["code"] == "O104"]
    assert finding["object"] == "Pod/default/p"
    assert (
        finding["message"]
        == "no node has nvdia.com/gpu, for which default/p, default/q wait: did you mean nvidia.com/gpu?"
    )
    with_plugin = node("n1", allocatable={"nvdia.com/gpu": "8"})
    assert "O104" not in {
        finding["code"] for finding in findings_with(tmp_path, namespace_in(mode), misspelt_pod(), with_plugin)
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bridge": BRIDGE_SETTINGS | {"drivers": ["gpu.nvdia.com"]}}, "bridge.drivers names driver gpu.nvdia.com, which publishes no ResourceSlice: did you mean gpu.nvidia.com?"),
        ({"evidence": {"drivers": ["gpu.nvidia.com", "gpu.nvida.com"]}}, None),
        ({"evidence": {"drivers": ["gpu.nvida.com"]}}, "evidence.drivers names driver gpu.nvida.com, which publishes no ResourceSlice: did you mean gpu.nvidia.com?"),
        ({"evidence": {"drivers": ["gpu.nvidia.com", "dra.net"]}}, None),
        ({"evidence": {"namespaces": ["gpu-operater"]}}, "evidence.namespaces names namespace gpu-operater, which does not exist: did you mean gpu-operator?"),
        ({"evidence": {"namespaces": ["gpu-operator", "kube-system"]}}, None),
        ({"extendedResources": {"drivers": {"gpu.nvidai.com": "leave"}}}, "extendedResources.drivers names driver gpu.nvidai.com, which publishes no ResourceSlice: did you mean gpu.nvidia.com?"),
        ({"extendedResources": {"namespaces": {"gpu-operators": "leave"}}}, "extendedResources.namespaces names namespace gpu-operators, which does not exist: did you mean gpu-operator?"),
        ({"cpuClaims": {"namespaces": {"defualt": "translate"}}}, "cpuClaims.namespaces names namespace defualt, which does not exist: did you mean default?"),
        ({"mixed": {"nvidia.com/gpu": {"prefer": "dra", "namespaces": {"defaults": {"prefer": "plugin"}}}}}, "mixed.nvidia.com/gpu.namespaces names namespace defaults, which does not exist: did you mean default?"),
    ],
)  # fmt: skip
def test_a_driver_or_namespace_misspelt_in_the_configuration_is_reported(tmp_path, settings, message):
    config = manifest(tmp_path / "configuration.yaml", EMPTY_CONFIGURATION | settings)
    operator = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpu-operator"}}
    manifest(dump := tmp_path / "dump.yaml", *NVIDIA_FLEET, namespace_in("enforce"), operator)
    dump.write_text(dump.read_text().replace(DRIVER, NVIDIA))
    findings = run_json("doctor", "-f", str(dump), "--config", config)[1]["findings"]
    assert [finding["message"] for finding in findings if finding["code"] == "O019"] == ([message] if message else [])


def test_a_refusal_that_an_administrator_must_fix_is_reported_once(tmp_path):
    denied = 'pods "a-" is forbidden: admission webhook "pods.mutate.drawbridge.dev" denied the request: '
    messages = [
        denied + "it requests DeviceClass a, which does not exist (ask an administrator)",
        denied + "ask for less",
    ]
    events = [audit_event("FailedCreate", text, age) for age, text in enumerate([messages[0], *messages])]
    findings = [finding for finding in findings_with(tmp_path, *events) if finding["code"] == "O102"]
    assert [finding["message"] for finding in findings] == [messages[0].removeprefix(denied)]


@pytest.mark.parametrize(("age", "made", "reported"), [(120, False, True), (20, False, False), (120, True, False)])
def test_a_pod_without_its_template_after_a_minute_is_reported(age, made, reported, tmp_path):
    obj = pod("p", resourceClaims=[{"name": "c", "resourceClaimTemplateName": unused_template()["metadata"]["name"]}])
    obj["metadata"]["creationTimestamp"] = (datetime.now(UTC) - timedelta(seconds=age)).isoformat()
    templates = [unused_template()] * made
    _, answer = run_json("doctor", "-f", manifest(tmp_path / "dump.yaml", *FLEET, obj, *templates))
    assert [finding["code"] for finding in answer["findings"]] == ["O105"] * reported
