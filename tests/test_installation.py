"""The manifests agree with the code and with each other: files, arguments, selectors, ports, security contexts and CRD schemas."""

import re

import pytest
from click.testing import CliRunner
from msgspec import inspect

from analysis.installation import BASE, CLUSTER_WIDE, base
from cli.commands.manifests import command
from cli.main import COMMANDS, command_of
from cluster import manifests
from dra.objects import DeviceCompatibility, DeviceQuota
from tests.cli.running import run
from tests.installed_objects import base_objects
from webhook.names import MODE_LABEL
from webhook.service import Settings as WebhookSettings

FOLDERS = {
    str(path.parent.relative_to(BASE.parent)): path.parent
    for path in sorted(BASE.parent.rglob("kustomization.yaml"))
    if "examples" not in path.parts
}


@pytest.mark.parametrize("name", FOLDERS)
def test_kustomize_lists_every_file(name):
    [kustomization] = (document.object for document in manifests.read([FOLDERS[name] / "kustomization.yaml"]))
    listed = [
        *kustomization.get("resources", ()),
        *(patch.get("path", "") for patch in kustomization.get("patches", ())),
    ]
    files = {path.name for path in FOLDERS[name].glob("*.yaml")} - {"kustomization.yaml"}
    assert sorted(file for file in listed if file.endswith(".yaml")) == sorted(files)


@pytest.mark.parametrize("name", FOLDERS)
def test_arguments_are_options_of_the_command(name):
    files = [path for path in FOLDERS[name].glob("*.yaml") if path.name != "kustomization.yaml"]
    for document in manifests.read(files) if files else ():
        pod = document.object.get("spec", {}).get("template", {}).get("spec", {})
        for container in pod.get("containers", ()):
            called, *options = [word.partition("=")[0] for word in container.get("args") or ("",)]
            if called in COMMANDS and "drawbridge" in container.get("image", "drawbridge"):
                flags = command_of(called).params
                known = {option for flag in flags for option in (*flag.opts, *flag.secondary_opts)}
                assert set(options) <= known, document.line


def test_a_kustomization_refers_outside_its_folder_only_to_folders():
    """`kubectl apply -k` rejects files outside of the kustomization's folder."""
    for place in sorted(BASE.parent.rglob("kustomization.yaml")):
        for path in manifests.read([place])[0].object.get("resources", ()):
            named = place.parent / path
            assert named.exists(), f"{place}: {path}"
            assert not path.startswith("../") or named.is_dir(), f"{place}: {path}"


def selectors(o):
    """Return the selectors of an object that match pods of an installation."""
    spec = o["spec"]
    match o["kind"]:
        case "Deployment":
            spread = [
                constraint["labelSelector"] for constraint in spec["template"]["spec"]["topologySpreadConstraints"]
            ]
            return [selector["matchLabels"] for selector in (spec["selector"], *spread)]
        case "Service":
            return [spec["selector"]]
        case "PodDisruptionBudget":
            return [spec["selector"]["matchLabels"]]
        case "NetworkPolicy":
            return [spec["podSelector"]["matchLabels"]]
    return []


def test_every_selector_matches_only_pods_of_our_components():
    matched = [(o, selector) for kind in ("Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy") for o in base_objects(kind) for selector in selectors(o)]  # fmt: skip
    assert len(matched) == 11
    pods = [o["spec"]["template"]["metadata"]["labels"] for o in base_objects("Deployment")]
    for o, selector in matched:
        assert selector.keys() == {"app.kubernetes.io/name", "app.kubernetes.io/component"}, o["metadata"]["name"]
        assert selector in pods


def test_an_installation_without_an_image_is_refused(capsys):
    result = CliRunner().invoke(command, [])
    assert result.exit_code == 2
    assert "--image" in result.output


def test_mode_off_selects_only_namespaces_that_name_a_mode(tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text('apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\nmode: "off"\n')
    result = CliRunner().invoke(command, ["--only=webhooks", f"--config={config}"])
    chosen = {"key": MODE_LABEL, "operator": "In", "values": ["observe", "warn", "enforce"]}
    for made in manifests.parse(result.stdout):
        for webhook in made.object["webhooks"]:
            assert chosen in webhook["namespaceSelector"]["matchExpressions"]


HEAD = "apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\n"


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "# ours\ncanary: 50  # percent\n",
        f"---\n{HEAD}...\n",
        HEAD.replace("\n", "\r\n"),
        HEAD + "disabled:\n  - kai",
        '{"apiVersion": "drawbridge.dev/v1alpha1",\n "kind": "DrawbridgeConfiguration"\n}\n',
    ],
)
def test_an_installation_without_a_mode_starts_in_observe(tmp_path, text):
    config = tmp_path / "c.yaml"
    config.write_bytes(text.encode())
    before = manifests.parse(text)[0].object
    result = run("manifests", "--only", "rest", "--image", "x", "--config", config)
    assert result.exit_code == 0, result.stderr
    [installed] = [
        document.object["data"]["drawbridge.yaml"]
        for document in manifests.parse(result.stdout)
        if (document.object["kind"], document.object["metadata"]["name"]) == ("ConfigMap", "drawbridge")
    ]
    assert manifests.parse(installed)[0].object == before | {"mode": "observe"}
    assert "# ours" not in text or "# ours\ncanary: 50  # percent\n" in installed
    result = run("manifests", "--helm", tmp_path / "chart", "--config", config)
    assert result.exit_code == 0, result.stderr
    assert manifests.read([tmp_path / "chart/objects/configuration.yaml"])[0].object["mode"] == "observe"


@pytest.mark.parametrize("mode", ["enforce", "warn", "off", '"off"'])
def test_a_mode_in_the_configuration_is_installed_unchanged(tmp_path, mode):
    config = tmp_path / "c.yaml"
    config.write_text(f"{HEAD}mode: {mode}  # ours\n")
    result = run("manifests", "--only", "rest", "--image", "x", "--config", config)
    assert f"mode: {mode}  # ours" in result.stdout


def test_the_base_names_an_image_that_cannot_be_pulled():
    """A user has to name an image, because Kubernetes cannot pull the image of the base."""
    images = {o["spec"]["template"]["spec"]["containers"][0]["image"] for o in base_objects("Deployment")}
    assert {image.partition("/")[0] for image in images} == {"drawbridge.invalid"}


def test_reviews_are_accepted_from_a_given_api_server_address_only():
    (policy,) = [
        o
        for o in base("ns", "image", "", ("10.0.0.1/32",))
        if o["kind"] == "NetworkPolicy" and o["metadata"]["name"] == "drawbridge-webhook"
    ]
    assert policy["spec"]["ingress"][0] == {"ports": [{"port": 8443}], "from": [{"ipBlock": {"cidr": "10.0.0.1/32"}}]}


def test_the_network_policy_of_each_pod_opens_exactly_its_ports():
    by_component = {
        selector["app.kubernetes.io/component"]: o for o in base_objects("NetworkPolicy") for selector in selectors(o)
    }
    for deployment in base_objects("Deployment"):
        component = deployment["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]
        policy = by_component[component]["spec"]
        assert policy["policyTypes"] == ["Ingress", "Egress"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        opened = {port["port"] for rule in policy["ingress"] for port in rule["ports"]}
        assert opened == {port["containerPort"] for port in container["ports"]}


@pytest.mark.parametrize("deployment", base_objects("Deployment"), ids=lambda o: o["metadata"]["name"])
def test_deployments_run_with_least_privilege(deployment):
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


def test_the_example_configuration_is_valid_and_observes_only():
    from webhook.state.configuration import read_configuration

    (config_map,) = base_objects("ConfigMap")
    (document,) = manifests.parse(config_map["data"]["drawbridge.yaml"])
    configuration, findings = read_configuration(document.object)
    assert not findings
    assert configuration.file.mode == "observe"


def test_another_namespace_and_image_reach_every_object():
    made = list(base("elsewhere", "registry.example/drawbridge:1", ""))
    cluster_wide = {"Namespace", *CLUSTER_WIDE}
    assert {o["metadata"].get("namespace") for o in made if o["kind"] not in cluster_wide} == {"elsewhere"}
    subjects = [subject for o in made for subject in o.get("subjects", ())]
    assert {subject["namespace"] for subject in subjects} == {"elsewhere"}
    images = {o["spec"]["template"]["spec"]["containers"][0]["image"] for o in made if o["kind"] == "Deployment"}
    assert images == {"registry.example/drawbridge:1"}


def compare(type_, schema):
    """Fail unless a type and its part of a schema have the same fields and defaults, at every depth."""
    match type_:
        case inspect.StructType():
            fields = {field.encode_name: field for field in type_.fields}
            assert fields.keys() == schema["properties"].keys()
            for name, property_schema in schema["properties"].items():
                assert property_schema.get("default", fields[name].default) == fields[name].default
                compare(fields[name].type, property_schema)
        case inspect.VarTupleType():
            compare(type_.item_type, schema["items"])
        case inspect.UnionType():
            for member in type_.types:
                compare(member, schema)


@pytest.mark.parametrize("kind", [DeviceCompatibility, DeviceQuota])
def test_crd_schemas_have_the_fields_and_defaults_of_the_types(kind):
    [crd] = [obj for obj in base_objects("CustomResourceDefinition") if obj["spec"]["names"]["kind"] == kind.__name__]
    whole = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for field in inspect.type_info(kind).fields:
        if field.name in ("spec", "status"):
            compare(field.type, whole["properties"][field.name])


def test_the_termination_grace_period_covers_the_webhooks_drain():
    (deployment,) = base_objects("Deployment", "drawbridge-webhook")
    settings = WebhookSettings()
    drain = settings.notice * (1 + settings.linger) + settings.grace
    assert drain <= deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]


def test_base_images_are_build_arguments_and_hatchling_is_pinned():
    """A user can pin a base image only if it is a build argument."""
    root = BASE.parents[1]
    lines = (root / "Dockerfile").read_text().splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM")]
    assert bases == ["${BASE}", "${GO}", "scratch", "${RUNTIME}"], "an image on another base has no pin"
    (locked,) = re.findall(r"^(hatchling==\S+)", (root / "requirements.lock").read_text(), re.MULTILINE)
    assert f" {locked} " in " ".join(lines)
