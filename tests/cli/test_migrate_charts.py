"""Charts of releases that a move changes: they are found, rendered with a small program in place of helm, and compared."""

import gzip
import io
import json
import os
import sys
import tarfile
from pathlib import Path

import pytest

from analysis.gitops import Release
from analysis.migration.rendering import ChangedRelease
from cli import charts, outside
from cluster.manifests import ManifestError
from tests.analysis.migration.test_consumers import APPLICATION
from tests.cli.running import manifest, run, run_json
from tests.cli.test_migrate_plan import app, plugin
from tests.cli.test_migrate_pr import branch, commit, home, write

__all__ = ["home"]

KEY = "gpu.intel.com/i915"

# Renders a Deployment for each controller of app-template. The tests change a part of it.
HELM = f"""\
#!{sys.executable} -IS
import json, os, sys
file = next(option.partition("=")[2] for option in sys.argv if option.startswith("--values="))
values = json.load(open(file))
for name, controller in values["controllers"].items():
    pod = dict(values.get("defaultPodOptions", {{}}), **controller.get("pod", {{}}))
    pod["containers"] = [dict(container, name=key) for key, container in controller["containers"].items()]
    obj = {{"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {{"name": name}}, "spec": {{"template": {{"spec": pod}}}}}}
    is_after = "resourceClaims" in pod
    pass
    print("---", json.dumps(obj), sep="\\n")
"""


@pytest.fixture
def helm(tmp_path, monkeypatch):
    """A machine with helm; a function replaces helm's last step."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    for name in [name for name in os.environ if name.startswith(("HELM_", "XDG_CACHE"))]:
        monkeypatch.delenv(name)

    def with_step(step="pass"):
        (programs / "helm").write_text(HELM.replace("    pass\n", f"    {step}\n"))
        (programs / "helm").chmod(0o755)

    with_step()
    return with_step


def chart(version="4.3.0", name="app-template"):
    return f"apiVersion: v2\nname: {name}\nversion: {version}\n".encode()


def archive(*members):
    """Return an archive with these members: a name, and a text or the target of a link."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                tar.addfile(member)
            else:
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return data.getvalue()


def packed(version="4.3.0", name="app-template"):
    return archive((f"{name}/Chart.yaml", chart(version, name)))


def place(root, files):
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


def values(resources, **pod):
    return {"controllers": {"main": {"containers": {"app": {"resources": resources}}, "pod": pod}}}


def not_compared(folder="", version="4.3.0"):
    """Return why a release was not compared, "" if it was."""
    release = Release("HelmRelease", "plex", "media", "app-template", {}, version)
    claim = {"name": "gpu", "resourceClaimName": "gpu"}
    before, after = values({"limits": {KEY: 1}}), values({"claims": [{"name": "gpu"}]}, resourceClaims=[claim])
    changed = ChangedRelease(
        release, "plex.yaml", "HelmRelease/media/plex", before, after, frozenset([KEY]), frozenset(), "1.35.2"
    )
    return "".join(reason for reason, _ in charts.compare_charts([changed], charts.ChartFolder(str(folder))))


DIGEST = f"{'ab' * 32}.chart"


@pytest.mark.parametrize(
    ("file", "data", "folder"),
    [
        ("charts/app-template-4.3.0.tgz", packed(), "charts"),
        ("charts/app/Chart.yaml", chart(), "charts"),
        (".cache/helm/repository/app-template-4.3.0.tgz", packed(), ""),
        (f".cache/helm/content/ab/{DIGEST}", packed(), ""),
    ],
    ids=["packed", "unpacked", "helm 3", "helm 4"],
)
@pytest.mark.usefixtures("helm")
def test_a_chart_that_is_there_is_rendered_and_compared(tmp_path, file, data, folder):
    folder = folder and tmp_path / folder
    place(tmp_path, {"charts/app-template-b-4.3.0.tgz": packed("4.3.0", "app-template-b")})
    assert not_compared(folder).startswith("no chart app-template 4.3.0 in ")
    place(tmp_path, {file: data})
    assert not_compared(folder) == ""


@pytest.mark.usefixtures("helm")
def test_the_newest_version_of_a_range_is_rendered(tmp_path, helm):
    place(
        tmp_path / "charts",
        {f"app-template-{version}.tgz": packed(version) for version in ("4.9.0", "4.10.0", "5.0.0")},
    )
    helm(f"open({str(tmp_path / 'chart')!r}, 'w').write(sys.argv[-1])")
    assert not_compared(tmp_path / "charts", "4.x") == ""
    assert Path((tmp_path / "chart").read_text()).name == "app-template-4.10.0.tgz"


@pytest.fixture
def folder(tmp_path):
    """A folder with a chart."""
    place(tmp_path / "charts", {"app-template-4.3.0.tgz": packed()})
    return tmp_path / "charts"


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("sys.exit('Error: template: a: executing <x>: error calling include: template: b: no value')", "4.3.0: helm: template: b: no value"),
        ("continue", "no container requests gpu.intel.com/i915"),
        ("obj['metadata']['name'] = str(os.getpid())", "other names each time"),
        ("print('{')", "chart app-template 4.3.0: "),
        ("while True: print('#' * 100_000)", "helm writes more than 8 MiB"),
    ],
)  # fmt: skip
def test_a_chart_that_cannot_be_compared_is_named_with_the_reason(folder, helm, step, reason):
    helm(step)
    assert reason in not_compared(folder)


def test_the_time_of_a_chart_is_limited(monkeypatch, folder, helm):
    monkeypatch.setattr(outside, "_OF_RENDERING", outside._OF_RENDERING._replace(seconds=0.1))
    helm("while True: pass")
    assert "helm has not ended within" in not_compared(folder)


@pytest.mark.usefixtures("helm")
def test_the_time_of_all_charts_is_limited(monkeypatch, folder):
    monkeypatch.setattr(charts, "_ALL_SECONDS", -1.0)
    assert "took longer" in not_compared(folder)


def test_without_helm_no_chart_is_rendered(folder, monkeypatch):
    monkeypatch.setenv("PATH", str(folder))
    assert not_compared(folder).startswith("helm is not installed")


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("is_after and sys.exit('Error: no place')", "cannot be rendered after the move: helm: no place"),
        ("pod.pop('resourceClaims', None)", "container app names claim gpu, which its pod does not have"),
        ("obj['spec']['replicas'] = int(is_after)", "/spec/replicas changes"),
    ],
)
def test_a_release_that_would_change_otherwise_is_an_error(folder, helm, step, message):
    helm(step)
    with pytest.raises(ManifestError) as raised:
        not_compared(folder)
    [problem] = raised.value.problems
    assert problem.file == "plex.yaml"
    assert problem.message.startswith("HelmRelease/media/plex: chart app-template 4.3.0 ")
    assert message in problem.message


def test_a_field_that_differs_each_time_is_no_error(folder, helm):
    helm("obj['spec']['seed'] = os.getpid()")
    assert not_compared(folder) == ""


def test_helm_gets_the_release_and_no_settings_of_the_user(folder, helm, tmp_path, monkeypatch):
    monkeypatch.setenv("HELM_PLUGINS", str(tmp_path))
    seen = tmp_path / "seen"
    helm(f"json.dump([sys.argv[1:], dict(os.environ)], open({str(seen)!r}, 'w'))")
    assert not_compared(folder) == ""
    arguments, environment = json.loads(seen.read_text())
    assert {"--kube-version=1.35.2", "--namespace=media", "--skip-schema-validation"} < set(arguments)
    assert arguments[-3:] == ["--", "plex", str(folder / "app-template-4.3.0.tgz")]
    assert [name for name in environment if name.startswith(("HELM_", "XDG_"))] == []
    assert environment["HOME"] != os.environ["HOME"]
    assert environment["PATH"] == ""


LINK = ("app-template/Chart.yaml", "Chart.yaml")


@pytest.mark.parametrize(
    "data",
    [
        b"no archive",
        packed()[:40],
        packed()[:10] + b"\xff" * 20,
        gzip.compress(bytes(100 << 20), 1),
        archive(("app-template/values.yaml", bytes(2 << 20)), ("app-template/Chart.yaml", chart())),
        archive(LINK),
        archive(("../app-template/Chart.yaml", chart())),
        archive(("app-template/Chart.yaml", b"name: [")),
    ],
    ids=["no archive", "cut", "broken", "bomb", "late", "link", "outside", "no YAML"],
)
@pytest.mark.usefixtures("helm")
def test_an_archive_that_is_no_chart_is_not_rendered(tmp_path, data):
    place(tmp_path / "charts", {"app-template-4.3.0.tgz": data})
    assert not_compared(tmp_path / "charts").startswith("no chart app-template 4.3.0")


@pytest.mark.usefixtures("helm")
def test_a_pipe_is_not_read(folder):
    (folder / "app-template-4.3.0.tgz").unlink()
    os.mkfifo(folder / "app-template-4.3.0.tgz")
    assert not_compared(folder).startswith("no chart app-template 4.3.0")


@pytest.mark.usefixtures("helm")
def test_a_link_that_leads_out_of_a_chart_is_not_followed(tmp_path):
    place(tmp_path, {"charts/app/Chart.yaml": chart(), "secret": b""})
    (tmp_path / "charts" / "app" / "secret").symlink_to("../../secret")
    assert "a link leads out" in not_compared(tmp_path / "charts")


# The command


@pytest.fixture
def repository(home, helm):
    """A repository with a consumer in values of app-template."""
    write(app("plex", "media", version="4.x") | plugin() | {"talconfig.yaml": "kubernetesVersion: v1.35.2\n"})
    source = Path("apps/plex/repository.yaml")
    source.write_text(source.read_text().replace("tag:", "semver:"))
    commit()
    return home


@pytest.mark.usefixtures("repository")
def test_the_command_compares_the_charts_of_a_folder(folder, helm, tmp_path):
    reasons = run_json("migrate", "pr", "--dry-run")[1]["notRendered"]
    assert "HelmRelease/media/plex: no chart app-template 4.x in helm's cache" in reasons
    seen = tmp_path / "seen"
    helm(f"open({str(seen)!r}, 'w').write(' '.join(sys.argv))")
    reasons = run_json("migrate", "pr", "--dry-run", "--charts", folder)[1]["notRendered"]
    assert [reason for reason in reasons if "plex" in reason] == []
    assert "--kube-version=1.35.2 " in seen.read_text()
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}
    snapshot = manifest(tmp_path / "snapshot.json", node | {"status": {"nodeInfo": {"kubeletVersion": "v1.36.1"}}})
    run("migrate", "pr", "--dry-run", "--charts", folder, "--inventory", snapshot)
    assert "--kube-version=1.36.1 " in seen.read_text()
    assert [reason.rpartition(": ")[2] for reason in reasons] == ["its chart is new"]


@pytest.mark.parametrize("field", ["values: |", "valuesObject:"])
@pytest.mark.usefixtures("helm", "home")
def test_the_chart_of_an_application_is_compared(folder, field):
    values = f"controllers: {{main: {{containers: {{app: {{resources: {{limits: {{{KEY}: 1}}}}}}}}}}}}"
    write({"apps/plex/zz.yaml": APPLICATION.format(values=f"{field}\n        {values}")})
    commit()
    reasons = [
        run_json("migrate", "pr", "--dry-run", *options)[1]["notRendered"] for options in ((), ("--charts", folder))
    ]
    assert [["Application/ai/llm" in reason for reason in of_run] for of_run in reasons] == [[True], []]


@pytest.mark.usefixtures("repository")
def test_a_change_that_is_not_planned_stops_the_command(folder, helm):
    helm("obj['spec']['replicas'] = int(is_after)")
    result = run("migrate", "pr", "--charts", folder)
    assert (result.exit_code, branch()) == (2, {})
    assert "apps/plex/release.yaml: HelmRelease/media/plex: chart app-template 4.x would change" in result.stderr


@pytest.mark.usefixtures("home")
def test_the_folder_of_charts_has_to_exist():
    result = run("migrate", "pr", "--charts", "none")
    assert (result.exit_code, "--charts" in result.stderr) == (2, True)
