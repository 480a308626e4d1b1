"""The manifests are what the code says: generated parts fresh, rights least, both ways to install the same."""

import datetime as dt
import re

import pytest
from click.testing import CliRunner
from msgspec import inspect

from allocator.service.node_reservations import AUDIENCE
from analysis.installation import BASE, CLUSTER_WIDE, base
from certs import authority
from certs.store import allocators_name, authority_name, signature_name
from cli.commands.manifests import command
from cli.commands.webhook import names_of
from cli.main import COMMANDS, command_of
from cluster import manifests
from cluster.embedded import Embedded
from cluster.kubernetes import Kubernetes
from dra.objects import DeviceCompatibility, DeviceQuota
from node.service import TOKEN
from tests.cli.running import run
from webhook.names import MODE_LABEL, RESERVATIONS
from webhook.service import Settings as WebhookSettings


def objects():
    return [
        d.object
        for d in manifests.read([path for path in sorted(BASE.glob("*.yaml")) if path.name != "kustomization.yaml"])
    ]


def of(kind, name=None):
    return [o for o in objects() if o["kind"] == kind and name in (None, o["metadata"]["name"])]


FOLDERS = {
    str(path.parent.relative_to(BASE.parent)): path.parent
    for path in sorted(BASE.parent.rglob("kustomization.yaml"))
    if "examples" not in path.parts
}


@pytest.mark.parametrize("name", FOLDERS)
def test_kustomize_lists_every_file(name):
    [kustomization] = (one.object for one in manifests.read([FOLDERS[name] / "kustomization.yaml"]))
    listed = [*kustomization.get("resources", ()), *(one.get("path", "") for one in kustomization.get("patches", ()))]
    files = {path.name for path in FOLDERS[name].glob("*.yaml")} - {"kustomization.yaml"}
    assert sorted(one for one in listed if one.endswith(".yaml")) == sorted(files)


@pytest.mark.parametrize("name", FOLDERS)
def test_arguments_are_options_of_the_command(name):
    files = [path for path in FOLDERS[name].glob("*.yaml") if path.name != "kustomization.yaml"]
    for one in manifests.read(files) if files else ():
        pod = one.object.get("spec", {}).get("template", {}).get("spec", {})
        for container in pod.get("containers", ()):
            called, *options = [word.partition("=")[0] for word in container.get("args") or ("",)]
            if called in COMMANDS and "drawbridge" in container.get("image", "drawbridge"):
                flags = command_of(called).params
                known = {option for flag in flags for option in (*flag.opts, *flag.secondary_opts)}
                assert set(options) <= known, one.line


def test_a_resource_outside_the_folder_of_a_kustomization_is_a_folder():
    """kustomize takes files from its own folder and below alone, and `kubectl apply -k` fails."""
    for place in sorted(BASE.parent.rglob("kustomization.yaml")):
        for one in manifests.read([place])[0].object.get("resources", ()):
            named = place.parent / one
            assert named.exists(), f"{place}: {one}"
            assert not one.startswith("../") or named.is_dir(), f"{place}: {one}"


def every_rule(*names):
    roles = [o for kind in ("ClusterRole", "Role") for o in of(kind)]
    return [rule for o in roles if o["metadata"]["name"] in names for rule in o["rules"]]


def rules(*names):
    """Those about objects."""
    return [rule for rule in every_rule(*names) if "nonResourceURLs" not in rule]


def test_the_webhook_may_only_look():
    assert {verb for rule in rules("drawbridge-webhook") for verb in rule["verbs"]} == {"get", "list", "watch"}


def selectors(o):
    """Return the selectors of an object that match pods of an installation."""
    spec = o["spec"]
    match o["kind"]:
        case "Deployment":
            spread = [one["labelSelector"] for one in spec["template"]["spec"]["topologySpreadConstraints"]]
            return [one["matchLabels"] for one in (spec["selector"], *spread)]
        case "Service":
            return [spec["selector"]]
        case "PodDisruptionBudget":
            return [spec["selector"]["matchLabels"]]
        case "NetworkPolicy":
            return [spec["podSelector"]["matchLabels"]]
    return []


def test_every_selector_has_our_name_and_component_and_matches_only_our_pods():
    found = [(o, selector) for kind in ("Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy") for o in of(kind) for selector in selectors(o)]  # fmt: skip
    assert len(found) == 11
    pods = [o["spec"]["template"]["metadata"]["labels"] for o in of("Deployment")]
    for o, one in found:
        assert one.keys() == {"app.kubernetes.io/name", "app.kubernetes.io/component"}, o["metadata"]["name"]
        assert one in pods


def test_without_an_image_nothing_is_installed(capsys):
    done = CliRunner().invoke(command, [])
    assert done.exit_code == 2
    assert "--image" in done.output


def test_a_configuration_that_is_off_spares_all_namespaces_that_say_nothing_else(tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text('apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\nmode: "off"\n')
    done = CliRunner().invoke(command, ["--only=webhooks", f"--config={config}"])
    chosen = {"key": MODE_LABEL, "operator": "In", "values": ["observe", "warn", "enforce"]}
    for made in manifests.parse(done.stdout):
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
def test_an_installation_begins_in_observe_if_its_configuration_names_no_mode(tmp_path, text):
    config = tmp_path / "c.yaml"
    config.write_bytes(text.encode())
    before = manifests.parse(text)[0].object
    done = run("manifests", "--only", "rest", "--image", "x", "--config", config)
    assert done.exit_code == 0, done.stderr
    [installed] = [
        one.object["data"]["drawbridge.yaml"]
        for one in manifests.parse(done.stdout)
        if (one.object["kind"], one.object["metadata"]["name"]) == ("ConfigMap", "drawbridge")
    ]
    assert manifests.parse(installed)[0].object == before | {"mode": "observe"}
    assert "# ours" not in text or "# ours\ncanary: 50  # percent\n" in installed
    done = run("manifests", "--helm", tmp_path / "chart", "--config", config)
    assert done.exit_code == 0, done.stderr
    assert manifests.read([tmp_path / "chart/objects/configuration.yaml"])[0].object["mode"] == "observe"


@pytest.mark.parametrize("mode", ["enforce", "warn", "off", '"off"'])
def test_a_mode_that_the_configuration_names_is_installed_as_it_is_written(tmp_path, mode):
    config = tmp_path / "c.yaml"
    config.write_text(f"{HEAD}mode: {mode}  # ours\n")
    done = run("manifests", "--only", "rest", "--image", "x", "--config", config)
    assert f"mode: {mode}  # ours" in done.stdout


def test_the_image_in_the_base_can_be_pulled_from_nowhere():
    """Without a name no other image may run."""
    images = {o["spec"]["template"]["spec"]["containers"][0]["image"] for o in of("Deployment")}
    assert {image.partition("/")[0] for image in images} == {"drawbridge.invalid"}


def test_a_given_api_server_address_is_the_only_allowed_source_of_reviews():
    (policy,) = [
        o
        for o in base("ns", "image", "", ("10.0.0.1/32",))
        if o["kind"] == "NetworkPolicy" and o["metadata"]["name"] == "drawbridge-webhook"
    ]
    assert policy["spec"]["ingress"][0] == {"ports": [{"port": 8443}], "from": [{"ipBlock": {"cidr": "10.0.0.1/32"}}]}


def test_every_pod_of_ours_has_a_network_policy_that_opens_its_ports_and_no_others():
    by_component = {
        selector["app.kubernetes.io/component"]: o for o in of("NetworkPolicy") for selector in selectors(o)
    }
    for deployment in of("Deployment"):
        component = deployment["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]
        policy = by_component[component]["spec"]
        assert policy["policyTypes"] == ["Ingress", "Egress"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        opened = {port["port"] for rule in policy["ingress"] for port in rule["ports"]}
        assert opened == {port["containerPort"] for port in container["ports"]}


def test_no_account_has_wildcard_permissions():
    for rule in rules(*ACCOUNTS):
        assert "*" not in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]]


def test_beside_objects_the_metrics_are_read_by_accounts_that_need_the_feature_gates():
    beside = {name: [one for one in every_rule(name) if "nonResourceURLs" in one] for name in ACCOUNTS}
    metrics = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    assert beside == {"drawbridge-webhook": metrics, "drawbridge-controller": metrics, "drawbridge-authority": []}


SERVING, AUTHORITYS, SIGNING = "drawbridge", authority_name("drawbridge"), signature_name("drawbridge")
DOOR = allocators_name("drawbridge")
READS = {
    "drawbridge-webhook": [SERVING, SIGNING],
    "drawbridge-controller": [SIGNING],
    "drawbridge-authority": [SERVING, AUTHORITYS, SIGNING, DOOR],
}
ACCOUNTS = [*READS]


def test_each_account_reads_the_keys_it_works_with_and_one_alone_writes_them():
    for role, names in READS.items():
        of_secrets = [rule for rule in rules(role) if "secrets" in rule["resources"]]
        assert [rule["resourceNames"] for rule in of_secrets if rule["verbs"] != ["create"]] == [names]
        writes = {verb for rule in of_secrets for verb in rule["verbs"]} - {"get", "list", "watch"}
        assert writes == ({"create", "patch"} if role == "drawbridge-authority" else set())


def test_a_policy_for_a_mixed_fleet_takes_one_more_right_and_only_for_the_webhook():
    """It may look at pods, and no more; `e2e/webhook/test_mixed.py` shows that this is enough."""
    role, binding = (one.object for one in manifests.read([BASE.parent / "mixed" / "role.yaml"]))
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    [served] = of("ClusterRoleBinding", "drawbridge-webhook")
    assert binding["subjects"] == served["subjects"]


def test_the_authority_reaches_no_pods_and_the_controller_no_webhook_configurations():
    reached = {role: {one for rule in rules(role) for one in rule["resources"]} for role in ACCOUNTS}
    registrations = {"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}
    assert reached["drawbridge-authority"] == {"secrets", *registrations}
    assert not reached["drawbridge-controller"] & registrations
    bound = {
        subject["name"]: binding["roleRef"]["name"]
        for binding in of("ClusterRoleBinding")
        for subject in binding["subjects"]
        if subject["name"] == "drawbridge-authority"
    }
    assert bound == {"drawbridge-authority": "drawbridge-authority"}, "the others' role to look around is not its own"


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


def test_the_example_configuration_is_a_good_one_and_changes_nothing_yet():
    from webhook.state.configuration import read

    (config_map,) = of("ConfigMap")
    (document,) = manifests.parse(config_map["data"]["drawbridge.yaml"])
    configuration, findings = read(document.object)
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


def compare(held, admitted):
    """Compare a type with its part of a schema, and what it holds with the parts below: the same fields and defaults."""
    match held:
        case inspect.StructType():
            fields = {field.encode_name: field for field in held.fields}
            assert fields.keys() == admitted["properties"].keys()
            for name, schema in admitted["properties"].items():
                assert schema.get("default", fields[name].default) == fields[name].default
                compare(fields[name].type, schema)
        case inspect.VarTupleType():
            compare(held.item_type, admitted["items"])
        case inspect.UnionType():
            for type_ in held.types:
                compare(type_, admitted)


@pytest.mark.parametrize("kind", [DeviceCompatibility, DeviceQuota])
def test_the_crds_admit_what_the_types_hold(kind):
    [crd] = [one for one in of("CustomResourceDefinition") if one["spec"]["names"]["kind"] == kind.__name__]
    whole = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for field in inspect.type_info(kind).fields:
        if field.name in ("spec", "status"):
            compare(field.type, whole["properties"][field.name])


def test_a_webhook_that_drains_is_given_the_time_for_it():
    (deployment,) = of("Deployment", "drawbridge-webhook")
    settings = WebhookSettings()
    drain = settings.notice * (1 + settings.linger) + settings.grace
    assert drain <= deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]


def test_the_images_are_built_on_bases_that_can_be_pinned_with_the_builder_of_the_lock():
    root = BASE.parents[1]
    lines = (root / "Dockerfile").read_text().splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM")]
    assert bases == ["${BASE}", "${GO}", "scratch", "${RUNTIME}"], "an image on another base has no pin"
    (locked,) = re.findall(r"^(hatchling==\S+)", (root / "requirements.lock").read_text(), re.MULTILINE)
    assert f" {locked} " in " ".join(lines)


@pytest.mark.parametrize("way", [(), ("--apart",), ("--plugin",)])
def test_quotas_at_the_door_are_a_port_of_the_allocator_a_service_and_a_configuration(way):
    images = ["--image=registry.example/drawbridge:1", "--scheduler-image=registry.example/scheduler:1"]
    asked = ["--bridge", *way, "--quota", "--namespace=elsewhere", "--api-server=10.0.0.1"]
    said = CliRunner().invoke(command, [*images, *asked])
    assert said.exit_code == 0, said.output
    made = {(one.object["kind"], one.object["metadata"]["name"]): one.object for one in manifests.parse(said.stdout)}
    pod = made["Deployment", "drawbridge-allocator"]["spec"]["template"]["spec"]
    allocator = pod["containers"][0]
    assert {"--quota=0.0.0.0:9443", "--quota-certs=/etc/quota"} <= set(allocator["args"])
    assert {"name": "quota", "containerPort": 9443} in allocator["ports"]
    assert {"name": "quota", "secret": {"secretName": DOOR}} in pod["volumes"]
    mounted = {volume.get("secret", {}).get("secretName") for volume in pod["volumes"]}
    assert not mounted & {SERVING, AUTHORITYS, SIGNING}, "no key of the webhook's"
    service = made["Service", "drawbridge-quota"]
    assert service["metadata"]["namespace"] == "elsewhere"
    registered = made["ValidatingWebhookConfiguration", "drawbridge-quota"]
    called = {one["clientConfig"]["service"]["name"] for one in registered["webhooks"]}
    spaces = {one["clientConfig"]["service"]["namespace"] for one in registered["webhooks"]}
    assert (called, spaces) == ({"drawbridge-quota"}, {"elsewhere"})
    ingress = made["NetworkPolicy", "drawbridge-quota"]["spec"]["ingress"]
    assert ingress[0]["from"] == [{"ipBlock": {"cidr": "10.0.0.1/32"}}]


@pytest.mark.parametrize("kept", ["--cert-manager=elsewhere/drawbridge-tls", "--ca-bundle={}"])
def test_where_others_keep_the_certificates_the_door_shows_theirs(kept, tmp_path):
    bundle = tmp_path / "ca.crt"
    bundle.write_bytes(authority.authority("x", now=dt.datetime.now(dt.UTC), life=dt.timedelta(days=1)).certificate)
    images = ["--image=registry.example/drawbridge:1", "--scheduler-image=registry.example/scheduler:1"]
    said = CliRunner().invoke(command, [*images, "--bridge", "--quota", kept.format(bundle)])
    assert said.exit_code == 0, said.output
    deployments = {
        one.object["metadata"]["name"]: one.object
        for one in manifests.parse(said.stdout)
        if one.object["kind"] == "Deployment"
    }
    pod = deployments["drawbridge-allocator"]["spec"]["template"]["spec"]
    assert {"name": "quota", "secret": {"secretName": "drawbridge-quota-tls"}} in pod["volumes"]


def test_quotas_at_the_door_are_off_unless_they_are_asked_for_and_need_the_bridge():
    images = ["--image=registry.example/drawbridge:1", "--scheduler-image=registry.example/scheduler:1"]
    assert "drawbridge-quota" not in "".join(CliRunner().invoke(command, [*images, "--bridge"]).output.split("resourceNames")[0:1])  # fmt: skip
    said = CliRunner().invoke(command, [*images, "--quota"])
    assert said.exit_code == 2


@pytest.mark.parametrize("way", [(), ("--apart",), ("--plugin",)])
def test_agents_that_see_reservations_are_let_in_and_shown_a_token_and_a_name_that_is_in_the_certificate(way):
    images = ["--image=registry.example/drawbridge:1", "--scheduler-image=registry.example/scheduler:1"]
    asked = ["--bridge", *way, "--node-agent", "--reservations", "--namespace=elsewhere"]
    said = CliRunner().invoke(command, [*images, *asked])
    assert said.exit_code == 0, said.output
    assert "drawbridge-system" not in said.output
    made = {(one.object["kind"], one.object["metadata"]["name"]): one.object for one in manifests.parse(said.stdout)}
    pod = made["Deployment", "drawbridge-allocator"]["spec"]["template"]["spec"]
    assert {"--reservations=0.0.0.0:9444", "--reservations-certs=/etc/reservations"} <= set(
        pod["containers"][0]["args"]
    )
    assert {"name": "reservations", "secret": {"secretName": DOOR}} in pod["volumes"]
    agent = made["DaemonSet", "drawbridge-node-agent"]["spec"]["template"]["spec"]
    host = f"{RESERVATIONS}.elsewhere.svc"
    assert f"--allocator=https://{host}:9444" in agent["containers"][0]["args"]
    assert host in names_of(RESERVATIONS, "elsewhere")
    [token] = [one["projected"]["sources"][0]["serviceAccountToken"] for one in agent["volumes"] if "projected" in one]
    [mount] = [one for one in agent["containers"][0]["volumeMounts"] if one["name"] == "reservations"]
    assert (token["audience"], f"{mount['mountPath']}/{token['path']}") == (AUDIENCE, TOKEN)
    service = made["Service", RESERVATIONS]
    assert (service["metadata"]["namespace"], service["spec"]["clusterIP"]) == ("elsewhere", "None")
    first, _ = made["NetworkPolicy", RESERVATIONS]["spec"]["ingress"]
    [who] = first["from"]
    assert who["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "elsewhere-nodes"}
    assert set(who["podSelector"]["matchLabels"].items()) <= set(made["DaemonSet", "drawbridge-node-agent"]["spec"]["template"]["metadata"]["labels"].items())  # fmt: skip


def test_the_certificate_of_the_allocators_doors_names_both_of_its_services(monkeypatch):
    started = []

    class Started:
        def __init__(self, *given):
            started.append(given[2])

        async def run(self, *_):
            pass

    monkeypatch.setattr("webhook.service.Service", Started)
    monkeypatch.setattr(Kubernetes, "connect", lambda **_: Embedded())
    assert run("webhook", "--namespace", "elsewhere").exit_code == 0
    [settings] = started
    assert {"drawbridge-quota.elsewhere.svc", f"{RESERVATIONS}.elsewhere.svc"} <= set(settings.allocator_names)


def test_node_reservations_are_between_an_allocator_and_agents_and_shown_by_the_keeper_of_the_certificates():
    images = ["--image=registry.example/drawbridge:1", "--scheduler-image=registry.example/scheduler:1"]
    for missing in (["--bridge"], ["--node-agent"]):
        assert CliRunner().invoke(command, [*images, *missing, "--reservations"]).exit_code == 2
    theirs = CliRunner().invoke(command, [*images, "--bridge", "--node-agent", "--reservations", "--cert-manager=a/b"])
    [deployment] = [
        one.object
        for one in manifests.parse(theirs.stdout)
        if (one.object["kind"], one.object["metadata"]["name"]) == ("Deployment", "drawbridge-allocator")
    ]
    assert {"name": "reservations", "secret": {"secretName": "drawbridge-quota-tls"}} in deployment["spec"]["template"]["spec"]["volumes"]  # fmt: skip


def test_the_policy_covers_every_webhook_configuration_the_authority_may_patch():
    [policy] = of("ValidatingAdmissionPolicy", "drawbridge-registration")
    [held] = policy["spec"]["matchConstraints"]["resourceRules"]
    [may] = [rule for rule in rules("drawbridge-authority") if "validatingwebhookconfigurations" in rule["resources"]]
    assert sorted(held["resourceNames"]) == sorted(may["resourceNames"]) == ["drawbridge", "drawbridge-quota"]


def test_policies_limit_created_secrets_and_leases_to_the_patchable_names():
    """A right to create cannot name anything; the right to patch beside it does, and the code and the policy say the same names."""
    named = {
        rule["resources"][0]: rule["resourceNames"]
        for role in ("drawbridge-authority", "drawbridge-controller")
        for rule in of("Role", role)[0]["rules"]
        if "patch" in rule["verbs"]
    }
    ours = ["drawbridge", authority_name("drawbridge"), signature_name("drawbridge"), allocators_name("drawbridge")]
    assert sorted(named["secrets"]) == sorted(ours)
    [secrets] = of("ValidatingAdmissionPolicy", "drawbridge-secrets")
    first, *_ = secrets["spec"]["validations"]
    assert sorted(re.findall(r"'(drawbridge[-a-z]*)'", first["expression"])) == sorted(ours)
    [leases] = of("ValidatingAdmissionPolicy", "drawbridge-leases")
    [only] = leases["spec"]["validations"]
    assert only["expression"].endswith(f" == '{named['leases'][0]}'")
    for policy in (secrets, leases):
        name = policy["metadata"]["name"]
        assert policy["spec"]["failurePolicy"] == "Fail"
        [binding] = of("ValidatingAdmissionPolicyBinding", name)
        assert binding["spec"] == {"policyName": name, "validationActions": ["Deny"]}
