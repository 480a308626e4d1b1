"""The chart: with helm its objects are those of `drawbridge manifests`, and a release comes, changes and goes as the page says."""

import json
import re
import subprocess

import jsonpatch
import pytest
import yaml

from cluster import manifests
from e2e.actors.webhook import CONFIGURATION, ROOT, SYSTEM, Webhook
from e2e.build import program
from e2e.ground.controlplane import ControlPlane
from tests.cli.running import run

pytestmark = pytest.mark.real
IMAGE, SCHEDULER = "registry.example/drawbridge:1", "registry.example/kube-scheduler:v1.37.1"
IMAGES = ("--set", f"image={IMAGE}", "--set", f"bridge.schedulerImage={SCHEDULER}")
OURS = "drawbridge"


def drawbridge(*arguments):
    """What the command prints, in this process: a hundred starts of it would take longer than all that is compared here."""
    done = run(*arguments)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def helm(*arguments, check=True):
    command = [program("helm"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=check, timeout=120)


@pytest.fixture(scope="module")
def chart(tmp_path_factory):
    folder = tmp_path_factory.mktemp("helm") / "chart"
    drawbridge("manifests", "--helm", str(folder))
    return str(folder)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """A certificate in a file, for an administrator with one of their own."""
    folder = tmp_path_factory.mktemp("authority")
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=a -keyout ca.key -out ca.crt"
    subprocess.run(make.split(), cwd=folder, check=True, capture_output=True, timeout=60)
    return str(folder / "ca.crt")


def by_name(text):
    listed = [document.object for document in manifests.parse(text)]
    found = {(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]): one for one in listed}
    assert len(found) == len(listed)
    return found


def rendered(chart, *values, namespace="default"):
    done = helm("template", OURS, chart, "--namespace", namespace, *IMAGES, *values)
    return by_name(done.stdout)


def printed(*options):
    return by_name(drawbridge("manifests", "--image", IMAGE, *options))


def refusal(chart, *values):
    done = helm("template", OURS, chart, *values, check=False)
    assert done.returncode != 0
    return done.stderr


def test_with_default_values_a_release_is_what_the_command_prints(chart):
    """But for the namespace that it is in: the user of helm has made that."""
    made = printed()
    assert len(made) > 30
    assert rendered(chart, "--set", f"namespace={SYSTEM}") == made
    del made["Namespace", None, SYSTEM]
    assert rendered(chart, namespace=SYSTEM) == made


def in_any_order(value):
    """Lists of what has names, sorted: kustomize puts what a patch adds before the rest."""
    if isinstance(value, dict):
        return {key: in_any_order(one) for key, one in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict) and "name" in value[0]:
        return sorted(map(in_any_order, value), key=lambda one: one["name"])
    return value


def test_the_command_has_what_stands_beside_as_kustomize_has_it(tmp_path):
    up = "../" * (len(tmp_path.resolve().parts) - 1)
    components = [
        f"{up}{str(ROOT)[1:]}/manifests/{one}"
        for one in ("bridge", "bridge/plugin", "read-only", "node-agent", "bridge/reservations", "driver", "adapter")
    ]
    images = {"drawbridge.invalid/name-an-image": IMAGE, "drawbridge-scheduler.invalid/name-an-image": SCHEDULER}
    named = [{"name": name, "newName": image.rpartition(":")[0], "newTag": image.rpartition(":")[2]} for name, image in images.items()]  # fmt: skip
    whole = {"resources": [f"{up}{str(ROOT)[1:]}/manifests/base"], "components": components, "images": named}
    (tmp_path / "kustomization.yaml").write_text(json.dumps(whole))
    kustomize = [program("kubectl"), "kustomize", tmp_path]
    built = by_name(subprocess.run(kustomize, capture_output=True, text=True, check=True, timeout=60).stdout)
    specs = {(kind, name): in_any_order({**one, "metadata": None}) for (kind, _, name), one in built.items()}
    ours = printed(
        *WITH_SCHEDULER, "--plugin", "--read-only", "--node-agent", "--reservations", "--driver", "--adapter"
    )
    assert {(kind, name): in_any_order({**one, "metadata": None}) for (kind, _, name), one in ours.items()} == specs


WITH_SCHEDULER = ("--bridge", "--scheduler-image", SCHEDULER)
SAME = [
    (["webhooks.failurePolicy=Fail"], ["--failure-policy", "Fail"]),
    (["webhooks.optIn=true"], ["--opt-in"]),
    (["webhooks.devices=true"], ["--devices"]),
    (["webhooks.devices=true", "webhooks.optIn=true"], ["--devices", "--opt-in"]),
    (["webhooks.url=https://10.0.0.7:8443/path/"], ["--url", "https://10.0.0.7:8443/path/"]),
    (["networkPolicy.apiServers={10.0.0.1/32,fd00::/8}"], ["--api-server", "10.0.0.1", "--api-server", "fd00::/8"]),
    (["bridge.way=extender"], WITH_SCHEDULER),
    (["bridge.way=apart"], [*WITH_SCHEDULER, "--apart"]),
    (["bridge.way=plugin"], [*WITH_SCHEDULER, "--plugin"]),
    *[
        ([f"bridge.way={way}", "bridge.quota=true"], [*WITH_SCHEDULER, *option, "--quota"])
        for way, option in (("extender", ()), ("apart", ("--apart",)), ("plugin", ("--plugin",)))
    ],
    *[
        (
            [
                f"bridge.way={way}",
                "bridge.reservations=true",
                "nodeAgent=true",
                f"bridge.quota={str(bool(quota)).lower()}",
            ],
            [*WITH_SCHEDULER, *option, *quota, "--node-agent", "--reservations"],
        )
        for way, option, quota in (("extender", (), ()), ("plugin", ("--plugin",), ("--quota",)))
    ],
    (["readOnly=true"], ["--read-only"]),
    (["level=webhook"], []),
    (["level=readOnly"], ["--read-only"]),
    (["level=bridge", "guards=true"], [*WITH_SCHEDULER, "--guards"]),
    (["level=node", "bridge.way=plugin"], ["--level", "node", "--plugin", "--scheduler-image", SCHEDULER]),
    (["nodeAgent=true"], ["--node-agent"]),
    (["driver=true"], ["--driver"]),
    (["adapter=true"], ["--adapter"]),
    (["guards=true"], ["--guards"]),
    (["protectedClaims=true"], ["--protected-claims"]),
]


@pytest.mark.parametrize(("values", "options"), SAME, ids=[",".join(one) for one, _ in SAME])
@pytest.mark.parametrize("namespace", ["123", "kube-system"])
def test_a_value_does_what_the_option_does(chart, values, options, namespace):
    said = [part for one in (*values, f"namespace={namespace}") for part in ("--set-string" if one.startswith("namespace=") else "--set", one)]  # fmt: skip
    assert rendered(chart, *said) == printed(*options, "--namespace", namespace)


def test_a_certificate_of_ones_own_or_of_cert_managers_is_served_and_believed(chart, authority):
    page = (ROOT / "docs/install.md").read_text()
    [patch] = re.findall(r"# kustomization-tls.yaml\n(.*?)```", page, re.DOTALL)
    [document] = manifests.parse(patch)
    steps = yaml.safe_load(document.object["patches"][0]["patch"])
    webhook = "Deployment", SYSTEM, "drawbridge-webhook"
    files = ["--set-file", f"certificates.caBundle={authority}", "--set", "certificates.from=files"]
    injected = ["--set", "certificates.from=cert-manager"]
    for values, options in (
        (files, ["--ca-bundle", authority]),
        (injected, ["--cert-manager", f"{SYSTEM}/drawbridge-tls"]),
    ):
        for bridge, also in (
            ((), ()),
            (("--set", "bridge.way=extender,bridge.quota=true"), (*WITH_SCHEDULER, "--quota")),
            (
                ("--set", "bridge.way=plugin,bridge.reservations=true,nodeAgent=true"),
                (*WITH_SCHEDULER, "--plugin", "--node-agent", "--reservations"),
            ),
        ):
            made = printed(*options, *also)
            made[webhook] = jsonpatch.apply_patch(made[webhook], steps)
            assert rendered(chart, "--set", f"namespace={SYSTEM}", *values, *bridge) == made


def test_a_chart_for_a_configuration_has_it_and_asks_by_its_tables(tmp_path):
    config = tmp_path / "drawbridge.yaml"
    table = "dialects:\n- name: ours\n  title: Ours\n  target: gpu\n  keys:\n  - {name: gpu.example.com/x, meaning: all, role: count}\n"
    fence = "bridge: {schedulerName: drawbridge, drivers: [gpu.nvidia.com, b.example.com], fence: true}\n"
    config.write_text(f"{CONFIGURATION}# {{{{ not a template }}}} ---\n{table}{fence}")
    drawbridge("manifests", "--config", str(config), "--helm", str(tmp_path / "chart"))
    values = ["--set", f"namespace={SYSTEM}"]
    assert rendered(str(tmp_path / "chart"), *values) == printed("--config", str(config))
    bridge = rendered(str(tmp_path / "chart"), *values, "--set", "bridge.way=extender")
    assert bridge == printed("--config", str(config), *WITH_SCHEDULER)
    assert ("DeviceTaintRule", None, "drawbridge-fence-b.example.com") in bridge


def test_keys_of_a_configuration_go_over_those_the_chart_was_made_with(chart, tmp_path):
    config = tmp_path / "drawbridge.yaml"
    config.write_text(
        'apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\nmode: "off"\ndisabled: [kai]\n'
    )
    values = ["--set", "configuration.mode=off,configuration.disabled={kai}", "--set", "configuration.canary=10"]
    made, wanted = rendered(chart, *values, "--set", f"namespace={SYSTEM}"), printed("--config", str(config))
    file = "ConfigMap", SYSTEM, OURS
    [document] = manifests.parse(made.pop(file)["data"]["drawbridge.yaml"])
    kept = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", "approximations": "warn"}
    assert document.object == kept | {"mode": "off", "disabled": ["kai"], "canary": 10}
    selectors = [
        [webhook["namespaceSelector"] for webhook in some[kind, None, OURS]["webhooks"]]
        for some in (made, wanted)
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    ]
    assert selectors[:2] == selectors[2:]


def test_a_disabled_chart_value_omits_its_own_objects_only(chart):
    def without(value):
        return {(kind, name) for kind, _, name in everything.keys() - rendered(chart, "--set", value).keys()}

    everything = rendered(chart)
    assert without("quota=false") == {("CustomResourceDefinition", "devicequotas.drawbridge.dev")}
    assert {kind for kind, _ in without("policies=false")} == {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}  # fmt: skip
    assert without("networkPolicy.enabled=false") == {(k, n) for k, _, n in everything if k == "NetworkPolicy"}


def test_pods_have_what_the_values_say_of_them_and_others_keep_theirs(chart, tmp_path):
    values = {
        "bridge": {"way": "plugin"},
        "replicas": {"webhook": 5, "authority": 0},
        "resources": {"allocator": {"limits": {"memory": "4Gi"}}},
        "args": {"allocator": ["--extender-preemption=off"]},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "nodeSelector": {"pool": "system"},
        "priorityClassName": "important",
        "monitor": {"enabled": True, "labels": {"release": "prometheus"}},
    }
    (tmp_path / "values.yaml").write_text(json.dumps(values))
    made, plain = rendered(chart, "-f", str(tmp_path / "values.yaml")), rendered(chart, "--set", "bridge.way=plugin")
    deployments = {name: one["spec"] for (kind, _, name), one in made.items() if kind == "Deployment"}
    kept = {name: one["spec"] for (kind, _, name), one in plain.items() if kind == "Deployment"}
    for spec in deployments.values():
        pod = spec["template"]["spec"]
        assert {key: pod[key] for key in ("tolerations", "nodeSelector", "priorityClassName")} == {key: values[key] for key in ("tolerations", "nodeSelector", "priorityClassName")}  # fmt: skip
    replicas = {name: spec["replicas"] for name, spec in deployments.items()}
    assert replicas == {name: spec["replicas"] for name, spec in kept.items()} | {"drawbridge-webhook": 5, "drawbridge-authority": 0}  # fmt: skip
    allocator, scheduler = deployments["drawbridge-allocator"]["template"]["spec"]["containers"]
    before, beside = kept["drawbridge-allocator"]["template"]["spec"]["containers"]
    assert allocator == before | {"args": [*before["args"], "--extender-preemption=off"], "resources": {"limits": {"memory": "4Gi"}}}  # fmt: skip
    assert scheduler == beside
    monitor = made["PodMonitor", "default", OURS]
    assert monitor["metadata"]["labels"] == {"app.kubernetes.io/name": OURS, "release": "prometheus"}
    ports = {port["name"] for spec in deployments.values() for one in spec["template"]["spec"]["containers"] for port in one.get("ports", ())}  # fmt: skip
    [scraped] = monitor["spec"]["podMetricsEndpoints"]
    assert scraped["port"] in ports
    assert scraped["honorLabels"], "a metric about a tenant's pods keeps their namespace"


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("imge=x", "imge"),
        ("bridge.wya=plugin", "wya"),
        ("bridge.way=both", "/bridge/way"),
        ("replicas.webhok=2", "webhok"),
        ("replicas.webhook=-1", "/replicas/webhook"),
        ("configuration.mod=warn", "mod"),
        ("configuration.mode=wran", "/configuration/mode"),
        ("configuration.bridge.schedulerNmae=x", "schedulerNmae"),
        ("certificates.from=mine", "/certificates/from"),
        ("image=Bad Image", "/image"),
        ("namespace=Not_Valid", "/namespace"),
        ("webhooks.url=http://x", "/webhooks/url"),
        ("networkPolicy.apiServers={all}", "/networkPolicy/apiServers/0"),
        ("resources.webhook.limit.memory=1Gi", "limit"),
        ("bridge.way=plugin,bridge.schedulerImage=", "bridge.schedulerImage: bridge.way is plugin"),
        ("image=", "image: none is given"),
        ("bridge=null", "missing property 'bridge'"),
        ("webhooks.url=null", "missing property 'url'"),
        ("certificates.from=files", "--set-file certificates.caBundle=ca.crt"),
        ("configuration.dialects[0].name=x,configuration.dialects[0].title=t,configuration.dialects[0].target=gpu,configuration.dialects[0].keys[0].name=a.b/c,configuration.dialects[0].keys[0].meaning=d", "drawbridge manifests --helm DIR --config FILE"),
        ("configuration.keys.kai.a=b", "drawbridge manifests --helm DIR --config FILE"),
    ],
)  # fmt: skip
def test_a_value_that_is_misspelt_or_impossible_is_refused_by_its_name(chart, value, named):
    assert named in refusal(chart, *IMAGES, "--set", value)


def test_helm_finds_nothing_wrong_with_the_chart(chart):
    assert "0 chart(s) failed" in helm("lint", chart, "--strict", *IMAGES).stdout


@pytest.fixture(scope="module")
def cluster():
    with ControlPlane(name="chart") as running:
        yield running


def release(cluster, *arguments, check=True):
    return helm(*arguments, "--kubeconfig", str(cluster.kubeconfig), "--namespace", SYSTEM, check=check)


def stored(cluster, *kinds):
    listed = json.loads(cluster.kubectl("get", ",".join(kinds), "-A", "-o", "json").stdout)["items"]
    return {(one["kind"], one["metadata"]["name"]): one for one in listed if one["metadata"]["name"].startswith(OURS) or ".drawbridge.dev" in one["metadata"]["name"]}  # fmt: skip


EVERYWHERE = [
    "namespaces",
    "deployments",
    "services",
    "configmaps",
    "secrets",
    "serviceaccounts",
    "leases",
    "poddisruptionbudgets",
    "networkpolicies",
    "roles",
    "rolebindings",
    "clusterroles",
    "clusterrolebindings",
    "crds",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "devicetaintrules",
]
# What Kubernetes' own controllers write into what is there, each when it comes to it.
THEIRS = ("resourceVersion", "managedFields")
REVISION = "deployment.kubernetes.io/revision"


def applied(objects):
    """Objects as those who apply them leave them."""
    left = {}
    for name, one in objects.items():
        metadata = {key: value for key, value in one["metadata"].items() if key not in THEIRS}
        metadata["annotations"] = {
            key: value for key, value in metadata.get("annotations", {}).items() if key != REVISION
        }
        left[name] = {key: value for key, value in one.items() if key != "status"} | {"metadata": metadata}
    return left


REGISTRATIONS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


def bundles(cluster):
    """What each webhook has of its authority, and whether it is called."""
    return {
        webhook["name"]: (webhook["clientConfig"].get("caBundle"), bool(webhook.get("rules")))
        for one in stored(cluster, *REGISTRATIONS).values()
        for webhook in one["webhooks"]
    }


def kept_keys(cluster):
    """What our Secrets hold, by their names."""
    return {name: one["data"] for (_, name), one in stored(cluster, "secrets").items()}


def test_a_release_is_installed_upgraded_and_uninstalled_and_leaves_only_what_it_says(cluster, chart):
    values = [*IMAGES, "--set", "bridge.way=extender"]
    said = release(cluster, "install", OURS, chart, "--create-namespace", *values).stdout
    assert f"kubectl -n {SYSTEM} rollout status deploy/drawbridge-webhook" in said
    assert "kubectl label namespace NAMESPACE drawbridge.dev/mode=warn" in said
    made = stored(cluster, *EVERYWHERE)
    wanted = {(kind, name) for kind, _, name in printed(*WITH_SCHEDULER)}
    assert wanted <= made.keys()

    webhook = Webhook(cluster)
    webhook.configure(CONFIGURATION)
    webhook.start_authority()
    cluster.until(
        "every webhook is called", lambda: all(bundle and rules for bundle, rules in bundles(cluster).values()), 60
    )
    before, keys = bundles(cluster), kept_keys(cluster)
    assert len(keys) == 4
    quota = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DeviceQuota", "metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": {"gpu/devices": 1}}}  # fmt: skip
    cluster.create(quota)

    changed = ["--set", "configuration.mode=warn,replicas.webhook=3,webhooks.failurePolicy=Fail"]
    release(cluster, "upgrade", OURS, chart, *values, *changed)
    after = stored(cluster, "deployments", "configmaps", *REGISTRATIONS)
    assert after["Deployment", "drawbridge-webhook"]["spec"]["replicas"] == 3
    assert "mode: warn" in after["ConfigMap", OURS]["data"]["drawbridge.yaml"]
    assert after["MutatingWebhookConfiguration", OURS]["webhooks"][0]["failurePolicy"] == "Fail"
    assert bundles(cluster) == before, "an upgrade takes neither bundle nor rules away"
    assert kept_keys(cluster) == keys, "nor keys"

    refused = release(cluster, "upgrade", OURS, chart, *values, "--set", "replcas.webhook=1", check=False)
    assert (refused.returncode != 0, "replcas" in refused.stderr) == (True, True)
    assert applied(stored(cluster, "deployments", "configmaps", *REGISTRATIONS)) == applied(after)

    [first, second] = re.findall(r"^  (kubectl delete mutating.*|helm uninstall .*)$", said, re.MULTILINE)
    cluster.kubectl(*first.split()[1:])
    kept = release(cluster, *second.removesuffix(f" -n {SYSTEM}").split()[1:]).stdout
    webhook.processes["authority"].stop()
    assert "devicequotas.drawbridge.dev" in kept
    kinds = {("CustomResourceDefinition", f"{one}.drawbridge.dev") for one in ("devicequotas", "devicecompatibilities")}
    secrets = {("Secret", name) for name in (OURS, f"{OURS}-authority", f"{OURS}-signature", f"{OURS}-quota")}
    assert stored(cluster, *EVERYWHERE).keys() == {("Namespace", SYSTEM)} | kinds | secrets
    assert cluster.read(quota)["spec"] == quota["spec"]

    release(cluster, "install", OURS, chart, *values)
    assert wanted <= stored(cluster, *EVERYWHERE).keys()
    assert cluster.read(quota)["spec"] == quota["spec"]
    assert kept_keys(cluster) == keys
    webhook.start_authority()
    cluster.until("the same bundles are everywhere", lambda: bundles(cluster) == before, 60)
    assert kept_keys(cluster) == keys
    webhook.processes["authority"].stop()
    release(cluster, "uninstall", OURS)


def test_a_helm_release_can_take_over_an_installation_made_with_kubectl(cluster, chart):
    cluster.kubectl(
        "apply", "--server-side", "--force-conflicts", "-f", "-", input=drawbridge("manifests", "--image", IMAGE)
    )
    refused = release(cluster, "install", OURS, chart, *IMAGES, check=False)
    assert "cannot be imported into the current release" in refused.stderr
    release(cluster, "install", OURS, chart, *IMAGES, "--take-ownership")
    release(cluster, "uninstall", OURS)
    kinds = {kind for kind, _ in stored(cluster, *EVERYWHERE)}
    assert kinds == {"Namespace", "CustomResourceDefinition", "Secret"}
