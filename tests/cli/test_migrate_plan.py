"""`drawbridge migrate plan`: the plan of a move, from small trees of Flux, Argo CD and kustomize."""

import pytest
import yaml

from cli.commands import migrate
from cluster import manifests
from tests.cli.running import run, run_json
from tests.cli.test_git_trees import CONSUMER, flux, release, repository, write

__all__ = ["repository"]

APP_TEMPLATE = """\
apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {{name: app-template}}
spec: {{url: oci://example.com/app-template, ref: {{tag: {version}}}}}
"""
INTEL = """\
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: intel-gpu, namespace: kube-system}
spec:
  chart: {spec: {chart: intel-device-plugins-gpu, version: 0.34.0}}
  values: {name: i915, sharedDevNum: 5}
"""
OPERATOR = """\
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: gpu-operator, namespace: gpu-operator}
spec:
  chart: {spec: {chart: gpu-operator, version: v26.3.3}}
  values: {devicePlugin: {enabled: %s, config: {create: true, name: slices, default: any, data: {any: "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"}}}}
"""


def app(name, namespace, key="gpu.intel.com/i915", flux_more="", version="4.3.0", **release_options):
    folder = f"apps/{name}"
    return {
        f"{folder}/kustomization.yaml": "resources: [release.yaml, repository.yaml]\n",
        f"{folder}/release.yaml": release(name, key, **release_options),
        f"{folder}/repository.yaml": APP_TEMPLATE.format(version=version),
        f"clusters/home/{name}.yaml": flux(name, f", targetNamespace: {namespace}{flux_more}"),
    }


def plugin(text=INTEL):
    return {"apps/plugin/release.yaml": text, "clusters/home/plugin.yaml": flux("plugin")}


def plan(repository, files):
    write(repository, files)
    code, answer = run_json("migrate", "plan")
    assert code == 0
    return answer


def consumers(repository, files):
    return [(consumer["object"], consumer["verdict"]) for consumer in plan(repository, files)["consumers"]]


def test_a_consumer_has_its_place_amount_and_device_class(repository):
    answer = plan(repository, app("plex", "media"))
    [consumer] = answer["consumers"]
    assert consumer == {
        "object": "HelmRelease/media/plex",
        "file": "apps/plex/release.yaml",
        "line": 14,
        "place": "/spec/values/controllers/main/containers/app/resources/limits/gpu.intel.com~1i915",
        "key": "gpu.intel.com/i915",
        "amount": "1",
        "deviceClass": "gpu.intel.com",
        "drivers": ["gpu.intel.com"],
        "verdict": "edit",
    }
    [family] = answer["families"]
    assert (family["driver"], family["keys"]) == ("gpu.intel.com", ["gpu.intel.com/i915"])
    assert family["replacement"]["chart"] == "intel-gpu-resource-driver"


@pytest.mark.parametrize(
    ("files", "verdict"),
    [
        (app("plex", "media", version="3.7.1"), "by hand"),
        (app("plex", "media", version="4.2.0"), "by hand"),
        (app("plex", "media", key="squat.ai/dri"), "cannot"),
        (app("plex", "media") | {"apps/plex/repository.yaml": "kind: unknown\n"}, "edit"),
        (app("plex", "media") | {"apps/plex/release.yaml": release().replace("app-template", "other")}, "by hand"),
    ],
    ids=["chart of version 3", "chart without the place", "no driver", "version unknown", "unknown chart"],
)
def test_a_consumer_is_edited_only_where_its_chart_has_a_place_for_claims(repository, files, verdict):
    assert consumers(repository, files) == [("HelmRelease/media/plex", verdict)]


def test_a_pod_template_is_edited(repository):
    container = "{name: app, image: app, resources: {limits: {nvidia.com/gpu: 1}}}"
    text = (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: llm}\nspec:\n  selector: {matchLabels: {a: b}}\n"
        f"  template: {{metadata: {{labels: {{a: b}}}}, spec: {{containers: [{container}]}}}}\n"
    )
    files = {"base/kustomization.yaml": "namespace: ai\nresources: [llm.yaml]\n", "base/llm.yaml": text}
    assert consumers(repository, files) == [("Deployment/ai/llm", "edit")]


# Keeps the pods of a release away from the nodes with those of others.
APART = (
    "    defaultPodOptions: {affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{"
    "topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app.kubernetes.io/name: %s}}}]}}}\n"
)


def apart(name, other):
    files = app(name, "media")
    return files | {f"apps/{name}/release.yaml": files[f"apps/{name}/release.yaml"] + APART % other}


@pytest.mark.parametrize(
    ("files", "decision", "reasons"),
    [
        (app("plex", "media"), "exclusive", []),
        (app("plex", "media") | app("jellyfin", "media"), "named claim", []),
        (app("plex", "media") | app("frigate", "home"), "exclusive", ["2 consumers"]),
        (apart("plex", "jellyfin") | app("jellyfin", "media"), "exclusive", ["2 consumers"]),
        (apart("plex", "jellyfin") | app("jellyfin", "media") | app("tdarr", "media"), "exclusive", ["3 consumers"]),
        (apart("plex", "postgres") | app("jellyfin", "media"), "named claim", []),
    ],
    ids=["one consumer", "one namespace", "two namespaces", "two nodes", "two nodes or one", "away from others"],
)
def test_sharing_is_a_question_whose_proposal_depends_on_the_namespaces(repository, files, decision, reasons):
    [family] = plan(repository, files | plugin())["families"]
    assert family["sharing"]["decision"] == decision
    assert "5 shared replicas" in family["sharing"]["now"]
    assert decision in family["sharing"]["choices"]
    # Each needs a device of its own then, and no file shows how many there are.
    assert family["decision"] == ("stay" if reasons else "move")
    assert [reason.partition(" share devices")[0] for reason in family.get("reasons", [])] == reasons


TWO_APPS = app("plex", "media") | app("jellyfin", "media")
TALOS = "clusterName: home\nkubernetesVersion: v1.36.1\nnodes: [%s]\n"
TWO_NODES = TALOS % "{hostname: a, controlPlane: true}, {hostname: b}"
HOSTS = "all: {children: {servers: {hosts: {a: {}}}, workers: {hosts: {b: {}, c: {}}}, gpus: {hosts: {c: {}}}}}\n"
K0SCTL = """\
apiVersion: k0sctl.k0sproject.io/v1beta1
kind: Cluster
metadata: {name: home}
spec:
  hosts: [{role: controller, ssh: {address: 10.0.0.1}}, {role: controller+worker, hostname: b}, {role: worker, ssh: {address: 10.0.0.3}}]
  k0s: {version: v1.36.1+k0s.0}
"""
PREFERRED = APART.replace(
    "requiredDuringSchedulingIgnoredDuringExecution: [{",
    "preferredDuringSchedulingIgnoredDuringExecution: [{weight: 9, podAffinityTerm: {",
).replace(
    "matchLabels: {app.kubernetes.io/name: %s}}}",
    "matchExpressions: [{key: app.kubernetes.io/name, operator: In, values: [%s]}]}}}",
)
BALANCED = INTEL.replace("sharedDevNum: 5", "sharedDevNum: 5, allocationPolicy: balanced")


@pytest.mark.parametrize(
    ("files", "decision", "because"),
    [
        ({"talconfig.yaml": TWO_NODES}, "undecided", "2 nodes (talconfig.yaml)"),
        ({"talconfig.yaml": TALOS % "{hostname: a}"}, "named claim", "namespace media"),
        ({"ansible/hosts.yaml": HOSTS}, "undecided", "3 nodes (ansible/hosts.yaml)"),
        ({"k0sctl.yaml": K0SCTL}, "undecided", "2 nodes (k0sctl.yaml)"),
        (plugin(BALANCED), "undecided", "balanced"),
        ({"apps/plex/release.yaml": release("plex") + PREFERRED % "jellyfin"}, "exclusive", "podAntiAffinity"),
    ],
    ids=["two nodes", "one node", "inventory", "k0sctl", "a plugin that spreads pods", "preferred anti-affinity"],
)
def test_a_claim_for_one_node_of_several_is_a_question(repository, files, decision, because):
    [family] = plan(repository, TWO_APPS | plugin() | files)["families"]
    assert family["sharing"]["decision"] == decision
    assert because in family["sharing"]["because"]
    assert family["decision"] == ("move" if decision == "named claim" else "stay")
    asks = [reason for reason in family.get("reasons", []) if "`sharing.decision`" in reason]
    assert len(asks) == (decision == "undecided")
    assert decision in (*family["sharing"]["choices"], "undecided")


PARKED = CONSUMER.format(key="gpu.intel.com/i915").replace("main:\n", "main:\n        replicas: 0\n")
SUSPENDED = """\
apiVersion: batch/v1
kind: CronJob
metadata: {name: jellyfin}
spec:
  suspend: true
  schedule: "@daily"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a, resources: {limits: {gpu.intel.com/i915: 1}}}]}}}}
"""


@pytest.mark.parametrize("text", [release("jellyfin", values=PARKED), SUSPENDED], ids=["parked", "suspended"])
def test_a_workload_that_makes_no_pod_shares_no_device(repository, text):
    files = TWO_APPS | plugin() | {"apps/jellyfin/release.yaml": text, "talconfig.yaml": TWO_NODES}
    [family] = plan(repository, files)["families"]
    assert (family["decision"], family["sharing"]["decision"]) == ("move", "exclusive")
    assert family["sharing"]["devices"] == 1


NVIDIA = INTEL.replace("intel-device-plugins-gpu", "nvidia-device-plugin").replace(
    "{name: i915, sharedDevNum: 5}", "{}"
)
NO_PLACE = {"apps/frigate/repository.yaml": APP_TEMPLATE.format(version="3.7.1").replace("name: app", "name: old")}
PATCH = (
    "spec:\n  values:\n    controllers: {main: {containers: {app: {resources: {limits: {gpu.intel.com/i915: 1}}}}}}\n"
)
QUEUED = """\
apiVersion: batch/v1
kind: Job
metadata: {name: plex, labels: {kueue.x-k8s.io/queue-name: main}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a, resources: {limits: {gpu.intel.com/i915: 1}}}]}}}
"""


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, ""),
        (
            app("frigate", "media") | NO_PLACE | {"apps/frigate/release.yaml": release("frigate").replace("name: app-", "name: old-")},
            "1 consumer would lose its devices, because a person has to edit the request: HelmRelease/media/frigate",
        ),
        (
            app("cam", "media", key="gpu.intel.com/millicores"),
            "1 consumer would lose its devices, because no claim can replace the request: HelmRelease/media/cam",
        ),
        (
            {"apps/plex/release.yaml": QUEUED},
            "1 consumer would lose its devices, because a person has to edit the request: Job/media/plex",
        ),
        ({"talconfig.yaml": "kubernetesVersion: v1.33.4\n"}, "Kubernetes 1.33.4 (talconfig.yaml:1) has no claims"),
        (
            {"apps/plex/kustomization.yaml": "resources: [release.yaml, repository.yaml]\npatches: [{path: more.yaml, target: {kind: HelmRelease}}]\n", "apps/plex/more.yaml": PATCH},
            "1 consumer would lose its devices, because a person has to edit the request: HelmRelease/media/plex",
        ),
        (dict.fromkeys(app("plex", "media"), "# nothing\n"), "no object of the tree uses its devices"),
    ],
    ids=["nothing", "by hand", "cannot", "counted by Kueue", "old Kubernetes", "a patch", "no consumer"],
)  # fmt: skip
def test_a_plugin_stays_while_something_would_lose_its_devices(repository, files, reason):
    answer = plan(repository, app("plex", "media") | plugin() | files)
    [family] = answer["families"]
    assert family["decision"] == ("stay" if reason else "move"), family
    assert [line.startswith(reason) for line in family.get("reasons", [])] == [True] * bool(reason), family
    # No sentence says that the plugin goes.
    assert bool(answer["lost"]) is not bool(reason)
    assert any("before the switch" in line for line in answer["byHand"]) is not bool(reason)


def without_place(key="gpu.intel.com/i915", values=""):
    """Return a release whose chart has no place for claims, on nodes whose plugin shares no device."""
    files = app("frigate", "media", key, values=values) | NO_PLACE
    files["apps/frigate/release.yaml"] = files["apps/frigate/release.yaml"].replace("name: app-", "name: old-")
    intel = plugin(INTEL.replace(", sharedDevNum: 5", ""))
    return files | (intel if key.startswith("gpu.intel.com") else plugin(NVIDIA))


SCHEDULED = CONSUMER.format(key="nvidia.com/gpu") + "    schedulerName: volcano\n"
K36, K35 = [{"talconfig.yaml": f"kubernetesVersion: v1.{minor}.1\n"} for minor in (36, 35)]
GATE = {"machine.yaml": "cluster: {apiServer: {extraArgs: {feature-gates: DRAExtendedResource=true}}}\n"}
NAMED_CLASS = {
    "apps/frigate/kustomization.yaml": "resources: [release.yaml, repository.yaml, class.yaml]\n",
    "apps/frigate/class.yaml": "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: i915}\nspec: {extendedResourceName: gpu.intel.com/i915}\n",
}


@pytest.mark.parametrize(
    ("files", "state", "decision"),
    [
        (without_place(), "unknown version", "stay"),
        (without_place() | K35, "gate", "stay"),
        (without_place() | K35 | GATE, "prepare", "stay"),
        (without_place() | K36, "prepare", "stay"),
        (without_place() | NAMED_CLASS, "unknown version", "stay"),
        (without_place() | NAMED_CLASS | K35, "gate", "stay"),
        (without_place() | NAMED_CLASS | K35 | GATE, "in force", "move"),
        (without_place() | NAMED_CLASS | K36, "in force", "move"),
        (without_place("nvidia.com/gpu") | K36, "in force", "move"),  # by the class of the driver's chart
        (
            without_place("nvidia.com/gpu") | K36 | {"apps/plugin/release.yaml": "# of another tree\n"},
            "in force",
            "move",
        ),
        (without_place("nvidia.com/mig-1g.5gb") | K36, None, "stay"),
        (without_place("nvidia.com/gpu", SCHEDULED) | K36, None, "stay"),
        (without_place() | plugin() | NAMED_CLASS | K36, None, "stay"),  # 5 replicas
        (without_place() | app("cam", "media", "gpu.intel.com/millicores") | NAMED_CLASS | K36, "in force", "stay"),
        (without_place() | {"talconfig.yaml": "kubernetesVersion: v1.33.4\n"}, None, "stay"),
    ],
)
def test_a_device_class_that_serves_the_key_needs_no_edit(repository, files, state, decision):
    answer = plan(repository, files)
    [family] = answer["families"]
    first = family.get("firstStep", {})
    assert (first.get("state"), family["decision"]) == (state, decision), family
    has_class = state == "in force" or "class.yaml" in str(files.keys()) or "nvidia" in family["driver"]
    names = [obj["spec"]["extendedResourceName"] for obj in first.get("deviceClasses", [])]
    assert names == ([] if state is None or has_class else first["keys"])
    text = run("migrate", "plan", "-o", "text").stdout
    assert ("edit HelmRelease/media/frigate by hand" in text) is (state not in ("in force", "prepare"))
    assert ("frigate (" in "\n".join(text.splitlines()[:3])) is (state != "in force")
    assert ("no MIG devices" in text, text.startswith("Done")) == (state is not None, False)


def test_a_driver_with_shares_is_proposed_for_several_namespaces(repository):
    files = app("llm", "ai", "nvidia.com/gpu") | app("tts", "voice", "nvidia.com/gpu") | plugin(OPERATOR % "true")
    [family] = plan(repository, files)["families"]
    assert family["sharing"]["decision"] == "shares"
    assert family["sharing"]["valuesForShares"]["consumableShares"] == 4


@pytest.mark.parametrize(("has_plugin", "number"), [(True, 4), (False, "unlimited")])
def test_replicas_with_a_key_of_their_own_are_shared(repository, has_plugin, number):
    files = app("llm", "ai", "nvidia.com/gpu.shared") | app("tts", "voice", "nvidia.com/gpu.shared")
    renamed = (OPERATOR % "true").replace("timeSlicing: {", "timeSlicing: {renameByDefault: true, ")
    answer = plan(repository, files | (plugin(renamed) if has_plugin else {}))
    [family] = answer["families"]
    assert family["sharing"]["decision"] == "shares"
    assert family["sharing"]["valuesForShares"]["consumableShares"] == number
    assert [consumer["verdict"] for consumer in answer["consumers"]] == ["edit", "edit"]


def test_a_plugin_without_sharing_asks_no_question(repository):
    [family] = plan(repository, app("plex", "media") | plugin(INTEL.replace(", sharedDevNum: 5", "")))["families"]
    assert "sharing" not in family


@pytest.mark.parametrize(
    ("text", "how"), [(INTEL, "it goes with the move"), (OPERATOR % "true", "with the move"), (OPERATOR % "false", "")]
)
def test_a_plugin_goes_and_an_operator_stays(repository, text, how):
    families = plan(repository, plugin(text))["families"]
    plugins = [installed["how"] for family in families for installed in family["plugins"]]
    assert [text[: len(how)] for text in plugins] == ([how] if how else [])


@pytest.mark.parametrize("is_on", ["true", "false"])
@pytest.mark.parametrize(
    ("chart", "values"),
    [
        ("gpu-operator", "devicePlugin: {enabled: %s}"),
        ("gpu-operator-charts", "deviceConfig: {spec: {devicePlugin: {enableDevicePlugin: %s}}}"),
    ],
)
def test_the_switch_of_an_operator_is_read_from_a_file_of_values(repository, chart, values, is_on):
    kustomization = f"helmCharts: [{{name: {chart}, valuesFile: values.yaml, releaseName: operator, namespace: gpu}}]\n"
    files = {"base/kustomization.yaml": kustomization, "base/values.yaml": values % is_on + "\n"}
    families = plan(repository, files)["families"]
    plugins = [installed["how"] for family in families for installed in family["plugins"]]
    assert [how.partition(",")[0] for how in plugins] == (["with the move"] if is_on == "true" else [])


def test_the_namespace_of_the_pods_counts_for_sharing(repository):
    more = "  targetNamespace: media\n"
    files = app("plex", "flux-system", more=more) | app("jellyfin", "default", more=more) | plugin()
    [family] = plan(repository, files)["families"]
    assert family["sharing"]["because"] == "all workloads are in namespace media"


@pytest.mark.parametrize(
    ("more", "files", "place"),
    [
        (", dependsOn: [{name: plugin, namespace: flux-system}]", {}, "/spec/dependsOn/0"),
        ("", {"values": CONSUMER.format(key="gpu.intel.com/i915") + "    defaultPodOptions: {nodeSelector: {intel.feature.node.kubernetes.io/gpu: 'true'}}\n"}, "/spec/values/defaultPodOptions/nodeSelector/intel.feature.node.kubernetes.io~1gpu"),
        ("", {"more": "  dependsOn: [{name: intel-gpu, namespace: kube-system}]\n"}, "/spec/dependsOn/0"),
    ],
    ids=["kustomization", "label", "release"],
)  # fmt: skip
def test_what_depends_on_the_plugin_follows(repository, more, files, place):
    answer = plan(repository, app("plex", "media", flux_more=more, **files) | plugin())
    assert [follower["place"] for follower in answer["follow"]] == [place]


def test_dependencies_on_an_operator_that_stays_and_its_labels_do_not_follow(repository):
    more = ", dependsOn: [{name: plugin, namespace: flux-system}]"
    values = CONSUMER.format(key="nvidia.com/gpu") + "    pod: {nodeSelector: {nvidia.com/gpu.present: 'true'}}\n"
    files = app("llm", "ai", flux_more=more, values=values)
    files |= plugin((OPERATOR % "true").replace("values: {", "values: {dcgmExporter: {enabled: false}, "))
    assert plan(repository, files)["follow"] == []


def test_a_quota_of_the_key_follows(repository):
    quota = (
        "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: gpus}\nspec: {hard: {requests.gpu.intel.com/i915: 2}}\n"
    )
    files = app("plex", "media") | {"apps/plex/quota.yaml": quota}
    files["apps/plex/kustomization.yaml"] = "resources: [release.yaml, repository.yaml, quota.yaml]\n"
    assert [follower["object"] for follower in plan(repository, files)["follow"]] == ["ResourceQuota/media/gpus"]
    assert consumers(repository, files) == [("HelmRelease/media/plex", "edit")]


@pytest.mark.parametrize(
    ("text", "blocker"),
    [
        ("kubernetesVersion: v1.33.4\n", "1.33.4"),
        ("kubernetesVersion: v1.36.1\n", ""),
        ("machine: {kubelet: {image: 'ghcr.io/siderolabs/kubelet:v1.33.2'}}\n", "1.33.2"),
        ("kind: KubernetesUpgrade\nspec: {kubernetes: {version: v1.32.0}}\n", "1.32.0"),
        (
            "apiVersion: upgrade.cattle.io/v1\nkind: Plan\nspec: {version: v1.33.1+k3s1, upgrade: {image: rancher/k3s-upgrade}}\n",
            "1.33.1",
        ),
        (
            "apiVersion: upgrade.cattle.io/v1\nkind: Plan\nspec: {version: v1.9.0, upgrade: {image: other}}\n",
            "no file of the tree tells the version",
        ),
        ("other: true\n", "no file of the tree tells the version"),
        ("# kubernetesVersion: v1.33.4\nother: true\n", "no file of the tree tells the version"),
        (
            "apiVersion: k0sctl.k0sproject.io/v1beta1\nkind: Cluster\nmetadata: {name: home}\nspec:\n  k0s:\n    version: v1.33.6+k0s.0\n",
            "1.33.6",
        ),
        ("k3s_version: v1.33.7+k3s1\n", "1.33.7"),
        ("all: {children: {workers: {hosts: {b: {}}}}, vars: {kube_version: 1.33.8}}\n", "1.33.8"),
        # Nothing includes this object.
        (
            "kind: KubernetesUpgrade\nmetadata: {name: next}\nspec: {kubernetes: {version: v1.32.0}}\n",
            "no file of the tree tells the version",
        ),
    ],
)
def test_the_version_of_kubernetes_is_read_from_the_tree(repository, text, blocker):
    blockers = plan(repository, app("plex", "media") | {"talos/talconfig.yaml": text})["blockers"]
    about_versions = [line for line in blockers if "1.34" in line]
    assert len(about_versions) == bool(blocker)
    assert blocker in "".join(about_versions)


def test_a_file_that_no_build_includes_is_skipped_and_listed(repository):
    service = "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: llm}\nspec: {predictor: {model: {resources: {limits: {nvidia.com/gpu: 1}}}}}\n"
    files = app("plex", "media") | {"archive/old.yaml": release("old"), "archive/service.yaml": service}
    answer = plan(repository, files)
    assert [consumer["object"] for consumer in answer["consumers"]] == ["HelmRelease/media/plex"]
    assert [line.partition(":")[0] for line in answer["skipped"]] == ["archive/old.yaml", "archive/service.yaml"]


def test_what_a_hidden_folder_builds_decides_nothing_unless_a_build_includes_it(repository):
    flux_of = flux("old").replace("./apps/old", "./.archive/old")
    files = app("plex", "media") | {".archive/flux.yaml": flux_of, ".archive/old/release.yaml": release("old")}
    assert "./.archive/old" in flux_of
    answer = plan(repository, files)
    assert [consumer["object"] for consumer in answer["consumers"]] == ["HelmRelease/media/plex"]
    assert [line.partition(":")[0] for line in answer["skipped"]] == [".archive/old/release.yaml"]
    more = files | {"clusters/home/kustomization.yaml": "resources: [plex.yaml, ../../.archive/flux.yaml]\n"}
    objects = [consumer["object"] for consumer in plan(repository, more)["consumers"]]
    assert [name.rpartition("/")[2] for name in objects] == ["old", "plex"]


TEMPLATE = "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata:\n  name: {{ .Values.name }}\n"


# Values that Argo CD gets as a text, and that are a template.
TEXT = """\
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: llm}
spec:
  source:
    chart: vllm
    helm:
      values: |
        resources: {limits: {nvidia.com/gpu: {{ .Values.number }}}}
"""


@pytest.mark.parametrize(
    ("files", "skipped"),
    [
        ({"apps/llm.yaml": TEXT, "apps/kustomization.yaml": "resources: [llm.yaml]\n"}, ["apps/llm.yaml"]),
        ({"loader/templates/app.yaml": TEMPLATE}, ["loader/templates/app.yaml"]),
        ({"loader/templates/service.yaml": TEMPLATE.replace("Application", "Service")}, []),
        ({"loader/templates/app.yaml": TEMPLATE, "values/llm.yaml": "runtimeClassName: nvidia\n"}, ["loader/templates/app.yaml", "values/llm.yaml"]),
        ({"values/llm.yaml": "runtimeClassName: nvidia\n"}, []),
        ({"archive/plugin.yaml": INTEL}, ["archive/plugin.yaml"]),
        ({"archive/plugin.yaml": INTEL, "archive/kustomization.yaml": "patches: [{path: plugin.yaml}]\n"}, []),
    ],
    ids=["text of values", "template of Application", "other template", "values of a template", "values", "plugin", "patch of a plugin"],
)  # fmt: skip
def test_what_may_request_devices_and_is_not_read_is_named(repository, files, skipped):
    answer = plan(repository, app("plex", "media") | files)
    assert [line.partition(":")[0] for line in answer["skipped"]] == skipped


def test_a_kustomization_that_cannot_be_read_is_an_error_with_its_place(repository):
    write(
        repository, app("plex", "media") | {"apps/plex/kustomization.yaml": "resources:\n- release.yaml\n  more: 1\n"}
    )
    result = run("migrate", "plan")
    assert result.exit_code == 2
    assert "apps/plex/kustomization.yaml:3" in result.stderr


def test_a_plan_is_checked_against_the_tree_that_has_it(repository):
    files = app("plex", "media") | app("frigate", "home") | plugin()
    write(repository, files)
    written = yaml.safe_load(run("migrate", "plan").stdout)
    written["families"][0]["sharing"]["decision"] = "exclusive"  # a person overrules the proposal
    write(repository, {"plan.yaml": yaml.safe_dump(written, width=1000)})
    same = run("migrate", "plan", "--check", "plan.yaml")
    assert (same.exit_code, same.stdout) == (0, "the plan is still true\n")
    write(repository, {"apps/plex/release.yaml": release("plex", "gpu.intel.com/xe")})
    changed = run("migrate", "plan", "--check", "plan.yaml")
    assert changed.exit_code == 1
    assert {line.partition(":")[0] for line in changed.stdout.splitlines()} >= {"families", "consumers"}


@pytest.mark.parametrize("text", ["", "kind: Pod\n", "kind: MigrationPlan\nfamilies: 1\nconsumers: [1]\n"])
def test_a_file_that_is_no_plan_is_an_error_or_all_differs(repository, text):
    write(repository, app("plex", "media") | {"../plan.yaml": text})
    assert run("migrate", "plan", "--check", "../plan.yaml").exit_code == (1 if "Plan" in text else 2)


def test_a_tree_without_devices_has_nothing_to_move(repository):
    write(repository, {"base/kustomization.yaml": "resources: []\n"})
    assert run("migrate", "plan", "-o", "text").stdout.startswith("nothing to move")
    assert "skipped" not in run("migrate", "plan", "-o", "text").stdout
    write(repository, {"loader/templates/app.yaml": TEMPLATE})
    assert "skipped" in run("migrate", "plan", "-o", "text").stdout.splitlines()[0]


def test_a_reason_of_several_consumers_is_written_once(repository):
    write(repository, app("a", "ai", version="3.7.1") | app("b", "ai", version="3.7.1"))
    text = run("migrate", "plan", "-o", "markdown").stdout
    assert text.count("update chart") == 1
    assert text.count("same reason as apps/a/release.yaml:14") == 1


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_a_report_begins_with_what_a_person_decides(repository, form):
    write(repository, app("plex", "media") | app("frigate", "home") | plugin())
    text = run("migrate", "plan", "-o", form).stdout
    assert text.index("5 shared replicas") < text.index("apps/plex/release.yaml:14")
    assert "2 consumers (2 edit)" in text


WITHOUT_REQUEST = """\
    controllers: {main: {containers: {app: {image: {repository: app}}}, pod: {runtimeClassName: nvidia}}}
"""
DEVICE_FILE = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: plex, namespace: media}
spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec:
      containers: [{name: app, image: app}]
      volumes: [{name: dri, hostPath: {path: /dev/dri}}]
"""
NUMBER = """\
apiVersion: llmkube.dev/v1alpha1
kind: Model
metadata: {name: plex, namespace: media}
spec: {hardware: {gpu: {enabled: true, count: 1, vendor: %s}}}
"""


@pytest.mark.parametrize(
    ("text", "installed", "key"),
    [
        (release("plex", values=WITHOUT_REQUEST), NVIDIA, "runtimeClassName"),
        (release("plex", values=WITHOUT_REQUEST), INTEL, ""),
        (DEVICE_FILE, INTEL, "/dev/dri"),
        (DEVICE_FILE, NVIDIA, ""),
        (NUMBER % "nvidia", NVIDIA, "gpu"),
        (NUMBER % "intel", NVIDIA, ""),
    ],
    ids=["runtime class", "runtime of another driver", "device file", "file of another driver", "number", "number of another vendor"],
)  # fmt: skip
def test_a_workload_that_names_no_key_is_a_consumer_of_the_driver_that_moves(repository, text, installed, key):
    files = app("plex", "media") | {"apps/plex/release.yaml": text} | plugin(installed)
    verdicts = [(consumer["key"], consumer["verdict"]) for consumer in plan(repository, files)["consumers"]]
    assert verdicts == ([(key, "by hand")] if key else [])


OF_POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: llm}\nspec: {containers: [{name: app, image: app, %s}]}\n"
OF_KSERVE = OF_POD.replace("v1", "serving.kserve.io/v1beta1").replace("Pod", "InferenceService")
OF_KSERVE = OF_KSERVE.replace("spec: {", "spec: {predictor: {").replace("]}", "]}}")
OF_VALUES = release("llm", values="    controllers: {llm: {containers: {app: {%s}}}}\n")


@pytest.mark.parametrize(
    ("text", "env", "place"),
    [
        (OF_POD, "[{name: NVIDIA_VISIBLE_DEVICES, value: all}]", "/spec/containers/0/env/0"),
        (OF_KSERVE, "[{name: NVIDIA_VISIBLE_DEVICES, value: all}]", "/spec/predictor/containers/0/env/0"),
        (
            OF_VALUES,
            "{NVIDIA_VISIBLE_DEVICES: all}",
            "/spec/values/controllers/llm/containers/app/env/NVIDIA_VISIBLE_DEVICES",
        ),
        (OF_POD, "[{name: NVIDIA_VISIBLE_DEVICES, value: void}]", ""),
        (
            OF_VALUES + "    persistence: {gpu: {type: hostPath, hostPath: /dev/nvidia0}}\n",
            "{}",
            "/spec/values/persistence/gpu/hostPath",
        ),
        (OF_VALUES + "    persistence: {gpu: {enabled: false, hostPath: /dev/nvidia0}}\n", "{}", ""),
        (
            OF_POD.replace("]}", "], volumes: [{name: gpu, hostPath: {path: /dev/nvidia0}}]}"),
            "[]",
            "/spec/volumes/0/hostPath",
        ),
    ],
)
def test_a_variable_or_device_file_beside_a_request_follows_and_leaves_the_request_to_be_edited(
    repository, text, env, place
):
    of_app = text % f"env: {env}, resources: {{limits: {{nvidia.com/gpu: 1}}}}"
    answer = plan(repository, {"base/kustomization.yaml": "resources: [llm.yaml]\n", "base/llm.yaml": of_app})
    assert [consumer["key"] for consumer in answer["consumers"]] == ["nvidia.com/gpu"]
    assert [follower["place"] for follower in answer["follow"]] == [place] * bool(place)
    assert "sharing" not in answer["families"][0]


@pytest.mark.parametrize(
    ("gpu", "is_consumer"),
    [("enabled: true", True), ("enabled: false", False), ("enabled: true, draEnabled: true", False)],
)
def test_a_release_of_ollama_has_a_gpu_without_a_number(repository, gpu, is_consumer):
    values = f"    ollama: {{gpu: {{{gpu}}}}}\n"
    text = release("ollama", values=values).replace(
        "chartRef: {kind: OCIRepository, name: app-template}", "chart: {spec: {chart: ollama, version: 1.30.0}}"
    )
    files = {"apps/ollama/release.yaml": text, "clusters/home/ollama.yaml": flux("ollama")}
    verdicts = [
        (consumer["key"], consumer["verdict"]) for consumer in plan(repository, files | plugin(NVIDIA))["consumers"]
    ]
    assert verdicts == [("gpu", "edit")] * is_consumer


def test_a_template_of_openshift_is_changed_by_hand(repository):
    pod = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, image: a, resources: {limits: {nvidia.com/gpu: 1}}}]}}"
    text = f"apiVersion: template.openshift.io/v1\nkind: Template\nmetadata: {{name: notebook}}\nobjects: [{pod}]\n"
    files = {"base/kustomization.yaml": "resources: [a.yaml]\n", "base/a.yaml": text}
    assert consumers(repository, files) == [("Template/default/notebook", "by hand")]


def test_nothing_is_lost_or_done_by_hand_where_the_plugin_stays(repository):
    answer = plan(repository, app("plex", "media") | app("frigate", "home") | plugin())
    assert (answer["lost"], answer["byHand"]) == ([], [])


OF_LLMKUBE = "apiVersion: inference.llmkube.dev/v1alpha1\nkind: %s\nmetadata: {name: qwen}\nspec: %s\n"


@pytest.mark.parametrize(
    ("kind", "spec", "key", "why"),
    [
        ("Model", "{hardware: {gpu: {enabled: true, count: 1}}}", "gpu", "write `resourceClaims`"),
        ("Model", "{hardware: {gpu: {enabled: true, resourceName: nvidia.com/gpu}}}", "nvidia.com/gpu", "write `resourceClaims`"),
        ("InferenceService", "{resources: {gpu: 1}}", "gpu", "remove the number"),
    ],
)  # fmt: skip
def test_the_reason_has_the_place_for_claims_of_a_kind(repository, kind, spec, key, why):
    files = app("qwen", "ai") | {"apps/qwen/release.yaml": OF_LLMKUBE % (kind, spec)} | plugin(NVIDIA)
    [consumer] = plan(repository, files)["consumers"]
    assert (consumer["key"], consumer["verdict"]) == (key, "by hand")
    assert why in consumer["why"]


@pytest.mark.parametrize(("key", "expected"), [("squat.ai/dri", [("Model/ai/qwen", "cannot")]), ("squat.ai/tun", [])])
def test_a_model_with_devices_of_a_generic_plugin_stays(repository, key, expected):
    model = OF_LLMKUBE % (
        "Model",
        f"{{hardware: {{gpu: {{enabled: true, count: 1, vendor: amd, resourceName: {key}}}}}}}",
    )
    files = app("qwen", "ai") | {"apps/qwen/release.yaml": model}
    assert consumers(repository, files) == expected


@pytest.mark.parametrize("vendor", ["nvidia", "intel"])
def test_a_service_of_llmkube_may_have_devices_of_any_vendor(repository, vendor):
    model = OF_LLMKUBE % ("Model", f"{{hardware: {{gpu: {{enabled: true, count: 1, vendor: {vendor}}}}}}}")
    service = OF_LLMKUBE % ("InferenceService", "{modelRef: qwen, resources: {gpu: 1}}")
    files = app("qwen", "ai") | {"apps/qwen/release.yaml": f"{model}---\n{service}"} | plugin(NVIDIA)
    answer = plan(repository, files)
    assert [(consumer["object"], consumer["verdict"]) for consumer in answer["consumers"]] == [
        *[("Model/ai/qwen", "by hand")] * (vendor == "nvidia"),
        ("InferenceService/ai/qwen", "by hand"),
    ]
    assert "its Model" in answer["consumers"][-1]["why"]


@pytest.mark.parametrize("key", ["squat.ai/tun", "devic.es/dvb"])
def test_a_device_file_that_is_no_accelerator_is_no_consumer(repository, key):
    assert consumers(repository, app("plex", "media", key=key)) == []


def test_the_plugin_itself_is_no_consumer(repository):
    files = app("plex", "media", "nvidia.com/gpu") | plugin(
        NVIDIA.replace("values: {}", "values: {runtimeClassName: nvidia}")
    )
    assert consumers(repository, files) == [("HelmRelease/media/plex", "edit")]


def test_workloads_without_requests_share_devices(repository):
    files = app("plex", "media") | app("tts", "voice") | plugin(NVIDIA)
    for name in ("plex", "tts"):
        files[f"apps/{name}/release.yaml"] = release(name, values=WITHOUT_REQUEST)
    [family] = plan(repository, files)["families"]
    assert "2 workloads" in family["sharing"]["now"]
    assert family["sharing"]["decision"] == "shares"
    assert family["sharing"]["valuesForShares"]["consumableShares"] == "unlimited"


@pytest.mark.parametrize(("other", "goes"), [("", True), ("intel-device-plugins-npu", False)])
def test_intels_operator_stays_for_plugins_without_a_driver(repository, other, goes):
    operator = INTEL.replace("intel-device-plugins-gpu", "intel-device-plugins-operator").replace(
        "intel-gpu", "operator"
    )
    files = app("plex", "media") | plugin(f"{INTEL}---\n{operator}")
    files["apps/plugin/release.yaml"] += "---\n" + INTEL.replace("intel-device-plugins-gpu", other) if other else ""
    [family] = plan(repository, files)["families"]
    assert ("HelmRelease/kube-system/operator" in [plugin["object"] for plugin in family["plugins"]]) == goes


def test_a_plugin_is_known_by_its_image(repository):
    values = "    controllers: {main: {type: daemonset, containers: {app: {image: {repository: docker.io/rocm/k8s-device-plugin, tag: 1.31}}}}}\n"
    files = app("plex", "media", "amd.com/gpu") | plugin(release("amd", values=values))
    [family] = plan(repository, files)["families"]
    assert [installed["object"] for installed in family["plugins"]] == ["HelmRelease/default/amd"]


def test_the_charts_of_a_kustomization_that_flux_builds_are_read(repository):
    kustomization = "helmCharts: [{name: gpu-operator, releaseName: operator, namespace: gpu}]\n"
    files = app("llm", "ai", "nvidia.com/gpu") | {"apps/plugin/kustomization.yaml": kustomization}
    files["clusters/home/plugin.yaml"] = flux("plugin")
    [family] = plan(repository, files)["families"]
    assert [installed["object"] for installed in family["plugins"]] == ["Kustomization/gpu/operator"]


EXPORTER = """\
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: metrics, namespace: monitoring}
spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {runtimeClassName: nvidia, containers: [{name: app, image: "nvcr.io/nvidia/k8s/dcgm-exporter:4.5.2"}]}
"""


@pytest.mark.parametrize(
    ("files", "exporter"),
    [
        ({}, []),
        ({"apps/plugin/exporter.yaml": EXPORTER}, ["DaemonSet/monitoring/metrics"]),
        ({"apps/plugin/release.yaml": OPERATOR % "true"}, ["HelmRelease/gpu-operator/gpu-operator"]),
    ],
    ids=["none", "image", "operator"],
)
def test_metrics_are_lost_where_an_exporter_runs(repository, files, exporter):
    answer = plan(repository, app("llm", "ai", "nvidia.com/gpu") | plugin(NVIDIA) | files)
    assert [follower["object"] for follower in answer["follow"]] == exporter
    assert any("metrics" in line for line in answer["lost"]) == bool(exporter)
    assert len(answer["consumers"]) == 1


LABEL = "intel.feature.node.kubernetes.io/gpu"
RULE = f"apiVersion: nfd.k8s-sigs.io/v1alpha1\nkind: NodeFeatureRule\nmetadata: {{name: gpu}}\nspec: {{rules: [{{name: gpu, labels: {{{LABEL}: 'true'}}}}]}}\n"
MACHINES = f"machine:\n  nodeLabels:\n    {LABEL}: 'true'\n  sysctls: {{}}\n"


@pytest.mark.parametrize(
    ("files", "follows"),
    [
        ({}, True),
        ({"apps/plex/rule.yaml": RULE}, False),
        ({"apps/plugin/rule.yaml": RULE}, True),
        ({"talos/worker.yaml": MACHINES}, False),
    ],
    ids=["of the plugin", "of a rule", "of a rule that goes with the plugin", "of a machine"],
)
def test_a_label_that_stays_does_not_follow(repository, files, follows):
    values = CONSUMER.format(key="gpu.intel.com/i915") + f"    pod: {{nodeSelector: {{{LABEL}: 'true'}}}}\n"
    files = app("plex", "media", values=values) | plugin() | files
    files["apps/plex/kustomization.yaml"] = "resources: [release.yaml, repository.yaml, rule.yaml]\n"
    assert bool(plan(repository, files)["follow"]) == follows


QUEUE = """\
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: gpus}
spec:
  resourceGroups:
  - coveredResources: [cpu, nvidia.com/gpu]
    flavors: [{name: a100, resources: [{name: cpu, nominalQuota: 9}, {name: nvidia.com/gpu, nominalQuota: 2}]}]
"""
FLAVOR = """\
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: a100}
spec: {nodeLabels: {nvidia.com/gpu.product: A100, zone: a}}
"""
PROFILE = """\
apiVersion: infrastructure.opendatahub.io/v1
kind: HardwareProfile
metadata: {name: a100}
spec: {identifiers: [{identifier: nvidia.com/gpu, defaultCount: 1}]}
"""
QUOTA = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: gpus}\nspec: {hard: {requests.nvidia.com/gpu: 2, requests.amd.com/gpu: 2}}\n"


AUTOSCALER = """\
apiVersion: autoscaling.openshift.io/v1
kind: ClusterAutoscaler
metadata: {name: default}
spec: {resourceLimits: {gpus: [{type: amd.com/gpu, max: 1}, {type: nvidia.com/gpu, max: 2}]}}
"""


@pytest.mark.parametrize(
    ("text", "places"),
    [
        (AUTOSCALER, ["/spec/resourceLimits/gpus/1/type"]),
        (QUEUE, ["/spec/resourceGroups/0/flavors/0/resources/1/name", "/spec/resourceGroups/0/coveredResources/1"]),
        (FLAVOR, ["/spec/nodeLabels/nvidia.com~1gpu.product"]),
        (PROFILE, ["/spec/identifiers/0/identifier"]),
        (QUOTA, ["/spec/hard/requests.nvidia.com~1gpu"]),
    ],
    ids=["autoscaler", "queue", "flavor", "profile", "quota"],
)
def test_what_counts_keys_of_the_plugin_follows_without_a_consumer(repository, text, places):
    answer = plan(repository, plugin(NVIDIA) | {"apps/plugin/counts.yaml": text})
    assert [follower["place"] for follower in answer["follow"]] == places


@pytest.mark.parametrize("installs", [True, False])
def test_a_driver_that_no_file_installs_has_to_be_there_before_the_merge(repository, installs):
    files = app("plex", "media", key="nvidia.com/gpu") | (plugin(NVIDIA) if installs else {})
    made = plan(repository, files)
    missing = "no file of the tree installs gpu.nvidia.com or its device plugin: install the driver before the merge"
    assert [family["decision"] for family in made["families"]] == ["move"]
    assert (missing in made["blockers"]) is not installs


def test_the_version_of_the_cluster_with_the_consumers_counts(repository):
    files = {
        path.replace("apps", "main/apps"): text.replace("./apps", "./main/apps")
        for path, text in app("plex", "media").items()
    }
    files |= {
        "main/talconfig.yaml": "kubernetesVersion: v1.36.1\n",
        "edge/talconfig.yaml": "kubernetesVersion: v1.33.1\n",
    }
    assert not [line for line in plan(repository, files)["blockers"] if "1.34" in line]


@pytest.mark.parametrize(
    ("other", "places"),
    [
        ("kubernetesVersion: v1.36.1\n", []),
        ("kubernetesVersion: v1.35.2\n", ["infra/upgrade.yaml:5 has 1.36.1 (for infra/)", "talconfig.yaml:1 has 1.35.2 (for the whole tree)"]),
    ],
    ids=["same", "different"],
)  # fmt: skip
def test_every_file_that_tells_another_version_is_named_with_its_line(repository, other, places):
    upgrade = "# the next one\nkind: Other\n---\nkind: KubernetesUpgrade\nspec: {kubernetes: {version: v1.36.1}}\n"
    files = app("plex", "media") | {"infra/upgrade.yaml": upgrade, "talconfig.yaml": other}
    differing = [line for line in plan(repository, files)["blockers"] if "different versions" in line]
    assert len(differing) == bool(places)
    assert all(place in differing[0] for place in places)


DRA_DRIVER = NVIDIA.replace("nvidia-device-plugin", "dra-driver-nvidia-gpu").replace("0.34.0", "%s")
JETSON = app("llm", "ai", "nvidia.com/gpu")["apps/llm/release.yaml"] + "    image: nvcr.io/nvidia/l4t-jetpack\n"
GPU_OPERATOR = """\
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: gpu-operator, namespace: gpu-operator}
spec:
  chart: {spec: {chart: gpu-operator, version: v26.3.3}}
  values: {mig: {strategy: single}%s}
"""
MIG_NODE = "nodes:\n  - hostname: a\n    nodeLabels:\n      nvidia.com/mig.config: all-1g.10gb\n"
SPARK = {"talconfig.yaml": "# a\nnodes: [{hostname: spark, nodeLabels: {nvidia.com/gpu.product: NVIDIA-GB10}}]\n"}


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, ""),
        ({"apps/llm/release.yaml": JETSON}, "apps/llm/release.yaml:15 names l4t-"),
        (SPARK, ""),
        (SPARK | {"apps/plugin/driver.yaml": DRA_DRIVER % "0.3.1"}, "talconfig.yaml:2 names GB10"),
        (SPARK | {"apps/plugin/driver.yaml": DRA_DRIVER % "0.4.0"}, ""),
        (plugin() | {"apps/llm/release.yaml": JETSON.replace("nvidia.com/gpu", "gpu.intel.com/i915")}, ""),
        (
            plugin(NVIDIA.replace("{}", "{migStrategy: single}")),
            "HelmRelease/kube-system/intel-gpu has the MIG strategy `single`",
        ),
        (plugin(NVIDIA.replace("{}", "{migStrategy: mixed}")), ""),
        # The strategy of the operator is the default, also on nodes without MIG.
        (plugin(GPU_OPERATOR % ""), ""),
        (
            plugin(GPU_OPERATOR % ", migManager: {config: {default: all-1g.10gb}}"),
            "HelmRelease/gpu-operator/gpu-operator has the MIG strategy `single`",
        ),
        (
            plugin(GPU_OPERATOR % "") | {"talconfig.yaml": MIG_NODE},
            "HelmRelease/gpu-operator/gpu-operator has the MIG strategy `single`",
        ),
    ],
    ids=[
        "other",
        "Jetson",
        "new driver",
        "old driver",
        "driver in the tree",
        "another driver",
        "MIG, single",
        "MIG, mixed",
        "operator",
        "operator with MIG",
        "node with MIG",
    ],
)
def test_a_plugin_stays_on_hardware_that_the_driver_does_not_serve(repository, files, reason):
    [family] = plan(repository, app("llm", "ai", "nvidia.com/gpu") | plugin(NVIDIA) | files)["families"]
    assert [line.startswith(reason) for line in family.get("reasons", [])] == [True] * bool(reason), family


def test_hardware_is_read_from_a_snapshot(repository):
    snapshot = nodes(key="nvidia.com/gpu").replace(
        "{name: n1}", "{name: n1, labels: {nvidia.com/gpu.product: Jetson-AGX-Orin}}"
    )
    [family] = plan_with(repository, app("llm", "ai", "nvidia.com/gpu") | plugin(NVIDIA), snapshot)["families"]
    assert ["node n1 names Jetson" in reason for reason in family["reasons"]] == [True]


def test_resources_are_read_as_kustomize_reads_them(repository):
    container = "{name: app, image: app, args: [--flash-attn, on], resources: {limits: {nvidia.com/gpu: 1}}}"
    text = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: llm}}\nspec: {{containers: [{container}]}}\n"
    files = {"base/kustomization.yaml": "resources: [llm.yaml]\n", "base/llm.yaml": text}
    assert consumers(repository, files) == [("Pod/default/llm", "edit")]


def nodes(names="n1", amount=5, version="v1.36.2", key="gpu.intel.com/i915"):
    return "---\n".join(
        f"apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\nstatus: {{allocatable: {{{key}: '{amount}'}}, nodeInfo: {{kubeletVersion: {version}}}}}\n"
        for name in names.split()
    )


@pytest.mark.parametrize(
    ("values", "root"),
    [
        ("driver: {enabled: true}", "/run/nvidia/driver"),
        ("hostPaths: {driverInstallDir: /opt/driver}", "/opt/driver"),
        ("driver: {enabled: false}", None),
        ("driver: {enabled: false}, hostPaths: {driverInstallDir: /run/nvidia/driver}", None),
        ("driver: {enabled: false}, hostPaths: {driverInstallDir: /opt/driver}", "/opt/driver"),
    ],
)
def test_the_driver_is_looked_for_where_the_operator_has_it(repository, values, root):
    operator = (OPERATOR % "true").replace("{devicePlugin", f"{{{values}, devicePlugin")
    [family] = plan(repository, plugin(operator))["families"]
    assert family["replacement"]["values"].get("nvidiaDriverRoot") == root


def plan_with(repository, files, snapshot):
    write(repository, files | {"../fleet.yaml": snapshot})
    code, answer = run_json("migrate", "plan", "--inventory", "../fleet.yaml")
    assert code == 0
    return answer


@pytest.mark.parametrize(
    ("names", "amount", "decision"),
    [("n1", 5, "stay"), ("n1", 10, "move"), ("n1 n2", 5, "move")],
    ids=["one device", "two devices of a node", "two nodes"],
)
def test_pods_in_two_namespaces_move_if_a_snapshot_has_a_device_for_each(repository, names, amount, decision):
    files = app("plex", "media") | app("frigate", "home") | plugin()
    [family] = plan_with(repository, files, nodes(names, amount))["families"]
    assert (family["decision"], family["sharing"]["decision"]) == (decision, "exclusive")
    because = [*family.get("reasons", []), family["sharing"]["because"]]
    assert f"the nodes have {2 if decision == 'move' else 1}" in because[0]


@pytest.mark.parametrize(("version", "is_old"), [("v1.33.4+k3s1", True), ("v1.35.0", False)])
def test_the_version_of_a_snapshot_counts_more_than_that_of_the_tree(repository, version, is_old):
    files = app("plex", "media") | {
        "talos/talconfig.yaml": f"kubernetesVersion: {'v1.36.0' if is_old else 'v1.33.0'}\n"
    }
    blockers = plan_with(repository, files, nodes(version=version))["blockers"]
    assert any("the snapshot has 1.33.4" in line for line in blockers) == is_old
    assert any("1.34" in line for line in blockers) == is_old


@pytest.mark.parametrize(("names", "is_offered"), [("n1 n2", False), ("n1 n2 n3", True)])
def test_a_snapshot_with_three_nodes_offers_the_move_node_by_node(repository, names, is_offered):
    by_hand = plan_with(repository, app("plex", "media") | plugin(), nodes(names))["byHand"]
    assert any("node by node" in line for line in by_hand) == is_offered


def test_sharing_is_read_from_a_snapshot(repository):
    shared = "apiVersion: deviceplugin.intel.com/v1\nkind: GpuDevicePlugin\nmetadata: {name: live}\nspec: {sharedDevNum: 3}\n"
    [family] = plan_with(repository, app("plex", "media"), nodes() + "---\n" + shared)["families"]
    assert "3 shared replicas" in family["sharing"]["now"]


VALUES = "controllers: {main: {containers: {app: {resources: {limits: {gpu.intel.com/i915: 1}}}}}}\n"
PLACE = "/controllers/main/containers/app/resources/limits/gpu.intel.com~1i915"
FROM = "  valuesFrom: [{kind: %s, name: plex-values}]\n"
MAP = "apiVersion: v1\nkind: %s\nmetadata: {name: plex-values}\n%s: {values.yaml: '%s'}\n"
APPLICATION = """\
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: plex, namespace: argocd}
spec:
  destination: {namespace: media}
  sources:
  - {repoURL: https://example.com/charts, chart: app-template, targetRevision: 4.3.0, helm: {valueFiles: [$values/apps/plex/values.yaml]}}
  - {repoURL: https://example.com/home, ref: values}
  - {repoURL: https://example.com/home, path: apps/plex}
"""
CHART = "apiVersion: v2\nname: plex\ndependencies: [{name: app-template, version: 4.3.0, alias: tv}]\n"
SET = """\
apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata: {name: apps}
spec:
  generators: [{git: {directories: [{path: apps/*}]}}]
  template: {spec: {source: {path: '{{`{{ path }}`}}'}, destination: {namespace: media}}}
"""


def without_values(kind, listed):
    files = app("plex", "media", values="    {}\n", more=FROM % kind)
    files["apps/plex/kustomization.yaml"] = f"resources: [release.yaml, repository.yaml{listed[0]}]\n{listed[1]}"
    return files


@pytest.mark.parametrize(
    ("files", "consumer"),
    [
        (
            without_values("ConfigMap", ("", "configMapGenerator: [{name: plex-values, files: [values.yaml=plex.yaml]}]\n")) | {"apps/plex/plex.yaml": VALUES},
            ("HelmRelease/media/plex", "apps/plex/plex.yaml", PLACE),
        ),
        (
            without_values("ConfigMap", (", map.yaml", "")) | {"apps/plex/map.yaml": MAP % ("ConfigMap", "data", VALUES.strip())},
            ("HelmRelease/media/plex", "apps/plex/map.yaml", f"/data/values.yaml{PLACE}"),
        ),
        (
            without_values("Secret", (", map.yaml", "")) | {"apps/plex/map.yaml": MAP % ("Secret", "stringData", VALUES.strip())},
            ("HelmRelease/media/plex", "apps/plex/map.yaml", f"/stringData/values.yaml{PLACE}"),
        ),
        (
            {"clusters/plex.yaml": APPLICATION, "apps/plex/values.yaml": VALUES},
            ("Application/media/plex", "apps/plex/values.yaml", PLACE),
        ),
        (
            {"clusters/apps.yaml": SET, "apps/plex/Chart.yaml": CHART, "apps/plex/values.yaml": f"tv: {{{VALUES.strip()}}}\n"},
            ("Chart/media/plex", "apps/plex/values.yaml", f"/tv{PLACE}"),
        ),
        (
            {"base/kustomization.yaml": "helmCharts: [{name: app-template, version: 4.3.0, valuesFile: v.yaml, releaseName: plex, namespace: media}]\n", "base/v.yaml": VALUES},
            ("Kustomization/media/plex", "base/v.yaml", PLACE),
        ),
    ],
    ids=["generated", "ConfigMap", "Secret", "Application", "chart in the tree", "helmCharts"],
)  # fmt: skip
def test_a_consumer_in_values_outside_of_the_release_is_edited(repository, files, consumer):
    answer = plan(repository, files)
    [verdicts] = answer["consumers"]
    assert (verdicts["object"], verdicts["file"], verdicts["place"]) == consumer
    assert verdicts["verdict"] == "edit"
    assert answer["skipped"] == []


def test_sharing_is_read_from_the_values_of_a_chart_in_the_tree(repository):
    chart = "apiVersion: v2\nname: gpu\ndependencies: [{name: intel-device-plugins-gpu, version: 0.34.0}]\n"
    files = {"apps/gpu/Chart.yaml": chart, "apps/gpu/values.yaml": "intel-device-plugins-gpu: {sharedDevNum: 5}\n"}
    files |= {"clusters/apps.yaml": SET, "apps/llm/pod.yaml": DEVICE_FILE}
    [family] = plan(repository, files)["families"]
    assert [(installed["object"], installed["how"]) for installed in family["plugins"]] == [
        ("Chart/media/gpu", "it goes with the move")
    ]
    assert "1 workload" in family["sharing"]["now"]


RESOURCES = "    controllers: {main: {containers: {app: {resources: {limits: {%s}}}}}}\n"
SETTINGS = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {GPUS: '2', GPU: i915}\n"


@pytest.mark.parametrize(
    ("limits", "build", "amount", "why"),
    [
        ("gpu.intel.com/i915: '${GPUS}'", "substitute: {GPUS: '2'}", "2", "postBuild"),
        ("gpu.intel.com/i915: '${GPUS}'", "substituteFrom: [{kind: ConfigMap, name: settings}]", "2", "postBuild"),
        ("gpu.intel.com/i915: '${GPUS:-3}'", "substitute: {OTHER: a}", "3", "postBuild"),
        ("gpu.intel.com/i915: '${GPUS}'", "substitute: {OTHER: a}", "${GPUS}", "no file"),
        ("'gpu.intel.com/${GPU}': 1", "substituteFrom: [{kind: ConfigMap, name: settings}]", "1", "postBuild"),
    ],
    ids=["value", "ConfigMap", "default", "no value", "key"],
)
def test_variables_of_flux_are_followed(repository, limits, build, amount, why):
    files = app("plex", "media", values=RESOURCES % limits, flux_more=f", postBuild: {{{build}}}")
    [consumer] = plan(repository, files | {"clusters/home/settings.yaml": SETTINGS})["consumers"]
    assert (consumer["key"], consumer["amount"], consumer["line"]) == ("gpu.intel.com/i915", amount, 8)
    assert consumer["verdict"] == "by hand"
    assert why in consumer["why"]


IN_TEXT = """\
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: plex}
spec:
  destination: {namespace: media}
  source:
    chart: app-template
    targetRevision: 4.3.0
    helm:
      # of the chart
      values: |%s

        # a comment
        controllers:
          main:
            containers:
              app:
                resources:
                  limits:
                    gpu.intel.com/i915: 1
        other: 1
      releaseName: plex
"""


@pytest.mark.parametrize("header", ["", "-", "2", "- # a text"])
def test_the_line_in_a_text_of_values_is_that_of_the_file(repository, header):
    files = {"apps/plex.yaml": IN_TEXT % header, "apps/kustomization.yaml": "resources: [plex.yaml]\n"}
    [consumer] = plan(repository, files)["consumers"]
    assert (consumer["verdict"], consumer["line"]) == ("edit", 20)


def test_the_line_in_a_text_of_a_list_is_that_of_the_file():
    document = manifests.parse(
        "kind: A\n---\nspec:\n  list:\n    - a\n    - |\n      x: 1\n      limits:\n        {gpu: 1}\n\n  last: 1\n"
    )[1]
    pointers = (
        "/spec/list/1/limits/gpu",
        "/spec/list/1/limits",
        "/spec/list/1/unknown",
        "/spec/list/0/x",
        "/spec/last",
    )
    assert [document.line_of(pointer) for pointer in pointers] == [9, 8, 7, 5, 11]


OWNER = app("plex", "media") | plugin(INTEL.replace(", sharedDevNum: 5", ""))
BY_HAND = app("cam", "media", version="3.7.1") | {
    "apps/cam/repository.yaml": APP_TEMPLATE.format(version="3.7.1").replace("name: app", "name: old"),
    "apps/cam/release.yaml": release("cam").replace("name: app-", "name: old-"),
}


@pytest.mark.parametrize(
    ("files", "lines"),
    [
        ({}, ["Move now: gpu.intel.com", "Stops it: nothing", "Loses devices: no consumer"]),
        (BY_HAND, ["Do not move now: gpu.intel.com", "Stops it: gpu.intel.com: 1 consumer would lose", "Would lose devices: HelmRelease/media/cam (gpu.intel.com/i915)"]),
        (
            BY_HAND | app("llm", "ai", "nvidia.com/gpu"),
            ["Move now: gpu.nvidia.com; do not move now: gpu.intel.com", "Stops it: gpu.intel.com: 1 consumer", "Would lose devices: HelmRelease/media/cam (gpu.intel.com/i915)"],
        ),
    ],
    ids=["move", "stay", "both"],
)  # fmt: skip
def test_a_plan_begins_with_whether_to_move_what_stops_it_and_who_loses_what(repository, files, lines):
    write(repository, OWNER | files)
    first = run("migrate", "plan", "-o", "text").stdout.splitlines()
    assert [line.startswith(wanted) for line, wanted in zip(first, lines, strict=False)] == [True] * 3, first[:3]
    assert first[5] == "To do"


def test_the_tasks_come_in_order_after_the_first_lines(repository):
    write(repository, OWNER | TWO_APPS | plugin() | BY_HAND | {"talconfig.yaml": TWO_NODES})
    text = run("migrate", "plan", "-o", "text").stdout
    tasks = text[text.index("To do") : text.index("gpu.intel.com: gpu.intel.com/i915")]
    positions = [
        tasks.index(part)
        for part in ("1. ", "decide `sharing.decision`", "apps/cam/release.yaml:14", "CDI files", "migrate pr")
    ]
    assert positions == sorted(positions)
    assert "Skipped" not in text
    assert "By hand" not in text


def test_the_check_of_a_finished_migration_says_done(repository):
    files = app("plex", "media") | plugin()
    write(repository, files)
    (repository / "../plan.yaml").write_text(run("migrate", "plan").stdout)
    write(repository, {"apps/plex/release.yaml": release("plex", values="    {}\n")})
    partly = run("migrate", "plan", "--check", "../plan.yaml")
    assert (partly.exit_code, "done" in partly.stdout) == (1, False)
    write(repository, {"apps/plugin/release.yaml": "# nothing\n"})
    finished = run("migrate", "plan", "--check", "../plan.yaml")
    assert (finished.exit_code, finished.stdout) == (
        0,
        "done: no build of the tree requests gpu.intel.com/i915 or installs its device plugin\n",
    )


@pytest.mark.parametrize(("is_terminal", "begins"), [(True, "Move now"), (False, "apiVersion")])
def test_a_plan_on_a_terminal_is_for_people_and_in_a_file_for_programs(repository, monkeypatch, is_terminal, begins):
    write(repository, OWNER)
    monkeypatch.setattr(migrate, "is_terminal", lambda: is_terminal)
    assert run("migrate", "plan").stdout.startswith(begins)
