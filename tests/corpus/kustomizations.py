"""Repositories with kustomizations, one repository for each feature of kustomize.

`translate --in-place` edits a repository if `by_hand` is empty. Otherwise it changes nothing, and reports the places in `by_hand`.
"""

from typing import NamedTuple


class Tree(NamedTuple):
    """The files of a repository, and the expected result of `translate --in-place`."""

    files: dict[str, str]
    by_hand: tuple[str, ...] = ()  # file:line of the places that have to be edited by hand
    overlays: tuple[str, ...] = ("prod",)  # built before and after the edit
    unreported: tuple[str, ...] = ()  # places that must not be reported
    exit_code: int = 2  # exit code of a repository that is not edited; 0 if only charts are reported, as warnings


def deployment(name="web", limits="{cpu: 1, nvidia.com/gpu: 1}", kind="Deployment", more=""):
    return f"""\
apiVersion: apps/v1
kind: {kind}
metadata:
  name: {name}   # kept
spec:
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      containers:
      - name: main
        image: "registry.example/{name}:1"
        resources:
          limits: {limits}
{more}"""


def patch(name="web", count="4", more=""):
    return f"""\
# for production
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  template:
    spec:
      containers:
      - name: main
        resources:
          limits:
            nvidia.com/gpu: {count}
{more}"""


def indented(text, by):
    return "".join(f"{' ' * by}{line}\n" for line in text.splitlines())


def base_and_overlay(overlay_fields, base="resources: [web.yaml]\n", web=None, **other_files):
    """Return the files of a base with a Deployment, and of an overlay."""
    return {
        "base/kustomization.yaml": base,
        "base/web.yaml": web or deployment(),
        "prod/kustomization.yaml": f"# the overlay\nresources:\n- ../base\n{overlay_fields}",
        **{name.replace("__", "/"): text for name, text in other_files.items()},
    }


SET_COUNT_TO_2 = "op: replace, path: /spec/template/spec/containers/0/resources/limits/nvidia.com~1gpu, value: 2"
SET_REPLICAS_TO_2 = "- {op: add, path: /spec/replicas, value: 2}"
DEPLOYMENT_WITHOUT_GPU = deployment(limits="{cpu: 1}")
TOLERATIONS = "      tolerations:\n      - {key: team, operator: Exists}\n"

TREES = {
    "base": Tree(base_and_overlay("")),
    "namespace, labels, annotations, replicas and images": Tree(
        base_and_overlay(
            "namespace: prod\ncommonLabels: {env: prod}\ncommonAnnotations: {owner: ml}\nreplicas: [{name: web, count: 3}]\n"
            "images: [{name: registry.example/web, newTag: '2'}]\n"
        )
    ),
    "two workloads in the base": Tree(
        base_and_overlay("", "resources: [web.yaml, other.yaml]\n", **{"base/other.yaml": deployment("other", kind="StatefulSet")})
    ),
    "an overlay of one of two workloads": Tree(
        base_and_overlay("", "resources: [web.yaml, other]\n", **{"base/other/kustomization.yaml": "resources: [other.yaml]\n", "base/other/other.yaml": deployment("other"), "half/kustomization.yaml": "resources: [../base/other]\n"}),
        overlays=("prod", "half"),
    ),
    "several documents in a file": Tree(base_and_overlay("", web=f"# first\n{deployment()}---\n{deployment('other')}---\napiVersion: v1\nkind: Service\nmetadata: {{name: web}}\n")),
    "prefix": Tree(base_and_overlay("namePrefix: prod-\nnameSuffix: -v1\n")),
    "prefixes and suffixes of several overlays": Tree(
        base_and_overlay("namePrefix: b-\n", "namePrefix: a-\nresources: [web.yaml]\n", **{"eu/kustomization.yaml": "resources: [../prod]\nnameSuffix: -eu\nnamespace: eu\n"}),
        overlays=("prod", "eu"),
    ),
    "a prefix from a transformer file": Tree(
        base_and_overlay("transformers: [prefix.yaml]\n", **{"prod/prefix.yaml": "apiVersion: builtin\nkind: PrefixTransformer\nmetadata: {name: x}\nprefix: x-\nfieldSpecs: [{path: metadata/name}]\n"})
    ),
    "a patch that raises the count": Tree(base_and_overlay("patches:\n- path: gpus.yaml  # more\n", **{"prod/gpus.yaml": patch()})),
    "a patch in patchesStrategicMerge that raises the count": Tree(base_and_overlay("patchesStrategicMerge:\n- gpus.yaml\n", **{"prod/gpus.yaml": patch()})),
    "a patch that adds a request": Tree(base_and_overlay("patches:\n- path: gpus.yaml\n", web=DEPLOYMENT_WITHOUT_GPU, **{"prod/gpus.yaml": patch()})),
    "a patch that adds a request, and a name prefix": Tree(base_and_overlay("namePrefix: p-\npatches:\n- path: gpus.yaml\n", web=DEPLOYMENT_WITHOUT_GPU, **{"prod/gpus.yaml": patch()})),
    "patches inside the kustomization": Tree(base_and_overlay(f"patches:\n- target: {{kind: Deployment}}\n  patch: |-\n{indented(patch(), 4)}- patch: |\n{indented(patch(more='            memory: 1Gi'), 4)}")),
    "a patch in patchesStrategicMerge inside the kustomization": Tree(base_and_overlay(f"patchesStrategicMerge:\n- |-\n{indented(patch(), 2)}")),
    "a patch of several workloads": Tree(
        base_and_overlay("patches:\n- path: gpus.yaml\n  target: {labelSelector: tier=gpu}\n", "resources: [web.yaml, other.yaml]\n", deployment().replace("# kept", "\n  labels: {tier: gpu}"), **{"base/other.yaml": deployment("other").replace("# kept", "\n  labels: {tier: gpu}"), "prod/gpus.yaml": patch("any")})
    ),
    "a patch of a workload with tolerations": Tree(base_and_overlay("patches:\n- path: gpus.yaml\n", web=deployment(more=TOLERATIONS), **{"prod/gpus.yaml": patch()})),
    "patches that request no devices": Tree(base_and_overlay(f"patches:\n- path: env.yaml\n- patch: |\n    {SET_REPLICAS_TO_2}\n  target: {{kind: Deployment}}\n", **{"prod/env.yaml": patch().replace("resources:\n          limits:\n            nvidia.com/gpu: 4", "env: [{name: A, value: b}]")})),
    "a component": Tree(base_and_overlay("components: [../gpu]\n", web=DEPLOYMENT_WITHOUT_GPU, **{"gpu/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\npatches:\n- path: gpus.yaml\n", "gpu/gpus.yaml": patch()})),
    "replacements": Tree(base_and_overlay("replacements:\n- source: {kind: Deployment, name: web, fieldPath: metadata.name}\n  targets: [{select: {kind: Deployment}, fieldPaths: [spec.template.metadata.labels.app]}]\n")),
    "manifests as data of a ConfigMap": Tree(base_and_overlay("configMapGenerator:\n- name: a\n  files: [job.yaml, again=notes.txt]\n", **{"prod/job.yaml": deployment("job"), "prod/notes.txt": "nvidia.com/gpu: 3\n"})),
    "a Pod in flow style": Tree(base_and_overlay("", web="# JSON's own\n" + '{"apiVersion": "v1", kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}}'[1:-1].replace('"apiVersion": "v1", kind', "apiVersion: v1\nkind").replace(", metadata", "\nmetadata").replace(", spec", "\nspec"))),
    "lines with carriage returns": Tree({name: text.replace("\n", "\r\n") for name, text in base_and_overlay("").items()}),
    "files without a final line feed": Tree({name: text.rstrip("\n") for name, text in base_and_overlay("patches: [{path: p.yaml}]", **{"prod/p.yaml": patch()}).items()}),
    "old file and field names of kustomize": Tree({"base/kustomization.yml": "bases: []\nresources: [web.yaml]\n", "base/web.yaml": deployment(), "prod/Kustomization": "bases: [../base]\n"}),
    "a JSON patch of the count": Tree(base_and_overlay(f"patches:\n- target: {{kind: Deployment}}\n  patch: |-\n    - {{{SET_COUNT_TO_2}}}\n"), ("prod/kustomization.yaml:7",)),
    "a JSON patch of the count in a file": Tree(base_and_overlay("patches:\n- target: {kind: Deployment, name: web}\n  path: p.yaml\n", **{"prod/p.yaml": f"- {{{SET_COUNT_TO_2}}}\n"}), ("prod/p.yaml:1",)),
    "prefixes and namespaces from Flux and Argo CD": Tree(
        {
            **base_and_overlay(""),
            "clusters/eu.yaml": "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: eu}\nspec: {path: ./prod, namePrefix: eu-, targetNamespace: eu}\n",
            "clusters/us.yaml": "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: us}\nspec: {source: {path: prod, kustomize: {nameSuffix: -us}}}\n",
            # The overlay with the same settings as clusters/eu.yaml.
            "eu/kustomization.yaml": "resources: [../prod]\nnamePrefix: eu-\nnamespace: eu\n",
        },
        overlays=("prod", "eu"),
    ),
    # Repositories that have to be edited by hand.
    "a patch in a Kustomization of Flux": Tree({**base_and_overlay(""), "flux.yaml": f"apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {{name: eu}}\nspec:\n  path: ./prod\n  patches:\n  - patch: |\n{indented(patch(), 6)}"}, ("flux.yaml", "flux.yaml:19")),
    "a chart and values files": Tree(
        {
            "app/Chart.yaml": "apiVersion: v2\nname: app\nversion: 1.0.0\n",
            "app/values.yaml": "# nvidia.com/gpu: 0\nresources:\n  limits:\n    nvidia.com/gpu: 1\n",
            "app/templates/web.yaml": deployment(limits="{{ toJson .Values.resources.limits }}"),
            "app/templates/plain.yaml": deployment("plain"),
            "quiet/Chart.yaml": "apiVersion: v2\nname: quiet\nversion: 1.0.0\n",
            "quiet/values.yaml": "unused:\n  nvidia.com/gpu: 1\n",
            "values-prod.yaml": "resources: {limits: {nvidia.com/gpu: 2}}\n",
            # Not reported: node labels, taints, a key that only ends like a known key, counts of 0, and expectations of helm-unittest.
            "values-nodes.yaml": "nodeSelector:\n  nvidia.com/gpu: present\n  node-role.nvidia.com/gpu: 1\ntolerations: [{key: nvidia.com/gpu, value: present}]\n",
            "app/values-nodes.yaml": "nodeSelector: {nvidia.com/gpu: 'present'}\n",
            "values-cpu.yaml": "resources:\n  requests: {nvidia.com/gpu: '0'}\n  limits:\n    nvidia.com/gpu: 0  # none\n",
            "app/tests/app_test.yaml": "suite: app\ntests: [{asserts: [{equal: {value: {limits: {nvidia.com/gpu: 1}}}}]}]\n",
            "release.yaml": "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: app}\nspec:\n  values:\n    resources: {limits: {nvidia.com/gpu: 2}}\n",
        },
        ("app/values.yaml:4", "quiet/values.yaml:2", "app/templates/plain.yaml:14", "values-prod.yaml:1", "release.yaml:6"),
        unreported=("app/values.yaml:1", "values-nodes.yaml:", "values-cpu.yaml:", "app_test.yaml:"),
        exit_code=0,
    ),
    "a patch that removes the count": Tree(base_and_overlay("patches:\n- path: none.yaml\n", **{"prod/none.yaml": patch(count="null")}), ("prod/none.yaml:12",)),
    "a JSON patch of the count and of replicas": Tree(base_and_overlay(f"patches:\n- target: {{kind: Deployment}}\n  patch: |-\n    {SET_REPLICAS_TO_2}\n    - {{{SET_COUNT_TO_2}}}\n"), ("prod/kustomization.yaml:8",)),
    "a JSON patch in patchesJson6902": Tree(base_and_overlay("patchesJson6902:\n- target: {group: apps, version: v1, kind: Deployment, name: web}\n  path: p.json\n", **{"prod/p.json": '[{"op": "remove", "path": "/spec/template/spec/containers/0/resources/limits/nvidia.com~1gpu"}]'}), ("prod/p.json:1",)),
    "a replacement that copies the count": Tree(base_and_overlay("replacements:\n- source: {kind: Deployment, name: web, fieldPath: 'spec.template.spec.containers.0.resources.limits.[nvidia.com/gpu]'}\n  targets: [{select: {kind: Deployment}, fieldPaths: [metadata.annotations.gpus], options: {create: true}}]\n"), ("prod/kustomization.yaml:5",)),
    "kustomizations that include each other": Tree(base_and_overlay("", "resources: [web.yaml, ../prod]\n"), ("base/kustomization.yaml",)),
    "a YAML anchor": Tree(base_and_overlay("", web=deployment(limits="&all {nvidia.com/gpu: 1}", more="      initContainers:\n      - {name: i, resources: {limits: *all}}\n")), ("base/web.yaml:1",)),
}  # fmt: skip

# The overlay of each does not build here. The base is edited, and the places in `by_hand` are reported.
UNBUILT = {
    "a remote base": Tree(base_and_overlay("- github.com/example/repository//base?ref=v1\n"), ("prod/kustomization.yaml",)),
    "a file outside of the repository": Tree(base_and_overlay("configMapGenerator: [{name: a, files: [x=../../../../../../../etc/passwd]}]\n"), ("prod/kustomization.yaml:4",)),
    "a resource at an address": Tree(base_and_overlay("- https://127.0.0.1:1/web.yaml\n"), ("prod/kustomization.yaml",)),
    "a chart in helmCharts": Tree(base_and_overlay("helmCharts:\n- name: app\n  repo: https://charts.example\n  valuesInline: {resources: {limits: {nvidia.com/gpu: 1}}}\n"), ("prod/kustomization.yaml", "prod/kustomization.yaml:7")),
    "a generator that runs a program": Tree(base_and_overlay("generators: [function.yaml]\n", **{"prod/function.yaml": "apiVersion: example.com/v1\nkind: X\nmetadata:\n  name: x\n  annotations:\n    config.kubernetes.io/function: 'exec: {path: /bin/true}'\n"}), ("prod/kustomization.yaml",)),
}  # fmt: skip
