"""Manifests that are hostile or damaged: a clear error in bounded time, or the right objects, and never a crash."""

import json
import time
import tracemalloc
from contextlib import suppress

import pytest

from cluster import manifests
from tests.growth import assert_linear

SOON = 20.0  # seconds of CPU: far more than needed, far less than for exponential work


def outcome(data):
    """Return the objects and the problems of a text; fail if parsing takes too long."""
    began = time.process_time()
    try:
        result = [document.object for document in manifests.parse(data)], ()
    except manifests.ManifestError as error:
        result = [], error.problems
    assert time.process_time() - began < SOON
    return result


def message(data):
    objects, problems = outcome(data)
    assert not objects
    return str(problems[0])


@pytest.mark.parametrize("width", [2, 10, 100])
def test_aliases_that_explode_are_refused(width):
    lines = ["a0: &a0 [lol]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, 60)]
    assert "excessive aliasing" in message("\n".join(lines))


def test_merges_that_explode_are_refused():
    lines = ["a0: &a0 {k: v}"]
    lines += [f"a{i}: &a{i} {{x: {{<<: *a{i - 1}}}, y: {{<<: *a{i - 1}}}, z: *a{i - 1}}}" for i in range(1, 60)]
    assert "excessive aliasing" in message("\n".join(lines))


@pytest.mark.parametrize("bracket", ["[", "{", "- ", "? ", "a: [", '{"a":', "[[["])
def test_bottomless_nesting_is_refused(bracket):
    assert message(bracket * 100_000)


def test_deep_nesting_is_refused_with_its_place():
    assert "deeper than 256" in message("a: " + "[" * 300 + "]" * 300)
    assert "deeper than 256" in message('{"a": ' + "[" * 300 + "]" * 300 + "}")
    assert outcome('{"a": ' + "[" * 200 + "]" * 200 + "}")[0]
    indented = "".join(" " * depth + "a:\n" for depth in range(400))
    assert "deeper than 256" in message(indented)


def test_scalars_of_many_megabytes_are_read():
    long = "x" * 50_000_000
    assert outcome(f"a: {long}")[0][0] == {"a": long}
    assert outcome(f'{{"a": "{long}"}}')[0][0] == {"a": long}


def test_a_hundred_thousand_documents_are_read():
    assert len(outcome("---\na: 1\n" * 100_000)[0]) == 100_000


def test_byte_order_marks_and_windows_line_ends_change_nothing():
    assert outcome("\ufeffa: 1\r\nb:\r\n- c\r\n---\r\nd: |\r\n  x\r\n  y\r\n".encode())[0] == [
        {"a": 1, "b": ["c"]},
        {"d": "x\ny\n"},
    ]
    assert outcome(b'\xef\xbb\xbf{"a": 1}')[0] == [{"a": 1}]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "latin-1"])
def test_other_encodings_are_named_or_refused(encoding):
    objects, problems = outcome("a: é\n".encode(encoding))
    assert not objects
    assert problems


@pytest.mark.parametrize(
    "byte", [b"\x00", b"\x07", b"\x1b", b"\x7f", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"]
)
def test_bytes_other_than_text_are_refused_with_their_line(byte):
    objects, problems = outcome(b"a: 1\nb: x" + byte + b"y\n")
    assert not objects
    assert problems[0].line == 2


def test_a_large_binary_file_is_not_read_to_its_end(monkeypatch):
    """500 MiB of NULs took 19 s and were twice in memory."""
    looked_at = []
    pattern = manifests.documents._TEMPLATE
    monkeypatch.setattr(manifests.documents, "_TEMPLATE", Searched(pattern, looked_at))
    data = b"a: 1\nb: \0" + bytes(8 << 20)
    tracemalloc.start()
    objects, [problem] = outcome(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (objects, problem.line, problem.column, problem.apparent_kind) == ([], 2, 4, "other")
    assert "NUL" in problem.message
    assert looked_at == [manifests.documents.PART_BYTES]
    assert peak < len(data) / 2


class Searched:
    """A pattern that records how much it searches."""

    def __init__(self, pattern, sizes):
        self.pattern, self.sizes = pattern, sizes

    def search(self, data):
        self.sizes.append(len(data))
        return self.pattern.search(data)


def test_tabs_are_refused_where_they_indent_and_fine_elsewhere():
    assert "tab" in message("a:\n\tb: 1\n")
    assert outcome("a:\tb\n")[0] == [{"a": "b"}]


def test_huge_numbers_are_read_as_by_kubectl():
    assert outcome("a: " + "9" * 5000)[0] == [{"a": "9" * 5000}]
    assert outcome("a: 0x" + "f" * 5000)[0] == [{"a": "0x" + "f" * 5000}]
    assert outcome("a: 99999999999999999999")[0] == [{"a": 100000000000000000000}]
    objects, problems = outcome('{"a": ' + "9" * 5000 + "}")
    assert objects or problems


@pytest.mark.parametrize(
    "text", ["---", "---\n", "---\n---\n", "\n\n", "# nothing\n", "--- # x\n", "null\n", "~\n---\n"]
)
def test_an_empty_document_is_neither_an_object_nor_an_error(text):
    assert outcome(text) == ([], ())


def test_documents_other_than_objects_are_refused():
    for text in ("- a\n", "a\n", "1\n", "'x'\n", "[1]", "true"):
        assert "an object with apiVersion and kind" in message(text)


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_file_cut_off_anywhere_is_read_or_refused(cut):
    text = "kind: X\nspec:\n- {a: \"b\", c: [1, 2]}\n- |\n  text\n- 'q'\n...\n"
    outcome(text[:-cut])
    outcome(json.dumps({"kind": "X", "spec": [{"a": "b", "c": [1, 2]}, "text\n", {}]})[:-cut])


def test_lists_of_nonsense_are_refused_item_by_item():
    objects, problems = outcome('{"kind": "List", "items": [1, null, {"kind": "A"}, []]}')
    assert objects == []
    assert [problem.pointer for problem in problems] == ["/items/0", "/items/1", "/items/3"]


def test_deeply_nested_empty_lists_are_flattened():
    value = {"kind": "List", "items": []}
    for _ in range(100):
        value = {"kind": "List", "items": [value]}
    assert outcome(json.dumps(value)) == ([], ())


def test_lines_are_found_even_where_json_is_not_yaml():
    (document,) = manifests.parse('{"kind": "X",\n "a": "\\ud83d\\ude00",\n "b": 1}')
    assert document.object["a"] == "😀"
    assert document.line_of("/b") >= 1


def test_a_read_manifest_keeps_no_memory():
    texts = [f"a: {letter * 200_000}\nb: {number}.{'0' * 200_000}\n" for number, letter in enumerate("abcdefghij")]
    outcome(texts[0])
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for text in texts[1:]:
        outcome(text)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 200_000


def test_deep_json_and_long_numbers_are_refused():
    assert "nested too deep" in message('{"a": 1}' + '{"a":' * 20_000 + "1" + "}" * 20_000)
    assert "thousands of digits" in message('{"a": 1}{"a": ' + "9" * 100_000 + "}")


@pytest.mark.parametrize("text", ["a: {}", '{{"a": 1}}{{"a": {}}}', "{}: 1", "- {}", "a: !!float {}"])
@pytest.mark.parametrize("piece", ["0", "9", "1_", "1.", "e1", "0x", "-", "1:", "\\"])
def test_reading_is_linear_in_a_scalar(text, piece):
    def read(data):
        with suppress(manifests.ManifestError):
            manifests.parse(data)

    assert_linear(read, lambda size: text.format(piece * size + "x"), 750)


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
