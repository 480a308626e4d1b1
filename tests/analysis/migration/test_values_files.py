"""Consumers in files of values: the file is edited where only one release has values in it."""

from posixpath import join

import pytest
import yaml

from tests.analysis.migration.test_consumers import Edits
from tests.cli.test_git_trees import flux, repository
from tests.cli.test_migrate_plan import APPLICATION, CHART, MAP, OPERATOR, SET, VALUES, app, plugin, without_values

__all__ = ["repository"]

FILE = "# comment\n" + VALUES
GENERATED = without_values("ConfigMap", ("", "configMapGenerator: [{name: plex-values, files: [values.yaml=plex.yaml]}]\n"))  # fmt: skip
LISTED = without_values("ConfigMap", (", map.yaml", ""))
CHARTS = "helmCharts: [{name: app-template, version: 4.3.0, valuesFile: v.yaml, releaseName: plex, namespace: media}]\n"
FOLDER = {"apps/plex/kustomization.yaml": "namespace: media\nresources: [config.yaml]\n", "apps/plex/config.yaml": "kind: ConfigMap\nmetadata: {name: a}\n"}  # fmt: skip
# Without the source that builds the folder of the values.
ALONE = APPLICATION.rpartition("  - {repoURL")[0]
TEMPLATE = "resourceclaimtemplate.yaml"


def claim_in(values):
    """Return the claim of the only container, and that of its pod."""
    [controller] = values["controllers"].values()
    [container] = controller["containers"].values()
    [claim] = values["defaultPodOptions"]["resourceClaims"]
    assert "limits" not in container["resources"]
    return container["resources"]["claims"], claim


@pytest.mark.parametrize(
    ("files", "file", "place", "new"),
    [
        (GENERATED | {"apps/plex/plex.yaml": FILE}, "apps/plex/plex.yaml", (), ("apps/plex", TEMPLATE)),
        (LISTED | {"apps/plex/map.yaml": MAP % ("ConfigMap", "data", VALUES.strip())}, "apps/plex/map.yaml", ("data", "values.yaml"), ("apps/plex", TEMPLATE)),
        ({"clusters/plex.yaml": APPLICATION, "apps/plex/values.yaml": FILE, **FOLDER}, "apps/plex/values.yaml", (), ("apps/plex", TEMPLATE)),
        ({"clusters/plex.yaml": ALONE, "apps/plex/values.yaml": FILE}, "apps/plex/values.yaml", (), ("", f"clusters/plex-{TEMPLATE}")),
        ({"clusters/apps.yaml": SET, "apps/plex/Chart.yaml": CHART, "apps/plex/values.yaml": f"# comment\ntv: {{{VALUES.strip()}}}\n"}, "apps/plex/values.yaml", ("tv",), ("", f"apps/plex/templates/{TEMPLATE}")),
        ({"base/kustomization.yaml": CHARTS, "base/v.yaml": FILE}, "base/v.yaml", (), ("base", TEMPLATE)),
    ],
    ids=["generated", "ConfigMap", "Application that builds the folder", "Application", "chart in the tree", "helmCharts"],
)  # fmt: skip
def test_the_claims_are_in_the_file_and_their_template_where_the_release_is_built(repository, files, file, place, new):
    edits = Edits(repository, files)
    folder, template = new
    values = edits.read(file)
    for name in place:
        values = values[name]
    used, claim = claim_in(yaml.safe_load(values) if isinstance(values, str) else values)
    assert used == [{"name": claim["name"]}]
    assert claim["resourceClaimTemplateName"] == "plex"
    assert list(edits.new) == [join(folder, template)]
    assert "# comment" in edits.texts[file] or "data" in place
    kustomization = join(folder, "kustomization.yaml")
    assert edits.texts.keys() == ({file, kustomization} if folder else {file})
    assert not folder or template in edits.read(kustomization)["resources"]
    assert not edits.notes


def test_the_namespace_of_a_template_beside_an_application_is_that_of_the_pods(repository):
    edits = Edits(repository, {"clusters/plex.yaml": ALONE, "apps/plex/values.yaml": FILE})
    assert edits.claims == {f"clusters/plex-{TEMPLATE}": ["ResourceClaimTemplate/media/plex"]}


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({name.replace("plex", "other", 1): text for name, text in GENERATED.items() if "kustomization" not in name}
         | {"apps/other/kustomization.yaml": "resources: [release.yaml]\n", "clusters/home/other.yaml": flux("other")}, "2 releases"),
        ({"apps/plex/release.yaml": app("plex", "media", values="    controllers: {main: {type: cronjob}}\n", more="  valuesFrom: [{kind: ConfigMap, name: plex-values}]\n")["apps/plex/release.yaml"]}, "other values"),
    ],
    ids=["two releases", "values in the release"],
)  # fmt: skip
def test_a_file_whose_values_count_elsewhere_too_is_left_to_a_person(repository, changed, why):
    edits = Edits(repository, GENERATED | {"apps/plex/plex.yaml": FILE} | changed | plugin())
    assert {verdict for verdict, _ in edits.verdicts} == {"by hand"}
    assert all(why in reason and "resources.claims" in reason for _, reason in edits.verdicts)
    assert not edits.texts


@pytest.mark.parametrize("form", ["generated", "ConfigMap"])
def test_of_several_values_with_one_name_those_count_that_are_built_with_the_release(repository, form):
    files = GENERATED | {"apps/plex/plex.yaml": FILE}
    if form == "ConfigMap":
        files = LISTED | {"apps/plex/map.yaml": MAP % ("ConfigMap", "data", VALUES.strip())}
    others = {name.replace("plex", "a", 1): text for name, text in files.items() if name.startswith("apps/plex")}
    others |= {"clusters/home/a.yaml": flux("a")}
    others["apps/a/release.yaml"] = (
        others["apps/a/release.yaml"].replace("name: plex,", "name: a,").replace("name: plex\n", "name: a\n")
    )
    edits = Edits(repository, files | others)
    assert {verdict for verdict, _ in edits.verdicts} == {"edit"}
    names = {name for name in edits.texts if "kustomization" not in name}
    assert {name.partition("/")[2].partition("/")[0] for name in names} == {"a", "plex"}
    assert len(edits.verdicts) == len(names) == 2


INLINE = """\
helmCharts:
- {name: ollama, version: 1.25.0, releaseName: ollama, namespace: media, valuesInline: {ollama: {gpu: {enabled: true, type: nvidia, number: 1}}}}
- name: app-template
  version: 4.3.0
  releaseName: plex
  namespace: media
  # comment
  valuesInline: {%s}
- {name: other, valuesInline: {a: b}}
namespace: media
"""


def test_the_values_of_each_chart_in_a_kustomization_are_edited(repository):
    files = {"apps/plex/kustomization.yaml": INLINE % VALUES.strip(), "clusters/plex.yaml": flux()}
    edits = Edits(repository, files | plugin(OPERATOR % "true"))
    assert edits.keys == {"gpu", "gpu.intel.com/i915"}
    edited = edits.read("apps/plex/kustomization.yaml")
    ollama, plex, _ = [chart["valuesInline"] for chart in edited["helmCharts"]]
    assert ollama["ollama"]["gpu"]["draEnabled"] is True
    assert claim_in(plex) == ([{"name": "gpu"}], {"name": "gpu", "resourceClaimTemplateName": "plex"})
    assert edited["resources"] == [TEMPLATE]
    assert "  # comment" in edits.texts["apps/plex/kustomization.yaml"]
