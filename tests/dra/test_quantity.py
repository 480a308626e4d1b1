"""Quantities: tables of cases, and random strings compared with Go."""

import copy
import pickle
import random
from contextlib import suppress
from itertools import pairwise

import pytest

from dra.errors import QuantityError
from dra.quantity import MAX, NANO, Quantity, from_json, parse, parse_uncached
from tests.loops import every


@every(
    ("text", "nano", "printed"),
    [
        ("+5", 5 * NANO, "+5"),
        ("1500m", 3 * NANO // 2, "1500m"),
        ("1.5Gi", 1536 * 2**20 * NANO, "1536Mi"),
        ("1e3", 1000 * NANO, "1e3"),
        ("0.1n", 1, "1n"),
        ("16Ei", MAX * NANO, "9223372036854775807"),
    ],
)
def test_a_quantity_is_an_exact_number_with_a_canonical_form(text, nano, printed):
    quantity = parse(text)
    assert quantity.nano == nano
    assert str(quantity) == printed
    assert parse(printed) == quantity
    assert hash(parse(printed)) == hash(quantity)


@pytest.mark.parametrize("text", ["", "1 Gi", "1_000", "٣", "1e"])
def test_a_quantity_that_go_rejects_is_rejected_with_a_remedy(text):
    with pytest.raises(QuantityError, match="write it like"):
        parse(text)


def test_a_quantity_does_not_change_and_can_be_copied():
    quantity = parse("80Gi")
    with pytest.raises(AttributeError, match="is immutable"):
        quantity.nano = 1
    with pytest.raises(AttributeError, match="is immutable"):
        del quantity.nano
    assert copy.deepcopy(quantity) is quantity is copy.copy(quantity)
    assert pickle.loads(pickle.dumps(quantity)).identical(quantity)


def test_json_may_hold_blanks_and_bare_numbers():
    assert from_json(" 5Gi ") == parse("5Gi")
    assert from_json(3) == parse("3")
    assert from_json(1.5) == parse("1500m")


@pytest.mark.parametrize("text", ["10Gi\n", "\t10Gi"])
def test_a_line_break_or_a_tab_in_json_is_rejected(text):
    with pytest.raises(QuantityError, match="write it like"):
        from_json(text)


def test_a_quantity_can_be_made_from_integers():
    assert str(Quantity.from_int(1024, "BinarySI")) == "1Ki"
    assert str(Quantity.from_nano(1_500_000_000)) == "1500m"
    assert Quantity.from_nano(5 * NANO).as_int() == 5


@pytest.mark.parametrize(
    "text",
    ["1e1000000000", "1e-1000000000", "9" * 5000, "1." + "9" * 5000, "-1e2000000000", "9" * 5000 + "Ki", "9" * 5000 + "e4000"],
)  # fmt: skip
def test_absurd_exponents_and_lengths_are_parsed_and_printed(text):
    quantity = parse_uncached(text)
    again = parse_uncached(str(quantity))
    # Beyond exa, Go drops the zeros at the end of a number in DecimalSI, which has no suffix for them.
    assert again == quantity or quantity.format == "DecimalSI"


def test_sums_of_the_largest_numbers_do_not_grow_without_end():
    total = parse("9" * 3990)
    for _ in range(2000):
        total += total
    assert len(str(total)) < 4100


def test_a_json_number_too_long_to_print_is_rejected():
    with pytest.raises(QuantityError, match="write it as a string"):
        from_json(1 << 100_000)


LONG = {
    "zeros and no suffix": lambda n: "0" * n + "x",
    "zeros": lambda n: "0" * n,
    "digits": lambda n: "9" * n,
    "digits and a binary suffix": lambda n: "9" * n + "Ki",
    "a fraction": lambda n: "0." + "9" * n,
    "a fraction and a binary suffix": lambda n: "0." + "9" * n + "Ei",
    "an exponent of zeros": lambda n: "1e" + "0" * n + "5",
    "an exponent": lambda n: "1e" + "9" * n,
    "a small number": lambda n: "0." + "0" * n + "1",
    "suffixes": lambda n: "1" + "m" * n,
    "signs": lambda n: "-" * n,
}


@pytest.mark.parametrize("name", LONG)
def test_reading_takes_linear_time(name):
    """In quadratic time, the test would reach its time limit."""
    with suppress(QuantityError):
        str(parse_uncached(LONG[name](500_000)))


def test_long_texts_are_not_cached():
    assert parse("1" * 65) is not parse("1" * 65)
    assert parse("1" * 64) is parse("1" * 64)


# ---- Go as the referee -------------------------------------------------------------------------------------------


SUFFIXES = ["", "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "K", "e", "Kii"]


def random_quantity(rng):
    kind = rng.random()
    if kind < 0.12:
        return "".join(rng.choice("0123456789.+-eEinumkKMGTPx ") for _ in range(rng.randrange(0, 9)))
    sign = rng.choice(["", "", "", "", "-", "+"])
    whole = "".join(
        rng.choice("0000123456789" if rng.random() < 0.5 else "123456789")
        for _ in range(rng.choice([0, 1, 1, 2, 3, 4, 5, 8, 12, 15, 18, 19, 20, 25]))
    )
    fraction = rng.choice(
        [
            "",
            "",
            "",
            "." + "".join(rng.choice("00123456789") for _ in range(rng.choice([0, 1, 2, 3, 6, 9, 10, 12, 20]))),
        ]
    )
    exponents = [f"e{rng.randrange(-25, 25)}", f"E{rng.randrange(-12, 12)}", f"e+{rng.randrange(9)}", "e4294967297"]
    suffix = rng.choice([*SUFFIXES, *exponents])
    return sign + whole + fraction + suffix


def check_quantity(text, go):
    try:
        quantity = parse_uncached(text)
    except QuantityError:
        assert "error" in go, f"{text!r}: Go reads {go['text']}"
        return None
    assert "error" not in go, f"{text!r}: Go says {go['error']}, we read {quantity}"
    assert {
        "text": str(quantity), "format": quantity.format, "value": quantity.value(), "milli": quantity.milli(),
        "isInteger": quantity.as_int() is not None, "asInt64": go["asInt64"] if quantity.as_int() is None else quantity.as_int(), "sign": (quantity.nano > 0) - (quantity.nano < 0),
    } == {key: go[key] for key in ("text", "format", "value", "milli", "isInteger", "asInt64", "sign")}, text  # fmt: skip
    if go["float"] is not None:
        assert quantity.as_float() == float(go["float"]), text
    whole, _, fraction = go["nano"].partition(".")
    if len(go["nano"]) > 4000:  # such a number is clamped (dra/quantity.py)
        return None
    assert quantity.nano == int(whole + fraction) * NANO // 10 ** len(fraction), text
    return quantity


def compare_with_go(oracle, count, seed):
    rng = random.Random(seed)
    texts = [random_quantity(rng) for _ in range(count)]
    answers = oracle.ask_all({"op": "quantity", "a": text} for text in texts)
    read = [text for text, go in zip(texts, answers, strict=True) if check_quantity(text, go) is not None]
    pairs = list(pairwise(read[: count // 2]))
    answers = oracle.ask_all({"op": "quantities", "a": a, "b": b} for a, b in pairs)
    for (a, b), go in zip(pairs, answers, strict=True):
        left, right = parse_uncached(a), parse_uncached(b)
        total, difference = left + right, left - right
        assert {
            "compare": (left > right) - (left < right), "identical": left.identical(right),
            "sum": str(total), "sumInt": total.as_int() is not None, "diff": str(difference), "diffInt": difference.as_int() is not None,
        } == {key: go[key] for key in ("compare", "identical", "sum", "sumInt", "diff", "diffInt")}, (a, b)  # fmt: skip
    return len(read)


@pytest.mark.oracle
def test_random_strings_read_print_and_compute_as_in_go(quantity_oracle):
    count = quantity_oracle.cases(100_000, recorded=2_500)
    assert compare_with_go(quantity_oracle, count, seed=1) > count / 2


def long_quantity(rng):
    """Return a quantity of hundreds of digits, the last of which must not change the result."""
    whole = rng.choice(["", "0" * rng.randrange(400), "7" * rng.randrange(1, 400)])
    ends = ["0" * rng.randrange(400), "9" * rng.randrange(400), "0" * rng.randrange(200) + "1" + "0" * rng.randrange(3)]
    # Values at which rounding changes: multiples of a power of two, and their neighbours.
    power = rng.randrange(60, 75)
    neighbour = str(rng.randrange(1, 2**62) * 5**power).rjust(power, "0")[-power:]
    ends += [neighbour, neighbour + "0" * rng.randrange(200) + "1", neighbour[:-1] + "4" + "9" * 300]
    fraction = rng.choice(["", "." + rng.choice(ends)])
    suffix = rng.choice([*SUFFIXES, f"e{rng.randrange(-300, 300)}", f"E{'0' * 300}{rng.randrange(9)}"])
    return rng.choice(["", "-"]) + whole + fraction + suffix


@pytest.mark.oracle
def test_long_texts_read_and_print_as_in_go(quantity_oracle):
    rng = random.Random(3)
    texts = [long_quantity(rng) for _ in range(quantity_oracle.cases(20_000, recorded=200))]
    answers = quantity_oracle.ask_all({"op": "quantity", "a": text} for text in texts)
    assert sum(check_quantity(text, go) is not None for text, go in zip(texts, answers, strict=True)) > len(texts) / 2


@pytest.mark.oracle
@pytest.mark.long
def test_a_million_random_quantities_behave_as_in_go(quantity_oracle):
    assert sum(compare_with_go(quantity_oracle, 100_000, seed) for seed in range(2, 12)) > 500_000
