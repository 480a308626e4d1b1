"""Requests that patches of kustomize, Flux and Argo CD add, in every command. e2e/kubernetes/test_kustomizations.py compares with kustomize."""

import json

import pytest

from analysis.gitops import Tree
from cluster.manifests import read_leniently
from tests.cli.running import run
from tests.corpus.kustomizations import DEPLOYMENT_WITHOUT_GPU, base_and_overlay, deployment, indented, patch

AT = "/spec/template/spec/containers/0/resources/limits/nvidia.com~1gpu"
OPERATION = f'- {{op: add, path: {AT}, value: "4"}}\n'
LIMITS = (
    "- op: add\n  path: /spec/template/spec/containers/0/resources\n  value:\n    limits:\n      nvidia.com/gpu: 4\n"
)
FLUX = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: eu}\nspec:\n  path: ./prod\n"
ARGO = "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: eu}\nspec:\n  source:\n    path: prod\n"
RELEASE = "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: r}\nspec:\n  postRenderers:\n  - kustomize:\n"
INLINE = f"patches:\n- patch: |\n{indented(patch(), 4)}"
OPERATIONS = f"patches:\n- target: {{kind: Deployment}}\n  patch: |\n{indented(LIMITS, 4)}"
COMPONENT = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\npatches:\n- path: gpus.yaml\n"


def overlay(fields, **files):
    return base_and_overlay(fields, web=DEPLOYMENT_WITHOUT_GPU, **files)


# The files of a tree, and the place of the request that a patch adds to Deployment web.
ADDED = {
    "a file": (overlay("patches:\n- path: gpus.yaml\n", **{"prod/gpus.yaml": patch()}), "prod/gpus.yaml:12"),
    "patchesStrategicMerge": (overlay("patchesStrategicMerge:\n- gpus.yaml\n", **{"prod/gpus.yaml": patch()}), "prod/gpus.yaml:12"),
    "in the kustomization": (overlay(INLINE), "prod/kustomization.yaml:17"),
    "in patchesStrategicMerge": (overlay(f"patchesStrategicMerge:\n- |\n{indented(patch(), 2)}"), "prod/kustomization.yaml:17"),
    "operations in the kustomization": (overlay(OPERATIONS), "prod/kustomization.yaml:11"),
    "operations in a file": (overlay("patches:\n- target: {kind: Deployment}\n  path: p.yaml\n", **{"prod/p.yaml": LIMITS}), "prod/p.yaml:5"),
    "patchesJson6902": (overlay("patchesJson6902:\n- target: {kind: Deployment, name: web}\n  path: p.yaml\n", **{"prod/p.yaml": LIMITS}), "prod/p.yaml:5"),
    "a value of an operation": (overlay(f"patches:\n- target: {{name: w.*}}\n  patch: |\n{indented(OPERATION, 4)}"), "prod/kustomization.yaml:7"),
    "a component": (overlay("components: [../gpu]\n", **{"gpu/kustomization.yaml": COMPONENT, "gpu/gpus.yaml": patch()}), "gpu/gpus.yaml:12"),
    "Flux": ({**overlay(""), "flux.yaml": f"{FLUX}{indented(INLINE, 2)}"}, "flux.yaml:19"),
    "Argo CD": ({**overlay(""), "argo.yaml": f"{ARGO}    kustomize:\n{indented(INLINE, 6)}"}, "argo.yaml:21"),
    "a release": ({"r.yaml": f"{RELEASE}{indented(INLINE, 6)}"}, "r.yaml:20"),
    "a release, with operations": ({"r.yaml": f"{RELEASE}{indented(OPERATIONS.replace('Deployment}', 'Deployment, group: apps, name: web}'), 6)}"}, "r.yaml:14"),
    "a base elsewhere": ({"kustomization.yaml": f"resources: [github.com/example/a//b?ref=v1]\n{INLINE}"}, "kustomization.yaml:15"),
    "another container": (overlay("patches:\n- path: gpus.yaml\n", **{"prod/gpus.yaml": patch().replace("name: main", "name: side")}), "prod/gpus.yaml:12"),
}  # fmt: skip


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(files):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)

    return write


def places(command):
    """Return the outcome or the verdict of each request, by its key, its amount, and the place of its object."""
    answer = json.loads(run(*command, "-o", "json").stdout)
    if command[0] == "survey":
        return [(row["name"], key["key"], key["amount"], row["outcome"]) for row in answer["workloads"] for key in row["keys"]]  # fmt: skip
    return [(row["object"].rpartition("/")[2], row["key"], row["amount"], f"{row['file']}:{row['line']}", row["verdict"]) for row in answer["consumers"]]  # fmt: skip


@pytest.mark.parametrize(("files", "place"), ADDED.values(), ids=ADDED)
def test_a_request_that_a_patch_adds_is_a_request_in_every_command(tree, files, place):
    tree(files)
    check = run("check", ".")
    assert "D012" not in check.stdout, "the file is read"
    assert "nvidia.com/gpu" in check.stderr, "its meaning is assumed"
    assert places(["survey", "-f", "."]) == [("web", "nvidia.com/gpu", "4", "translated")]
    assert "nvidia.com/gpu (nvidia) would be translated: 4 whole GPUs" in run("explain", "deployment/web", "-f", ".").stdout  # fmt: skip
    assert places(["migrate", "plan", "."]) == [("web", "nvidia.com/gpu", "4", place, "by hand")]
    assert f"{place.partition(':')[0]}:{place.partition(':')[2]} nvidia.com/gpu" in run("translate", "-f", ".").stderr


def test_a_fault_in_a_patch_is_a_finding_at_its_place(tree):
    tree(overlay("patches:\n- path: gpus.yaml\n", **{"prod/gpus.yaml": patch(count="1.5")}))
    result = run("check", ".")
    assert (result.exit_code, result.stdout.count("R001")) == (1, 1)
    assert "prod/gpus.yaml:12:13: error R001" in result.stdout


COUNT = {
    "raises": (patch(), [("web", "nvidia.com/gpu", "4", "translated")]),
    "removes": (patch(count="null"), []),
    "leaves": (patch(count="1"), [("web", "nvidia.com/gpu", "1", "translated")]),
    "removes the container": (patch().replace("name: main", "$patch: delete\n        name: main"), []),
}


@pytest.mark.parametrize(("text", "expected"), COUNT.values(), ids=COUNT)
def test_a_patched_object_counts_once_as_its_build_makes_it(tree, text, expected):
    tree(base_and_overlay("patches:\n- path: p.yaml\n", **{"prod/p.yaml": text}))
    assert places(["survey", "-f", "."]) == expected
    assert places(["migrate", "plan", "."])[0][:3] == ("web", "nvidia.com/gpu", "1"), "the file still has its request"


def test_an_object_that_another_build_makes_without_the_patch_counts_too(tree):
    files = base_and_overlay("patches:\n- path: p.yaml\n", **{"prod/p.yaml": patch()})
    tree({**files, "test/kustomization.yaml": "resources: [../base]\n"})
    assert sorted(row[2] for row in places(["survey", "-f", "."])) == ["1", "4"]


def test_patches_of_several_levels_add_up(tree):
    """The outer patch counts, and each request has the place at which it stands."""
    rdma = patch().replace("nvidia.com/gpu: 4", "rdma/hca: 1")
    files = overlay(
        "patches:\n- path: a.yaml\n- path: b.yaml\n", **{"prod/a.yaml": rdma, "prod/b.yaml": patch(count="2")}
    )
    tree({**files, "eu/kustomization.yaml": "resources: [../prod]\npatches: [{path: c.yaml}]\n", "eu/c.yaml": patch(count="8")})  # fmt: skip
    documents, others = read_leniently(["."])
    [made] = Tree(documents, lambda path: f"/{path}", lambda _: "", others).patched
    limits = made.document.object["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"cpu": 1, "rdma/hca": 1, "nvidia.com/gpu": 8}
    start = AT.rpartition("/")[0]
    assert [made.document.place_of(f"{start}/{key}")[0] for key in ("cpu", "rdma~1hca", "nvidia.com~1gpu")] == ["base/web.yaml", "prod/a.yaml", "eu/c.yaml"]  # fmt: skip


def test_a_patch_of_a_build_that_nothing_reaches_is_no_consumer(tree):
    tree(overlay("patches:\n- path: gpus.yaml\n", **{"prod/gpus.yaml": patch(), "flux.yaml": FLUX.replace("prod", "base")}))  # fmt: skip
    assert places(["migrate", "plan", "."]) == []
    skipped = "prod/gpus.yaml: no build includes the patch of Deployment/default/web, which requests nvidia.com/gpu"
    assert json.loads(run("migrate", "plan", ".", "-o", "json").stdout)["skipped"] == [skipped]


@pytest.mark.parametrize("steps", [10, 200])
def test_a_tree_with_too_many_patches_is_followed_in_part(tree, monkeypatch, steps):
    patches = "".join(f"- target: {{kind: Deployment}}\n  patch: '[{{op: add, path: /metadata/labels/l{n}, value: x}}]'\n" for n in range(9))  # fmt: skip
    tree(base_and_overlay(f"patches:\n{patches}", **{f"web{n}": deployment() for n in range(9)}))
    warning = "too many builds or patches"
    assert warning not in run("survey", "-f", ".").stderr
    monkeypatch.setattr("analysis.gitops.tree.MAX_STEPS", steps)
    result = run("survey", "-f", ".")
    assert (warning in result.stderr, result.exit_code) == (True, 0)


@pytest.mark.parametrize(
    "content",
    [
        "- {op: add, path: " + "/a" * 5_000 + ", value: 1}",
        "- {op: add, path: /spec/template/spec/containers/99999999, value: {}}",
        "- {op: 1}\n- 2",
        "a: &a [x]\nb: &b [*a, *a]\n" + "".join(f"{y}: &{y} [{', '.join([f'*{x}'] * 9)}]\n" for x, y in zip("bcdefghi", "cdefghij", strict=True)),
        "{",
        "null",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: 1}",
        "spec: {template: {spec: {containers: [1, {name: [a]}, {name: {}}]}}}",
    ],
)  # fmt: skip
def test_a_broken_or_hostile_patch_ends_no_command(tree, content):
    tree(base_and_overlay(f"patches:\n- target: {{kind: Deployment, name: '(a+)+$|.*'}}\n  patch: |\n{indented(content, 4)}", web=deployment()))  # fmt: skip
    for command in (["check", "."], ["survey", "-f", "."], ["migrate", "plan", "."]):
        assert run(*command).exit_code in (0, 1), command
