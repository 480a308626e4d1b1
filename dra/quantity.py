"""Amounts as Kubernetes writes them: `80Gi`, `500m`, `1e3` (k8s.io/apimachinery/pkg/api/resource, `Quantity`).

A quantity is an exact number of nano-units, `nano`, and the format to print the number in. Order, equality and hash use
the number only. Two details of Go's representation are visible as well: CEL's `isInteger` depends on whether an amount
fits Go's fast path for int64, and a text that already looks canonical is printed back verbatim. `_parts` (mantissa,
power of ten, whether Go uses a big number) and `_text` keep these details; they follow quantity.go step by step.

Parsing takes time linear in the text. Numbers beyond ten to the power of `_LARGEST_POWER` are clamped to about that
number: they parse and print, but some of them compare as equal. Go hangs on some of these numbers.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal, NoReturn

from dra.errors import QuantityError

Format = Literal["DecimalSI", "DecimalExponent", "BinarySI"]
_Parts = tuple[int, int, bool]  # mantissa, power of ten, whether Go uses a big number

NANO: Final = 10**9
MAX: Final = 2**63 - 1  # in whole units: amounts with a binary suffix are capped at it
_MIN = -(2**63)
_LARGEST_POWER = 4000

_LARGEST_NANO: Final[int] = 10 ** (_LARGEST_POWER + 9)
_LONGEST_BITS = 10_000  # bits of a bare number in JSON; Python refuses to print more than 4,300 digits
_MAX_CACHED = 64  # longer texts are not cached: the cache is bounded by entries

# Possessive (`*+`), so that a long run of zeros causes no backtracking.
_SHAPE = re.compile(r"([+-]?)(0*+)([0-9]*+)(?:\.([0-9]*+))?([eEinumkKMGTP]*+[+-]?+[0-9]*+)").fullmatch
_DECIMAL = {"": 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {power: suffix for suffix, power in _DECIMAL.items()}
_BINARY_SUFFIX = {power: suffix for suffix, power in _BINARY.items()}
# The maximum number of digits before a binary suffix for which Go takes the int64 fast path (float32(exponent)*3/10).
_BINARY_DIGITS = {power: 14 - power * 3 // 10 for power in _BINARY.values()}
# More whole digits than _BINARY_WHOLE exceed the cap of binary suffixes. Of the fraction's digits after the first
# _BINARY_FRACTION it only matters whether all are zero: multiples of 2**-60 nano-units lie further apart than that.
_BINARY_WHOLE = 30
_BINARY_FRACTION = 80
_WRAPPING_POWERS = (1, 2, 3, 6, 9)  # powers of ten whose products wrap on overflow in Go; the others become zero
_POWERS = tuple(10**power for power in range(64))


class Quantity:
    """An immutable amount."""

    __slots__ = ("_parts", "_text", "format", "nano")

    nano: int
    format: Format
    _parts: _Parts
    _text: str

    @staticmethod
    def parse(text: str) -> Quantity:
        """Parse a quantity as the function `parse` does."""
        return parse(text)

    @classmethod
    def from_int(cls, value: int, format: Format = "DecimalSI") -> Quantity:  # noqa: A002 - Go's name for it
        """Make a quantity of whole units, as Go's NewQuantity does."""
        return _make(cls, (value, 0, not _MIN <= value <= MAX), format, "")

    @classmethod
    def from_nano(cls, nano: int, format: Format = "DecimalSI") -> Quantity:  # noqa: A002 - Go's name for it
        """Make a quantity of billionths of a unit."""
        value, remainder = divmod(nano, NANO)
        if remainder:
            return _make(cls, (nano, -9, not _MIN <= nano <= MAX), format, "")
        return cls.from_int(value, format)

    @classmethod
    def from_quantity(cls, quantity: Quantity) -> Quantity:
        """Convert a quantity to this class, which may be a subclass."""
        return _make(cls, quantity._parts, quantity.format, quantity._text)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a Quantity is immutable: {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Quantity is immutable: {name}")

    def __reduce__(self) -> tuple[object, ...]:
        return _make, (self.__class__, self._parts, self.format, self._text)

    def __copy__(self) -> Quantity:
        return self

    def __deepcopy__(self, memo: object) -> Quantity:
        return self

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Quantity):
            return self.nano == other.nano
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.nano)

    def __lt__(self, other: Quantity) -> bool:
        return self.nano < other.nano

    def __le__(self, other: Quantity) -> bool:
        return self.nano <= other.nano

    def __gt__(self, other: Quantity) -> bool:
        return self.nano > other.nano

    def __ge__(self, other: Quantity) -> bool:
        return self.nano >= other.nano

    def __bool__(self) -> bool:
        return self.nano != 0

    def __add__(self, other: Quantity) -> Quantity:
        """Return the sum in the format of the left side, or of the right side if the left side is zero."""
        return _make(self.__class__, _add(self._parts, other._parts), (self if self.nano else other).format, "")

    def __sub__(self, other: Quantity) -> Quantity:
        """Return the difference in the format of the left side, or of the right side if the left side is zero."""
        mantissa, scale, big = other._parts
        # Go negates an int64 without an overflow check: the smallest int64 stays negative, unless big numbers are
        # involved.
        negated = -mantissa if big or self._parts[2] else wrap64(-mantissa)
        return _make(
            self.__class__, _add(self._parts, (negated, scale, big)), (self if self.nano else other).format, ""
        )

    def __str__(self) -> str:
        nano, format_ = self.nano, self.format
        if self._text or nano == 0:
            return self._text or "0"
        if format_ == "BinarySI" and nano % NANO == 0 and abs(nano) >= 1024 * NANO:
            number = nano // NANO
            times = ((number & -number).bit_length() - 1) // 10  # the power of 1024 that divides the number
            return str(number >> 10 * times) + _BINARY_SUFFIX.get(times * 10, "")
        mantissa, power, _ = self._parts
        digits = str(mantissa)
        bare = digits.rstrip("0")
        power += len(digits) - len(bare)
        number = int(bare) * _POWERS[power % 3]
        power -= power % 3
        if format_ == "DecimalExponent":
            return str(number) + (f"e{power}" if power else "")
        # Beyond exa Go prints no suffix.
        return str(number) + _DECIMAL_SUFFIX.get(power, "")

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def identical(self, other: Quantity) -> bool:
        """Whether Go's `==` on two parsed quantities holds, which compares representations and not only numbers."""
        mine = (self._parts, self.format, self._text)
        return self is other or (not self._parts[2] and mine == (other._parts, other.format, other._text))

    def value(self) -> int:
        """Return whole units as Go's Value() does: rounded away from zero, and a meaningless number beyond 64 bits."""
        return _scale(self._parts, 0)

    def milli(self) -> int:
        """Return thousandths as Go's MilliValue() does; beyond about 9.2e15 units, the number is meaningless, too."""
        return _scale(self._parts, -3)

    def whole(self) -> int | None:
        """Return the number if it is an integer of 64 bits, else None: 9 for `9`, `9.0`, `9000m` and `0.009k`.

        The API server stores all these texts as `9`, so `as_int` of a text that it has not stored yet is not the number.
        """
        number, rest = divmod(self.nano, NANO)
        return None if rest or not _MIN <= number <= MAX else number

    def as_int(self) -> int | None:
        """Return the number if Go represents it as a plain integer (AsInt64), else None, as for `1.0` and `7Ei`."""
        mantissa, scale, big = self._parts
        if big or scale < 0:
            return None
        return _times(mantissa, scale)

    def as_float(self) -> float:
        """Return the float that Go's AsApproximateFloat64 returns, with the same rounding."""
        mantissa, scale, _ = self._parts
        try:
            base = float(mantissa)
        except OverflowError:
            base = float("inf") if mantissa > 0 else float("-inf")
        if scale == 0:
            return base
        # As Go's math.Pow10, which multiplies two table entries and so does not always return the nearest float.
        if not -323 <= scale <= 308:
            return base * (0.0 if scale < 0 else float("inf"))
        coarse, fine = divmod(abs(scale), 32)
        if scale > 0:
            return base * (float(f"1e{coarse * 32}") * float(f"1e{fine}"))
        return base * (float(f"1e-{coarse * 32}") / float(f"1e{fine}"))


def parse(text: str) -> Quantity:
    """Parse a quantity as Go's ParseQuantity does."""
    return _cached_parse(text) if len(text) <= _MAX_CACHED else parse_uncached(text)


def parse_uncached(text: str) -> Quantity:
    """Parse a quantity without the cache of `parse`."""
    shape = _SHAPE(text)
    if shape is None or not text:
        raise _quantity_error(text, "a number with an optional suffix is expected")
    number = shape.groups("")
    suffix = number[4]
    power = _DECIMAL.get(suffix)
    if power is not None:
        return _decimal(text, number, power, "DecimalSI")
    power = _BINARY.get(suffix)
    if power is not None:
        return _binary(text, number, power)
    letter, sign = suffix[:1], suffix[1:2]
    digits = suffix[2:] if sign in ("+", "-") else suffix[1:]
    if letter not in ("e", "E") or not digits.isdecimal():
        raise _quantity_error(text, f"{suffix[:20]!r} is not a suffix")
    digits = digits.lstrip("0") or "0"
    exponent = (int(digits) if len(digits) < 20 else 2 * MAX) * (-1 if sign == "-" else 1)
    if not _MIN <= exponent <= MAX:  # Go's ParseInt refuses numbers that do not fit in 64 bits
        raise _quantity_error(text, f"{suffix[:20]!r} is not a suffix")
    low = (exponent + 2**31) % 2**32 - 2**31  # Go keeps the low 32 bits
    return _decimal(text, number, low, "DecimalExponent")


_cached_parse = lru_cache(maxsize=16384)(parse_uncached)


def _make(cls: type[Quantity], parts: _Parts, format_: Format, text: str) -> Quantity:
    quantity = object.__new__(cls)
    mantissa, scale, _ = parts
    power = scale + 9
    if 0 <= power < 64:
        nano = mantissa * _POWERS[power]
    elif power < 0:
        nano = mantissa // _ten(-power)
    else:
        nano = max(-_LARGEST_NANO, min(mantissa * _ten(power), _LARGEST_NANO))
    _set_nano(quantity, nano)
    _set_format(quantity, format_)
    _set_parts(quantity, parts)
    _set_text(quantity, text)
    return quantity


# `_make` sets the slots with these functions, because the class refuses assignment.
_set_nano, _set_format, _set_parts, _set_text = (
    vars(Quantity)[slot].__set__ for slot in ("nano", "format", "_parts", "_text")
)


def _ten(power: int) -> int:
    ten: int = 10 ** min(power, _LARGEST_POWER + 9)
    return ten


def _quantity_error(text: str, why: str) -> QuantityError:
    excerpt = text if len(text) <= 40 else text[:40] + "…"
    return QuantityError(f"{excerpt!r} is not a quantity: {why}; write it like 1, 500m, 80Gi or 1e3")


# Sign, leading zeros, the other digits before the point, fraction, suffix.
_Number = tuple[str, ...]


def _decimal(text: str, number: _Number, power: int, format_: Format) -> Quantity:
    sign, _, whole, fraction, _ = number
    scale = power - len(fraction)
    digits = (whole or "0") + fraction
    negative = -1 if sign == "-" else 1
    if scale >= -9 and len(digits) <= 18:
        # Go prints a text that looks canonical back verbatim.
        canonical = scale % 3 == 0 and digits[0] != "0" and digits[-3:] != "000"
        verbatim = text if canonical or text == "0" else ""
        return _make(Quantity, (negative * int(digits), scale, False), format_, verbatim)
    _require_digit(text, number)
    # The mantissa counts billionths, rounded up, so that an amount below one billionth becomes one billionth.
    digits = digits.lstrip("0")
    # So many leading digits (padded with zeros) make up whole billionths.
    digit_count = len(digits) + scale + 9
    if digits and digit_count > _LARGEST_POWER + 9:
        mantissa = _LARGEST_NANO
    else:
        counted = digits[: max(digit_count, 0)]
        mantissa = int(counted) * _ten(digit_count - len(counted)) if counted else 0
        mantissa += bool(digits[len(counted) :].strip("0"))
    return _make(Quantity, (negative * mantissa, -9 if mantissa else scale, True), format_, "")


def _binary(text: str, number: _Number, power: int) -> Quantity:
    sign, _, whole, fraction, _ = number
    if not fraction and len(whole) <= _BINARY_DIGITS[power]:
        value = int(whole or "0")
        signed = -value << power if sign == "-" else value << power
        return _make(Quantity, (signed, 0, False), "BinarySI", text if value & 7 else "")
    _require_digit(text, number)
    digits = fraction[:_BINARY_FRACTION]
    if fraction[_BINARY_FRACTION:].strip("0"):
        digits += "1"
    shown_digits = whole[:_BINARY_WHOLE] + digits
    mantissa = int(shown_digits or "0") << power
    scale = -len(fraction)
    if mantissa:
        parts = 10 ** len(digits)
        mantissa = -(-mantissa * NANO // parts)
        scale = -9
    if mantissa > MAX * NANO:
        mantissa, scale = MAX, 0
    format_: Format = "BinarySI"
    if scale == -9 and 0 < mantissa < NANO:
        format_ = "DecimalSI"
    if sign == "-":
        mantissa = -mantissa
    return _make(Quantity, (mantissa, scale, True), format_, "")


def _require_digit(text: str, number: _Number) -> None:
    # Go reads a text without digits, such as "+" or ".", as zero, but only on its fast path.
    _, zeros, whole, fraction, _ = number
    if not (zeros or whole or fraction):
        raise _quantity_error(text, "there is no digit")


def _add(left: _Parts, right: _Parts) -> _Parts:
    left_number, left_scale, left_is_big = left
    right_number, right_scale, right_is_big = right
    scale = min(left_scale, right_scale)
    if not left_is_big and not right_is_big:
        if right_number == 0 or left_number == 0:
            return left if right_number == 0 else right
        first, second = _times(left_number, left_scale - scale), _times(right_number, right_scale - scale)
        if first is not None and second is not None and _MIN <= first + second <= MAX:
            return first + second, scale, False
    total = left_number * _ten(left_scale - scale) + right_number * _ten(right_scale - scale)
    # A sum is clamped at ten times the largest number, so that a chain of additions stays bounded.
    limit = 10 * _LARGEST_NANO
    return max(-limit, min(total, limit)), scale, True


def _times(value: int, power: int) -> int | None:
    """Return `value * 10**power` if the product fits in an int64, else None."""
    if value == 0 or power == 0:
        return value
    if power > 18:
        return None
    product = value * _POWERS[power]
    return product if _MIN <= product <= MAX else None


def _scale(parts: _Parts, scale: int) -> int:
    mantissa, own_scale, big = parts
    if not big:
        if own_scale < scale:
            magnitude = -(-abs(mantissa) // _ten(scale - own_scale))
            return magnitude if mantissa > 0 else -magnitude
        power = own_scale - scale
        exact = _times(mantissa, power)
        if exact is not None:
            return exact
        return wrap64(mantissa * _POWERS[power]) if power in _WRAPPING_POWERS else 0
    # Go's scaledValue, overflow included.
    difference = scale - own_scale
    if difference <= 0:
        factor = _POWERS[-difference] if difference > -19 else _MIN
        return wrap64(_low64(mantissa) * factor)
    if mantissa < MAX and difference < 19:
        divisor = _POWERS[difference]
        number = _low64(mantissa)
        quotient = abs(number) // divisor
        rounded: int = (quotient if number >= 0 else -quotient) + (number % divisor != 0)
        return rounded
    quotient, remainder = divmod(mantissa, _ten(difference))
    return wrap64(_low64(quotient) + (remainder != 0))


def _low64(value: int) -> int:
    low = wrap64(abs(value) & (2**64 - 1))
    return low if value >= 0 else wrap64(-low)


def wrap64(value: int) -> int:
    """Wrap a number to an int64, as Go's arithmetic does."""
    return (value + 2**63) % 2**64 - 2**63


def from_json(value: object) -> Quantity:
    """Parse a quantity from JSON: a string, with or without surrounding blanks, or a number. Any other value is an error.

    Go removes blanks before it replaces the escapes of JSON, so a line break or a tab, which JSON escapes, is an error.
    """
    if isinstance(value, str):
        return parse(value.strip(" \x85\xa0"))
    if isinstance(value, int) and value.bit_length() > _LONGEST_BITS:
        raise QuantityError("a JSON number of this many digits is not a quantity: write it as a string")
    return parse(repr(value))
