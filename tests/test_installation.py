"""The manifests agree with the code and with each other: files, arguments, selectors, ports, security contexts and CRD schemas."""

import pytest
from click.testing import CliRunner
from msgspec import inspect

from analysis.installation import BASE, BRIDGE, CLUSTER_WIDE, render
from cli.commands.manifests import command
from cli.main import COMMANDS, command_of
from cluster import manifests
from dra.objects import DeviceCompatibility, DeviceQuota
from tests.cli.running import run
from tests.installed_objects import base_objects, objects_for
from webhook.names import MODE_LABEL
from webhook.service import WebhookSettings

KUSTOMIZATION_FOLDERS = {
    str(path.parent.relative_to(BASE.parent)): path.parent
    for path in sorted(BASE.parent.rglob("kustomization.yaml"))
    if "examples" not in path.parts
}


@pytest.mark.parametrize("name", KUSTOMIZATION_FOLDERS)
def test_a_kustomization_lists_every_file_of_its_folder(name):
    [kustomization] = (
        document.object for document in manifests.read([KUSTOMIZATION_FOLDERS[name] / "kustomization.yaml"])
    )
    listed_files = [
        *kustomization.get("resources", ()),
        *(patch.get("path", "") for patch in kustomization.get("patches", ())),
    ]
    files = {path.name for path in KUSTOMIZATION_FOLDERS[name].glob("*.yaml")} - {"kustomization.yaml"}
    assert sorted(file for file in listed_files if file.endswith(".yaml")) == sorted(files)


@pytest.mark.parametrize("name", KUSTOMIZATION_FOLDERS)
def test_the_arguments_of_containers_are_options_of_their_command(name):
    files = [path for path in KUSTOMIZATION_FOLDERS[name].glob("*.yaml") if path.name != "kustomization.yaml"]
    for document in manifests.read(files) if files else ():
        pod = document.object.get("spec", {}).get("template", {}).get("spec", {})
        for container in pod.get("containers", ()):
            command_name, *options = [word.partition("=")[0] for word in container.get("args") or ("",)]
            if command_name in COMMANDS and "drawbridge" in container.get("image", "drawbridge"):
                parameters = command_of(command_name).params
                known_options = {
                    option for parameter in parameters for option in (*parameter.opts, *parameter.secondary_opts)
                }
                assert set(options) <= known_options, document.line


def test_a_kustomization_refers_outside_its_folder_only_to_folders():
    """`kubectl apply -k` rejects files outside of the kustomization's folder."""
    for file in sorted(BASE.parent.rglob("kustomization.yaml")):
        for path in manifests.read([file])[0].object.get("resources", ()):
            referenced_path = file.parent / path
            assert referenced_path.exists(), f"{file}: {path}"
            assert not path.startswith("../") or referenced_path.is_dir(), f"{file}: {path}"


def selectors(obj):
    """Return the selectors of an object that match pods of an installation."""
    spec = obj["spec"]
    match obj["kind"]:
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
    objects_and_selectors = [(obj, selector) for kind in ("Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy") for obj in base_objects(kind) for selector in selectors(obj)]  # fmt: skip
    assert len(objects_and_selectors) == 11  # so that a selector in an unexpected field is noticed
    pod_labels = [obj["spec"]["template"]["metadata"]["labels"] for obj in base_objects("Deployment")]
    for obj, selector in objects_and_selectors:
        assert selector.keys() == {"app.kubernetes.io/name", "app.kubernetes.io/component"}, obj["metadata"]["name"]
        assert selector in pod_labels


def test_an_installation_without_an_image_is_refused(capsys):
    result = CliRunner().invoke(command, [])
    assert result.exit_code == 2
    assert "--image" in result.output


def test_in_mode_off_webhooks_select_only_namespaces_with_another_mode(tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text('apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\nmode: "off"\n')
    result = CliRunner().invoke(command, ["--only=webhooks", f"--config={config}"])
    mode_requirement = {"key": MODE_LABEL, "operator": "In", "values": ["observe", "warn", "enforce"]}
    for document in manifests.parse(result.stdout):
        for webhook in document.object["webhooks"]:
            assert mode_requirement in webhook["namespaceSelector"]["matchExpressions"]


CONFIGURATION_HEAD = "apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\n"


@pytest.mark.parametrize(
    "text",
    [
        CONFIGURATION_HEAD + "# ours\ncanary: 50  # percent\n",
        f"---\n{CONFIGURATION_HEAD}...\n",
        CONFIGURATION_HEAD.replace("\n", "\r\n"),
        CONFIGURATION_HEAD + "disabled:\n  - kai",
        '{"apiVersion": "drawbridge.dev/v1alpha1",\n "kind": "DrawbridgeConfiguration"\n}\n',
    ],
    ids=["comments", "document markers", "Windows line ends", "no newline at the end", "JSON"],
)
def test_a_configuration_without_a_mode_is_installed_in_mode_observe(tmp_path, text):
    config = tmp_path / "c.yaml"
    config.write_bytes(text.encode())
    given_object = manifests.parse(text)[0].object
    result = run("manifests", "--only", "rest", "--image", "x", "--config", config)
    assert result.exit_code == 0, result.stderr
    [installed] = [
        document.object["data"]["drawbridge.yaml"]
        for document in manifests.parse(result.stdout)
        if (document.object["kind"], document.object["metadata"]["name"]) == ("ConfigMap", "drawbridge")
    ]
    assert manifests.parse(installed)[0].object == given_object | {"mode": "observe"}
    assert "# ours" not in text or "# ours\ncanary: 50  # percent\n" in installed
    result = run("manifests", "--chart", tmp_path / "chart", "--config", config)
    assert result.exit_code == 0, result.stderr
    assert manifests.read([tmp_path / "chart/objects/configuration.yaml"])[0].object["mode"] == "observe"


@pytest.mark.parametrize("mode", ["enforce", "warn", "off", '"off"'])
def test_a_mode_in_the_configuration_is_installed_unchanged(tmp_path, mode):
    config = tmp_path / "c.yaml"
    config.write_text(f"{CONFIGURATION_HEAD}mode: {mode}  # ours\n")
    result = run("manifests", "--only", "rest", "--image", "x", "--config", config)
    assert f"mode: {mode}  # ours" in result.stdout


def test_the_base_names_an_image_that_cannot_be_pulled():
    """A user has to name an image, because Kubernetes cannot pull the image of the base."""
    images = {obj["spec"]["template"]["spec"]["containers"][0]["image"] for obj in base_objects("Deployment")}
    assert {image.partition("/")[0] for image in images} == {"drawbridge.invalid"}


def test_only_the_given_api_server_address_may_send_reviews():
    (policy,) = [
        obj
        for obj in objects_for(networkPolicy={"apiServers": ["10.0.0.1/32"]})
        if obj["kind"] == "NetworkPolicy" and obj["metadata"]["name"] == "drawbridge-webhook"
    ]
    assert policy["spec"]["ingress"][0] == {"ports": [{"port": 8443}], "from": [{"ipBlock": {"cidr": "10.0.0.1/32"}}]}


METRICS_READERS = [{"namespaceSelector": {"matchLabels": {"drawbridge.dev/metrics": "true"}}}]
# The usual ports of API servers, and DNS.
OUTSIDE = [*({"port": port} for port in (443, 6443, 8443, 16443)), *({"port": 53, "protocol": name} for name in ("UDP", "TCP"))]  # fmt: skip


def test_the_network_policy_of_each_pod_opens_exactly_its_ports():
    """Without `from`, every peer may connect."""
    by_component = {
        selector["app.kubernetes.io/component"]: obj
        for obj in base_objects("NetworkPolicy")
        for selector in selectors(obj)
    }
    for deployment in base_objects("Deployment"):
        component = deployment["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]
        policy = by_component[component]["spec"]
        assert policy["policyTypes"] == ["Ingress", "Egress"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        rules = [{"ports": [{"port": ports.pop("webhook")}]}] if component == "webhook" else []
        assert policy["ingress"] == [*rules, {"from": METRICS_READERS, "ports": [{"port": ports.pop("metrics")}]}]
        assert not ports
        assert policy["egress"] == [{"ports": OUTSIDE}]


DEPLOYMENTS = [*base_objects("Deployment"), *[obj for obj in render(BRIDGE, "n", "i", "s") if obj["kind"] == "Deployment"]]  # fmt: skip


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda obj: obj["metadata"]["name"])
def test_deployments_run_with_least_privilege(deployment):
    spec = deployment["spec"]["template"]["spec"]
    assert deployment["spec"]["replicas"] == 2
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["serviceAccountName"] == deployment["metadata"]["name"]
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["livenessProbe"]


def test_the_configuration_of_the_base_is_valid_and_only_observes():
    from webhook.state.configuration import read_configuration

    (config_map,) = base_objects("ConfigMap")
    (document,) = manifests.parse(config_map["data"]["drawbridge.yaml"])
    configuration, findings = read_configuration(document.object)
    assert not findings
    assert configuration.file.mode == "observe"


def test_a_chosen_namespace_and_image_reach_every_object():
    objects = objects_for("registry.example/drawbridge:1", namespace="elsewhere")
    cluster_wide = {"Namespace", *CLUSTER_WIDE}
    assert {obj["metadata"].get("namespace") for obj in objects if obj["kind"] not in cluster_wide} == {"elsewhere"}
    subjects = [subject for obj in objects for subject in obj.get("subjects", ())]
    assert {subject["namespace"] for subject in subjects} == {"elsewhere"}
    images = {
        obj["spec"]["template"]["spec"]["containers"][0]["image"] for obj in objects if obj["kind"] == "Deployment"
    }
    assert images == {"registry.example/drawbridge:1"}


def assert_same_fields(type_, schema):
    """Fail unless a type and its part of a schema have the same fields and defaults, at every depth."""
    match type_:
        case inspect.StructType():
            fields = {field.encode_name: field for field in type_.fields}
            assert fields.keys() == schema["properties"].keys()
            for name, property_schema in schema["properties"].items():
                assert property_schema.get("default", fields[name].default) == fields[name].default
                assert_same_fields(fields[name].type, property_schema)
        case inspect.VarTupleType():
            assert_same_fields(type_.item_type, schema["items"])
        case inspect.UnionType():
            for member in type_.types:
                assert_same_fields(member, schema)


@pytest.mark.parametrize("kind", [DeviceCompatibility, DeviceQuota])
def test_crd_schemas_have_the_fields_and_defaults_of_the_types(kind):
    [crd] = [obj for obj in base_objects("CustomResourceDefinition") if obj["spec"]["names"]["kind"] == kind.__name__]
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for field in inspect.type_info(kind).fields:
        if field.name in ("spec", "status"):
            assert_same_fields(field.type, schema["properties"][field.name])


def test_the_termination_grace_period_covers_the_webhooks_drain():
    (deployment,) = base_objects("Deployment", "drawbridge-webhook")
    settings = WebhookSettings()
    drain = settings.notice * (1 + settings.linger) + settings.grace
    assert drain <= deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]


def test_base_images_are_build_arguments():
    """A user can pin a base image only if it is a build argument."""
    lines = (BASE.parents[1] / "Dockerfile").read_text().splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM")]
    assert bases == ["${BASE}", "${GO}", "scratch", "${RUNTIME}"], "the base of an image is no build argument"
