"""Formats of names and values (k8s.io/apimachinery/pkg/api/validate/content and strfmt.go).

Each rule returns what is wrong with a text, or "" if the text is valid. Lengths are in bytes, as in Go.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
SUBDOMAIN: Final = rf"{_LABEL}(?:\.{_LABEL})*"
_KEY: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_LABEL_KEY: Final = re.compile(_KEY)
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NUMBER: Final = r"(?:0|[1-9][0-9]*)"
_PRERELEASE: Final = r"(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_SEMVER: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_PRERELEASE}(?:\.{_PRERELEASE})*)?(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?"
)

MAX_LABEL: Final = 63
MAX_SUBDOMAIN: Final = 253
MAX_DOMAIN: Final = 63
MAX_ID: Final = 32
MAX_VALUE: Final = 64


def size(text: str) -> int:
    """Return the length in bytes."""
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def _format_check(pattern: re.Pattern[str], limit: int, problem: str, unit: str = "characters") -> Callable[[str], str]:
    """Make a check that a text matches a pattern and is not too long."""

    def check(text: str) -> str:
        if size(text) > limit:
            return f"must be no more than {limit} {unit}"
        return "" if pattern.fullmatch(text) else problem

    return check


dns_label: Final = _format_check(
    re.compile(_LABEL),
    MAX_LABEL,
    "must be a DNS label: lower case letters, digits and '-', beginning and ending with a letter or digit",
)
dns_subdomain: Final = _format_check(
    re.compile(SUBDOMAIN),
    MAX_SUBDOMAIN,
    "must be a DNS subdomain: lower case letters, digits, '-' and '.', each part beginning and ending with a letter or digit",
)
pool_name: Final = _format_check(
    re.compile(rf"{SUBDOMAIN}(?:/{SUBDOMAIN})*"), MAX_SUBDOMAIN, "must be one or more DNS subdomains joined by '/'"
)
c_identifier: Final = _format_check(
    re.compile(r"[A-Za-z_][A-Za-z0-9_]*"),
    MAX_ID,
    "must be a C identifier: letters, digits and '_', not beginning with a digit",
)
label_value: Final = _format_check(
    re.compile(rf"(?:{_KEY})?"),
    MAX_LABEL,
    "must be empty or consist of letters, digits, '-', '_' and '.', beginning and ending with a letter or digit",
)
semver: Final = _format_check(_SEMVER, MAX_VALUE, "must be a semantic version 2.0.0, such as 1.2.3", "bytes")
condition_reason: Final = _format_check(
    re.compile(r"[A-Za-z](?:[A-Za-z0-9_,:]*[A-Za-z0-9_])?"),
    1024,
    "must be a word in CamelCase (letters, digits, '_', ',' and ':')",
    "bytes",
)


def path_segment(text: str) -> str:
    """The rule for every object name, whatever its kind."""
    return "must not contain '/' or '%'" if "/" in text or "%" in text else ""


def driver_name(text: str) -> str:
    if size(text) > MAX_DOMAIN:
        return f"must be no more than {MAX_DOMAIN} characters"
    return dns_subdomain(text.lower())


def qualified_name(text: str) -> str:
    """The rule for `id` or `domain/id`. Like the API server up to 1.37, it accepts any name with two slashes or more."""
    return _cached_qualified_name(text) if len(text) <= _MAX_CACHED else _qualified_name(text)


def _qualified_name(text: str) -> str:
    parts = text.split("/")
    if len(parts) == 1:
        return c_identifier(text)
    if len(parts) > 2:
        return ""
    domain, name = parts
    if not domain or not name:
        return f"the {'domain' if not domain else 'name'} must not be empty"
    if problem := driver_name(domain):
        return f"the domain {domain!r} {problem}"
    if problem := c_identifier(name):
        return f"the name {name!r} {problem}"
    return ""


_MAX_CACHED = 256  # longer texts are not cached: the cache is bounded by entries, and a request chooses their length
_cached_qualified_name = lru_cache(maxsize=4096)(_qualified_name)


def at_most_one_slash(text: str) -> str:
    """The rule for qualified names that Kubernetes 1.38 added."""
    return "must not contain more than one slash" if text.count("/") > 1 else ""


def short_numbers(version: str) -> str:
    """The rule for semantic versions that Kubernetes 1.38 added."""
    numbers, _, prerelease = version.partition("+")[0].partition("-")
    parts = (*numbers.split("."), *prerelease.split("."))
    return "must have at most 18 digits in numbers" if any(part.isdigit() and len(part) > 18 for part in parts) else ""


def fully_qualified_name(text: str) -> str:
    if "/" not in text:
        return "must be a domain and a name separated by a slash"
    if problem := qualified_name(text):
        return problem
    domain = text.partition("/")[0]
    if text.count("/") == 1 and (problem := dns_subdomain(domain)):
        return f"the domain {domain!r} {problem}"
    return ""


def label_key(text: str) -> str:
    prefix, slash, name = text.rpartition("/")
    if slash and (not prefix or dns_subdomain(prefix)):
        return "must be a name with an optional DNS subdomain and '/' before it (example.com/MyName)"
    if not name or size(name) > MAX_LABEL:
        return f"the name part must have 1 to {MAX_LABEL} characters"
    if not _LABEL_KEY.fullmatch(name):
        return "must consist of letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
    return ""


def uuid(text: str) -> str:
    return "" if _UUID.fullmatch(text) else "must be a lower-case UUID in 8-4-4-4-12 form"


def attribute_text(text: str) -> str:
    return f"must be no more than {MAX_VALUE} bytes, it has {size(text)}" if size(text) > MAX_VALUE else ""


def extended_resource_name(text: str) -> str:
    if "/" not in text:
        return "must be a domain-prefixed name, such as example.com/gpu"
    if "kubernetes.io/" in text:
        return "must not be in the domain kubernetes.io"
    if text.startswith("requests."):
        return "must not begin with 'requests.'"
    return label_key(f"requests.{text}")


def interface_address(text: str) -> str:
    """The rule for an address in CIDR form, in the canonical spelling (IsValidInterfaceAddress)."""
    address, slash, bits = text.partition("/")
    try:
        ip = ipaddress.ip_address(address)
        prefix = int(bits) if bits.isdecimal() and bits.isascii() else -1
    except ValueError:
        prefix = -1
        ip = None
    if not slash or ip is None or "%" in address or not 0 <= prefix <= ip.max_prefixlen:
        return "must be an address in CIDR form, such as 10.9.8.7/24 or 2001:db8::1/64"
    canonical = f"{ip}/{prefix}"
    return "" if text == canonical else f"must be written in canonical form: {canonical}"


def shortened(name: str, length: int) -> str:
    """Return the beginning of an object's name, without a dot or hyphen at its end, so that a suffix may follow."""
    return name[:length].rstrip("-.")


def suggestion(text: str) -> str:
    """Propose a DNS label that resembles the text, or return "" if there is none."""
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:MAX_LABEL].rstrip("-")
    return f"for example {slug!r}" if slug and slug != text else ""
