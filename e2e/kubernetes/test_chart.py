"""From the chart, Helm renders the objects that `drawbridge manifests` prints."""

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from cluster import manifests
from e2e.actors.webhook import CONFIGURATION, ROOT, SYSTEM
from e2e.build import program
from e2e.kubernetes import charts
from e2e.kubernetes.charts import (
    IMAGE,
    IMAGES,
    RELEASE,
    SCHEDULER,
    WITH_SCHEDULER,
    by_name,
    drawbridge,
    helm,
    printed,
    refusal,
    rendered,
    value_file,
)

pytestmark = pytest.mark.real
chart = charts.chart


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """The file of a CA certificate, for administrators with an authority of their own."""
    folder = tmp_path_factory.mktemp("authority")
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=a -keyout ca.key -out ca.crt"
    subprocess.run(make.split(), cwd=folder, check=True, capture_output=True, timeout=60)
    return str(folder / "ca.crt")


def test_with_default_values_a_release_is_what_the_command_prints(chart):
    """The objects differ only if they are rendered for the release's namespace, which Helm creates itself."""
    made = printed()
    assert len(made) > 30
    assert rendered(chart, "--set", f"namespace={SYSTEM}") == made
    del made["Namespace", None, SYSTEM]
    assert rendered(chart, namespace=SYSTEM) == made


def in_any_order(value):
    """Sort lists of named objects: kustomize puts the additions of a patch first."""
    if isinstance(value, dict):
        return {key: in_any_order(item) for key, item in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict) and "name" in value[0]:
        return sorted(map(in_any_order, value), key=lambda item: item["name"])
    return value


def test_the_command_prints_components_like_kustomize(tmp_path):
    up = "../" * (len(tmp_path.resolve().parts) - 1)
    components = [
        f"{up}{str(ROOT)[1:]}/manifests/{folder}"
        for folder in ("bridge", "read-only", "node-agent", "bridge/reservations", "driver", "adapter")
    ]
    images = {"drawbridge.invalid/name-an-image": IMAGE, "drawbridge-scheduler.invalid/name-an-image": SCHEDULER}
    named = [{"name": name, "newName": image.rpartition(":")[0], "newTag": image.rpartition(":")[2]} for name, image in images.items()]  # fmt: skip
    whole = {"resources": [f"{up}{str(ROOT)[1:]}/manifests/base"], "components": components, "images": named}
    (tmp_path / "kustomization.yaml").write_text(json.dumps(whole))
    kustomize = [program("kubectl"), "kustomize", tmp_path]
    built = by_name(subprocess.run(kustomize, capture_output=True, text=True, check=True, timeout=60).stdout)
    specs = {(kind, name): in_any_order({**obj, "metadata": None}) for (kind, _, name), obj in built.items()}
    whole = {"level": "node", "bridge": WITH_SCHEDULER, "readOnly": True, "driver": True, "adapter": True}
    ours = printed("--values", value_file(tmp_path, **whole))
    assert {(kind, name): in_any_order({**obj, "metadata": None}) for (kind, _, name), obj in ours.items()} == specs


POD_VALUES = {
    "replicas": {"webhook": 5, "authority": 0},
    "resources": {"allocator": {"limits": {"memory": "4Gi"}}},
    "args": {"allocator": ["--binding-timeout=300"]},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "nodeSelector": {"pool": "system"},
    "priorityClassName": "important",
    "imagePullSecrets": [{"name": "registry"}],
    "monitor": {"enabled": True, "interval": "10s", "labels": {"release": "prometheus"}},
}
LEVEL = {"bridge": {"schedulerImage": SCHEDULER}}
SAME = [
    {"webhooks": {"failurePolicy": "Fail"}},
    {"webhooks": {"optIn": True}},
    {"webhooks": {"devices": True}},
    {"webhooks": {"devices": True, "optIn": True, "url": "https://10.0.0.7:8443/path/"}},
    {"networkPolicy": {"apiServers": ["10.0.0.1/32", "fd00::/8"]}},
    {"networkPolicy": {"enabled": False}, "quota": False, "policies": False},
    {"bridge": WITH_SCHEDULER},
    {"bridge": WITH_SCHEDULER | {"reservations": True}, "nodeAgent": True},
    {"level": "readOnly"},
    {"level": "bridge", "guards": True} | LEVEL,
    {"level": "node"} | LEVEL,
    {"readOnly": True, "nodeAgent": True},
    {"driver": True, "adapter": True},
    {"guards": True, "protectedClaims": True},
    {"certificates": {"from": "files", "caBundle": "CA"}},
    {"certificates": {"from": "cert-manager"}, "level": "bridge"} | LEVEL,
    {"certificates": {"from": "cert-manager", "certificate": "a/b", "secret": "c", "reservationsSecret": "d"}, "level": "node"} | LEVEL,
    {"configuration": {"mode": "off", "disabled": ["kai"], "bridge": {"schedulerName": "s", "drivers": ["a.b"], "fence": True}}, "guards": True, "level": "bridge"} | LEVEL,
    {"configuration": {"evidence": {"namespaces": ["gpu-operator", "kube-system"]}}},
    {"level": "bridge"} | LEVEL | POD_VALUES,
]  # fmt: skip


def parsed(objects):
    """Replace the text of the configuration by its object: Helm writes YAML with another layout."""
    for (kind, _, name), obj in objects.items():
        if (kind, name) == ("ConfigMap", RELEASE):
            obj["data"] = manifests.parse(obj["data"]["drawbridge.yaml"])[0].object
    return objects


@pytest.mark.parametrize("values", SAME, ids=[",".join(values) for values in SAME])
@pytest.mark.parametrize("namespace", ["123", SYSTEM, "kube-system"])
def test_a_value_is_the_same_in_the_chart_and_in_the_command(chart, authority, tmp_path, values, namespace):
    if values.get("certificates", {}).get("caBundle"):
        values = {"certificates": {"from": "files", "caBundle": Path(authority).read_text()}}
    file = value_file(tmp_path, namespace=namespace, **values)
    assert parsed(rendered(chart, "-f", file)) == parsed(printed("--values", file))


def test_a_chart_for_a_configuration_includes_it_and_its_selectors(tmp_path):
    config = tmp_path / "drawbridge.yaml"
    table = "dialects:\n- name: ours\n  title: Ours\n  target: gpu\n  keys:\n  - {name: gpu.example.com/x, meaning: all, role: count}\n"
    fence = "bridge: {schedulerName: drawbridge, drivers: [gpu.nvidia.com, b.example.com], fence: true}\n"
    config.write_text(f"{CONFIGURATION}# {{{{ not a template }}}} ---\n{table}{fence}")
    drawbridge("manifests", "--config", str(config), "--chart", str(tmp_path / "chart"))
    values = ["--set", f"namespace={SYSTEM}"]
    assert rendered(str(tmp_path / "chart"), *values) == printed("--config", str(config))
    bridge = rendered(str(tmp_path / "chart"), *values, "--set", "bridge.enabled=true")
    assert bridge == printed("--config", str(config), "--values", value_file(tmp_path, bridge=WITH_SCHEDULER))
    assert ("DeviceTaintRule", None, "drawbridge-fence-b.example.com") in bridge


def test_a_disabled_chart_value_omits_its_own_objects_only(chart):
    def without(value):
        return {(kind, name) for kind, _, name in everything.keys() - rendered(chart, "--set", value).keys()}

    everything = rendered(chart)
    assert without("quota=false") == {("CustomResourceDefinition", "devicequotas.drawbridge.dev")}
    assert {kind for kind, _ in without("policies=false")} == {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}  # fmt: skip
    assert without("networkPolicy.enabled=false") == {(k, n) for k, _, n in everything if k == "NetworkPolicy"}


def test_pod_values_apply_to_their_component_only(chart, tmp_path):
    values = {"bridge": {"enabled": True}} | POD_VALUES
    (tmp_path / "values.yaml").write_text(json.dumps(values))
    made, plain = rendered(chart, "-f", str(tmp_path / "values.yaml")), rendered(chart, "--set", "bridge.enabled=true")
    deployments = {name: obj["spec"] for (kind, _, name), obj in made.items() if kind == "Deployment"}
    kept = {name: obj["spec"] for (kind, _, name), obj in plain.items() if kind == "Deployment"}
    for spec in deployments.values():
        pod = spec["template"]["spec"]
        assert {key: pod[key] for key in ("tolerations", "nodeSelector", "priorityClassName")} == {key: values[key] for key in ("tolerations", "nodeSelector", "priorityClassName")}  # fmt: skip
    replicas = {name: spec["replicas"] for name, spec in deployments.items()}
    assert replicas == {name: spec["replicas"] for name, spec in kept.items()} | {"drawbridge-webhook": 5, "drawbridge-authority": 0}  # fmt: skip
    allocator, scheduler = deployments["drawbridge-allocator"]["template"]["spec"]["containers"]
    before, beside = kept["drawbridge-allocator"]["template"]["spec"]["containers"]
    assert allocator == before | {"args": [*before["args"], "--binding-timeout=300"], "resources": {"limits": {"memory": "4Gi"}}}  # fmt: skip
    assert scheduler == beside
    monitor = made["PodMonitor", "default", RELEASE]
    assert monitor["metadata"]["labels"] == {"app.kubernetes.io/name": RELEASE, "release": "prometheus"}
    ports = {port["name"] for spec in deployments.values() for container in spec["template"]["spec"]["containers"] for port in container.get("ports", ())}  # fmt: skip
    [scraped] = monitor["spec"]["podMetricsEndpoints"]
    assert scraped["port"] in ports
    assert scraped["honorLabels"], "a metric about a tenant's pods keeps their namespace"


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("imge=x", "imge"),
        ("bridge.enabeld=true", "enabeld"),
        ("bridge.enabled=both", "/bridge/enabled"),
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
        ("bridge.enabled=true,bridge.schedulerImage=", "bridge.schedulerImage: the bridge needs"),
        ("image=", "image: none is given"),
        ("bridge=null", "missing property 'bridge'"),
        ("webhooks.url=null", "missing property 'url'"),
        ("certificates.from=files", "--set-file certificates.caBundle=ca.crt"),
        ("configuration.dialects[0].name=x,configuration.dialects[0].title=t,configuration.dialects[0].target=gpu,configuration.dialects[0].keys[0].name=a.b/c,configuration.dialects[0].keys[0].meaning=d", "drawbridge manifests --chart DIR --config FILE"),
        ("configuration.keys.kai.a=b", "drawbridge manifests --chart DIR --config FILE"),
    ],
)  # fmt: skip
def test_an_unknown_or_impossible_value_is_refused_by_name(chart, value, named):
    assert named in refusal(chart, *IMAGES, "--set", value)


HOSTILE = ("a\nkind: Secret\n---\nkind: Secret", '","kind":"Secret","x":"', "'x' # &a *b !!c: [")


def values_with(text):
    """Every value that is any text, with this text."""
    return {
        "level": "node",
        "args": {"webhook": [f"--x={text}"]},
        "tolerations": [{"key": text}],
        "nodeSelector": {text: text},
        "priorityClassName": text,
        "imagePullSecrets": [{"name": text}],
        "resources": {"webhook": {"limits": {text: text}}},
        "monitor": {"enabled": True, "labels": {"x": text}},
        "certificates": {"from": "cert-manager", "secret": text, "reservationsSecret": text},
        "configuration": {
            "targetScheduler": text,
            "evidence": {"namespaces": [text]},
            "bridge": {"schedulerName": text, "drivers": [text], "fence": True},
        },
    } | LEVEL


@pytest.mark.parametrize("text", HOSTILE, ids=["document", "JSON", "YAML"])
def test_the_text_of_a_value_makes_no_other_object(chart, tmp_path, text):
    def kinds(text, namespace):
        file = value_file(tmp_path, **values_with(text))
        return Counter(kind for kind, _, _ in rendered(chart, "-f", file, namespace=namespace))

    assert kinds(text, text) == kinds("x", "x")


@pytest.mark.parametrize("path", ["image", "namespace", "bridge.schedulerImage", "webhooks.url", "certificates.certificate"])  # fmt: skip
@pytest.mark.parametrize("text", HOSTILE, ids=["document", "JSON", "YAML"])
def test_a_name_that_is_no_name_is_refused(chart, path, text):
    assert f"/{path.replace('.', '/')}" in refusal(chart, "--set-json", f"{path}={json.dumps(text)}")


def test_helm_lint_reports_nothing(chart):
    assert "0 chart(s) failed" in helm("lint", chart, "--strict", *IMAGES).stdout
