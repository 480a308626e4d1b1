"""Manifests are read as by kubectl, and invalid ones are reported with a place and a remedy."""

import json
import os

import pytest

from cluster import manifests
from cluster.manifests import yaml_reader
from tests.loops import every


def parse_objects(text):
    return [document.object for document in manifests.parse(text)]


def first_problem(text):
    with pytest.raises(manifests.ManifestError) as caught:
        manifests.parse(text)
    return caught.value.problems[0]


def test_documents_keep_their_order_and_empty_documents_are_skipped():
    assert parse_objects("---\na: 1\n---\n# only a comment\n---\nb: 2\n---\n") == [{"a": 1}, {"b": 2}]
    assert parse_objects("---") == []
    assert parse_objects("") == []


def test_a_pointer_leads_to_its_line_in_the_file():
    first, second = manifests.parse("a:\n  b: 1\n---\n\nlist:\n- x: 1\n  y~/z: 2\n")
    assert (first.line, first.line_of("/a/b")) == (1, 2)
    assert second.line_of("/list/0/y~0~1z") == 7
    assert second.line_of("/list/0/missing/deeper") == 6


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a:\n  b: 1\n", (1, 1)),
        ("\n# a comment\n\n  a: 1\n", (4, 3)),
        ("# none\n---\n--- # here\n\na: [1]\n", (5, 1)),
        ("!!map\n{a: 1}\n", (1, 1)),
        ('{"a": 1}', (1, 1)),
        ('  {"a": "\\ud800"}', (1, 1)),
        ('{"a": 1}\n{"b": 2}\n', (1, 1)),
    ],
)
def test_the_place_of_an_object_needs_no_full_parse(monkeypatch, text, place):
    assert manifests.parse(text)[0]._text.positions.get("", (1, 1)) == place
    monkeypatch.setattr(yaml_reader, "positions", pytest.fail)
    document = manifests.parse(text)[0]
    assert (document.line, *document.place_of("")[1:]) == (place[0], *place)


def test_lists_are_flattened_and_items_inherit_kind_and_version():
    text = "kind: DeviceClassList\napiVersion: resource.k8s.io/v1\nitems:\n- metadata: {name: a}\n- kind: Other\n"
    documents = manifests.parse(text)
    assert [document.object["kind"] for document in documents] == ["DeviceClass", "Other"]
    assert documents[0].object["apiVersion"] == "resource.k8s.io/v1"
    assert documents[1].line == 5
    nested = '{"kind": "List", "items": [{"kind": "List", "items": [{"kind": "A"}]}, {"kind": "B"}]}'
    assert [document.object["kind"] for document in manifests.parse(nested)] == ["A", "B"]


def test_json_streams_and_yaml_flow_style_are_distinguished():
    assert parse_objects('{"a": 1}\n{"b": 2}') == [{"a": 1}, {"b": 2}]
    assert parse_objects("{a: 1}\n---\n{b: yes}") == [{"a": 1}, {"b": True}]


def test_broken_json_is_reported_as_json_not_as_yaml():
    error = first_problem('{"a": 1,\n "b": 2\n "c": 3}')
    assert (error.line, error.column) == (3, 2)
    assert "not JSON" in error.message
    assert "comma" in error.remedy
    assert "flow mapping" in first_problem("{a: 1,\n b: 2\n c: 3").message


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("a:\n- b\n\t  c: d\n", "spaces, not tabs"),
        ("a: |\n\tb\n", "spaces, not tabs"),
        ('a: "C:\\path"\n', "backslash"),
        ("a: * * * * *\n", "begins with *"),
        ("a: & b\n", "begins with &"),
        ("a: > b\n", "begins with | or >"),
        ("<<<<<<< HEAD\na: 1\n=======\na: 2\n>>>>>>> branch\n", "merge conflict"),
        ("a: <<<<<<< \nb: 'x\n", "never closed"),
    ],
)
def test_a_typing_error_is_reported_with_a_remedy(text, remedy):
    assert remedy in first_problem(text).remedy


def test_a_directory_is_read_in_bytewise_order(tmp_path):
    for name in ("b.yaml", "a/z.json", "a.yml", "B.yaml", "notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"name": name}))
    assert [document.object["name"] for document in manifests.read([tmp_path])] == [
        "B.yaml",
        "a.yml",
        "a/z.json",
        "b.yaml",
    ]


def test_every_broken_document_is_reported():
    with pytest.raises(manifests.ManifestError) as caught:
        manifests.parse("a: 'x\n---\nfine: 1\n---\n- list\n---\nb: [1\n")
    assert [problem.line for problem in caught.value.problems] == [2, 5, 8]


@every(
    ("text", "line", "reason"),
    [
        ("a: 1\nb:\n\t- c\n", 3, "tab"),
        ("a: b: c\n", 1, "mapping values"),
        ("a: {{ .Values.x }}\n", 1, "render it first"),
        ("a: {user}/image\nb: 1\n", 1, "quote the whole value"),
        ("a:\n- 'x' y\n", 2, "quote the whole value"),
        ("a: 1\n  b: 2\n", 2, "check the indentation"),
        ("a: 1\n--- b\n", 2, "separator"),
        ("a: .nan\n", 1, "JSON"),
        ("a: *nothing\n", 1, "unknown anchor"),
        ("a: &x [*x]\n", 1, "contains itself"),
        ("a: 1\n...\nb: 2\n", 3, "document start"),
        ("a: \x01\n", 1, "control characters"),
        ("just text\n", 1, "an object with apiVersion and kind"),
        (b"a: 1\nb: \xff\n", 2, "UTF-8"),
        (b"\xff\xfea\x00", 1, "UTF-16"),
    ],
)
def test_a_refused_manifest_is_reported_with_line_and_reason(text, line, reason):
    error = first_problem(text)
    assert error.line == line
    assert reason in str(error)


def test_an_empty_directory_and_a_missing_file_are_reported(tmp_path):
    with pytest.raises(manifests.ManifestError) as caught:
        manifests.read([tmp_path, tmp_path / "gone.yaml"])
    assert [problem.message.split(":")[0] for problem in caught.value.problems] == [
        "no manifests in this directory",
        "cannot be read",
    ]


def test_duplicate_keys_are_recorded_and_the_last_value_counts():
    (document,) = manifests.parse("a: 1\nb: 2\na: 3\n")
    assert document.object == {"a": 3, "b": 2}
    assert document.duplicates == (("a", 3),)
    (document,) = manifests.parse('{"a": 1, "a": 2}')
    assert document.object == {"a": 2}
    assert [name for name, _ in document.duplicates] == ["a"]


def test_an_alias_is_read_as_a_copy():
    (document,) = manifests.parse("a: &x {b: 1}\nc: *x\nd: {<<: *x, e: 2}\n")
    assert document.object == {"a": {"b": 1}, "c": {"b": 1}, "d": {"b": 1, "e": 2}}
    assert document.object["a"] is not document.object["c"]


def test_a_dumped_manifest_reads_back_as_the_same_objects():
    ambiguous_texts = ["yes", "1:30", "0x1F", "1e3", "", " x", "x ", "a: b", "a #b", "null", "~", "- x", "2001-01-01", "\u0085", "a\nb", "a\n\n",
              "\n", " a\nb", "\ttab", "é", "😀", "{{ x }}", "'", '"', "\\", "16Gi", "500m", "=", "<<", "#x", "@x", "a\r\nb", "\x00", "1_000"]  # fmt: skip
    value = {
        "kind": "X",
        **{text: [text, {text: text}] for text in ambiguous_texts},
        "n": [1, -1, 2**63, 1.5, True, None, {}, [], [[1], []]],
    }
    assert parse_objects(manifests.dump([value, value])) == [value, value]


def test_files_given_by_path_need_no_suffix(tmp_path):
    (tmp_path / "manifest").write_text("a: 1")
    assert manifests.read([tmp_path / "manifest"])[0].object == {"a": 1}
    (tmp_path / "x.yaml").write_text("b: 1")
    os.mkfifo(tmp_path / "pipe.yaml")
    assert [document.object for document in manifests.read([tmp_path])] == [{"b": 1}]


def test_unreadable_files_are_reported_and_the_others_are_read(tmp_path):
    (tmp_path / "good.yaml").write_text("a: 1")
    (tmp_path / "nowhere.yaml").symlink_to(tmp_path / "missing")
    (tmp_path / "round.yaml").symlink_to(tmp_path / "round.yaml")
    documents, problems = manifests.read_leniently([tmp_path])
    assert [document.object for document in documents] == [{"a": 1}]
    assert sorted(problem.file for problem in problems) == [
        str(tmp_path / "nowhere.yaml"),
        str(tmp_path / "round.yaml"),
    ]
