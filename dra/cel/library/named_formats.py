"""Named formats, `format.dns1123Label().validate(text)` (k8s.io/apiserver/pkg/cel/library/format.go)."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from dra.cel.library.urls import is_url
from dra.cel.signatures import Overload, method, over
from dra.cel.types import FORMAT, STRING, list_of, optional_of
from dra.cel.values import NONE, Optional, Sized

if TYPE_CHECKING:
    from collections.abc import Callable

    Validate = Callable[[str], list[str]]


class Format(Sized, frozen=True):
    """A format. A validation costs as much as a search for a regular expression of `regex_size` characters."""

    type_name = "kubernetes.NamedFormat"
    hashable = False
    name: str
    regex_size: int
    validate: Callable[[str], list[str]]


def _regex_error(message: str, pattern: str, *examples: str) -> str:
    quoted = "or ".join(f"'{example}', " for example in examples).replace(", or", ", or")
    return f"{message} (e.g. {quoted}regex used for validation is '{pattern}')"


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} characters"


_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = f"{_LABEL}(\\.{_LABEL})*"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_KEY})?"
_LABEL_ERROR = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character"
_SUBDOMAIN_ERROR = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character"
_LABEL_1035_ERROR = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character"
_KEY_ERROR = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_VALUE_ERROR = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"


def _size(text: str) -> int:
    return len(text.encode())


def _label(text: str) -> list[str]:
    errors = [_too_long(63)] if _size(text) > 63 else []
    if not re.fullmatch(_LABEL, text):
        dotted = re.fullmatch(_SUBDOMAIN, text)
        errors.append("must not contain dots" if dotted else _regex_error(_LABEL_ERROR, _LABEL, "my-name", "123-abc"))
    return errors


def _pattern(limit: int, pattern: str, message: str, *examples: str) -> Validate:
    """Make the check that a text matches a pattern and is not too long."""

    def validate(text: str) -> list[str]:
        errors = [_too_long(limit)] if _size(text) > limit else []
        return errors if re.fullmatch(pattern, text) else [*errors, _regex_error(message, pattern, *examples)]

    return validate


_subdomain = _pattern(253, _SUBDOMAIN, _SUBDOMAIN_ERROR, "example.com")
_label_1035 = _pattern(63, _LABEL_1035, _LABEL_1035_ERROR, "my-name", "abc-123")
_label_value = _pattern(63, _VALUE, _VALUE_ERROR, "MyValue", "my_value", "12345")


def _prefix_of(validate: Validate) -> Validate:
    """Make the check of a prefix of a name. Unlike a name, the prefix may end with a dash."""

    def check(text: str) -> list[str]:
        return validate(text[:-2] + "a" if len(text) > 1 and text.endswith("-") else text)

    return check


def _qualified_name(text: str) -> list[str]:
    errors: list[str] = []
    key_error = _regex_error(_KEY_ERROR, _KEY, "MyName", "my.name", "123-abc")
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        return [
            f"a valid label key {key_error} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    if slash:
        errors += [f"prefix part {error}" for error in (_subdomain(prefix) if prefix else ["must be non-empty"])]
    if not name:
        errors.append("name part must be non-empty")
    elif _size(name) > 63:
        errors.append(f"name part {_too_long(63)}")
    if not re.fullmatch(_KEY, name):
        errors.append(f"name part {key_error}")
    return errors


def _whole_match(pattern: str) -> Callable[[str], object]:
    """Make a check that compiles its pattern on first use, because few selectors use a format."""
    return lambda text: re.fullmatch(pattern, text)


def _must(holds: Callable[[str], object], message: str) -> Validate:
    return lambda text: [] if holds(text) else [message]


_BASE64 = "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"
_UUID = "(?ia)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}"
_DATE = "([0-9]{4})-([0-9]{2})-([0-9]{2})"
_TIME = "([0-9]{2}):([0-9]{2}):([0-9]{2})(?:.[0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})"
_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def _is_date(text: str) -> bool:
    shape = re.fullmatch(_DATE, text)
    if shape is None:
        return False
    year, month, day = map(int, shape.groups())
    if not 1 <= month <= 12:
        return False
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 1 <= day <= _DAYS[month - 1] + leap


def _is_date_time(text: str) -> bool:
    parts = text.lower().split("t")
    if len(text) < 4 or len(parts) < 2 or not _is_date(parts[0]):
        return False
    shape = re.fullmatch(_TIME, parts[1])
    if shape is None:
        return False
    hour, minute, second = shape.group(1, 2, 3)
    return hour <= "23" and minute <= "59" and second <= "59"


FORMATS: dict[str, Format] = {
    "dns1123Label": Format("DNS1123Label", 30, _label),
    "dns1123Subdomain": Format("DNS1123Subdomain", 60, _subdomain),
    "dns1035Label": Format("DNS1035Label", 30, _label_1035),
    "qualifiedName": Format("QualifiedName", 60, _qualified_name),
    "dns1123LabelPrefix": Format("DNS1123LabelPrefix", 30, _prefix_of(_label)),
    "dns1123SubdomainPrefix": Format("DNS1123SubdomainPrefix", 60, _prefix_of(_subdomain)),
    "dns1035LabelPrefix": Format("DNS1035LabelPrefix", 30, _prefix_of(_label_1035)),
    "labelValue": Format("LabelValue", 40, _label_value),
    "uri": Format("URI", 1103, _must(is_url, "invalid URI for request")),
    "uuid": Format("uuid", 70, _must(_whole_match(_UUID), "does not match the UUID format")),
    "byte": Format("byte", 84, _must(_whole_match(_BASE64), "invalid base64")),
    "date": Format("date", 71, _must(_is_date, "invalid date")),
    "datetime": Format("datetime", 71, _must(_is_date_time, "invalid datetime")),
}


def _maybe(value: object) -> Optional:
    return Optional(value) if value else NONE


FUNCTIONS: tuple[Overload, ...] = (
    method("validate", "format-validate", (FORMAT, STRING), optional_of(list_of(STRING)), lambda known, text: _maybe(known.validate(text))),
    over("format.named", "format-named", (STRING,), optional_of(FORMAT), lambda name: _maybe(FORMATS.get(name))),
    *(over(f"format.{name}", f"format.{name}", (), FORMAT, partial(FORMATS.get, name)) for name in FORMATS),
)  # fmt: skip
