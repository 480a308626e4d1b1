"""Git repositories in which people keep clusters: Flux or Argo CD, HelmReleases of app-template, kustomize."""

import pytest

from tests.cli.running import run, run_json

FLUX = """\
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {{name: {name}, namespace: flux-system}}
spec: {{path: ./apps/{name}{more}}}
"""
RELEASE = """\
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata:
  name: {name}
spec:
  chartRef: {{kind: OCIRepository, name: app-template}}
{more}  values:
{values}"""
CONSUMER = """\
    controllers:
      main:
        containers:
          app:
            resources:
              limits:
                {key}: 1
"""
KUSTOMIZATION = "resources: [release.yaml]\n"


def release(name="plex", key="gpu.intel.com/i915", values="", more=""):
    return RELEASE.format(name=name, more=more, values=values or CONSUMER.format(key=key))


def flux(name="plex", more=""):
    return FLUX.format(name=name, more=more)


TREE = {
    "apps/plex/kustomization.yaml": KUSTOMIZATION,
    "apps/plex/release.yaml": release(),
    "clusters/home/plex.yaml": flux(more=", targetNamespace: media"),
}


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """The root of a repository on a machine without kustomize."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path.with_name("state")))
    return tmp_path


def write(repository, files):
    for name, text in files.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text)


def survey(repository, files):
    write(repository, files)
    _, answer = run_json("survey", "-f", ".", "--fail-on", "never")
    return answer


def check(repository, files):
    write(repository, files)
    _, answer = run_json("check", ".")
    return [(finding["code"], finding["place"]["file"], finding["place"]["line"]) for finding in answer["findings"]]


# Consumers


@pytest.mark.parametrize(
    ("key", "outcome"),
    [
        ("gpu.intel.com/i915", "translated"),
        ("nvidia.com/gpu", "translated"),
        ("squat.ai/dri", "left"),
        ("devic.es/dri", "left"),
    ],
)
def test_a_consumer_in_values_of_a_helm_release_is_a_workload(repository, key, outcome):
    [workload] = survey(repository, TREE | {"apps/plex/release.yaml": release(key=key)})["workloads"]
    assert (workload["kind"], workload["name"], workload["outcome"]) == ("HelmRelease", "plex", outcome)
    assert workload["file"] == "apps/plex/release.yaml"
    place = "values/controllers/main/containers/app"
    assert [(found["container"], found["key"], found["line"]) for found in workload["keys"]] == [(place, key, 14)]
    assert f"apps/plex/release.yaml:14 {place}" in run("survey", "-f", ".", "--fail-on", "never").stdout


@pytest.mark.parametrize("kind", ["Application", "ApplicationSet"])
def test_a_consumer_in_values_that_are_a_text_is_a_workload(repository, kind):
    spec = "{source: {chart: c, helm: {values: '{app: {resources: {limits: {nvidia.com/gpu: 1}}}}'}}, destination: {namespace: ai}}"
    spec = spec if kind == "Application" else f"{{template: {{spec: {spec}}}}}"
    text = f"apiVersion: argoproj.io/v1alpha1\nkind: {kind}\nmetadata: {{name: llm, namespace: argocd}}\nspec: {spec}\n"
    [workload] = survey(repository, {"llm.yaml": text})["workloads"]
    assert (workload["namespace"], workload["outcome"]) == ("ai", "translated")
    assert workload["keys"][0]["container"].endswith("source/helm/values/app")
    assert workload["keys"][0]["line"] == 4


def test_the_values_of_a_helm_release_are_judged_like_a_pod(repository):
    text = release().replace("i915: 1", "i915: 0.5")
    assert check(repository, TREE | {"apps/plex/release.yaml": text}) == [("R001", "apps/plex/release.yaml", 14)]


def test_known_keys_in_values_are_not_reported_as_unknown(repository):
    assert check(repository, TREE) == []
    assert run("translate", "-f", "apps/plex/release.yaml", "-o", "report").stdout.count("not checked") == 0


def test_requests_in_files_of_values_are_listed(repository):
    files = {
        "kustomization.yaml": "helmCharts: [{name: ollama, valuesFile: values.yaml}]\n",
        "values.yaml": "# for ollama\nresources: {limits: {nvidia.com/gpu: 1}}\n",
    }
    write(repository, files)
    output = run("survey", "-f", ".", "--fail-on", "never").stdout
    assert "no workload requests a device" not in output
    assert "0 workloads with devices, and 1 file outside of objects" in output
    assert "values.yaml     2  nvidia.com/gpu  not a manifest" in output


# Namespaces


@pytest.mark.parametrize(
    "files",
    [
        {},
        {
            "apps/kustomization.yaml": "namespace: media\nresources: [plex]\n",
            "clusters/home/plex.yaml": flux().replace("/plex}", "}"),
        },
        {
            "apps/plex/kustomization.yaml": f"namespace: media\n{KUSTOMIZATION}",
            "clusters/home/plex.yaml": flux(),
        },
        {
            "apps/plex/release.yaml": release(more="  targetNamespace: media\n"),
            "clusters/home/plex.yaml": flux(more=", targetNamespace: flux-system"),
        },
        {
            # A transformer gives Flux's objects their namespace.
            "clusters/home/plex.yaml": flux().replace(", namespace: flux-system", ""),
            "clusters/home/kustomization.yaml": "resources: [plex.yaml]\ntransformers: [../../namespace]\n",
            "namespace/kustomization.yaml": "namespace: media\nresources: [x.yaml]\n",
        },
        {
            "clusters/home/plex.yaml": "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: plex, namespace: argocd}\nspec: {source: {path: apps/plex}, destination: {namespace: media}}\n",
        },
        {
            "clusters/home/plex.yaml": "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: apps, namespace: argocd}\nspec:\n  generators:\n  - list: {elements: [{app: plex, space: media}]}\n  template:\n    spec: {source: {path: 'apps/{{app}}'}, destination: {namespace: '{{ .space }}'}}\n",
        },
        {
            "media/plex/release.yaml": release(),
            "apps/plex/release.yaml": "",
            "clusters/home/plex.yaml": "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: apps, namespace: argocd}\nspec:\n  generators:\n  - git: {directories: [{path: 'media/*'}, {path: media/other, exclude: true}]}\n  template:\n    spec: {source: {path: '{{.path.path}}'}, destination: {namespace: '{{index .path.segments 0}}', name: x}}\n".replace(
                "{{index .path.segments 0}}", "{{path[0]}}"
            ),
        },
    ],
    ids=["targetNamespace", "outer", "own", "release", "transformer", "application", "list", "directories"],
)
def test_the_namespace_of_flux_argo_and_kustomize_is_followed(repository, files):
    [workload] = survey(repository, TREE | files)["workloads"]
    assert workload["namespace"] == "media"


def test_a_path_of_another_repository_is_not_followed(repository):
    files = {
        name: flux(name, ", targetNamespace: media, sourceRef: {name: here}") for name in ("plex", "emby", "kyoo")
    } | {"other": flux(more=", targetNamespace: other, sourceRef: {name: there}")}
    written = {f"clusters/home/{name}.yaml": text for name, text in files.items()}
    [workload] = survey(repository, TREE | written)["workloads"]
    assert workload["namespace"] == "media"


def test_an_object_that_two_overlays_place_has_no_namespace_of_its_own(repository):
    overlay = "resources: [../plex]\nnamespace: "
    files = {"apps/a/kustomization.yaml": f"{overlay}a\n", "apps/b/kustomization.yaml": f"{overlay}b\n"}
    [workload] = survey(repository, TREE | files | {"clusters/home/plex.yaml": ""})["workloads"]
    assert workload["namespace"] == "default"


def test_a_claim_is_found_in_the_namespace_that_kustomize_sets(repository):
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}], containers: [{name: c, image: i, resources: {claims: [{name: gpu}]}}]}\n"
    template = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: gpu, namespace: media}\nspec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.intel.com}}]}}}\n"
    files = {"kustomization.yaml": "resources: [pod.yaml, template.yaml]\n", "pod.yaml": pod, "template.yaml": template}
    assert "D206" in [code for code, _, _ in check(repository, files)]
    assert check(repository, {"kustomization.yaml": "namespace: media\nresources: [pod.yaml, template.yaml]\n"}) == []


def test_an_edited_file_gets_no_namespace(repository):
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}\n"
    write(repository, {"apps/pod.yaml": pod, "all.yaml": flux("", ", targetNamespace: media")})
    assert run("translate", "--in-place", ".").exit_code == 0
    assert "namespace" not in (repository / "apps/pod.yaml").read_text()


# Device plugins


def obstacles(answer):
    return {(finding["code"], finding["object"]) for finding in answer["obstacles"]}


def messages(answer, code):
    return [finding["message"] for finding in answer["obstacles"] if finding["code"] == code]


INTEL = "    name: i915\n    sharedDevNum: 3\n"


def test_a_plugin_of_a_helm_release_is_seen_with_its_sharing(repository):
    plugin = release("intel", values=INTEL).replace("app-template", "charts")
    source = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: OCIRepository\nmetadata: {name: charts}\nspec: {url: oci://ghcr.io/home-operations/charts-mirror/intel-device-plugins-gpu}\n"
    answer = survey(repository, TREE | {"plugin/release.yaml": plugin, "plugin/source.yaml": source})
    assert ("S016", "GpuDevicePlugin/i915") in obstacles(answer)
    assert [workload["name"] for workload in answer["workloads"]] == ["plex"]
    assert "gpu.intel.com/i915: it makes 3 shared replicas of each device" in messages(answer, "S007")


@pytest.mark.parametrize(
    "plugin",
    [
        "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: a, namespace: argocd}\nspec:\n  source:\n    chart: intel-device-plugins-gpu\n    helm: {valuesObject: {name: i915, sharedDevNum: 3}}\n",
        "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: a, namespace: argocd}\nspec:\n  source:\n    chart: intel-device-plugins-gpu\n    helm: {values: '{name: i915, sharedDevNum: 3}'}\n",
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nhelmCharts:\n- name: intel-device-plugins-gpu\n  valuesInline: {name: i915, sharedDevNum: 3}\n",
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nhelmCharts: [{name: intel-device-plugins-gpu, valuesFile: values.yaml}]\n",
    ],
    ids=["Application", "text", "helmCharts", "valuesFile"],
)
def test_a_plugin_of_argo_cd_or_kustomize_is_seen(repository, plugin):
    values = {"plugin/values.yaml": "name: i915\nsharedDevNum: 3\n"}
    answer = survey(repository, TREE | values | {"plugin/kustomization.yaml": plugin})
    assert ("S016", "GpuDevicePlugin/i915") in obstacles(answer)
    assert messages(answer, "S007")


# The plugin reads the name of the strategy without regard to case.
@pytest.mark.parametrize("strategy", ["timeSlicing", "timeslicing"])
def test_time_slicing_in_a_generated_config_map_is_read(repository, strategy):
    slicing = f"version: v1\nsharing: {{{strategy}: {{resources: [{{name: nvidia.com/gpu, replicas: 8}}]}}}}\n"
    operator = release("gpu-operator", values="    devicePlugin: {config: {name: slicing, default: any}}\n")
    answer = survey(
        repository,
        {
            "operator/release.yaml": operator.replace("app-template", "gpu-operator"),
            "operator/slicing.yaml": slicing,
            "clusters/operator.yaml": flux("operator", ", targetNamespace: gpu").replace("apps/", ""),
            "operator/kustomization.yaml": "resources: [release.yaml]\nconfigMapGenerator:\n- name: slicing\n  files: [any=slicing.yaml]\n",
        },
    )
    assert ("S016", "ClusterPolicy/cluster-policy") in obstacles(answer)
    assert ("S007", "ConfigMap/gpu/slicing (any)") in obstacles(answer)
    assert "nvidia.com/gpu: it makes 8 time-sliced replicas of each device" in messages(answer, "S007")


def test_the_generic_device_plugin_in_app_template_is_seen_with_its_count(repository):
    values = """\
    controllers:
      plugin:
        type: daemonset
        containers:
          app:
            image: {repository: ghcr.io/squat/generic-device-plugin}
            args:
            - --device
            - |
              name: dri
              groups: [{count: 4, paths: [{path: /dev/dri}]}]
    persistence:
      plugins: {type: hostPath, hostPath: /var/lib/kubelet/device-plugins}
"""
    answer = survey(
        repository, {"plugin/release.yaml": release("generic", values=values, more="  targetNamespace: kube-system\n")}
    )
    assert ("S015", "DaemonSet/kube-system/plugin") in obstacles(answer)
    assert messages(answer, "S007") == ["squat.ai/dri: it makes 4 shared replicas of each device"]


# Quotas


@pytest.mark.parametrize(("amount", "code"), [("4", "S012"), ("0", "S021")])
def test_a_quota_of_the_old_key_is_reported_without_a_pod_in_its_namespace(repository, amount, code):
    quota = f"apiVersion: v1\nkind: ResourceQuota\nmetadata: {{name: q, namespace: empty}}\nspec: {{hard: {{requests.nvidia.com/gpu: {amount}}}}}\n"
    answer = survey(repository, TREE | {"quota.yaml": quota})
    found = [finding for finding in answer["obstacles"] if finding["object"] == "ResourceQuota/empty/q"]
    assert [finding["code"] for finding in found] == [code]
    assert found[0]["severity"] == ("error" if code == "S021" else "warning")
    write(repository, {"quota.yaml": quota})
    _, elsewhere = run_json("survey", "-f", ".", "-n", "media", "--fail-on", "never")
    assert not [finding for finding in elsewhere["obstacles"] if finding["code"] == code]


# Mistakes between files

CLAIMED = """\
    defaultPodOptions:
      resourceClaims: [{name: gpu, resourceClaimTemplateName: plex}]
    controllers:
      main: {containers: {app: {resources: {claims: [{name: gpu}]}}}}
"""
TEMPLATE = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: plex}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.intel.com}}]}}}
"""
MOVED = TREE | {
    "apps/plex/kustomization.yaml": "resources: [release.yaml, template.yaml]\n",
    "apps/plex/release.yaml": release(values=CLAIMED),
    "apps/plex/template.yaml": TEMPLATE,
}


def test_a_moved_tree_has_no_mistakes(repository):
    assert check(repository, MOVED) == []


def test_a_release_with_claims_in_its_values_is_a_workload(repository):
    [workload] = survey(repository, MOVED)["workloads"]
    assert (workload["namespace"], workload["name"], workload["outcome"], workload["keys"]) == (
        "media",
        "plex",
        None,
        [],
    )


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"apps/plex/template.yaml": TEMPLATE.replace("name: plex", "name: plex-gpu")}, ("D206", "apps/plex/release.yaml", 9)),
        ({"apps/plex/release.yaml": release(values=CLAIMED.replace("resourceClaimTemplateName", "resourceClaimName"))}, ("D206", "apps/plex/release.yaml", 9)),
        ({"apps/plex/template.yaml": TEMPLATE.replace("name: plex", "name: plex, namespace: other"), "apps/plex/kustomization.yaml": KUSTOMIZATION, "kustomization.yaml": "resources: [apps/plex/template.yaml]\n"}, ("D206", "apps/plex/release.yaml", 9)),
        ({"apps/plex/kustomization.yaml": KUSTOMIZATION}, ("D226", "apps/plex/template.yaml", 1)),
        ({"apps/plex/release.yaml": release(values=f"{CLAIMED}      redis: {{containers: {{app: {{image: {{}}}}}}}}\n")}, ("D225", "apps/plex/release.yaml", 9)),
        ({"apps/plex/release.yaml": release(values=CLAIMED, more="  dependsOn: [{name: intel-gpu-plugin, namespace: kube-system}]\n")}, ("D227", "apps/plex/release.yaml", 7)),
        ({"clusters/home/plex.yaml": flux(more=", targetNamespace: media, dependsOn: [{name: gone}]"), "clusters/home/kustomization.yaml": "resources: [plex.yaml]\n"}, ("D227", "clusters/home/plex.yaml", 4)),
    ],
    ids=["unknown", "field", "namespace", "unlisted", "controller", "release", "flux"],
)  # fmt: skip
def test_a_mistake_between_files_of_a_tree_is_found(repository, files, expected):
    found = check(repository, MOVED | files)
    assert expected in found
    assert {code for code, _, _ in found} <= {expected[0], "D206"}


def test_a_part_of_a_tree_is_not_compared_with_the_rest(repository):
    write(repository, MOVED | {"apps/plex/template.yaml": ""})
    assert run("check", "apps/plex/release.yaml").exit_code == 0
    assert "D206" not in run("check", "apps/plex").stdout


def test_a_name_that_flux_fills_in_is_compared_as_it_is_written(repository):
    values = CLAIMED.replace("Name: plex", "Name: '${APP}-gpu'")
    assert check(repository, MOVED | {"apps/plex/release.yaml": release(values=values)}) == []
    # A component has the name of the template with a variable.
    template = TEMPLATE.replace("name: plex", "name: '${APP}'")
    found = check(repository, MOVED | {"apps/plex/template.yaml": template})
    assert [code for code, _, _ in found] == ["D011"]


def test_what_no_build_includes_is_not_compared(repository):
    archived = release(values=CLAIMED, more="  dependsOn: [{name: gone}]\n").replace("name: plex}", "name: gone}")
    assert check(repository, MOVED | {"archive/old/release.yaml": archived}) == []


# Edits


def test_a_repository_with_requests_in_values_alone_is_not_built(repository):
    """There is no kustomize, so a build would be an error."""
    write(repository, TREE)
    result = run("translate", "--in-place", ".")
    assert (result.exit_code, result.stdout) == (0, "nothing to edit\n")
    assert "apps/plex/release.yaml:14: gpu.intel.com/i915 in Helm values is not rewritten" in result.stderr


def test_a_json_patch_that_requests_a_device_is_reported_without_a_build(repository):
    service = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n"
    patch = "- op: add\n  path: /spec/template/spec/containers/0/resources\n  value:\n    limits:\n      nvidia.com/gpu: 1\n"
    selector = "- {op: add, path: /spec/template/spec/nodeSelector/nvidia.com~1gpu, value: 'true'}\n"
    files = {"kustomization.yaml": "resources: [web.yaml]\npatches: [{path: p.yaml}, {path: s.yaml}]\n"}
    write(repository, files | {"web.yaml": service, "p.yaml": patch, "s.yaml": selector})
    result = run("translate", "--in-place", ".")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "error: p.yaml:5: nvidia.com/gpu is not rewritten" in result.stderr
    assert "s.yaml:" not in result.stderr


def test_names_in_files_are_those_that_people_write(repository):
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: vllm}\nspec:\n  containers:\n  - name: main\n    image: i\n    resources: {limits: {nvidia.com/gpu: 1}}\n"
    write(repository, {"pod.yaml": pod})
    run("translate", "--in-place", ".")
    text = (repository / "pod.yaml").read_text()
    assert "metadata:\n  name: vllm\n" in text
    assert "resourceClaimTemplateName: vllm\n" in text
    assert "- name: gpu\n" in text
    assert not any(word in text for word in ("drawbridge", "ExactCount", "count:"))


def test_kustomizations_that_include_each_other_are_followed_up_to_a_limit(repository, monkeypatch):
    names = [f"k{number}" for number in range(9)]
    rows = zip(names, [*names[1:], names[0]], strict=True)
    write(repository, {f"{name}/kustomization.yaml": f"resources: [../{other}]\n" for name, other in rows})
    write(repository, {f"flux/{name}.yaml": flux(name).replace("./apps/", "./") for name in names})
    assert "too often" not in run("survey", "-f", ".").stderr
    monkeypatch.setattr("analysis.gitops.tree._MAX_VISITS", 50)
    assert "too many builds or patches: only the first" in run("survey", "-f", ".").stderr


@pytest.mark.parametrize("builder", ["flux", "argo"])
def test_a_folder_with_only_a_kustomization_is_built(repository, builder):
    spec = "{template: {spec: {source: {repoURL: r, path: '{{path}}'}, destination: {namespace: media}}}, generators: [{git: {repoURL: r, directories: [{path: overlays/*}]}}]}"
    argo = f"apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {{name: all, namespace: argocd}}\nspec: {spec}\n"
    files = {name: text for name, text in TREE.items() if not name.startswith("clusters")}
    files["overlays/plex/kustomization.yaml"] = "resources: [../../apps/plex]\n"
    files["clusters/home.yaml"] = (
        argo if builder == "argo" else TREE["clusters/home/plex.yaml"].replace("apps/", "overlays/")
    )
    assert [workload["namespace"] for workload in survey(repository, files)["workloads"]] == ["media"]


def test_a_component_that_flux_adds_gets_the_namespace(repository):
    """Its template asks for admin access, which the label of the namespace allows."""
    request = "{name: gpu, exactly: {deviceClassName: gpu.intel.com, adminAccess: true}}"
    template = f"apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {{name: '${{APP}}-gpu'}}\nspec: {{spec: {{devices: {{requests: [{request}]}}}}}}\n"
    files = TREE | {
        "clusters/home/plex.yaml": flux(more=", targetNamespace: media, components: [../../components/gpu]"),
        "components/gpu/kustomization.yaml": "kind: Component\nresources: [template.yaml]\n",
        "components/gpu/template.yaml": template,
        "namespace.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: media, labels: {resource.kubernetes.io/admin-access: 'true'}}\n",
    }
    assert [code for code, *_ in check(repository, files)] == ["D011"]


@pytest.mark.parametrize(
    "addresses",
    [
        ["https://example.com/Me/home.git", "git@example.com:me/home.git", "ssh://git@example.com/me/home"],
        ["https://example.com/me/home", "https://user@example.com/me/home/"],
    ],
)
def test_the_addresses_of_a_repository_are_those_of_one_repository(repository, addresses):
    application = "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: a%s}\nspec: {source: {repoURL: '%s', path: apps/a%s}}\n"
    pod = PATCHED["apps/plex/pod.yaml"]
    files = {f"argo/{n}.yaml": application % (n, address, n) for n, address in enumerate([*addresses, addresses[0]])}
    write(repository, files | {f"apps/a{number}/pod.yaml": pod for number in range(len(addresses) + 1)})
    assert len(run_json("migrate", "plan")[1]["consumers"]) == len(addresses) + 1


PATCHED = {
    "base/set.yaml": """\
apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata: {name: apps}
spec:
  generators: [{list: {elements: [patched]}}]
  template: {spec: {source: {repoURL: r, path: '{{values.path}}'}, destination: {namespace: media}}}
""",
    "base/kustomization.yaml": "resources: [set.yaml]\n",
    "apps/plex/pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: plex}\nspec: {containers: [{name: a, resources: {limits: {nvidia.com/gpu: 1}}}]}\n",
}
PATCH = """\
apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata: {name: apps}
spec: {generators: [{list: {elements: [{values: {path: apps/plex}}]}}]}
"""


@pytest.mark.parametrize(
    "overlay",
    [
        {"overlay/patch.yaml": PATCH, "overlay/kustomization.yaml": "resources: [../base]\npatches: [{path: patch.yaml}]\n"},
        {"overlay/kustomization.yaml": "resources: [../base]\npatches:\n- patch: |\n    " + PATCH.replace("\n", "\n    ")},
    ],
    ids=["file", "inline"],
)  # fmt: skip
def test_an_application_set_builds_what_its_patches_name(repository, overlay):
    write(repository, PATCHED | overlay)
    code, answer = run_json("migrate", "plan")
    assert code == 0
    assert [consumer["object"] for consumer in answer["consumers"]] == ["Pod/media/plex"]


APPLICATION_SET = """\
apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata: {name: apps, namespace: argocd}
spec:
  generators: [{git: {directories: [{path: 'apps/*'}]}}]
  template:
    spec: {source: {path: '{{.path.path}}'}, destination: {namespace: '{{.path.basename}}', name: x}}
"""


@pytest.mark.parametrize("is_clone", [True, False])
@pytest.mark.parametrize("above", [".", "apps", "apps/in/a/deep/folder"])
def test_an_answer_does_not_depend_on_where_the_tree_lies(tmp_path, monkeypatch, above, is_clone):
    """Argo CD's pattern and Flux's path begin at the root of the repository, and other folders do not use up the limit."""
    monkeypatch.setattr("analysis.gitops.sources._MAX", 9)
    tree = tmp_path / above / "apps" / "tree"
    tree.mkdir(parents=True)
    if is_clone:
        (tree / ".git").mkdir()
    write(tree, TREE | {f"aaa/{number}/service.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n" for number in range(9)})  # fmt: skip
    write(tree, {"clusters/home/plex.yaml": APPLICATION_SET, "apps/other/release.yaml": release("other")})
    monkeypatch.chdir(tree)
    workloads = run_json("survey", "-f", ".")[1]["workloads"]
    assert [(workload["namespace"], workload["name"]) for workload in workloads] == [("other", "other"), ("plex", "plex")]  # fmt: skip
