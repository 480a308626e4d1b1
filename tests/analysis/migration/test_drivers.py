"""What becomes of a device plugin in a tree: where its driver is installed, what goes, and what follows."""

from typing import get_args

import click
import pytest
import yaml
from msgspec.structs import replace

from analysis.migration import make_plan
from analysis.migration.drivers import driver_steps
from analysis.migration.pull_request import StepName
from cli.configuration import given_configuration
from cli.edited import Change, edit_text, new_text
from cli.files import InputFiles
from cli.loading import read_whole
from tests.cli.test_git_trees import flux, release, repository, write
from tests.cli.test_migrate_plan import INTEL, OPERATOR, app

__all__ = ["repository"]

DRIVER = "intel-gpu-resource-driver"
SOURCE = """\
apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata:
  name: intel-gpu
spec:
  interval: 15m
  ref:
    tag: 0.34.0
  url: oci://example.com/intel-device-plugins-gpu
  verify:
    provider: cosign
"""
RELEASE = """\
---
# yaml-language-server: $schema=https://example.com/helmrelease.json
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata:
  name: intel-gpu
spec:
  interval: 1h
  chartRef:
    kind: OCIRepository
    name: intel-gpu
  dependsOn:
    - name: nfd
    - name: intel-operator
  values:
    # five pods
    sharedDevNum: 5
"""
KS = """\
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata:
  name: &app {name}
spec:
  commonMetadata:
    labels:
      app: *app
  healthChecks:
    - apiVersion: helm.toolkit.fluxcd.io/v2
      kind: HelmRelease
      name: {name}
    - apiVersion: deviceplugin.intel.com/v1
      kind: GpuDevicePlugin
      name: i915
  path: ./{path}
  targetNamespace: kube-system
"""
FOLDER = "apps/kube-system/intel-gpu"
# A folder with a Kustomization of Flux, the release, and its source, as most people who use Flux have it.
UNIT = {
    "clusters/home/apps.yaml": KS.format(name="apps", path="apps"),
    "apps/kube-system/kustomization.yaml": "resources:\n  - ./cilium.yaml\n  - ./intel-gpu/ks.yaml\n  - ./zz.yaml\n",
    "apps/kube-system/cilium.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cilium}\n",
    "apps/kube-system/zz.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: zz}\n",
    f"{FOLDER}/ks.yaml": KS.format(name="intel-gpu", path=f"{FOLDER}/app"),
    f"{FOLDER}/app/kustomization.yaml": "resources:\n  - ./helmrelease.yaml\n  - ./ocirepository.yaml\n",
    f"{FOLDER}/app/helmrelease.yaml": RELEASE,
    f"{FOLDER}/app/ocirepository.yaml": SOURCE,
}
ENTRIES = "apps/kube-system/kustomization.yaml"
NEW = "apps/kube-system/intel-gpu-resource-driver"


class Moved:
    """A tree after each step: the texts of its files that differ from those before the step; "" if a file is gone."""

    def __init__(self, repository, files, **decisions):
        write(repository, files)
        with click.Context(click.Command("migrate")):
            reading, read = read_whole(InputFiles(paths=(".",)), given_configuration(""), None)
        documents = read.everything
        plan = make_plan(documents, read.tree, reading.state, read.skipped)
        if decisions:
            families = [replace(family, sharing=replace(family.sharing, **decisions)) for family in plan.families]
            plan = replace(plan, families=tuple(families))
        self.notes = {}
        self.files = {}
        step_of = driver_steps(documents, read.tree, plan)
        for step in (step_of(name, documents) for name in get_args(StepName)):
            self.notes[step.name] = "\n".join(step.notes)
            files = self.files[step.name] = {
                new.path: new_text(new.objects, None if new.like is None else documents[new.like]) for new in step.new
            }
            edits = {}
            for number, wanted in step.edits:
                edits.setdefault(documents[number].file, []).append((documents[number], wanted))
            for file, of_file in edits.items():
                changes = [Change(document, wanted) for document, wanted in of_file]
                text = edit_text(file, (repository / file).read_text(), changes)
                files[file] = text if any(line[:1] not in ("", "#", "-") for line in text.splitlines()) else ""
        self.prepare, self.switch, self.tidy = self.files.values()

    @property
    def gone(self):
        return {file for file, text in self.switch.items() if not text}

    def read(self, file):
        return yaml.safe_load(self.switch[file])


def without(obj, *names):
    return {name: value for name, value in obj.items() if name not in names}


def test_only_objects_are_named_that_go_with_the_plugin(repository):
    folder = f"{FOLDER}/app"
    generator = "configMapGenerator:\n  - name: intel-gpu-values\n    files: [values.yaml]\n"
    resources = UNIT[f"{folder}/kustomization.yaml"] + "  - ./config.yaml\n" + generator
    config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: intel-gpu-notes}\n"
    files = {f"{folder}/config.yaml": config, f"{folder}/values.yaml": "sharedDevNum: 5\n"}
    moved = Moved(repository, UNIT | files | {f"{folder}/kustomization.yaml": resources})
    assert {*files} <= moved.gone
    going = [line for line in moved.notes["switch"].splitlines() if "goes with the plugin (" in line]
    assert going == [f"ConfigMap/kube-system/intel-gpu-notes goes with the plugin ({folder}/config.yaml)"]


def test_a_folder_of_the_plugin_becomes_one_of_the_driver(repository):
    moved = Moved(repository, UNIT)
    assert moved.prepare == {
        f"{NEW}/app/ocirepository.yaml": SOURCE.replace("intel-gpu\n", f"{DRIVER}\n", 1)
        .replace("0.34.0", "0.11.0")
        .replace(
            "example.com/intel-device-plugins-gpu",
            f"ghcr.io/intel/intel-resource-drivers-for-kubernetes/{DRIVER}-chart",
        )
        .partition("  verify:")[0]
    }
    assert moved.gone == {file for file in UNIT if file.startswith(FOLDER)}
    assert moved.switch.keys() - moved.gone == {
        ENTRIES, f"{NEW}/ks.yaml", f"{NEW}/app/kustomization.yaml", f"{NEW}/app/helmrelease.yaml"
    }  # fmt: skip
    assert moved.switch[ENTRIES] == UNIT[ENTRIES].replace("intel-gpu/", f"{DRIVER}/")
    assert moved.switch[f"{NEW}/app/kustomization.yaml"] == UNIT[f"{FOLDER}/app/kustomization.yaml"]
    assert moved.tidy == {}


def test_the_release_of_the_driver_keeps_the_form_of_that_of_the_plugin(repository):
    text = Moved(repository, UNIT).switch[f"{NEW}/app/helmrelease.yaml"]
    assert text.startswith("".join(RELEASE.splitlines(keepends=True)[:5]))
    assert "five pods" not in text
    spec = yaml.safe_load(text)["spec"]
    assert without(spec, "values") == {
        "interval": "1h",
        "chartRef": {"kind": "OCIRepository", "name": DRIVER},
        "dependsOn": [{"name": "nfd"}, {"name": "intel-operator"}],
    }
    assert spec["values"]["kubeletPlugin"]["healthMonitoring"] == {"enabled": False}


def test_a_folder_may_have_a_namespace_and_a_file_for_a_generator(repository):
    files = {
        "apps/kustomization.yaml": "resources: [intel-gpu]\n",
        "apps/intel-gpu/kustomization.yaml": "resources: [namespace.yaml, release.yaml]\nconfigMapGenerator: [{name: a, files: [config.yaml]}]\n",
        "apps/intel-gpu/namespace.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: kube-system}\n",
        "apps/intel-gpu/release.yaml": INTEL,
        "apps/intel-gpu/config.yaml": "sharedDevNum: 3\n",
    }
    moved = Moved(repository, files)
    assert moved.gone == files.keys() - {"apps/kustomization.yaml"}
    assert moved.read(f"apps/{DRIVER}/kustomization.yaml") == {
        "resources": ["namespace.yaml", "release.yaml", "helmrepository.yaml"]
    }


def test_a_folder_with_a_workload_stays(repository):
    workload = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\nspec: {template: {spec: {containers: [{name: x}]}}}\n"
    entries = "resources: [helmrelease.yaml, ocirepository.yaml, x.yaml]\n"
    moved = Moved(repository, UNIT | {f"{FOLDER}/app/x.yaml": workload, f"{FOLDER}/app/kustomization.yaml": entries})
    assert moved.switch.keys() == {f"{FOLDER}/app/helmrelease.yaml", f"{FOLDER}/app/ocirepository.yaml"}


TAINT = [{"key": "gpu", "operator": "Exists"}]
TOLERATIONS = "tolerations: [{key: gpu, operator: Exists}]"


@pytest.mark.parametrize(
    ("files", "file"),
    [
        (UNIT | {f"{FOLDER}/app/helmrelease.yaml": f"{RELEASE}    {TOLERATIONS}\n"}, f"{NEW}/app/helmrelease.yaml"),
        (
            UNIT
            | {
                f"{FOLDER}/app/plugin.yaml": "apiVersion: deviceplugin.intel.com/v1\nkind: GpuDevicePlugin\n"
                f"metadata: {{name: i915}}\nspec: {{{TOLERATIONS}, nodeSelector: {{a: b}}}}\n",
                f"{FOLDER}/app/kustomization.yaml": "resources: [helmrelease.yaml, ocirepository.yaml, plugin.yaml]\n",
            },
            f"{NEW}/app/helmrelease.yaml",
        ),
        (
            {
                "clusters/home/operator.yaml": KS.format(name="gpu-operator", path="apps/gpu-operator"),
                "apps/gpu-operator/release.yaml": (OPERATOR % "true").replace("{devicePlugin", f"{{daemonsets: {{{TOLERATIONS}}}, devicePlugin"),
            },
            "apps/dra-driver-nvidia-gpu/release.yaml",
        ),
    ],
    ids=["release", "object", "operator"],
)  # fmt: skip
def test_the_driver_tolerates_the_taints_of_the_nodes_of_the_plugin(repository, files, file):
    moved = Moved(repository, files)
    assert moved.read(file)["spec"]["values"]["kubeletPlugin"]["tolerations"] == TAINT
    assert ("nodeSelector" in moved.notes["switch"]) == ("nodeSelector" in "".join(files.values()))


def test_what_builds_the_folder_keeps_its_anchors_and_checks_the_driver(repository):
    text = Moved(repository, UNIT).switch[f"{NEW}/ks.yaml"]
    assert text.replace(DRIVER, "intel-gpu") == UNIT[f"{FOLDER}/ks.yaml"].replace(
        "    - apiVersion: deviceplugin.intel.com/v1\n      kind: GpuDevicePlugin\n      name: i915\n", ""
    )


OPERATOR_UNIT = UNIT | {
    f"{FOLDER}/ks.yaml": KS.format(name="intel-operator", path=f"{FOLDER}/operator")
    + KS.format(name="intel-gpu", path=f"{FOLDER}/gpu"),
    **{f"{FOLDER}/gpu/{name}.yaml": UNIT[f"{FOLDER}/app/{name}.yaml"] for name in ("kustomization", "helmrelease", "ocirepository")},
    f"{FOLDER}/operator/kustomization.yaml": "resources: [helmrelease.yaml, more.yaml]\n",
    f"{FOLDER}/operator/more.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: more}\n",
    f"{FOLDER}/operator/helmrelease.yaml": INTEL.replace("name: intel-gpu", "name: intel-operator").replace(
        "plugins-gpu", "plugins-operator"
    ),
    **{f"apps/default/{name}/ks.yaml": KS.format(name=name, path=f"apps/default/{name}/app") for name in ("a", "b", "c")},
}  # fmt: skip
for name in ("kustomization", "helmrelease", "ocirepository"):
    del OPERATOR_UNIT[f"{FOLDER}/app/{name}.yaml"]


def test_a_plugin_and_its_operator_become_one_folder_that_is_named_as_the_others(repository):
    moved = Moved(repository, OPERATOR_UNIT)
    assert {file for file, text in moved.switch.items() if text and file.startswith(NEW)} == {
        f"{NEW}/ks.yaml", f"{NEW}/app/kustomization.yaml", f"{NEW}/app/helmrelease.yaml"
    }  # fmt: skip
    assert moved.read(f"{NEW}/ks.yaml")["spec"]["path"] == f"./{NEW}/app"
    assert moved.read(f"{NEW}/app/helmrelease.yaml")["spec"]["dependsOn"] == [{"name": "nfd"}]
    assert "ConfigMap/kube-system/more" in moved.notes["switch"]


@pytest.mark.parametrize("kind", ["RuntimeClass", "NodeFeatureRule"])
def test_what_workloads_name_moves_to_the_folder_of_the_driver(repository, kind):
    text = f"---\napiVersion: example.com/v1\nkind: {kind}\nmetadata:\n  name: kept\n"
    entries = "resources:\n  - ./helmrelease.yaml\n  - ./kept.yaml\n  - ./ocirepository.yaml\n"
    files = {f"{FOLDER}/app/kept.yaml": text, f"{FOLDER}/app/kustomization.yaml": entries}
    moved = Moved(repository, UNIT | files)
    assert moved.switch[f"{NEW}/app/kept.yaml"] == text
    assert f"{FOLDER}/app/kept.yaml" in moved.gone
    assert moved.switch[f"{NEW}/app/kustomization.yaml"] == entries
    assert "kept" not in moved.notes["switch"]


def test_what_workloads_name_stays_if_a_person_installs_the_driver(repository):
    image = "{name: a, image: nvcr.io/nvidia/k8s-device-plugin}"
    files = {
        "clusters/plugin.yaml": flux("plugin"),
        "apps/plugin/daemonset.yaml": f"apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{name: a}}\nspec: {{template: {{spec: {{containers: [{image}]}}}}}}\n",
        "apps/plugin/class.yaml": "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: nvidia}\nhandler: nvidia\n",
        "apps/plugin/kustomization.yaml": "resources: [class.yaml, daemonset.yaml]\n",
    }
    moved = Moved(repository, files)
    assert moved.gone == {"apps/plugin/daemonset.yaml"}
    assert moved.read("apps/plugin/kustomization.yaml")["resources"] == ["class.yaml"]


def test_what_builds_the_plugin_beside_others_is_edited_in_its_file(repository):
    other = KS.format(name="other", path=f"{FOLDER}/other")
    release = RELEASE.replace("name: intel-gpu", "name: other").replace("sharedDevNum", "other")
    files = UNIT | {f"{FOLDER}/ks.yaml": other + UNIT[f"{FOLDER}/ks.yaml"], f"{FOLDER}/other/release.yaml": release}
    moved = Moved(
        repository,
        files
        | {
            f"{FOLDER}/other/source.yaml": SOURCE.replace("intel-gpu", "other").replace(
                "intel-device-plugins-gpu", "other"
            )
        },
    )
    text = moved.switch[f"{FOLDER}/ks.yaml"]
    assert text.startswith(other)
    assert f"name: &app {DRIVER}" in text
    assert f"path: ./{FOLDER}/{DRIVER}" in text
    assert ENTRIES not in moved.switch


@pytest.mark.parametrize("needed", ["intel-gpu", "intel-operator"])
def test_what_waits_for_the_plugin_waits_for_the_driver(repository, needed):
    more = f", dependsOn: [{{name: other}}, {{name: {needed}, namespace: kube-system}}]"
    files = OPERATOR_UNIT | app("plex", "media", flux_more=more)
    for file in (f"{FOLDER}/ks.yaml", f"{FOLDER}/gpu/helmrelease.yaml", f"{FOLDER}/operator/helmrelease.yaml"):
        files[file] = files[file].replace("metadata:\n", "metadata:\n  namespace: kube-system\n").replace(
            "namespace: kube-system, ", ""
        )  # fmt: skip
    moved = Moved(repository, files)
    [other, new] = moved.read("clusters/home/plex.yaml")["spec"]["dependsOn"]
    assert (other["name"], new) == ("other", {"name": DRIVER, "namespace": "kube-system"})


def test_a_release_among_others_is_edited_in_its_file(repository):
    other = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n"
    files = {
        "base/kustomization.yaml": "resources: [gpu.yaml, deployment.yaml]\n",
        "base/gpu.yaml": SOURCE + RELEASE + other,
        "base/deployment.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\nspec: {template: {spec: {containers: []}}}\n",
    }
    moved = Moved(repository, files)
    assert moved.switch.keys() == {"base/gpu.yaml"}
    source, release, kept = yaml.safe_load_all(moved.switch["base/gpu.yaml"])
    assert (source["metadata"]["name"], release["metadata"]["name"], kept["metadata"]["name"]) == (
        DRIVER,
        DRIVER,
        "other",
    )
    assert source["spec"]["ref"] == {"tag": "0.11.0"}
    assert moved.prepare == moved.tidy == {}


REPOSITORY = """\
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: intel, namespace: flux-system}
spec: {interval: 1h, url: "https://intel.github.io/helm-charts"}
"""
CENTRAL = {
    "flux/sources/kustomization.yaml": "resources:\n  - bjw.yaml\n  - intel.yaml\n",
    "flux/sources/intel.yaml": REPOSITORY,
    "flux/sources/bjw.yaml": REPOSITORY.replace("intel", "bjw"),
    "clusters/home/plugin.yaml": KS.format(name="plugin", path="apps/plugin"),
    "clusters/home/sources.yaml": KS.format(name="sources", path="flux/sources"),
    "apps/plugin/release.yaml": INTEL.replace(
        "version: 0.34.0", "version: 0.34.0, sourceRef: {kind: HelmRepository, name: intel, namespace: flux-system}"
    ),
}


# What Flux reads the repository from is no source of a chart.
SYNC = {
    "clusters/home/sync.yaml": (
        "apiVersion: source.toolkit.fluxcd.io/v1\nkind: OCIRepository\nmetadata: {name: home, namespace: flux-system}\n"
        "spec: {interval: 1m, url: oci://example.com/home, ref: {tag: latest}}\n"
    )
}


@pytest.mark.parametrize("more", [{}, SYNC])
def test_a_tree_that_keeps_its_sources_in_one_folder_does_so_for_the_driver(repository, more):
    moved = Moved(repository, CENTRAL | more)
    assert moved.prepare["flux/sources/kustomization.yaml"].splitlines() == [
        "resources:", "  - bjw.yaml", f"  - {DRIVER}.yaml", "  - intel.yaml"
    ]  # fmt: skip
    source = yaml.safe_load(moved.prepare[f"flux/sources/{DRIVER}.yaml"])
    assert source["spec"] == {
        "interval": "1h", "type": "oci", "url": "oci://ghcr.io/intel/intel-resource-drivers-for-kubernetes"
    }  # fmt: skip
    assert moved.read(f"apps/{DRIVER}/release.yaml")["spec"]["chart"]["spec"] == {
        "chart": f"{DRIVER}-chart",
        "version": "0.11.0",
        "sourceRef": {"kind": "HelmRepository", "name": DRIVER, "namespace": "flux-system"},
    }
    assert moved.tidy == {
        "flux/sources/intel.yaml": "",
        "flux/sources/kustomization.yaml": "resources:\n  - bjw.yaml\n",
    }


def test_a_source_that_another_release_uses_stays(repository):
    other = (
        CENTRAL["apps/plugin/release.yaml"]
        .replace("name: intel-gpu", "name: qat")
        .replace("plugins-gpu", "plugins-qat")
    )
    files = CENTRAL | {"apps/qat/release.yaml": other, "clusters/home/qat.yaml": KS.format(name="qat", path="apps/qat")}
    moved = Moved(repository, files)
    assert moved.tidy == {}


def test_what_builds_the_folder_is_renamed_where_it_is(repository):
    moved = Moved(repository, CENTRAL)
    assert moved.gone == {"apps/plugin/release.yaml", "clusters/home/plugin.yaml"}
    assert moved.read(f"clusters/home/{DRIVER}.yaml")["spec"]["path"] == f"./apps/{DRIVER}"


GPU_OPERATOR = {
    "clusters/home/kustomization.yaml": "resources: [operator.yaml]\n",
    "clusters/home/operator.yaml": KS.format(name="gpu-operator", path="apps/gpu-operator"),
    "apps/gpu-operator/kustomization.yaml": "resources: [release.yaml, class.yaml]\n",
    "apps/gpu-operator/class.yaml": "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: nvidia}\nhandler: nvidia\n",
    "apps/gpu-operator/release.yaml": OPERATOR % "true",
}


def test_an_operator_stays_without_its_plugin_and_the_driver_comes_beside_it(repository):
    moved = Moved(repository, GPU_OPERATOR)
    new = "apps/dra-driver-nvidia-gpu"
    assert moved.gone == set()
    assert "apps/gpu-operator/kustomization.yaml" not in moved.switch
    assert moved.switch["apps/gpu-operator/release.yaml"] == (OPERATOR % "false")
    assert moved.read("clusters/home/kustomization.yaml")["resources"] == [
        "dra-driver-nvidia-gpu.yaml",
        "operator.yaml",
    ]
    assert moved.read("clusters/home/dra-driver-nvidia-gpu.yaml")["spec"]["dependsOn"] == [{"name": "gpu-operator"}]
    assert moved.read(f"{new}/release.yaml")["spec"]["values"]["gpuResourcesEnabledOverride"] is True
    assert moved.read(f"{new}/kustomization.yaml")["resources"] == ["release.yaml", "helmrepository.yaml"]
    assert f"{new}/helmrepository.yaml" in moved.prepare


@pytest.mark.parametrize(
    ("decision", "values"),
    [("shares", {"featureGates": {"ConsumableShares": True}, "consumableShares": 4}), ("exclusive", {})],
)
def test_the_values_of_the_driver_follow_the_decision_about_sharing(repository, decision, values):
    moved = Moved(repository, GPU_OPERATOR | app("llm", "ai", "nvidia.com/gpu"), decision=decision)
    given = moved.read("apps/dra-driver-nvidia-gpu/release.yaml")["spec"]["values"]
    assert {name: value for name, value in given.items() if "hares" in name or "Gates" in name} == values
    assert ("DRAConsumableCapacity" in moved.notes["switch"]) == bool(values)


@pytest.mark.parametrize(("values", "is_by_hand"), [("{}", True), ("{featureGates: {}, consumableShares: 2}", False)])
def test_a_driver_that_is_there_already_gets_the_values_of_shares_by_hand(repository, values, is_by_hand):
    driver = INTEL.replace("intel-device-plugins-gpu", "dra-driver-nvidia-gpu")
    files = GPU_OPERATOR | app("llm", "ai", "nvidia.com/gpu") | {
        "clusters/home/dra.yaml": KS.format(name="dra", path="apps/dra"),
        "apps/dra/release.yaml": driver.replace("{name: i915, sharedDevNum: 5}", values),
    }  # fmt: skip
    moved = Moved(repository, files, decision="shares")
    assert ("apps/dra/release.yaml needs" in moved.notes["switch"]) is is_by_hand


APPLICATION = """\
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: nvidia-device-plugin, namespace: argocd}
spec:
  project: default
  source:
    repoURL: https://nvidia.github.io/k8s-device-plugin
    chart: nvidia-device-plugin
    targetRevision: 0.18.0
    helm: {releaseName: nvidia-device-plugin, %s}
  destination: {namespace: kube-system, server: https://kubernetes.default.svc}
"""


@pytest.mark.parametrize("values", ["valuesObject: {failOnInitError: false}", 'values: "failOnInitError: false"'])
def test_an_application_of_a_chart_becomes_one_of_the_driver(repository, values):
    files = {
        "apps/kustomization.yaml": "resources: [nvidia-device-plugin.yaml, other.yaml]\n",
        "apps/nvidia-device-plugin.yaml": APPLICATION % values,
        "apps/other.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n",
    }
    moved = Moved(repository, files)
    assert moved.gone == {"apps/nvidia-device-plugin.yaml"}
    assert moved.read("apps/kustomization.yaml")["resources"] == ["dra-driver-nvidia-gpu.yaml", "other.yaml"]
    application = moved.read("apps/dra-driver-nvidia-gpu.yaml")
    source = application["spec"]["source"]
    assert without(source, "helm") == {
        "repoURL": "registry.k8s.io/dra-driver-nvidia/charts", "chart": "dra-driver-nvidia-gpu", "targetRevision": "0.5.0"
    }  # fmt: skip
    assert source["helm"]["releaseName"] == "dra-driver-nvidia-gpu"
    given = source["helm"].get("valuesObject") or yaml.safe_load(source["helm"]["values"])
    assert given["gpuResourcesEnabledOverride"] is True
    assert application["spec"]["destination"]["namespace"] == "kube-system"


@pytest.mark.parametrize(
    ("chart", "charts"),
    [
        ("nvidia-device-plugin", ["dra-driver-nvidia-gpu"]),
        ("gpu-operator", ["gpu-operator", "dra-driver-nvidia-gpu"]),
    ],
)
def test_charts_of_a_kustomization_are_replaced_or_get_the_driver_beside_them(repository, chart, charts):
    entry = f"{{name: {chart}, repo: 'https://example.com', version: 1.0.0, releaseName: gpu, namespace: gpu, includeCRDs: true}}"
    moved = Moved(repository, {"base/kustomization.yaml": f"helmCharts: [{entry}]\n"})
    entries = moved.read("base/kustomization.yaml")["helmCharts"]
    assert [entry["name"] for entry in entries] == charts
    driver = entries[-1]
    assert (driver["namespace"], driver["includeCRDs"], driver["version"]) == ("gpu", True, "0.5.0")
    assert driver["repo"] == "oci://registry.k8s.io/dra-driver-nvidia/charts"
    assert entries[0].get("valuesInline", {}).get("devicePlugin") == ({"enabled": False} if len(entries) > 1 else None)


def test_an_operator_with_values_in_a_file_is_switched_off_by_hand(repository):
    kustomization = (
        "helmCharts: [{name: gpu-operator, valuesFile: values.yaml, releaseName: operator, namespace: gpu}]\n"
    )
    files = {"base/kustomization.yaml": kustomization, "base/values.yaml": "devicePlugin: {enabled: true}\n"}
    moved = Moved(repository, files)
    assert "devicePlugin.enabled: false" in moved.notes["switch"]


def test_a_driver_that_is_there_already_is_not_installed_again(repository):
    installed = RELEASE.replace("name: intel-gpu", f"name: {DRIVER}")
    source = SOURCE.replace("name: intel-gpu", f"name: {DRIVER}").replace("intel-device-plugins-gpu", f"{DRIVER}-chart")
    more = ", dependsOn: [{name: intel-gpu, namespace: kube-system}]"
    files = UNIT | app("plex", "media", flux_more=more) | {
        "clusters/home/dra.yaml": KS.format(name="dra", path="apps/dra"),
        "apps/dra/release.yaml": installed,
        "apps/dra/source.yaml": source,
    }  # fmt: skip
    moved = Moved(repository, files)
    assert moved.prepare == {}
    assert moved.switch[ENTRIES] == UNIT[ENTRIES].replace("  - ./intel-gpu/ks.yaml\n", "")
    assert moved.read("clusters/home/plex.yaml")["spec"]["dependsOn"] == [{"name": "dra", "namespace": "default"}]


def test_a_plugin_that_no_release_installs_leaves_the_driver_to_a_person(repository):
    policy = "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {name: policy}\nspec: {devicePlugin: {enabled: true}}\n"
    moved = Moved(repository, {"base/kustomization.yaml": "resources: [policy.yaml]\n", "base/policy.yaml": policy})
    assert moved.switch == {"base/policy.yaml": policy.replace("true", "false")}
    assert "dra-driver-nvidia-gpu 0.5.0" in moved.notes["switch"]


def test_the_exporter_of_metrics_sees_claims(repository):
    exporter = INTEL.replace("intel-device-plugins-gpu", "dcgm-exporter").replace(
        "name: i915, sharedDevNum: 5", "tag: latest"
    )
    files = GPU_OPERATOR | {
        "clusters/home/dcgm.yaml": KS.format(name="dcgm", path="apps/dcgm"),
        "apps/dcgm/release.yaml": exporter,
    }
    moved = Moved(repository, files)
    assert moved.read("apps/dcgm/release.yaml")["spec"]["values"] == {
        "tag": "latest",
        "kubernetesDRA": {"enabled": True},
    }


def test_an_exporter_whose_values_cannot_be_edited_is_left_to_a_person(repository):
    exporter = """\
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: dcgm, namespace: argocd}
spec:
  destination: {namespace: monitoring}
  source: {chart: dcgm-exporter, targetRevision: 4.2.0, helm: {values: "a: &a {enabled: false}\\nkubernetesDRA: *a"}}
"""
    files = {"clusters/home/dcgm.yaml": KS.format(name="dcgm", path="apps/dcgm"), "apps/dcgm/release.yaml": exporter}
    moved = Moved(repository, GPU_OPERATOR | files)
    assert "apps/dcgm/release.yaml" not in moved.switch
    assert "by hand: apps/dcgm/release.yaml" in moved.notes["switch"]


def test_a_selector_of_a_label_of_discovery_is_left_to_a_person(repository):
    label = "intel.feature.node.kubernetes.io/gpu"
    values = f"    defaultPodOptions: {{nodeSelector: {{{label}: 'true'}}}}\n    controllers: {{}}\n"
    moved = Moved(repository, UNIT | app("plex", "media", values=values))
    assert label in moved.notes["switch"]
    assert "apps/plex/release.yaml" not in moved.switch


def test_the_namespace_of_an_operator_goes_if_nothing_else_is_in_it(repository):
    operator = INTEL.replace("name: intel-gpu, namespace: kube-system", "name: intel-operator, namespace: intel").replace(
        "plugins-gpu", "plugins-operator"
    )  # fmt: skip
    namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: intel}\n"
    files = {
        "apps/kustomization.yaml": "resources: [namespace.yaml, operator.yaml, gpu.yaml]\n",
        "apps/namespace.yaml": namespace,
        "apps/operator.yaml": operator,
        "apps/gpu.yaml": INTEL,
    }
    assert Moved(repository, files).tidy == {
        "apps/namespace.yaml": "",
        "apps/kustomization.yaml": "resources: [operator.yaml, gpu.yaml]\n",
    }
    other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other, namespace: intel}\n"
    assert Moved(repository, files | {"apps/namespace.yaml": f"{namespace}---\n{other}"}).tidy == {}


def test_a_plugin_without_a_chart_of_its_own_goes(repository):
    values = "    controllers: {main: {containers: {app: {image: {repository: rocm/k8s-device-plugin}}}}}\n"
    files = app("llm", "ai", "amd.com/gpu") | {"apps/plugin/release.yaml": release("amd", values=values)}
    moved = Moved(repository, files | {"clusters/home/plugin.yaml": flux("plugin")})
    assert moved.files["switch"]["apps/plugin/release.yaml"] == ""
    assert "install chart k8s-gpu-dra-driver" in moved.notes["switch"]


def test_the_operator_of_a_kustomization_is_switched_off(repository):
    chart = (
        "  - name: gpu-operator\n    namespace: gpu\n    valuesInline:\n      devicePlugin:\n        enabled: true\n"
    )
    files = app("llm", "ai", "nvidia.com/gpu") | {"apps/plugin/kustomization.yaml": f"helmCharts:\n{chart}"}
    moved = Moved(repository, files | {"clusters/home/plugin.yaml": flux("plugin")})
    assert "enabled: false" in moved.files["switch"]["apps/plugin/kustomization.yaml"]


def test_a_folder_with_several_builders_may_have_paths_of_any_depth(repository):
    builders = [KS.format(name=name, path=f"{FOLDER}/{name}/app") for name in ("operator", "plugin")]
    files = {
        f"{FOLDER}/ks.yaml": "".join(builders),
        f"{FOLDER}/operator/app/release.yaml": INTEL.replace("gpu\n", "operator\n").replace("-gpu,", "-operator,"),
        f"{FOLDER}/plugin/app/release.yaml": INTEL,
    }
    moved = Moved(repository, {file: text for file, text in UNIT.items() if FOLDER not in file} | files)
    assert moved.gone == files.keys()
    assert f"{NEW}/plugin/app/release.yaml" in moved.switch
