"""Helm renders the charts of releases that `drawbridge migrate pr` changes, before and after."""

import pytest

from cluster.manifests import ManifestError
from e2e.build import program
from tests.cli.test_migrate_charts import archive, chart, not_compared, place

pytestmark = pytest.mark.real  # helm is built with Go

POD = """\
      {{- with .Values.controllers.main.pod }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
"""
TEMPLATE = f"""\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: "{{{{ .Release.Name }}}}", namespace: "{{{{ .Release.Namespace }}}}"}}
spec:
  template:
    spec:
{POD}\
      containers:
      {{{{- range $name, $container := .Values.controllers.main.containers }}}}
      - name: {{{{ $name }}}}
        {{{{- toYaml $container | nindent 8 }}}}
      {{{{- end }}}}
---
apiVersion: v1
kind: Secret
metadata: {{name: password}}
data: {{password: "{{{{ randAlphaNum 8 | b64enc }}}}"}}
"""
SCHEMA = b'{"$ref": "https://example.com/schema.json"}'


@pytest.fixture(autouse=True)
def _helm(monkeypatch):
    monkeypatch.setenv("PATH", str(program("helm").parent))


def files(template):
    return {"Chart.yaml": chart(), "values.schema.json": SCHEMA, "templates/app.yaml": template.encode()}


def packed(template, *more):
    return archive(*[(f"app-template/{name}", data) for name, data in files(template).items()], *more)


@pytest.mark.parametrize("is_packed", [True, False])
def test_a_chart_with_random_values_and_a_schema_at_an_address_is_compared(tmp_path, is_packed):
    if is_packed:
        place(tmp_path, {"app-template-4.3.0.tgz": packed(TEMPLATE)})
    else:
        place(tmp_path / "app-template", files(TEMPLATE))
    assert not_compared(tmp_path) == ""


def test_a_chart_without_the_place_for_claims_is_an_error(tmp_path):
    place(tmp_path, {"app-template-4.3.0.tgz": packed(TEMPLATE.replace(POD, ""))})
    with pytest.raises(ManifestError, match="container app names claim gpu, which its pod does not have"):
        not_compared(tmp_path)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (packed('{{ repeat 3000000000 "x" }}'), "memory"),
        (packed(TEMPLATE, ("app-template/../../outside", b"")), "parent directory"),
        (packed(TEMPLATE, *[(f"app-template/{number}", bytes(4 << 20)) for number in range(30)]), "larger than"),
        (packed(TEMPLATE.replace("password}", "{{ .Values.none.name }}}")), "nil pointer"),
    ],
    ids=["exhausts memory", "outside", "bomb", "fails"],
)
def test_a_chart_that_helm_cannot_render_is_named_with_the_reason(tmp_path, data, reason):
    place(tmp_path, {"app-template-4.3.0.tgz": data})
    assert reason in not_compared(tmp_path)
