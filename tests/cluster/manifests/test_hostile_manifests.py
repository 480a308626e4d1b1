"""Hostile and damaged manifests lead to the right objects or to a clear error, in bounded time and memory, and never to a crash."""

import json
import tracemalloc
from contextlib import suppress

import pytest

from cluster import manifests
from tests.loops import every


def parse(data):
    """Return the objects and the problems of a text."""
    try:
        return [document.object for document in manifests.parse(data)], ()
    except manifests.ManifestError as error:
        return [], error.problems


def first_message(data):
    objects, problems = parse(data)
    assert not objects
    return str(problems[0])


@pytest.mark.parametrize("width", [2, 10, 100])
def test_aliases_that_grow_exponentially_are_refused(width):
    lines = ["a0: &a0 [lol]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, 60)]
    assert "excessive aliasing" in first_message("\n".join(lines))


def test_merges_that_grow_exponentially_are_refused():
    lines = ["a0: &a0 {k: v}"]
    lines += [f"a{i}: &a{i} {{x: {{<<: *a{i - 1}}}, y: {{<<: *a{i - 1}}}, z: *a{i - 1}}}" for i in range(1, 60)]
    assert "excessive aliasing" in first_message("\n".join(lines))


@pytest.mark.parametrize("bracket", ["[", "{", "- ", "? ", "a: [", '{"a":', "[[["])
def test_nesting_of_100_000_levels_is_refused(bracket):
    assert first_message(bracket * 100_000)


def test_nesting_deeper_than_256_levels_is_refused():
    assert "deeper than 256" in first_message("a: " + "[" * 300 + "]" * 300)
    assert "deeper than 256" in first_message('{"a": ' + "[" * 300 + "]" * 300 + "}")
    assert parse('{"a": ' + "[" * 200 + "]" * 200 + "}")[0]
    indented = "".join(" " * depth + "a:\n" for depth in range(400))
    assert "deeper than 256" in first_message(indented)


@pytest.mark.long
def test_scalars_of_many_megabytes_are_read():
    text = "x" * 50_000_000
    assert parse(f"a: {text}")[0][0] == {"a": text}
    assert parse(f'{{"a": "{text}"}}')[0][0] == {"a": text}


@pytest.mark.long
def test_a_hundred_thousand_documents_are_read():
    assert len(parse("---\na: 1\n" * 100_000)[0]) == 100_000


def test_byte_order_marks_and_windows_line_ends_change_nothing():
    assert parse("\ufeffa: 1\r\nb:\r\n- c\r\n---\r\nd: |\r\n  x\r\n  y\r\n".encode())[0] == [
        {"a": 1, "b": ["c"]},
        {"d": "x\ny\n"},
    ]
    assert parse(b'\xef\xbb\xbf{"a": 1}')[0] == [{"a": 1}]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "latin-1"])
def test_text_in_another_encoding_is_refused(encoding):
    objects, problems = parse("a: é\n".encode(encoding))
    assert not objects
    assert problems


@pytest.mark.parametrize(
    "byte", [b"\x00", b"\x07", b"\x1b", b"\x7f", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"]
)
def test_invalid_and_control_characters_are_refused_with_their_line(byte):
    objects, problems = parse(b"a: 1\nb: x" + byte + b"y\n")
    assert not objects
    assert problems[0].line == 2


def test_a_large_binary_file_is_not_read_to_its_end(monkeypatch):
    """Reading 500 MiB of NUL bytes to the end took 19 s."""
    searched_sizes = []
    pattern = manifests.documents._TEMPLATE
    monkeypatch.setattr(manifests.documents, "_TEMPLATE", RecordingPattern(pattern, searched_sizes))
    data = b"a: 1\nb: \0" + bytes(8 << 20)
    objects, [problem] = parse(data)
    assert (objects, problem.line, problem.column, problem.apparent_kind) == ([], 2, 4, "other")
    assert "NUL" in problem.message
    assert searched_sizes == [manifests.documents.PART_BYTES]


class RecordingPattern:
    """A pattern that records how much it searches."""

    def __init__(self, pattern, sizes):
        self.pattern, self.sizes = pattern, sizes

    def search(self, data):
        self.sizes.append(len(data))
        return self.pattern.search(data)


def test_tabs_are_refused_only_as_indentation():
    assert "tab" in first_message("a:\n\tb: 1\n")
    assert parse("a:\tb\n")[0] == [{"a": "b"}]


def test_huge_numbers_are_read_as_by_kubectl():
    assert parse("a: " + "9" * 5000)[0] == [{"a": "9" * 5000}]
    assert parse("a: 0x" + "f" * 5000)[0] == [{"a": "0x" + "f" * 5000}]
    assert parse("a: 99999999999999999999")[0] == [{"a": 100000000000000000000}]
    objects, problems = parse('{"a": ' + "9" * 5000 + "}")
    assert objects or problems


@pytest.mark.parametrize(
    "text", ["---", "---\n", "---\n---\n", "\n\n", "# nothing\n", "--- # x\n", "null\n", "~\n---\n"]
)
def test_an_empty_document_is_neither_an_object_nor_an_error(text):
    assert parse(text) == ([], ())


def test_documents_other_than_objects_are_refused():
    for text in ("- a\n", "a\n", "1\n", "'x'\n", "[1]", "true"):
        assert "an object with apiVersion and kind" in first_message(text)


@every("missing", range(1, 60))
def test_a_file_truncated_anywhere_does_not_crash_the_parser(missing):
    text = "kind: X\nspec:\n- {a: \"b\", c: [1, 2]}\n- |\n  text\n- 'q'\n...\n"
    parse(text[:-missing])
    parse(json.dumps({"kind": "X", "spec": [{"a": "b", "c": [1, 2]}, "text\n", {}]})[:-missing])


def test_each_invalid_item_of_a_list_is_reported():
    objects, problems = parse('{"kind": "List", "items": [1, null, {"kind": "A"}, []]}')
    assert objects == []
    assert [problem.pointer for problem in problems] == ["/items/0", "/items/1", "/items/3"]


def test_deeply_nested_empty_lists_are_flattened():
    value = {"kind": "List", "items": []}
    for _ in range(100):
        value = {"kind": "List", "items": [value]}
    assert parse(json.dumps(value)) == ([], ())


def test_json_with_surrogate_pairs_is_read():
    (document,) = manifests.parse('{"kind": "X",\n "a": "\\ud83d\\ude00",\n "b": 1}')
    assert document.object["a"] == "😀"
    assert document.line_of("/b") >= 1


@pytest.mark.long
def test_a_manifest_leaves_no_memory_in_use():
    texts = [f"a: {letter * 200_000}\nb: {number}.{'0' * 200_000}\n" for number, letter in enumerate("abcdefghij")]
    parse(texts[0])
    tracemalloc.start()
    memory_before, _ = tracemalloc.get_traced_memory()
    for text in texts[1:]:
        parse(text)
    memory_after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert memory_after - memory_before < 200_000


def test_deep_json_streams_and_long_numbers_are_refused():
    assert "nested too deep" in first_message('{"a": 1}' + '{"a":' * 20_000 + "1" + "}" * 20_000)
    assert "thousands of digits" in first_message('{"a": 1}{"a": ' + "9" * 100_000 + "}")


@pytest.mark.long
@every("template", ["a: {}", '{{"a": 1}}{{"a": {}}}', "{}: 1", "- {}", "a: !!float {}"])
@every("piece", ["0", "9", "1_", "1.", "e1", "0x", "-", "1:", "\\"])
def test_reading_time_is_linear_in_the_scalars_length(template, piece):
    """In quadratic time, the test would reach its time limit."""
    with suppress(manifests.ManifestError):
        manifests.parse(template.format(piece * 200_000 + "x"))


@pytest.mark.long
@pytest.mark.parametrize("piece", ["x: ", '"a" ', "{ ", "'\" "])
def test_an_invalid_long_line_takes_bounded_memory(piece):
    text = f"a: {piece * (500_000 // len(piece))}".encode()
    tracemalloc.start()
    try:
        with suppress(manifests.ManifestError):
            manifests.parse(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * len(text)


def test_a_lone_surrogate_is_read_as_by_the_server(tmp_path):
    path = tmp_path / "half.json"
    path.write_text('{"kind": "\\ud800", "list": ["\\udfffx", "\\ud83d\\ude00"]}')
    (document,) = manifests.read([path])
    assert document.object == {"kind": "\ufffd", "list": ["\ufffdx", "\U0001f600"]}
