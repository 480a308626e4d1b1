"""Parsing a text takes time in proportion to the length of the text, also for hostile texts."""

from contextlib import suppress

import pytest

from dra.budget import Budget
from dra.cel.library import named_formats, networks, regexes, standard, strings, text_format, times, urls
from dra.errors import OutOfBudget, SelectorRunError, SemverError
from dra.semver import Version

EPOCH = standard.Timestamp(0)
READERS = {
    "semver": Version.parse,
    "tolerant semver": Version.parse_tolerant,
    "timestamp": times.parse_timestamp,
    "time zone": lambda text: times._in_zone(EPOCH, text),
    "duration": standard.string_to_duration,
    "int": standard._string_to_int,
    "uint": standard._string_to_uint,
    "double": standard.string_to_double,
    "ip": networks.parse_ip,
    "cidr": networks.parse_cidr,
    "url": lambda text: str(urls.parse_url(text)),
    "query": lambda text: urls._query(urls.parse_url(text)),
    "template": lambda text: text_format.fill_in(text, [1.0]),
    "quoted": lambda text: text_format.fill_in("%s", [[text]]),
    "pattern": lambda text: regexes.find(text, "((a|b)*a)*c"),
    "split": lambda text: strings._split(text, "a"),
    "replace": lambda text: strings._replace(text, "a", "b"),
    **{f"format {name}": format_.validate for name, format_ in named_formats.FORMATS.items()},
}
# For each kind of text: the text before the repeated piece, the piece, and the text after the pieces.
TEXTS = [
    ("", "0", "x"), ("", "9", ""), ("-", "0", ":0"), ("", "9", ":0"), ("1:", "9", ""), ("0x", "f", "p1"), ("1e", "9", ""), ("", "1_", ""),
    ("1.2.3-", "a", "!"), ("1.2.3-", "a.", ""), ("1.2.3+", "a.", "!"), ("1.2.3-", "1.", "1"), ("v", "0", "1.2"), ("", ".", ""),
    ("2020-01-01T00:00:00.", "9", "x"), ("", "1s", ""), ("", "0.1s", "x"), ("", "t", ""), ("", ":", ""), ("::%", "a", ""), ("", "1.", ""),
    ("http://", "a@", ""), ("http://", "[:", ""), ("http://[", ":", "]"), ("http://a/", "%20", ""), ("http://a?", "a=%20&", ""), ("a+", "a+", ":"),
    ("http://a:", "9", ""), ("", "%", ""), ("%.", "9", "f"), ("", "%%", ""), ("", "a-", ""), ("", "a.a-", "!"), ("", "a", "!"), ("", "abcd", "="),
    ("", "\x00", ""), ("", "\U0001f600", ""), ("", "ab", ""),
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("reader", READERS)
def test_each_reader_takes_linear_time(reader):
    """In quadratic time, the test would reach its time limit."""
    for prefix, piece, suffix in TEXTS:
        with suppress(SelectorRunError, SemverError):
            READERS[reader](prefix + piece * 200_000 + suffix)


def test_compiling_a_pattern_is_charged_once():
    budget = Budget()
    regexes.compile_pattern("^paid for once$", budget)
    first_charge = budget.spent
    assert first_charge
    regexes.compile_pattern("^paid for once$", budget)
    assert budget.spent == first_charge
    with pytest.raises(OutOfBudget):
        regexes.compile_pattern(r"\pL{200}", Budget(100_000))


def test_a_pattern_is_charged_for_its_compiled_program():
    small, large = regexes.compile_pattern("^h[0-9]+$"), regexes.compile_pattern(r"(a{1,100}){1,9}")
    assert regexes.work(large.programsize, 1000) > 100 * regexes.work(small.programsize, 1000)
