"""Semantic versions: tables of cases, and random strings compared with Go."""

import random
from itertools import pairwise

import pytest

from dra.errors import SemverError
from dra.semver import Version
from tests.loops import every


@pytest.mark.parametrize("text", ["1.2.3", "0.0.0", "1.0.0-rc.1", "1.0.0-a-b.7+build.01", "18446744073709551615.0.0"])
def test_a_version_prints_as_it_was_written(text):
    assert str(Version.parse(text)) == text


@every(
    "text",
    ["", "1", "1.2", "v1.2.3", "01.2.3", "1.2.3-", "1.2.3+", "1.2.3-01", "1.2.3-a..b", "1.2.3-ä", "1.2.٣", "1.2.3 ", "1.2.3\n", "18446744073709551616.0.0"],
)  # fmt: skip
def test_a_version_outside_strict_semver_is_rejected_with_a_remedy(text):
    with pytest.raises(SemverError, match="write it like"):
        Version.parse(text)


@pytest.mark.parametrize(
    ("text", "normal"),
    [("v1", "1.0.0"), ("1.2", "1.2.0"), ("v01.002.3", "1.2.3"), ("1.2.03-rc.1", "1.2.3-rc.1"), ("v0", "0.0.0")],
)
def test_the_tolerant_form_adds_missing_numbers(text, normal):
    assert str(Version.parse_tolerant(text)) == normal


def test_a_short_prerelease_version_is_rejected_even_when_tolerant():
    with pytest.raises(SemverError, match="short version"):
        Version.parse_tolerant("1-rc")


def test_versions_are_ordered_as_semver_says():
    texts = [
        "0.9.9",
        "1.0.0-1",
        "1.0.0-2",
        "1.0.0-10",
        "1.0.0-alpha",
        "1.0.0-alpha.1",
        "1.0.0-beta",
        "1.0.0",
        "1.0.1",
        "1.10.0",
        "2.0.0",
    ]
    backwards = list(reversed(texts))
    assert sorted(backwards, key=Version.parse) == texts


def test_build_metadata_does_not_count():
    left, right = Version.parse("1.0.0+a"), Version.parse("1.0.0+b")
    assert left == right
    assert hash(left) == hash(right)
    assert str(left) != str(right)
    assert left != "1.0.0+a"


def test_the_three_numbers_can_be_read():
    version = Version.parse("1.2.3-rc.1")
    assert (version.major, version.minor, version.patch) == (1, 2, 3)


# ---- Go as the referee -------------------------------------------------------------------------------------------


def random_version(rng):
    if rng.random() < 0.1:
        return "".join(rng.choice("0123.-+vaé") for _ in range(rng.randrange(0, 10)))

    def number():
        return rng.choice(
            ["0", "1", "7", "10", "00", "01", "18446744073709551615", "18446744073709551616", ""][
                : rng.choice([4, 4, 4, 9])
            ]
        )

    def word():
        return rng.choice(
            ["a", "b", "rc", "0", "1", "10", "01", "x-y", "-", "", "Z", "18446744073709551616"][
                : rng.choice([6, 8, 12])
            ]
        )

    def words():
        return ".".join(word() for _ in range(rng.randrange(1, 4)))

    text = rng.choice(["", "", "", "", "v"]) + ".".join(number() for _ in range(rng.choice([3, 3, 3, 3, 2, 1, 4])))
    return text + rng.choice(["", "", "-" + words()]) + rng.choice(["", "", "+" + words()])


def read(parse, text):
    try:
        version = parse(text)
    except SemverError:
        return None
    return {"text": str(version), "major": version.major, "minor": version.minor, "patch": version.patch}


@pytest.mark.oracle
def test_random_strings_read_and_compare_as_in_go(quantity_oracle):
    rng = random.Random(1)
    texts = [random_version(rng) for _ in range(quantity_oracle.cases(50_000, recorded=2_500))]
    valid_texts = []
    for op, parse in (("version", Version.parse), ("tolerant", Version.parse_tolerant)):
        answers = quantity_oracle.ask_all({"op": op, "a": text} for text in texts)
        for text, go in zip(texts, answers, strict=True):
            version_fields = read(parse, text)
            expected = None if "error" in go else {key: go[key] for key in ("text", "major", "minor", "patch")}
            assert version_fields == expected, (op, text, go)
            if version_fields and op == "version":
                valid_texts.append(text)
    pairs = list(pairwise(valid_texts))
    answers = quantity_oracle.ask_all({"op": "versions", "a": a, "b": b} for a, b in pairs)
    for (a, b), go in zip(pairs, answers, strict=True):
        left, right = Version.parse(a), Version.parse(b)
        assert ((left > right) - (left < right), left == right) == (go["compare"], go["equal"]), (a, b)
    assert len(valid_texts) > len(texts) / 5
