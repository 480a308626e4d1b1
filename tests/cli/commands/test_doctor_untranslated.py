"""What `drawbridge doctor` reports about pods that the webhook did not translate, and about classes, keys and names that are missing or misspelt."""

from datetime import UTC, datetime, timedelta

import pytest
import yaml

from analysis.doctor import diagnose, survey
from cli.configuration import given_configuration
from tests.allocator.service.sidecar import DRIVER, device_class, gpus, loaded, node, pod
from tests.cli.commands.faults import (
    BRIDGE_SETTINGS,
    CONFIGURATION,
    FLEET,
    audit_event,
    findings_in,
    unused_template,
    waiting_pod,
)
from tests.cli.installations import installation, object_named
from tests.cli.running import manifest, run, run_json
from tests.cli.test_doctor_components import set_bundle
from tests.objects import namespace, resource_quota

NVIDIA_DRIVER = "gpu.nvidia.com"  # also the name of the driver's class
EMPTY_CONFIGURATION = {key: CONFIGURATION[key] for key in ("apiVersion", "kind")}
NVIDIA_FLEET = [device_class(NVIDIA_DRIVER), *FLEET[1:]]


async def test_key_domains_missing_from_the_webhook_configuration_are_reported(tmp_path):
    dialect = {"name": "ours", "title": "Ours", "keys": [{"name": "our.org/gpu", "meaning": "GPUs", "role": "count"}]}
    config = manifest(tmp_path / "configuration.yaml", EMPTY_CONFIGURATION | {"dialects": [dialect]})
    webhook_configurations = [yaml.safe_load(run("manifests", "--only", "webhooks", *arguments).stdout.partition("---")[0]) for arguments in ([], ["--config", config])]  # fmt: skip
    assert {obj["kind"] for obj in webhook_configurations} == {"MutatingWebhookConfiguration"}
    old_dump, new_dump = (
        manifest(tmp_path / f"{i}.yaml", *FLEET, pod("p"), configuration)
        for i, configuration in enumerate(webhook_configurations)
    )
    _, answer = run_json("doctor", "-f", old_dump, "--config", config)
    [finding] = [reported for reported in answer["findings"] if reported["code"] == "O016"]
    assert "admitted as written: our.org" in finding["message"]
    assert "manifests --only webhooks" in finding["remedy"]
    for file, options in ((new_dump, ("--config", config)), (old_dump, ())):
        _, answer = run_json("doctor", "-f", file, *options)
        assert {finding["code"] for finding in answer["findings"]} == {"O008"}  # the configuration has no CA bundle yet
    for configuration, missing_domains in zip(webhook_configurations, [("our.org",), ()], strict=True):
        doctor_input = await survey(loaded(*FLEET, configuration), datetime.now(UTC), given_configuration(str(config)))
        messages = [finding.message for finding in diagnose(doctor_input) if finding.code == "O016"]
        assert [
            f"admitted as written: {domain}" in message
            for domain, message in zip(missing_domains, messages, strict=True)
        ] == [True] * len(missing_domains)


def untranslated_pod(**metadata):
    """An unschedulable pod that requests a whole GPU by the key of a device plugin."""
    resources = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}
    obj = waiting_pod(containers=[{"name": "c", "resources": resources}])
    obj["metadata"] |= metadata
    return obj


def namespace_in_mode(mode):
    return namespace("default", labels={"drawbridge.dev/mode": mode})


JOB_OWNERS = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}]
# Objects of a cluster with a pod, and parts of the message and the remedy; empty if the pod is not reported.
UNTRANSLATED_PODS = [
    ([namespace_in_mode("enforce"), untranslated_pod(ownerReferences=JOB_OWNERS)], "webhook was down", "delete the pod, and Job j creates another"),
    ([namespace_in_mode("enforce"), untranslated_pod()], "webhook was down", "create it again"),
    ([namespace_in_mode("warn"), untranslated_pod()], "has the label drawbridge.dev/mode=warn", "set drawbridge.dev/mode=enforce on its namespace; then"),
    ([untranslated_pod()], "the configuration sets mode: observe", "set drawbridge.dev/mode=enforce on its namespace; then"),
    ([namespace_in_mode("enforce"), untranslated_pod(), resource_quota("q", {"requests.nvidia.com/gpu": "4"})], "ResourceQuota", "correct the name"),
    ([namespace_in_mode("enforce"), untranslated_pod(labels={"drawbridge.dev/skip": "true"})], "keeps it from the webhook", "remove the label"),
    ([namespace_in_mode("enforce"), untranslated_pod(annotations={"drawbridge.dev/original": "x"})], "", ""),
    ([namespace_in_mode("enforce"), untranslated_pod(), node("n1", allocatable={"nvidia.com/gpu": "8"})], "", ""),
    ([namespace_in_mode("enforce"), untranslated_pod(), device_class("g", extendedResourceName="nvidia.com/gpu")], "", ""),
]  # fmt: skip


@pytest.mark.parametrize(("objects", "message", "remedy"), UNTRANSLATED_PODS)
def test_untranslated_pods_are_reported_only_if_nothing_can_serve_them(objects, message, remedy, tmp_path):
    findings = [finding for finding in nvidia_findings(tmp_path, *objects) if finding["code"] in ("O103", "O104")]
    assert len(findings) == bool(message)
    assert all(message in finding["message"] and remedy in finding["remedy"] for finding in findings)


@pytest.mark.parametrize(
    ("changed_deployments", "status", "mended_first"),
    [
        (["webhook"], {"readyReplicas": 0}, "Deployment/drawbridge-system/drawbridge-webhook (O009: "),
        (["authority", "webhook"], {"readyReplicas": 0}, "Deployment/drawbridge-system/drawbridge-authority (O009: "),
        (["webhook"], {"readyReplicas": 1}, ""),
        (["controller"], {"readyReplicas": 0}, ""),
        ([], {}, "MutatingWebhookConfiguration/drawbridge (O007: "),
    ],
)
def test_the_remedy_first_mends_a_webhook_that_is_down(changed_deployments, status, mended_first, tmp_path):
    objects = [obj for obj in installation() if "apiVersion" in obj]
    for name in changed_deployments:
        object_named(objects, "Deployment", f"drawbridge-{name}")["status"] |= status
    if not changed_deployments:
        set_bundle(objects, "other", 99)
    findings = nvidia_findings(tmp_path, namespace_in_mode("enforce"), untranslated_pod(), *objects)
    [remedy] = [finding["remedy"] for finding in findings if finding["code"] == "O103"]
    assert remedy.endswith("create it again")
    assert remedy.startswith(f"first mend {mended_first}" if mended_first else "delete the pod")


def nvidia_findings(tmp_path, *objects, fleet=NVIDIA_FLEET, config=""):
    """The findings about these objects in a fleet with NVIDIA's driver, with this configuration or in mode observe."""
    observing = manifest(tmp_path / "configuration.yaml", EMPTY_CONFIGURATION | {"mode": "observe"})
    manifest(dump := tmp_path / "dump.yaml", *fleet, *objects)
    dump.write_text(dump.read_text().replace(DRIVER, NVIDIA_DRIVER))
    options = () if config is None else ("--config", config or observing)
    return run_json("doctor", "-f", str(dump), *options)[1]["findings"]


def nvidia_slice(type_):
    """A slice of NVIDIA's driver with a device of this type."""
    obj = gpus("n0", 1)
    obj["spec"]["devices"][0]["attributes"] = {"type": {"string": type_}}
    return obj


# Settings of None: there is no configuration file.
@pytest.mark.parametrize(
    ("objects", "settings", "user_by_missing_class"),
    [
        ([device_class("other"), nvidia_slice("gpu")], {}, {NVIDIA_DRIVER: "driver gpu.nvidia.com (target gpu)"}),
        ([device_class(NVIDIA_DRIVER), nvidia_slice("mig")], {}, {"mig.nvidia.com": "driver gpu.nvidia.com (target mig)"}),
        ([device_class(NVIDIA_DRIVER), nvidia_slice("gpu")], {}, {}),
        ([device_class("hami-core-gpu.project-hami.io"), nvidia_slice("gpu")], {}, {}),
        ([device_class("ours"), nvidia_slice("gpu")], {"classes": {"gpu": "ours"}}, {}),
        ([device_class("other"), nvidia_slice("gpu")], {"classes": {"gpu": "ours"}}, {"ours": "the configuration (classes.gpu)"}),
        ([device_class("a")], {"kueue": {"deviceClasses": ["a", "b"]}}, {"b": "the configuration (kueue.deviceClasses)"}),
        ([nvidia_slice("gpu")], {}, {}),
        ([device_class("other"), nvidia_slice("gpu")], None, {}),
        ([device_class("other"), unused_template()], {}, {"gpu": f"ResourceClaimTemplate/default/{unused_template()['metadata']['name']}"}),
    ],
)  # fmt: skip
def test_missing_classes_are_reported_only_if_future_pods_need_them(tmp_path, objects, settings, user_by_missing_class):
    config = None if settings is None else manifest(tmp_path / "given.yaml", EMPTY_CONFIGURATION | settings)
    findings = nvidia_findings(tmp_path, node("n0"), pod("p"), *objects, fleet=(), config=config)
    messages = {finding["object"]: finding["message"] for finding in findings if finding["code"] == "O107"}
    assert messages.keys() == {f"DeviceClass/{name}" for name in user_by_missing_class}
    assert [name for name, user in user_by_missing_class.items() if user not in messages[f"DeviceClass/{name}"]] == []


def test_a_key_without_a_class_is_reported_with_its_pods(tmp_path):
    """The missing class is a single finding, for an administrator."""
    pods = [untranslated_pod(), untranslated_pod(name="q", uid="q")]
    findings = nvidia_findings(tmp_path, namespace_in_mode("enforce"), *pods, fleet=FLEET[1:])
    [finding] = [reported for reported in findings if reported["code"] == "O104"]
    assert "no DeviceClass of a whole GPU exists" in finding["message"]
    assert (finding["object"], finding["message"].endswith(" (also default/q)")) == ("Pod/default/p", True)


def misspelt_pod(**metadata):
    obj = untranslated_pod(**metadata)
    obj["spec"]["containers"][0]["resources"] = {"limits": {"nvdia.com/gpu": "1"}}
    return obj


@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_a_misspelt_key_is_reported_with_a_suggestion(tmp_path, mode):
    findings = nvidia_findings(tmp_path, namespace_in_mode(mode), misspelt_pod(), misspelt_pod(name="q", uid="q"))
    [finding] = [reported for reported in findings if reported["code"] == "O104"]
    assert finding["object"] == "Pod/default/p"
    assert "did you mean nvidia.com/gpu? (also default/q)" in finding["message"]
    plugin_node = node("n1", allocatable={"nvdia.com/gpu": "8"})
    served = nvidia_findings(tmp_path, namespace_in_mode(mode), misspelt_pod(), plugin_node)
    assert "O104" not in {finding["code"] for finding in served}


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
def test_a_setting_is_reported_only_if_it_is_probably_misspelt(tmp_path, settings, message):
    config = manifest(tmp_path / "given.yaml", EMPTY_CONFIGURATION | settings)
    findings = nvidia_findings(tmp_path, namespace_in_mode("enforce"), namespace("gpu-operator"), config=config)
    assert [finding["message"] for finding in findings if finding["code"] == "O019"] == ([message] if message else [])


def test_a_refusal_for_what_the_cluster_lacks_is_reported_once(tmp_path):
    denied = 'pods "a-" is forbidden: admission webhook "pods.mutate.drawbridge.dev" denied the request: '
    messages = [
        denied + "it requests DeviceClass a, which does not exist (use another class) [R021]",
        denied + "16 devices are requested (ask an administrator for less) [R023]",
    ]
    events = [audit_event("FailedCreate", text, age) for age, text in enumerate([messages[0], *messages])]
    findings = [finding for finding in nvidia_findings(tmp_path, *events) if finding["code"] == "O102"]
    assert [finding["message"] for finding in findings] == [messages[0].removeprefix(denied)]


@pytest.mark.parametrize(
    ("age", "template_exists", "is_reported"), [(120, False, True), (20, False, False), (120, True, False)]
)
def test_a_pod_without_its_template_is_reported_after_a_minute(age, template_exists, is_reported, tmp_path):
    obj = pod("p", resourceClaims=[{"name": "c", "resourceClaimTemplateName": unused_template()["metadata"]["name"]}])
    obj["metadata"]["creationTimestamp"] = (datetime.now(UTC) - timedelta(seconds=age)).isoformat()
    templates = [unused_template()] * template_exists
    assert [finding["code"] for finding in findings_in(tmp_path, obj, *templates)] == ["O105"] * is_reported
