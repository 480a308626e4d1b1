"""Semantic versions: tables of cases, and random strings compared with Go."""

import random
from itertools import pairwise

import pytest

from dra.errors import SemverError
from dra.semver import Version
from tests.loops import every


@every(
    "text",
    ["", "1.2", "v1.2.3", "1.2.3-ä", "1.2.٣", "1.2.3\n"],
)  # fmt: skip
def test_a_version_outside_strict_semver_is_rejected_with_a_remedy(text):
    with pytest.raises(SemverError, match="write it like"):
        Version.parse(text)


def test_a_short_prerelease_version_is_rejected_even_when_tolerant():
    with pytest.raises(SemverError, match="short version"):
        Version.parse_tolerant("1-rc")


def test_build_metadata_does_not_count():
    left, right = Version.parse("1.0.0+a"), Version.parse("1.0.0+b")
    assert left == right
    assert hash(left) == hash(right)
    assert str(left) != str(right)
    assert left != "1.0.0+a"


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
