"""Realistic repositories, with the outcome of each document that the command `check` and an API server must agree on.

The first line of a document states the expected outcome: `# refused` if the server rejects the document, `# unfilled` if the server
rejects it because of a placeholder, `# passed by` if `check` skips it. Without such a line, the server accepts the document. For each
newly found defect of `check`, add a document that shows it.
"""

import itertools
import json

CLAIM = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\n"
TEMPLATE = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\n"
CLAIM_SPEC = "{devices: {requests: [{name: r, exactly: {deviceClassName: gpu.example.com}}]}}"
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
  - name: c
    image: i
    resources: {claims: [{name: gpu}]}
  resourceClaims: [{name: gpu, resourceClaimName: c}]
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]
"""
STATUS = """\
status:
  devices: [{driver: d, pool: p, device: x, conditions: [{type: Ready, status: "True"}]}]
"""

# An application: compose, workflows, package.json, configuration of tools, and a folder of manifests.
APPLICATION = {
    "docker-compose.yml": "# passed by\nservices: {web: {image: nginx, deploy: {resources: {reservations: {devices: [{capabilities: [gpu]}]}}}}}\n",
    ".github/workflows/ci.yml": "# passed by\non: push\njobs: {a: {runs-on: x, steps: [{run: 'echo ${{ github.sha }}'}]}}\n",
    ".github/dependabot.yml": "# passed by\nversion: 2\nupdates: []\n",
    ".github/labels.yml": "# passed by\n- name: bug\n  color: f00\n",
    ".golangci.yml": "# passed by\nkind: strict\nlinters: {enable: [errcheck]}\n",
    "package.json": '{"name": "web", "version": "1.0.0", "scripts": {"start": "node ."}}\n',
    "tsconfig.json": '{\n  // JSON with comments\n  "compilerOptions": {}\n}\n',
    "mkdocs.yml": "# passed by\nsite_name: x\nplugins: [!!python/name:a.b '']\n",
    "grafana/datasources.yaml": "# passed by\napiVersion: 1\ndatasources: []\n",
    "deploy/namespace.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: trees-shop}\n",
    "deploy/web.yaml": f"{DEPLOYMENT.replace('name: web', 'name: web, namespace: trees-shop', 1)}---\n# refused\n{DEPLOYMENT.replace('apiVersion: apps/v1', '')}",
    "deploy/versionless.yaml": f"# refused\n{POD.removeprefix('apiVersion: v1')}---\n# refused\n{POD.replace('apiV', 'apiv')}",
    "deploy/retired.yaml": "---\n".join(
        f"# refused\n{DEPLOYMENT.replace('apps/v1', old)}" for old in ("apps/v1beta2", "extensions/v1beta1")
    ),
    "deploy/kindless.yaml": "# refused\napiVersion: v1\nmetadata: {name: x}\ndata: {}\n",
    "deploy/odd.yaml": "# refused\napiVersion: v1\nkind: [Pod]\nmetadata: {name: x}\n",
    "deploy/gpu.yaml": f"{CLAIM}metadata: {{name: c}}\nspec: {CLAIM_SPEC}\n---\n{POD}---\n# refused\n{POD.replace('name: gpu}]}', 'name: cpu}]}')}",
    "deploy/restored.yaml": f"{CLAIM}metadata: {{name: restored}}\nspec: {CLAIM_SPEC}\n{STATUS}",
}
# A chart whose values.yaml has a key `kind` but is no manifest. Beside the chart are manifests with braces that are not templates of a chart.
CHART = {
    "chart/Chart.yaml": "# passed by\napiVersion: v2\nname: app\nversion: 1.0.0\n",
    "chart/values.yaml": "# passed by\nkind: DaemonSet\nreplicas: 1\nimage: {tag: latest}\n",
    "chart/values.schema.json": '{"type": "object"}\n',
    "chart/ci/test-values.yaml": "# passed by\nreplicas: 2\n",
    "chart/templates/app.yaml": "# passed by\n{{- if .Values.on }}\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\n{{- end }}\n",
    "chart/templates/quoted.yaml": '# passed by\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: quoted}\ndata:\n  a: "{{ $.Files.Get "x" }}"\n',
    "chart/templates/parses.yaml": '# passed by\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: parses, annotations: {a: "{{ .Values.a }}"}}\n',
    "chart/templates/plain.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plain}\n",
    "chart/crds/thing.yaml": "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: things.trees.example.com}\nspec:\n  group: trees.example.com\n  scope: Namespaced\n  names: {kind: Thing, plural: things}\n  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]\n",
    "argo.yaml": "# unfilled\napiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: train}\nspec:\n  templates:\n  - name: main\n    container: {image: x, resources: {limits: {nvidia.com/gpu: '{{inputs.parameters.gpus}}'}}}\n",
    "alerts.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: alerts}\ndata:\n  rule: |\n    summary: {{ $labels.instance }} ${HOST} <host>\n",
}
# A kustomization with patches, which are not complete objects.
OVERLAY = {
    "base/kustomization.yaml": "# passed by\nresources: [web.yaml]\n",
    "base/web.yaml": DEPLOYMENT,
    "prod/kustomization.yaml": "# passed by\napiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [../base]\npatches:\n- path: gpus.yaml\n- path: ./json.yaml\n  target: {kind: Deployment}\npatchesStrategicMerge: [../shared/limits.yaml]\n",
    "prod/gpus.yaml": "# passed by\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 2}}}]}}}\n",
    "prod/json.yaml": "# passed by\n- {op: add, path: /spec/replicas, value: 2}\n",
    "shared/limits.yaml": "# passed by\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 2}}}]}}}\n",
}
# Placeholders that a pipeline fills; `check` reports the placeholders of a file once. An object with {{ }} in a field that may not have braces
# is a template, so `check` skips the object.
UNFILLED = {
    f"unfilled/{number}.yaml": f"# {mark}\n{text}"
    for number, (text, mark) in enumerate(
        (text.replace("@", json.dumps(word)), "passed by" if "{{" in word else "unfilled")
        for text, word in itertools.product(
            (
                f"{CLAIM}metadata: {{name: @}}\nspec: {CLAIM_SPEC}\n",
                f"{CLAIM}metadata: {{name: a}}\nspec: {CLAIM_SPEC.replace('gpu.example.com', '@, count: @')}\n",
                f"{TEMPLATE}metadata: {{name: a, labels: {{x: @}}}}\nspec: {{spec: {CLAIM_SPEC}}}\n",
                DEPLOYMENT.replace("gpu: 1", "gpu: @"),
                POD.replace("claims: [{name: gpu}]", "claims: [{name: @}]"),
            ),
            ("${NAME}", "{{ name }}", "<fill in>"),
        )
    )
}
# Claims with admin access. The Namespace in the same file has the label that allows admin access, another value of the label, or no label.
_ADMIN_LABELS = '{resource.kubernetes.io/admin-access: "true"}'
ADMIN = {
    f"admin/{number}.yaml": f"""\
apiVersion: v1
kind: Namespace
metadata: {{name: trees-{number}, labels: {labels}}}
---
{"" if labels == _ADMIN_LABELS else "# refused"}
{kind}metadata: {{name: c, namespace: trees-{number}}}
spec: {spec.replace("com}", "com, adminAccess: true}")}
"""
    for number, (labels, (kind, spec)) in enumerate(
        itertools.product(
            (_ADMIN_LABELS, "{}", '{resource.kubernetes.io/admin-access: "false"}'),
            ((CLAIM, CLAIM_SPEC), (TEMPLATE, f"{{spec: {CLAIM_SPEC}}}")),
        )
    )
}
TREES = {"application": APPLICATION, "chart": CHART, "overlay": OVERLAY, "unfilled": UNFILLED, "admin": ADMIN}


def write_tree(tree, folder):
    """Write a tree into a folder; return the expected outcome of each document, by file and first line."""
    marks = {}
    for name, text in tree.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        line = 1
        for document in text.split("---\n"):
            first = document.partition("\n")[0]
            marks[name, line] = first.removeprefix("# ") if first.startswith("# ") else ""
            line += document.count("\n") + 1
        if name.endswith(".json"):
            marks[name, 1] = "passed by"
    return marks
