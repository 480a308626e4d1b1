"""Texts that once broke a target break it no longer; `make fuzz` looks for others."""

import pytest

from tests.fuzz import FOUND_TEXTS, TARGETS, BrokenError, Target, failure_of, fuzz

RECORDED_TEXTS = sorted(path for path in FOUND_TEXTS.rglob("*") if path.is_file())


@pytest.mark.parametrize("path", RECORDED_TEXTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_recorded_text_no_longer_breaks_its_target(path):
    text = path.read_bytes().decode(errors="surrogatepass")
    assert failure_of(TARGETS[path.parent.name], text) is None


@pytest.mark.long
@pytest.mark.parametrize("name", TARGETS)
def test_a_second_of_fuzzing_finds_nothing(name):
    assert not fuzz(name, seconds=1, seed=7)


@pytest.mark.long
def test_a_text_that_breaks_a_target_is_found_and_shortened():
    def fragile(text: str) -> None:
        if "e" in text and "9" in text:
            raise BrokenError("contains e and 9")

    target = Target(fragile, ("tests/test_fuzz.py",), ("1e1", "199"), ("0", "9"))
    TARGETS["fragile"] = target
    try:
        ((text, failure),) = fuzz("fragile", seconds=3, seed=1)
    finally:
        del TARGETS["fragile"]
    assert sorted(text) == ["9", "e"]
    assert failure == "BrokenError: contains e and 9"
