"""Manifests edited in place: only the translated lines change, comments stay, and git applies the diff."""

import json
import stat
import subprocess

import pytest

from analysis.claim_names import without_defaults
from cli.edited import Change, Edited, edit_text, new_text, write
from cluster import manifests
from cluster.manifests import CannotEdit, edit
from cluster.patch import apply_json_patch
from tests.cli.running import run
from tests.loops import every

POD = """\
# A trainer, by the vision team.
apiVersion: v1
kind: Pod   # not a Job, on purpose
metadata:
    name: "train"   # keep
    labels: {app: train}
spec:
    # one container
    containers:
    -   name: main
        image: trainer:1   # pinned
        resources:
            requests:
                cpu: "4"
            limits:
                memory: 32Gi   # measured
                nvidia.com/gpu: 2
                nvidia.com/gpumem: 3000   # MiB
                nvidia.com/gpucores: 30
                # the end
    # no volumes
---
# The service beside it.
apiVersion: v1
kind: Service
metadata: {name: train}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with the file pod.yaml."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pod.yaml").write_text(POD)
    return tmp_path


def comments(text):
    return [line.partition("#")[2] for line in text.splitlines() if "#" in line]


def test_an_in_place_edit_changes_only_the_translated_lines(folder):
    assert run("translate", "-f", "pod.yaml", "--in-place").exit_code == 0
    after = (folder / "pod.yaml").read_text()
    removed_lines = [line for line in POD.splitlines() if line not in after.splitlines()]
    assert [line.split(":")[0].strip() for line in removed_lines] == [
        "nvidia.com/gpu",
        "nvidia.com/gpumem",
        "nvidia.com/gpucores",
    ]
    assert set(comments(POD)) - set(comments(after)) == {" MiB"}
    kinds = [document.object["kind"] for document in manifests.parse(after)]
    assert kinds == ["ResourceClaimTemplate", "Pod", "Service"]


def test_an_edited_file_equals_translated_output_and_is_stable(folder):
    output = run("translate", "-f", "pod.yaml").stdout
    run("translate", "-f", "pod.yaml", "--in-place")
    after = (folder / "pod.yaml").read_text()
    objects = [document.object for document in manifests.parse(output)]
    del objects[1]["metadata"]["annotations"]  # the record of the original request, which edited files do not contain
    edited = [document.object for document in manifests.parse(after)]
    # Files have names as people write them, and no values that the API server fills in.
    long_name, entry = objects[0]["metadata"]["name"], objects[1]["spec"]["resourceClaims"][0]["name"]
    text = json.dumps(objects).replace(long_name, "train").replace(entry, "gpu")
    expected = json.loads(text)
    expected[0]["spec"] = without_defaults(expected[0]["spec"])
    assert edited == expected
    assert run("translate", "-f", "pod.yaml", "--in-place").exit_code == 0
    assert (folder / "pod.yaml").read_text() == after


@pytest.mark.parametrize("options", [["--check"], ["--in-place"]])
def test_the_report_is_printed_beside_an_edit_or_check(folder, options):
    result = run("translate", "-f", "pod.yaml", *options, "-o", "report")
    assert "2 objects, 1 rewritten" in result.stdout
    assert "pod.yaml: would be edited" in result.stderr or "pod.yaml: edited" in result.stderr
    assert run("translate", "-q", "-f", "pod.yaml", "--check", "-o", "diff").stderr == ""


def test_a_check_writes_nothing(folder):
    result = run("translate", "-f", "pod.yaml", "--check")
    assert "would be" in result.stdout
    assert (folder / "pod.yaml").read_text() == POD


def test_an_edit_keeps_the_files_mode_and_links(folder):
    (folder / "pod.yaml").chmod(0o640)
    (folder / "link.yaml").symlink_to("pod.yaml")
    run("translate", "-f", "link.yaml", "--in-place")
    assert (folder / "link.yaml").is_symlink()
    assert stat.S_IMODE((folder / "pod.yaml").stat().st_mode) == 0o640
    assert "resourceClaims" in (folder / "pod.yaml").read_text()
    assert sorted(path.name for path in folder.iterdir()) == ["link.yaml", "pod.yaml"]


@pytest.mark.parametrize("name", ["list.yaml", "pod.json", "anchor.yaml"])
def test_an_uneditable_file_is_left_unchanged_and_named(name, folder):
    pod, _ = (document.object for document in manifests.parse(POD))
    text = json.dumps(pod)
    if name == "list.yaml":
        text = manifests.dump([{"apiVersion": "v1", "kind": "List", "items": [pod]}])
    if name == "anchor.yaml":
        text = (
            POD.partition("---")[0]
            .replace('            requests:\n                cpu: "4"\n', "")
            .replace("limits:", "limits: &l")
        )
        text += "    initContainers:\n    -   name: i\n        resources: {limits: *l}\n"
    (folder / name).write_text(text)
    result = run("translate", "-f", name, "--in-place")
    assert result.exit_code == 2
    assert f"{name}:" in result.stderr
    assert "cannot be edited" in result.stderr
    assert (folder / name).read_text() == text


def test_standard_input_cannot_be_edited_in_place():
    result = run("translate", "-f", "-", "--in-place", stdin=POD)
    assert result.exit_code == 2
    assert "cannot be edited" in result.stderr


def test_a_refused_manifest_is_left_unchanged(folder):
    bad = POD.replace("3000", "3Gi")
    (folder / "pod.yaml").write_text(bad)
    assert run("translate", "-f", "pod.yaml", "--in-place").exit_code == 1
    assert (folder / "pod.yaml").read_text() == bad


def test_a_forged_record_is_removed_with_its_empty_parent(folder):
    """The annotation drawbridge.dev/original records the requests that a translation replaced. Here it records a container that the pod lacks."""
    record = """'{"containers":{"other":{"nvidia.com/gpu":"1"}}}'"""
    head, spec = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n", "spec:\n  containers: [{name: c, image: x}]\n"
    (folder / "pod.yaml").write_text(f"{head}  annotations:\n    drawbridge.dev/original: {record}\n{spec}")
    assert run("translate", "-f", "pod.yaml", "--in-place").exit_code == 0
    assert (folder / "pod.yaml").read_text() == head + spec


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
def test_git_applies_the_printed_diff(ending, folder):
    text = POD.rstrip("\n") + ending if ending != "\r\n" else POD.replace("\n", "\r\n")
    (folder / "sub").mkdir()
    file = folder / "sub" / "pod one.yaml"
    file.write_bytes(text.encode())
    (folder / "pod.yaml").unlink()
    subprocess.run(["git", "init", "-q", "."], check=True, timeout=60)
    output = run("translate", "-f", "sub", "-o", "diff").stdout_bytes
    result = subprocess.run(["git", "apply", "-"], input=output, capture_output=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr.decode()
    applied = file.read_bytes()
    file.write_bytes(text.encode())
    run("translate", "-f", "sub", "--in-place")
    assert file.read_bytes() == applied


EDITS = [
    ("a: {b: 1, c: 2} # x\n", [{"op": "remove", "path": "/a/b"}]),
    ("a: {b: 1, c: 2} # x\n", [{"op": "remove", "path": "/a/c"}]),
    ("a: {b: 1} # x\n", [{"op": "remove", "path": "/a/b"}, {"op": "add", "path": "/a/d", "value": {"e": [1]}}]),
    ("a:\n  b: 1 # x\nc: 2\n", [{"op": "remove", "path": "/a/b"}]),
    ("a:\n- b: 1\n- c: 2 # x\nd: 1\n", [{"op": "add", "path": "/a/-", "value": {"e": "f", "g": [1, 2]}}]),
    ("a:\n  - b: 1\nd: 1\n", [{"op": "remove", "path": "/d"}, {"op": "add", "path": "/a/1", "value": "x"}]),
    ("a: |\n  text\n  more\nb: 1\n", [{"op": "add", "path": "/c", "value": "yes"}, {"op": "remove", "path": "/a"}]),
    ("a:\n  名前: 値 # 注\n  b: 1\n", [{"op": "remove", "path": "/a/b"}, {"op": "add", "path": "/a/c", "value": "値"}]),
    ("a: old # x\n", [{"op": "replace", "path": "/a", "value": "on"}]),
    ("a: []\n", [{"op": "add", "path": "/a/-", "value": {"b": None}}]),
    ("a:\n  b:\n    c: 1\n", [{"op": "add", "path": "/a/b/d~1e", "value": {"x": {}, "y": "1"}}]),
    ("a:\n  b:\n    c: 1", [{"op": "add", "path": "/a/d", "value": 1}]),
    ("a: [1, 2, 3, 4] # x\n", [{"op": "remove", "path": "/a/2"}, {"op": "remove", "path": "/a/0"}]),
    ("a: {b: 1, c: 2} # x\n", [{"op": "replace", "path": "/a", "value": {"d": 3}}]),
    (
        "a:\n- {b: 1} # x\n- {c: 2} # y\n",
        [{"op": "remove", "path": "/a/1/c"}, {"op": "replace", "path": "/a/0/b", "value": 2}],
    ),
]


@every(("text", "operations"), EDITS)
def test_an_edit_equals_the_json_patch_and_keeps_comments(text, operations):
    before = yaml_value(text)
    wanted = apply_json_patch(before, operations)
    after = edit(text, wanted)
    assert yaml_value(after) == wanted
    # A removed line takes its comment with it.
    assert comments(after) == comments(text) or "remove" in str(operations[-1])


def yaml_value(text):
    from cluster.manifests.yaml_reader import load

    return load(text.encode())[0]


@pytest.mark.parametrize("indent", ["", "  "])
def test_a_new_list_is_indented_as_the_lists_of_the_file(indent):
    text = f"a:\n  b:\n  {indent}- c: 1\nd: 1\n"
    wanted = {"a": {"b": [{"c": 1}], "e": [{"f": [1]}]}, "d": 1}
    assert edit(text, wanted) == f"a:\n  b:\n  {indent}- c: 1\n  e:\n  {indent}- f:\n    {indent}{indent}- 1\nd: 1\n"


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("a:\n- b # x\n# y\n- d\n", "a:\n- b # x\n# y\n- ./c\n- d\n"),
        ("a: [b, d] # x\n", "a: [b, c, d] # x\n"),
    ],
)
def test_an_item_is_inserted_without_a_change_of_other_lines(text, after):
    assert edit(text, yaml_value(after)) == after


def test_a_value_below_an_alias_is_edited_at_its_anchor():
    text = "a: &x\n  b: 1\n  c: 1\nd:\n  e: *x\n"
    value = {"c": 1, "f": {"g": 1}}
    assert edit(text, {"a": value, "d": {"e": value, "h": 1}}) == "a: &x\n  c: 1\n  f:\n    g: 1\nd:\n  e: *x\n  h: 1\n"


def test_an_anchor_that_is_defined_twice_stays():
    text = "a: &x {b: 1}\nc: *x\nd: &x {b: 2}\ne: *x\nf: 1\n"
    assert edit(text, yaml_value(text) | {"f": 2}) == text.replace("f: 1", "f: 2")


@pytest.mark.parametrize(
    ("text", "wanted", "edited"),
    [
        ("- ./a\n- ./b # x\n- ./c\n", ["./a", "./c"], "- ./a\n- ./c\n"),
        ("- - 1\n  - 2\n- 3\n", [3], "- 3\n"),
        ("- a: 1\n  b: 2\n- a: 3\n# x\n- a: 4\n", [{"a": 5}, {"a": 4}], "- a: 5\n- a: 4\n# x\n"),
        ("- ./a\n- ./c\n", ["./b/d", "./c", "./d"], "- ./b/d\n- ./c\n- ./d\n"),
    ],
    ids=["item", "list in a list", "item, and the content of another", "new items"],
)
def test_an_edit_of_a_list_keeps_the_other_lines(text, wanted, edited):
    assert edit(text, wanted) == edited


def test_the_edit_of_an_anchor_keeps_it_for_its_aliases():
    text = "a: &x old # one\nb: {c: *x}\nd: 1\n"
    assert edit(text, {"a": "new", "b": {"c": "new"}, "d": 2}) == text.replace("old", "new").replace("1", "2")


def test_a_mapping_in_place_of_nothing_is_a_block():
    assert edit("a: 1\nb:\nc: 2\n", {"a": 1, "b": {"d": 3}, "c": 2}) == "a: 1\nc: 2\nb:\n  d: 3\n"


@pytest.mark.parametrize("value", ["oci://example.com/a", "0.11.0", "v1.2.3", "./a/b.yaml", "../a"])
def test_addresses_versions_and_paths_need_no_quotes(value):
    assert edit("a: 1\nb: []\n", {"a": value, "b": [], "c": value}) == f"a: {value}\nb: []\nc: {value}\n"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a: &x {b: 1}\nc: *x\n", {"a": {}, "c": {"b": 1}}),
        ("- a: 1\n  b: 2\n", [{"b": 2}]),
        ("a: >\n  folded\n", {"a": "other"}),
        ("# none\n", {"a": 1}),
        ("a: {{ x }}\n", {"a": 1}),
    ],
)
def test_an_edit_that_is_not_possible_is_refused(text, wanted):
    with pytest.raises(CannotEdit):
        edit(text, wanted)


@pytest.mark.parametrize("numbers", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2)])
@pytest.mark.parametrize("start", ["", "---\n", "# first\n---\n"], ids=["plain", "separator", "comment"])
def test_a_document_goes_with_its_separator(start, numbers):
    parts = [f"kind: K\nname: {name} # {name}\n" for name in "abc"]
    text = start + "---\n".join(parts)
    documents = manifests.parse(text, "file")
    left = "---\n".join(part for number, part in enumerate(parts) if number not in numbers)
    assert edit_text("file", text, [Change(documents[number], None) for number in numbers]) == start + left


def test_a_file_changed_since_it_was_read_is_not_overwritten(folder):
    edited = Edited("pod.yaml", POD, "a: 1\n", root=str(folder))
    (folder / "pod.yaml").write_text(POD + "# mine\n")
    with pytest.raises(FileExistsError):
        write([edited])
    assert (folder / "pod.yaml").read_text() == POD + "# mine\n"
    assert [path.name for path in folder.iterdir()] == ["pod.yaml"]


@pytest.mark.parametrize(
    ("like", "expected"),
    [
        ("---\n# schema\nb: &x old\n# about the old\na:\n  - *x\n", "---\n# schema\nb: &x new\na:\n  - *x\n"),
        ("b: old # x\na: [old]\n", "b: new # x\na: [new]\n"),
        ("a: >\n  old\n", "b: new\na:\n- new\n"),
    ],
    ids=["header", "no separator", "cannot be edited"],
)
def test_a_new_file_has_the_style_of_another_document(like, expected):
    [document] = manifests.parse(like)
    assert new_text([{"b": "new", "a": ["new"]}], document) == expected
