"""Texts that once broke a target break it no longer, and each run fuzzes for a second; `make fuzz` fuzzes for longer."""

import pytest

from tests.fuzz import FOUND, TARGETS, BrokenError, Target, broken, fuzz

KEPT = sorted(path for path in FOUND.rglob("*") if path.is_file())


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_recorded_crash_input_no_longer_breaks_its_target(path):
    text = path.read_bytes().decode(errors="surrogatepass")
    assert broken(TARGETS[path.parent.name], text) is None


@pytest.mark.parametrize("name", TARGETS)
def test_a_second_of_fuzzing_finds_nothing(name):
    assert not fuzz(name, seconds=1, seed=7)


def test_an_input_that_breaks_a_target_is_found_and_shortened():
    def fragile(text: str) -> None:
        if "e" in text and "9" in text:
            raise BrokenError("both")

    target = Target(fragile, ("tests/test_fuzz.py",), ("1e1", "199"), ("0", "9"))
    TARGETS["fragile"] = target
    try:
        ((text, why),) = fuzz("fragile", seconds=3, seed=1)
    finally:
        del TARGETS["fragile"]
    assert sorted(text) == ["9", "e"]
    assert why == "BrokenError: both"
