"""The manifests are what the code says: generated parts fresh, rights least, both ways to install the same."""

import pytest

from certs.store import authoritys_name
from cli.commands.manifests import BASE, generated, rest
from cluster import manifests
from webhook.admission.registration import Options


def objects():
    return [
        d.object
        for d in manifests.read([path for path in sorted(BASE.glob("*.yaml")) if path.name != "kustomization.yaml"])
    ]


def of(kind, name=None):
    return [o for o in objects() if o["kind"] == kind and name in (None, o["metadata"]["name"])]


def test_the_generated_webhook_configurations_are_fresh():
    stale = "run `.venv/bin/python -m cli.manifests` to write it again"
    assert (BASE / "webhooks.yaml").read_text() == generated(Options()), stale


def test_kustomize_lists_every_file():
    listed = manifests.read([BASE / "kustomization.yaml"])[0].object["resources"]
    assert sorted(listed) == sorted(p.name for p in BASE.glob("*.yaml") if p.name != "kustomization.yaml")


def rules(*names):
    return [
        rule
        for kind in ("ClusterRole", "Role")
        for o in of(kind)
        if o["metadata"]["name"] in names
        for rule in o["rules"]
    ]


def test_the_webhook_may_only_look():
    assert {verb for rule in rules("drawbridge-webhook") for verb in rule["verbs"]} == {"get", "list", "watch"}


def test_nobody_has_a_right_to_everything():
    for rule in rules("drawbridge-webhook", "drawbridge-controller"):
        assert "*" not in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]]


SERVING, AUTHORITYS = ["drawbridge"], [authoritys_name("drawbridge")]


def test_the_webhook_reads_one_secret_and_the_authoritys_key_is_in_another():
    for role, secrets in (("drawbridge-webhook", SERVING), ("drawbridge-controller", [*SERVING, *AUTHORITYS])):
        for rule in rules(role):
            if "secrets" in rule["resources"] and rule["verbs"] != ["create"]:
                assert rule["resourceNames"] == secrets


@pytest.mark.parametrize("deployment", of("Deployment"), ids=lambda o: o["metadata"]["name"])
def test_pods_run_with_as_little_as_possible(deployment):
    spec = deployment["spec"]["template"]["spec"]
    assert deployment["spec"]["replicas"] == 2
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["livenessProbe"]
    assert spec["serviceAccountName"] == deployment["metadata"]["name"]


def test_the_arguments_in_the_manifests_are_ones_the_command_knows():
    from cli.commands.webhook import command

    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for deployment in of("Deployment"):
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["args"][0] == "webhook"
        assert {argument.partition("=")[0] for argument in container["args"][1:]} <= known


def test_the_example_configuration_is_a_good_one_and_changes_nothing_yet():
    from webhook.state.configuration import read

    (config_map,) = of("ConfigMap")
    (document,) = manifests.parse(config_map["data"]["drawbridge.yaml"])
    configuration, findings = read(document.object)
    assert not findings
    assert configuration.file.mode == "observe"


def test_another_namespace_and_image_reach_every_object():
    made = list(rest("elsewhere", "registry.example/drawbridge:1", ""))
    cluster_wide = {"Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}
    assert {o["metadata"].get("namespace") for o in made if o["kind"] not in cluster_wide} == {"elsewhere"}
    subjects = [subject for o in made for subject in o.get("subjects", ())]
    assert {subject["namespace"] for subject in subjects} == {"elsewhere"}
    images = {o["spec"]["template"]["spec"]["containers"][0]["image"] for o in made if o["kind"] == "Deployment"}
    assert images == {"registry.example/drawbridge:1"}


def test_the_crds_admit_what_the_types_hold():
    from dra.objects.compatibility import DeviceCompatibilitySpec

    (crd,) = of("CustomResourceDefinition", "devicecompatibilities.drawbridge.dev")
    properties = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert set(properties) == set(DeviceCompatibilitySpec.__struct_encode_fields__)
    assert properties["scope"]["default"] == DeviceCompatibilitySpec().scope
    assert properties["groups"]["default"] == DeviceCompatibilitySpec().groups
