"""Timestamps: parsing, formatting, and their parts in a time zone (cel-go common/types/timestamp.go, common/stdlib)."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING

from dra.cel.signatures import Overload, method
from dra.cel.types import DURATION, INT, STRING, TIMESTAMP
from dra.cel.values import Duration, Timestamp, Value
from dra.errors import SelectorRunError

if TYPE_CHECKING:
    from collections.abc import Callable

_SHAPE = r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


FIRST_SECOND, _LAST_SECOND = -62135596800, 253402300799


def make_timestamp(nanos: int, offset: int) -> Timestamp:
    """Make a timestamp of the years 1 to 9999."""
    if not FIRST_SECOND <= nanos // 10**9 <= _LAST_SECOND:
        raise SelectorRunError("timestamp overflow")
    return Timestamp(nanos, offset)


def parse_timestamp(text: str) -> Timestamp:
    """Parse an RFC 3339 timestamp."""
    shape = re.fullmatch(_SHAPE, text)
    failure = SelectorRunError("type conversion error from 'string' to 'google.protobuf.Timestamp'")
    if shape is None:
        raise failure
    *clock, fraction, sign, off_hour, off_minute = shape.groups()
    year, month, day, hour, minute, second = map(int, clock)
    offset = 0
    if sign:
        hours, minutes = int(off_hour), int(off_minute)
        if hours > 24 or minutes > 60:
            raise failure
        offset = hours * 60 + minutes
        if sign == "-":
            offset = -offset
    if year == 0:
        raise SelectorRunError("timestamp overflow")
    try:
        moment = dt.datetime(year, month, day, hour, minute, second, tzinfo=dt.UTC)
    except ValueError:
        raise failure from None
    seconds = (moment - _EPOCH) // dt.timedelta(seconds=1)
    seconds -= offset * 60
    digits = (fraction or "0")[:9]
    return make_timestamp(seconds * 10**9 + int(digits.ljust(9, "0")), offset)


def _moment(value: Timestamp, minutes_east: int = 0) -> dt.datetime:
    return _EPOCH + dt.timedelta(seconds=value.nanos // 10**9 + minutes_east * 60)


def timestamp_to_string(value: Timestamp) -> str:
    """Format a timestamp in the zone in which it was written."""
    nanos = value.nanos % 10**9
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    try:
        moment = _moment(value, value.offset)
    except OverflowError:
        raise SelectorRunError("timestamp overflow") from None
    zone = "Z"
    if value.offset:
        zone = f"{'+' if value.offset > 0 else '-'}{abs(value.offset) // 60:02d}:{abs(value.offset) % 60:02d}"
    return moment.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0") + fraction + zone


_OFFSET = r"([+-]?[0-9]+):([+-]?[0-9]+)"
_MAX_DIGITS = 18  # an offset with more digits overflows any timestamp; Python refuses to parse thousands of digits


def _in_zone(value: Timestamp, zone: str) -> dt.datetime:
    if ":" in zone:
        shape = re.fullmatch(_OFFSET, zone)
        if shape is None:
            raise SelectorRunError(f"invalid time zone offset {zone!r}")
        if max(len(shape[1].lstrip("+-0")), len(shape[2].lstrip("+-0"))) > _MAX_DIGITS:
            raise SelectorRunError("timestamp overflow")
        hours, minutes = _integer(shape[1]), _integer(shape[2])
        try:
            return _moment(value, hours * 60 - minutes if zone[0] == "-" else hours * 60 + minutes)
        except OverflowError:
            raise SelectorRunError("timestamp overflow") from None
    if zone in ("", "UTC"):
        return _moment(value)
    import zoneinfo  # few selectors need it

    try:
        return _moment(value).astimezone(zoneinfo.ZoneInfo(zone))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise SelectorRunError(f"unknown time zone {zone}") from None


def _integer(text: str) -> int:
    digits = int(text.lstrip("+-0") or "0")
    return -digits if text[0] == "-" else digits


def _part(name: str, id_: str, part: Callable[[dt.datetime], int], zoned_id: str = "") -> tuple[Overload, ...]:
    zoned = zoned_id or f"{id_}_with_tz"
    return (
        method(name, id_, (TIMESTAMP,), INT, lambda value: part(_moment(value))),
        method(name, zoned, (TIMESTAMP, STRING), INT, lambda value, zone: part(_in_zone(value, zone))),
    )


def _truncate(unit: int) -> Callable[[Duration], Value]:
    return lambda value: abs(value.nanos) // unit * (-1 if value.nanos < 0 else 1)


def _milliseconds(value: Timestamp) -> int:
    return value.nanos % 10**9 // 10**6


FUNCTIONS: tuple[Overload, ...] = (
    *_part("getFullYear", "timestamp_to_year", lambda t: t.year),
    *_part("getMonth", "timestamp_to_month", lambda t: t.month - 1),
    *_part("getDayOfYear", "timestamp_to_day_of_year", lambda t: t.timetuple().tm_yday - 1),
    *_part("getDayOfMonth", "timestamp_to_day_of_month", lambda t: t.day - 1),
    *_part("getDate", "timestamp_to_day_of_month_1_based", lambda t: t.day),
    *_part("getDayOfWeek", "timestamp_to_day_of_week", lambda t: t.isoweekday() % 7),
    *_part("getHours", "timestamp_to_hours", lambda t: t.hour),
    method("getHours", "duration_to_hours", (DURATION,), INT, _truncate(3600 * 10**9)),
    *_part("getMinutes", "timestamp_to_minutes", lambda t: t.minute),
    method("getMinutes", "duration_to_minutes", (DURATION,), INT, _truncate(60 * 10**9)),
    *_part("getSeconds", "timestamp_to_seconds", lambda t: t.second, "timestamp_to_seconds_tz"),
    method("getSeconds", "duration_to_seconds", (DURATION,), INT, _truncate(10**9)),
    method("getMilliseconds", "timestamp_to_milliseconds", (TIMESTAMP,), INT, _milliseconds),
    method("getMilliseconds", "timestamp_to_milliseconds_with_tz", (TIMESTAMP, STRING), INT, lambda value, zone: _in_zone(value, zone) and _milliseconds(value)),
    method("getMilliseconds", "duration_to_milliseconds", (DURATION,), INT, _truncate(10**6)),
)  # fmt: skip
