"""What a consumer of devices becomes: claims in pod templates and in the values of app-template, and the files of claims."""

from textwrap import indent

import click
import pytest
import yaml
from msgspec.structs import replace

from analysis.migration import make_plan
from analysis.migration.consumers import consumer_edits
from cli.configuration import given_configuration
from cli.edited import Change, edit_text
from cli.files import InputFiles
from cli.loading import read_whole
from tests.cli.test_git_trees import flux, release, repository, write
from tests.cli.test_migrate_plan import OPERATOR, app, plugin

__all__ = ["repository"]

LIMITS = "resources: {limits: {nvidia.com/gpu: 1}}"
GPU = [{"name": "gpu"}]
CLAIM = [{"name": "gpu", "resourceClaimTemplateName": "llm"}]


class Edits:
    """The edits of the consumers of a tree, and the files after them."""

    def __init__(self, repository, files, decision="", verdict=""):
        write(repository, files)
        with click.Context(click.Command("migrate")):
            reading, read = read_whole(InputFiles(paths=(".",)), given_configuration(""), None)
        documents = read.everything
        plan = make_plan(documents, read.tree, reading.state, read.skipped)
        if decision:
            plan = replace(plan, families=tuple(_decided(family, decision) for family in plan.families))
        if verdict:
            plan = replace(plan, consumers=tuple(replace(consumer, verdict=verdict) for consumer in plan.consumers))
        step = consumer_edits(documents, read.tree, plan, reading.state)
        self.notes = step.notes
        self.moved = {consumer.key for consumer in step.moved}
        self.new = {file.path: list(file.objects) for file in step.new}
        self.texts = {}
        for edit in step.edits:
            document = documents[edit.number]
            before = self.texts.get(document.file) or (repository / document.file).read_text()
            self.texts[document.file] = edit_text(document.file, before, [Change(document, edit.wanted)])
        self.verdicts = [(consumer.verdict, consumer.why) for consumer in plan.consumers]
        self.keys = {consumer.key for consumer in plan.consumers}

    def read(self, file):
        """Return the object of an edited file."""
        return yaml.safe_load(self.texts[file])

    @property
    def claims(self):
        """The names of the new claims and templates by file, with their namespaces if those are written."""
        return {
            path: [f"{obj['kind']}/{_metadata(obj, 'namespace')}/{_metadata(obj, 'name')}" for obj in objects]
            for path, objects in self.new.items()
        }


def _metadata(obj, field):
    return obj.get("metadata", {}).get(field, "")


def _decided(family, decision):
    return replace(family, sharing=replace(family.sharing, decision=decision))


def llm(values, **options):
    """Return the tree of a release `llm` in the namespace `ai`, with these values in YAML flow style."""
    return app("llm", "ai", values=indent(yaml.safe_dump(yaml.safe_load(values)), "    "), **options)


def values_after(repository, values):
    """Return the values of a release after its edit."""
    return Edits(repository, llm(values)).read("apps/llm/release.yaml")["spec"]["values"]


def test_a_release_gets_claims_and_keeps_everything_else(repository):
    values = (
        "    controllers:\n      main:\n        containers:\n          app:\n            resources:  # see the wiki\n"
        "              limits:\n                gpu.intel.com/i915: 1\n                memory: 1Gi  # measured\n"
        "    defaultPodOptions: {priorityClassName: low}\n"
    )
    edits = Edits(repository, app("plex", "media", values=values))
    before, after = release("plex", values=values), edits.texts["apps/plex/release.yaml"]
    assert [line for line in after.splitlines() if line not in before.splitlines()] == [
        "              claims:",
        "              - name: gpu",
        "    defaultPodOptions: {priorityClassName: low, resourceClaims: [{name: gpu, resourceClaimTemplateName: plex}]}",
    ]
    assert [line for line in before.splitlines() if line not in after.splitlines()] == [
        "                gpu.intel.com/i915: 1",
        "    defaultPodOptions: {priorityClassName: low}",
    ]


def test_a_template_is_a_file_beside_the_release_and_an_entry_of_its_kustomization(repository):
    edits = Edits(repository, app("llm", "ai", "nvidia.com/gpu"))
    assert edits.new == {
        "apps/llm/resourceclaimtemplate.yaml": [
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaimTemplate",
                "metadata": {"name": "llm"},
                "spec": {
                    "spec": {
                        "devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}
                    }
                },
            }
        ]
    }
    listed = edits.read("apps/llm/kustomization.yaml")["resources"]
    assert listed == ["release.yaml", "repository.yaml", "resourceclaimtemplate.yaml"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["./ks.yaml", "./helmrelease.yaml"], ["./ks.yaml", "./helmrelease.yaml", "./resourceclaimtemplate.yaml"]),
        (["helmrelease.yaml", "secret.yaml"], ["helmrelease.yaml", "resourceclaimtemplate.yaml", "secret.yaml"]),
        (
            ["../base/llm.yaml", "helmrelease.yaml"],
            ["../base/llm.yaml", "helmrelease.yaml", "resourceclaimtemplate.yaml"],
        ),
    ],
    ids=["not sorted", "sorted", "other folder"],
)
def test_an_entry_is_written_as_the_list_has_its_entries(repository, before, after):
    files = app("llm", "ai", "nvidia.com/gpu") | {
        "apps/llm/kustomization.yaml": yaml.safe_dump({"resources": before}),
        "apps/llm/helmrelease.yaml": release("llm", "nvidia.com/gpu"),
    }
    del files["apps/llm/release.yaml"]
    assert Edits(repository, files).read("apps/llm/kustomization.yaml")["resources"] == after


@pytest.mark.parametrize(
    ("file", "new"),
    [
        ("helmrelease.yaml", "resourceclaimtemplate.yaml"),
        ("helm-release.yml", "resource-claim-template.yml"),
        ("llm.yaml", "llm-resourceclaimtemplate.yaml"),
    ],
)
def test_a_new_file_is_named_as_the_tree_names_files(repository, file, new):
    files = app("llm", "ai", "nvidia.com/gpu")
    files |= {
        "apps/llm/kustomization.yaml": f"resources: [{file}, repository.yaml]\n",
        f"apps/llm/{file}": files.pop("apps/llm/release.yaml"),
    }
    assert list(Edits(repository, files).new) == [f"apps/llm/{new}"]


@pytest.mark.parametrize(
    ("values", "pods"),
    [
        ("controllers: {a: {containers: {b: {%s}}}}", {"defaultPodOptions": CLAIM}),
        ("controllers: {a: {initContainers: {b: {%s}}, containers: {d: {}}}}", {"defaultPodOptions": CLAIM}),
        ("controllers: {a: {pod: {hostIPC: true}, containers: {b: {%s}}}}", {"a": CLAIM}),
        ("controllers: {a: {containers: {b: {%s}}}, c: {containers: {d: {}}}}", {"a": CLAIM}),
        ("controllers: {a: {containers: {b: {%s}}}, c: {containers: {d: {%s}}}}", {"a": CLAIM, "c": CLAIM}),
    ],
    ids=["one controller", "init container", "options of the controller", "one of two controllers", "both controllers"],
)
def test_only_pods_that_use_a_claim_have_it(repository, values, pods):
    after = values_after(repository, values.replace("%s", LIMITS))
    written = {"defaultPodOptions": after.get("defaultPodOptions", {}).get("resourceClaims")}
    written |= {name: part.get("pod", {}).get("resourceClaims") for name, part in after["controllers"].items()}
    assert {name: claims for name, claims in written.items() if claims} == pods


@pytest.mark.parametrize(
    ("resources", "after"),
    [
        ("{limits: {nvidia.com/gpu: 1}, requests: {nvidia.com/gpu: 1}}", {"claims": GPU}),
        ("{limits: {nvidia.com/gpu: 1}, requests: {cpu: 1}}", {"requests": {"cpu": 1}, "claims": GPU}),
        ("{limits: {nvidia.com/gpu: 1, devic.es/tun: 1}}", {"limits": {"devic.es/tun": 1}, "claims": GPU}),
    ],
)
def test_empty_maps_go_with_their_last_key(repository, resources, after):
    values = values_after(repository, f"controllers: {{a: {{containers: {{b: {{resources: {resources}}}}}}}}}")
    assert values["controllers"]["a"]["containers"]["b"]["resources"] == after


def test_claims_that_a_pod_has_already_stay(repository):
    others = [{"name": "nic", "resourceClaimName": "nic"}]
    options = "defaultPodOptions: {resourceClaims: [{name: nic, resourceClaimName: nic}]}"
    resources = "resources: {limits: {nvidia.com/gpu: 1}, claims: [{name: nic}]}"
    after = values_after(
        repository, f"{{controllers: {{a: {{containers: {{b: {{{resources}}}}}}}, c: {{}}}}, {options}}}"
    )
    assert after["defaultPodOptions"]["resourceClaims"] == others
    assert after["controllers"]["a"]["pod"]["resourceClaims"] == others + CLAIM
    assert after["controllers"]["a"]["containers"]["b"]["resources"]["claims"] == [{"name": "nic"}, *GPU]


@pytest.mark.parametrize(("decision", "is_edited"), [("named claim", True), ("exclusive", False)])
def test_containers_with_one_anchor_are_edited_if_they_share_a_claim(repository, decision, is_edited):
    values = (
        "    controllers:\n      main:\n        containers:\n          a:\n            resources: &r\n"
        "              limits:\n                nvidia.com/gpu: 1\n                memory: 1Gi\n"
        "          b:\n            resources: *r\n"
    )
    edits = Edits(repository, app("llm", "ai", values=values) | plugin(OPERATOR % "true"), decision)
    assert bool(edits.texts) is is_edited
    assert bool(edits.notes) is not is_edited
    if is_edited:
        options = edits.read("apps/llm/release.yaml")["spec"]["values"]["defaultPodOptions"]
        assert options == {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}


def shared_apps():
    return app("llm", "ai", "nvidia.com/gpu") | app("tts", "ai", "nvidia.com/gpu") | plugin(OPERATOR % "true")


@pytest.mark.parametrize(
    ("decision", "entries", "claims"),
    [
        *[
            (
                decision,
                ["resourceClaimTemplateName: llm", "resourceClaimTemplateName: tts"],
                {
                    "apps/llm/resourceclaimtemplate.yaml": ["ResourceClaimTemplate//llm"],
                    "apps/tts/resourceclaimtemplate.yaml": ["ResourceClaimTemplate//tts"],
                },
            )
            for decision in ("exclusive", "shares")
        ],
        (
            "named claim",
            ["resourceClaimName: gpu", "resourceClaimName: gpu"],
            {"apps/llm/resourceclaim.yaml": ["ResourceClaim//gpu"]},
        ),
    ],
)
def test_the_decision_about_sharing_says_what_a_claim_is(repository, decision, entries, claims):
    edits = Edits(repository, shared_apps(), decision)
    assert edits.claims == claims
    releases = [edits.read(file)["spec"]["values"] for file in edits.texts if file.endswith("release.yaml")]
    assert [values["defaultPodOptions"]["resourceClaims"] for values in releases] == [
        [yaml.safe_load(f"{{name: gpu, {entry}}}")] for entry in entries
    ]


@pytest.mark.parametrize("decision", ["shares", "exclusive"])
def test_a_replica_with_a_key_of_its_own_becomes_a_claim_without_a_capacity(repository, decision):
    edits = Edits(repository, app("llm", "ai", "nvidia.com/gpu.shared"), decision)
    [template] = edits.new["apps/llm/resourceclaimtemplate.yaml"]
    assert template["spec"]["spec"]["devices"]["requests"] == [
        {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    ]


def test_a_claim_with_admin_access_has_all_devices(repository):
    edits = Edits(repository, shared_apps(), "admin access")
    [template] = edits.new["apps/llm/resourceclaimtemplate.yaml"]
    assert template["spec"]["spec"]["devices"]["requests"] == [
        {
            "name": "gpu",
            "exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "All", "adminAccess": True},
        }
    ]


def test_a_named_claim_is_in_the_folder_above_its_workloads(repository):
    edits = Edits(repository, shared_apps() | {"apps/kustomization.yaml": "resources: [llm, tts]\n"}, "named claim")
    assert edits.claims == {"apps/resourceclaim.yaml": ["ResourceClaim/ai/gpu"]}
    assert edits.read("apps/kustomization.yaml")["resources"] == ["llm", "resourceclaim.yaml", "tts"]


def test_a_named_claim_is_beside_a_workload_if_the_folder_above_has_another_namespace(repository):
    above = {"apps/kustomization.yaml": "namespace: other\nresources: [llm, tts]\n"}
    edits = Edits(repository, shared_apps() | above, "named claim")
    assert list(edits.claims) == ["apps/llm/resourceclaim.yaml"]


CLAIM_OF_TREE = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: gpu, namespace: ai}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: %s}}]}}
"""


@pytest.mark.parametrize(("device_class", "claims"), [("gpu.nvidia.com", []), ("other", ["ResourceClaim//gpu-2"])])
def test_a_claim_of_the_tree_is_named_again_if_it_is_equal(repository, device_class, claims):
    edits = Edits(repository, shared_apps() | {"apps/llm/claim.yaml": CLAIM_OF_TREE % device_class}, "named claim")
    assert [claim for of_file in edits.claims.values() for claim in of_file] == claims


def test_claims_that_a_build_would_put_into_another_namespace_are_left_to_a_person(repository):
    edits = Edits(repository, app("llm", "ai", "nvidia.com/gpu", more="  targetNamespace: other\n"))
    assert edits.texts == {}
    [note] = edits.notes
    assert "namespace other" in note


@pytest.mark.parametrize("verdict", ["by hand", "cannot"])
def test_a_person_may_take_a_consumer_out(repository, verdict):
    edits = Edits(repository, app("llm", "ai", "nvidia.com/gpu"), verdict=verdict)
    assert (edits.texts, edits.new, edits.notes) == ({}, {}, ())


def test_two_edits_leave_no_consumer(repository):
    edits = Edits(repository, app("llm", "ai", "nvidia.com/gpu"))
    templates = {path: yaml.safe_dump_all(objects) for path, objects in edits.new.items()}
    again = Edits(repository, edits.texts | templates)
    assert (again.keys, again.texts) == (set(), {})


APPLICATION = """\
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {{name: llm, namespace: argocd}}
spec:
  destination: {{namespace: ai}}
  source:
    chart: app-template
    targetRevision: 4.3.0
    helm:
      {values}
"""
VALUES = "controllers: {a: {containers: {b: {resources: {limits: {nvidia.com/gpu: 1}}}}}}"


@pytest.mark.parametrize(
    "values",
    [f"valuesObject: {{{VALUES}}}", f"values: |\n        # comment\n        {VALUES}"],
    ids=["object", "text"],
)
def test_the_values_of_an_application_are_edited(repository, values):
    edits = Edits(repository, {"apps/llm.yaml": APPLICATION.format(values=values)})
    helm = edits.read("apps/llm.yaml")["spec"]["source"]["helm"]
    after = helm.get("valuesObject") or yaml.safe_load(helm["values"])
    assert after["defaultPodOptions"]["resourceClaims"] == CLAIM
    assert ("# comment" in edits.texts["apps/llm.yaml"]) == values.startswith("values:")
    # The template is in the namespace of the pods, and not in that of the Application.
    assert edits.claims == {"apps/llm-resourceclaimtemplate.yaml": ["ResourceClaimTemplate/ai/llm"]}


DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: llm}
spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec:
      containers:
      - {name: app, image: app, resources: {limits: {nvidia.com/gpu: 2}}}
"""


def test_a_pod_template_gets_claims_and_its_template_a_file(repository):
    files = {
        "base/kustomization.yaml": "namespace: ai\nresources: [deployment.yaml]\n",
        "base/deployment.yaml": DEPLOYMENT,
    }
    edits = Edits(repository, files)
    spec = edits.read("base/deployment.yaml")["spec"]["template"]["spec"]
    assert spec["resourceClaims"] == CLAIM
    assert spec["containers"] == [{"name": "app", "image": "app", "resources": {"claims": GPU}}]
    [template] = edits.new["base/resourceclaimtemplate.yaml"]
    assert template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] == 2
    assert edits.read("base/kustomization.yaml")["resources"] == ["deployment.yaml", "resourceclaimtemplate.yaml"]


def test_the_tolerations_of_a_workload_stay(repository):
    toleration = "tolerations: [{key: nvidia.com/gpu, operator: Exists}]"
    files = {"base/kustomization.yaml": "resources: [deployment.yaml, other.yaml]\n"}
    files["base/deployment.yaml"] = DEPLOYMENT
    files["base/other.yaml"] = DEPLOYMENT.replace("name: llm", "name: other") + f"      {toleration}\n"
    edits = Edits(repository, files)
    specs = [edits.read(f"base/{name}.yaml")["spec"]["template"]["spec"] for name in ("deployment", "other")]
    assert [spec.get("tolerations") for spec in specs] == [None, yaml.safe_load(toleration)["tolerations"]]


PATCH = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: %s}
spec: {template: {spec: {containers: [{name: app, resources: {limits: {%s: 4}}}]}}}
"""


@pytest.mark.parametrize(
    ("name", "key", "is_edited"),
    [("llm", "nvidia.com/gpu", False), ("other", "nvidia.com/gpu", True), ("llm", "memory", True)],
)
@pytest.mark.parametrize("is_inline", [True, False])
def test_a_workload_to_which_a_patch_gives_the_key_again_is_left_to_a_person(
    repository, name, key, is_edited, is_inline
):
    patch = PATCH % (name, key)
    entry = {"patch": patch} if is_inline else {"path": "patch.yaml"}
    files = {
        "base/kustomization.yaml": "resources: [deployment.yaml]\n",
        "base/deployment.yaml": DEPLOYMENT,
        "overlay/kustomization.yaml": yaml.safe_dump({"resources": ["../base"], "patches": [entry]}),
        "overlay/patch.yaml": patch,
    }
    edits = Edits(repository, files)
    assert bool(edits.texts) is is_edited
    assert ("overlay/" in "".join(edits.notes)) is not is_edited


COMPONENT = {"components/volsync/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n"}


def with_component(name):
    more = f", components: [../../components/volsync], postBuild: {{substitute: {{APP: {name}}}}}"
    return app(name, f"ns-{name}", "nvidia.com/gpu", flux_more=more) | COMPONENT


def several(*apps):
    return {file: text for files in apps for file, text in files.items()}


def test_apps_of_a_tree_with_components_have_templates_of_their_own(repository):
    edits = Edits(repository, several(*map(with_component, ("a", "b", "c"))))
    assert edits.claims == {
        f"apps/{name}/resourceclaimtemplate.yaml": [f"ResourceClaimTemplate//{name}"] for name in ("a", "b", "c")
    }
    for name in ("a", "b", "c"):
        values = edits.read(f"apps/{name}/release.yaml")["spec"]["values"]
        assert values["defaultPodOptions"]["resourceClaims"][0]["resourceClaimTemplateName"] == name
        assert f"clusters/home/{name}.yaml" not in edits.texts


OLLAMA = """\
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: ollama, namespace: ai}
spec:
  chart: {spec: {chart: ollama, version: 1.30.0}}
  values: {ollama: {gpu: {enabled: %s, number: 1, type: %s}}, resources: {limits: {%s}}}
"""


EVERYTHING = {"allocationMode": "All", "adminAccess": True}


def ollama(enabled="true", vendor="nvidia", limits=""):
    text = OLLAMA % (enabled, vendor, limits)
    return {"apps/ollama/release.yaml": text, "clusters/home/ollama.yaml": flux("ollama")} | plugin(OPERATOR % "true")


@pytest.mark.parametrize(
    ("files", "decision", "body"),
    [
        (ollama(), "", {"deviceClassName": "gpu.nvidia.com"}),
        (ollama(vendor="nvidia, number: 2"), "", {"deviceClassName": "gpu.nvidia.com", "count": 2}),
        (ollama(vendor="amd", limits="amd.com/gpu: 1"), "", {"deviceClassName": "gpu.amd.com"}),
        (ollama(), "admin access", EVERYTHING | {"deviceClassName": "gpu.nvidia.com"}),
    ],
)
def test_the_chart_of_ollama_names_a_template(repository, files, decision, body):
    edits = Edits(repository, files, decision)
    values = edits.read("apps/ollama/release.yaml")["spec"]["values"]
    gpu = {name: value for name, value in values["ollama"]["gpu"].items() if name.startswith("dra")}
    assert gpu == {"draEnabled": True, "draExistingClaimTemplate": "ollama"}
    assert not values.get("resources", {}).get("limits")
    assert edits.claims == {"apps/ollama/resourceclaimtemplate.yaml": ["ResourceClaimTemplate/ai/ollama"]}
    [template] = edits.new["apps/ollama/resourceclaimtemplate.yaml"]
    [request] = template["spec"]["spec"]["devices"]["requests"]
    assert {name: value for name, value in request["exactly"].items() if name != "selectors"} == body
    assert Edits(repository, edits.texts).keys == set()


def test_the_chart_of_ollama_names_no_claim(repository):
    edits = Edits(repository, ollama(), "named claim")
    assert edits.texts == {}
    assert len(edits.notes) == 1


@pytest.mark.parametrize(
    ("files", "verdicts"),
    [
        (ollama(enabled="false", limits="nvidia.com/gpu: 1"), ["by hand"]),
        (ollama(vendor="nvidia, mig: {enabled: true}"), ["by hand"]),
        (ollama(limits="gpu.intel.com/i915: 1"), ["by hand", "edit"]),
    ],
    ids=["the chart makes no request", "no such claim", "another device beside the claim"],
)
def test_a_key_that_the_chart_of_ollama_makes_no_claim_for_is_left_to_a_person(repository, files, verdicts):
    edits = Edits(repository, files)
    assert sorted(verdict for verdict, _ in edits.verdicts) == verdicts
    assert [why for verdict, why in edits.verdicts if verdict == "by hand" and "draEnabled" not in why] == []
    assert edits.moved == ({"gpu"} if "edit" in verdicts else set())
    assert edits.notes == ()


RELEASE = """\
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: llm, namespace: ai}
spec:
  chart: {spec: {chart: %s, version: %s}}
  values: %s
"""


def release_of(chart, version, values):
    """Return the tree of a release `llm` in the namespace `ai`, with these values in YAML flow style."""
    files = {"apps/llm/release.yaml": RELEASE % (chart, version, values), "clusters/home/llm.yaml": flux("llm")}
    return files | plugin(OPERATOR % "true")


def llm_d(limits="nvidia.com/gpu: 2", parallelism="tensor: 2", more="", version="v0.4.12"):
    container = f"{{name: vllm, resources: {{limits: {{{limits}}}}}}}"
    values = f"{{{more} decode: {{parallelism: {{{parallelism}}}, containers: [{container}]}}}}"
    return release_of("llm-d-modelservice", version, values)


@pytest.mark.parametrize(
    "files",
    [
        llm_d(),
        llm_d("nvidia.com/gpu: 1"),
        llm_d(parallelism="tensor: '${SIZE}'"),
        llm_d(more="accelerator: {resources: {nvidia: example.com/gpu}},"),
    ],
)
def test_a_chart_without_a_lens_is_left_to_a_person_with_what_to_write(repository, files):
    edits = Edits(repository, files)
    assert (edits.texts, edits.notes) == ({}, ())
    [(verdict, why)] = edits.verdicts
    assert verdict == "by hand"
    assert "`accelerator.dra: true`" in why


def ray(values, version="1.6.2"):
    return release_of("ray-cluster", version, values)


def test_groups_of_ray_get_claims_and_the_number_of_gpus(repository):
    resources = "resources: {limits: {cpu: 1, nvidia.com/gpu: 1}, requests: {nvidia.com/gpu: 1}}"
    groups = (
        f"worker: {{{resources}}}, additionalWorkerGroups: {{small: {{{resources}, rayStartParams: {{num-gpus: 0}}}}}}"
    )
    edits = Edits(repository, ray(f"{{head: {{resources: {{limits: {{cpu: 1}}}}}}, {groups}}}"), "exclusive")
    moved = {"resources": {"limits": {"cpu": 1}, "claims": GPU}, "resourceClaims": CLAIM}
    assert edits.read("apps/llm/release.yaml")["spec"]["values"] == {
        "head": {"resources": {"limits": {"cpu": 1}}},
        "worker": {**moved, "rayStartParams": {"num-gpus": "1"}},
        "additionalWorkerGroups": {"small": {**moved, "rayStartParams": {"num-gpus": 0}}},
    }
    assert edits.claims == {"apps/llm/resourceclaimtemplate.yaml": ["ResourceClaimTemplate/ai/llm"]}
    assert Edits(repository, edits.texts).keys == set()


def test_groups_of_ray_do_not_share_a_claim(repository):
    group = "{resources: {limits: {nvidia.com/gpu: 1}}}"
    groups = ray(f"{{worker: {group}, additionalWorkerGroups: {{small: {group}}}}}")
    edits = Edits(repository, groups | plugin(OPERATOR % "true"))
    assert [name.partition("/")[0] for names in edits.claims.values() for name in names] == ["ResourceClaimTemplate"]


def test_a_group_of_ray_keeps_the_claims_that_it_has(repository):
    worker = "{resources: {limits: {gpu.intel.com/i915: 1}, claims: [{name: nic}]}, resourceClaims: [{name: nic, resourceClaimName: nic}]}"
    edits = Edits(repository, ray(f"{{worker: {worker}}}"))
    nic = {"name": "nic", "resourceClaimName": "nic"}
    assert edits.read("apps/llm/release.yaml")["spec"]["values"]["worker"] == {
        "resources": {"claims": [{"name": "nic"}, *GPU]},
        "resourceClaims": [nic, *CLAIM],
    }


@pytest.mark.parametrize(
    ("files", "since"),
    [(ray("{worker: {resources: {limits: {nvidia.com/gpu: 1}}}}", "1.5.1"), "1.6"), (llm_d(version="v0.3.18"), "0.4")],
)
def test_an_older_chart_is_updated_first(repository, files, since):
    edits = Edits(repository, files)
    assert edits.texts == {}
    [(verdict, why)] = edits.verdicts
    assert verdict == "by hand"
    assert f" to {since} or newer: " in why


def test_a_key_elsewhere_in_the_values_is_left_to_a_person(repository):
    elsewhere = "defaultContainerOptions: {resources: {limits: {nvidia.com/gpu: 1}}}"
    edits = Edits(repository, llm(f"{{{elsewhere}, {VALUES}}}"))
    after = edits.read("apps/llm/release.yaml")["spec"]["values"]
    assert after["defaultContainerOptions"] == yaml.safe_load(elsewhere)["defaultContainerOptions"]
    assert after["controllers"]["a"]["containers"]["b"]["resources"] == {"claims": GPU}
    assert sorted(verdict for verdict, _ in edits.verdicts) == ["by hand", "edit"]
    assert edits.notes == ()


LEARNING = f"machine-learning: {{enabled: true, {VALUES}}}"


def test_values_of_the_common_library_are_edited_below_a_prefix(repository):
    edits = Edits(repository, release_of("immich", "0.10.3", f"{{{LEARNING}}}"), "exclusive")
    after = edits.read("apps/llm/release.yaml")["spec"]["values"]
    assert after == {
        "machine-learning": {
            "enabled": True,
            "controllers": {"a": {"containers": {"b": {"resources": {"claims": GPU}}}}},
            "defaultPodOptions": {"resourceClaims": CLAIM},
        }
    }
    assert edits.claims == {"apps/llm/resourceclaimtemplate.yaml": ["ResourceClaimTemplate/ai/llm"]}


def chart_of_tree(version):
    """Return a chart in the tree with the library common of bjw-s."""
    library = f"{{name: common, version: {version}, repository: https://bjw-s-labs.github.io/helm-charts}}"
    chart = f"apiVersion: v2\nname: llm\nversion: 0.1.0\ndependencies: [{library}]\n"
    application = APPLICATION.format(values="{}").replace("chart: app-template\n    targetRevision: 4.3.0", "path: llm")
    return {"apps/llm.yaml": application, "llm/Chart.yaml": chart, "llm/values.yaml": VALUES}


@pytest.mark.parametrize(
    ("files", "verdict", "why"),
    [
        (release_of("immich", "0.10.0", f"{{{LEARNING}}}"), "edit", ""),
        (release_of("immich", "0.9.3", f"{{{LEARNING}}}"), "by hand", "to 0.10 or newer"),
        (release_of("homemade", "1.0.0", f"{{{LEARNING}}}"), "by hand", "library common"),
        (release_of("homemade", "1.0.0", f"{{{VALUES.replace('containers', 'pods')}}}"), "by hand", "no place for claims"),
        (chart_of_tree("4.3.0"), "edit", ""),
        (chart_of_tree("3.7.1"), "by hand", "to 4.3 or newer"),
    ],
    ids=["prefix", "prefix, old", "unknown chart", "unknown shape", "library in the tree", "old library in the tree"],
)  # fmt: skip
def test_a_chart_of_the_common_library_is_known_by_its_shape(repository, files, verdict, why):
    edits = Edits(repository, files)
    [(of_consumer, reason)] = edits.verdicts
    assert (of_consumer, why in reason) == (verdict, True)
    assert bool(edits.texts) is (verdict == "edit")


RESOURCES = "resources: {limits: {nvidia.com/gpu: 1}}"


@pytest.mark.parametrize(
    "values",
    [
        VALUES,
        f"a: {{{VALUES}}}",
        f"head: {{{RESOURCES}}}",
        f"additionalWorkerGroups: {{a: {{{RESOURCES}}}}}",
        f"decode: {{containers: [{{name: a, {RESOURCES}}}]}}",
        "ollama: {gpu: {enabled: true, type: nvidia, number: 1}}",
        f"ollama: {{gpu: {{enabled: true}}}}, {RESOURCES}",
        RESOURCES,
        f"defaultContainerOptions: {{{RESOURCES}}}",
    ],
)
@pytest.mark.parametrize("chart", ["app-template", "immich", "ollama", "ray-cluster", "llm-d-modelservice", "other"])
def test_what_the_plan_edits_is_what_moves(repository, chart, values):
    edits = Edits(repository, release_of(chart, "9.0.0", f"{{{values}}}"), "exclusive")
    edited = [verdict for verdict, _ in edits.verdicts if verdict == "edit"]
    assert (bool(edited), edits.notes) == (bool(edits.texts), ())
    again = Edits(repository, edits.texts)
    assert "edit" not in [verdict for verdict, _ in again.verdicts]
