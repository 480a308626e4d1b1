"""Pages with versions and with manifests of other projects: the versions equal the code's, and the manifests name existing objects."""

import re
from pathlib import Path

import pytest
import yaml

from cli.main import COMMANDS
from dra.codes import APPLY, CODES
from dra.server import CURRENT, OLDEST
from tests.cli.running import run
from tests.webhook.pods import configured, pod, verdict_of

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("page", ["README.md", "docs/versions.md"])
def test_each_page_names_the_supported_kubernetes_versions_of_the_code(page):
    assert f"1.{OLDEST} to 1.{CURRENT}" in (ROOT / page).read_text()


def read_page(name):
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_the_versions_page_lists_each_behaviour_tested_on_older_versions():
    """The tests on older control planes find their row by its text. They run only where those servers are built."""
    tests = [file.read_text() for file in (ROOT / "e2e/versions").glob("test_*.py")]
    tested = [row for text in tests for row in re.findall(r'^ +cell\("(.+?)"', text, re.MULTILINE)]
    table = read_page("versions.md").partition("| Tested behaviour |")[2].partition("\n\n")[0]
    assert sorted(tested) == sorted(re.findall(r"^\| ([a-z][^|]*) \|", table, re.MULTILINE))


def words_opened_by(page, anchor):
    """Return the number of words from a heading to the next one of its level; without an anchor, those before the first section."""
    text = re.sub(
        r"```.*?```", lambda block: re.sub("^#", " #", block[0], flags=re.MULTILINE), read_page(page), flags=re.DOTALL
    )
    if not anchor:
        return len(text.partition("\n## ")[0].split())
    for section in re.split(r"^(?=## )", text, flags=re.MULTILINE):
        title = section.partition("\n")[0].removeprefix("## ")
        if re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") == anchor:
            return len(section.split())
    raise LookupError(f"{page} has no section #{anchor}")


def test_each_question_is_answered_by_one_click_and_at_most_400_words():
    rows = re.findall(r"^\| ([^|]*[?.]) \| (.*) \|$", read_page("README.md"), re.MULTILINE)
    assert len(rows) == 15
    for question, answer in rows:
        links = re.findall(r"\]\(([\w-]+\.md)(?:#([\w-]+))?\)", answer)
        assert links, question
        for page, anchor in links:
            assert words_opened_by(page, anchor) <= 400, (question, page, anchor)


@pytest.mark.parametrize("source", ["pages", "help", "remedies"])
def test_pages_help_and_remedies_install_with_the_same_command(source):
    texts = {
        "pages": [read_page(path.name) for path in sorted((ROOT / "docs").glob("*.md"))],
        "help": [run("manifests", "--help").stdout],
        "remedies": [code.remedy for code in CODES.values()],
    }[source]
    command = r"drawbridge manifests [^|`]*\| (kubectl apply [^`|]*?-f -)"
    applied = [words for text in texts for words in re.findall(command, " ".join(text.split()))]
    assert set(applied) == {APPLY}


def gitops_objects():
    """Return the objects of the YAML blocks about Argo CD and Flux."""
    section = read_page("install.md").partition("\n## GitOps\n")[2].partition("\n## ")[0]
    parts = re.findall(r"^```yaml\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    return [document for part in parts for document in yaml.safe_load_all(part)]


def test_gitops_examples_name_existing_deployments_and_values():
    """The fields of Argo CD and Flux in these blocks were compared with their CRDs by hand (see the page)."""
    objects = gitops_objects()
    base_objects = [
        obj for file in (ROOT / "manifests/base").glob("*.yaml") for obj in yaml.safe_load_all(file.read_text())
    ]
    deployments = {(obj["kind"], obj["metadata"]["name"]) for obj in base_objects if obj["kind"] == "Deployment"}
    checked_deployments = {
        (check["kind"], check["name"]) for obj in objects for check in obj.get("spec", {}).get("healthChecks", [])
    }
    assert checked_deployments == deployments
    [release] = [obj for obj in objects if obj["kind"] == "HelmRelease"]
    values = yaml.safe_load((ROOT / "manifests/chart/values.yaml").read_text())
    assert release["spec"]["values"].keys() <= values.keys()
    configured(**release["spec"]["values"]["configuration"])  # fails if the configuration has findings


def test_argo_cd_ignores_every_pod_field_that_a_translation_changes():
    """Every path that a translation changes is below a path that the page tells Argo CD to ignore."""
    [ignored] = [
        difference["jqPathExpressions"]
        for obj in gitops_objects()
        for difference in obj.get("spec", {}).get("ignoreDifferences", [])
        if difference["kind"] == "Pod"
    ]
    ignored_patterns = [
        re.compile(re.escape(path.replace(".", "/")).replace(r"\[\]\?", r"/\d+") + "(/|$)") for path in ignored
    ]
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000}
    init_containers = ({"name": "i", "image": "b", "resources": {"limits": {"nvidia.com/gpu": 1}}},)
    value = pod(
        limits, init=init_containers, annotations={"nvidia.com/use-gputype": "A100"}, scheduler="hami-scheduler"
    )
    changed_paths = {
        operation["path"]
        for operation in verdict_of(value).operations
        if operation["op"] != "test" and "metadata" not in operation["path"]
    }
    assert changed_paths
    assert [path for path in changed_paths if not any(pattern.match(path) for pattern in ignored_patterns)] == []


def test_the_security_page_names_every_account():
    files = [path.read_text() for path in (ROOT / "manifests").rglob("*.yaml") if "chart" not in path.parts]
    objects = [obj for text in files if "kind: ServiceAccount\n" in text for obj in yaml.safe_load_all(text)]
    accounts = {obj["metadata"]["name"] for obj in objects if obj["kind"] == "ServiceAccount"}
    section = read_page("security.md").partition("\n### A stolen token of ours\n")[2].partition("\n### ")[0]
    assert accounts
    assert {name for name in accounts if f"`{name}`" not in section} == set()


def test_issue_templates_ask_for_snapshots_and_name_existing_commands():
    forms = {file.stem: yaml.safe_load(file.read_text()) for file in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")}
    assert set(forms) == {"config", "defect", "key"}
    for form in (forms["defect"], forms["key"]):
        assert form.keys() >= {"name", "description", "body"}
        commands = re.findall(r"`drawbridge ([a-z]+)", str(form))
        assert "snapshot" in commands
        assert set(commands) <= set(COMMANDS)
        assert all(part["type"] in ("input", "textarea") and part["attributes"]["label"] for part in form["body"])
        assert len({part["id"] for part in form["body"]}) == len(form["body"])
    [snapshot] = [part for part in forms["defect"]["body"] if part["id"] == "snapshot"]
    assert snapshot["validations"]["required"]
