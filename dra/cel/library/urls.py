"""URLs as Go's net/url parses them (k8s.io/apiserver/pkg/cel/library/urls.go)."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from dra.cel.signatures import Overload, method, over, succeeds
from dra.cel.types import BOOL, STRING, URL, list_of, map_of
from dra.cel.values import Sized
from dra.errors import SelectorRunError

if TYPE_CHECKING:
    from dra.cel.values import Value

_CONTROL = r"[\x00-\x1f\x7f]"
_SCHEME = r"([A-Za-z][A-Za-z0-9+.-]*):"
_PORT = r":[0-9]*"
_ESCAPE = "%([0-9A-Fa-f]{2})?"
_USERINFO = r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*"
_HOST = r"[A-Za-z0-9\-_.~!$&'()*+,;=:\[\]<>\"%\u0080-\U0010ffff]*"
_PATH_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~$&+,/:;=@")
_PATH_ALLOWED = _PATH_SAFE | frozenset(b"!'()*[]%")
_QUERY_PARTS = 10_000


class Url(Sized, frozen=True, eq=False):
    """`url("https://example.com/a?b=c")`."""

    type_name = "kubernetes.URL"
    scheme: str
    host: str
    path: str  # with the escapes of the text
    query: str
    prefix: str  # everything before the path, for printing
    fragment: str = ""

    def same(self, other: Sized) -> bool:
        return isinstance(other, Url) and str(self) == str(other)

    def __str__(self) -> str:
        query = f"?{self.query}" if self.query else ""
        return f"{self.prefix}{self.escaped_path}{query}{'#' + self.fragment if self.fragment else ''}"

    @property
    def escaped_path(self) -> str:
        """The path with every character escaped that needs it."""
        raw = self.path.encode()
        if self.path == "*" or _PATH_ALLOWED.issuperset(raw):
            return self.path
        return "".join(chr(byte) if byte in _PATH_SAFE else f"%{byte:02X}" for byte in _unescape_to_bytes(raw))

    def host_and_port(self) -> tuple[str, str]:
        """Split the host from its port."""
        host, port = self.host, ""
        colon = host.rfind(":")
        if colon >= 0 and re.fullmatch(_PORT, host[colon:]):
            host, port = host[:colon], host[colon + 1 :]
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        return host, port


def _fails(why: str) -> SelectorRunError:
    return SelectorRunError(f"URL parse error during conversion from string: {why}")


def _check_escapes(text: str, *, host: bool = False) -> None:
    for match in re.finditer(_ESCAPE, text):
        # In a host only non-ASCII bytes and the percent sign may be escaped.
        if match[1] is None or (host and int(match[1], 16) < 0x80 and match[1] != "25"):
            raise _fails(f"invalid URL escape {text[match.start() : match.start() + 3]!r}")


def _unescape_to_bytes(raw: bytes) -> bytes:
    from urllib.parse import unquote_to_bytes  # few selectors need it

    return unquote_to_bytes(raw)


def _unescape(text: str) -> str:
    return _unescape_to_bytes(text.encode()).decode(errors="replace") if "%" in text else text


def parse_url(text: str, *, request: bool = False) -> Url:
    """Parse a URL as Go's Parse. With `request`, parse as ParseRequestURI, for which a fragment is part of the path."""
    if not request:
        text, _, fragment = text.partition("#")
        _check_escapes(fragment)
    else:
        fragment = ""
    if re.search(_CONTROL, text):
        raise _fails("net/url: invalid control character in URL")
    if not text and request:
        raise _fails("empty url")
    if text == "*":
        return Url("", "", "*", "", prefix="", fragment=fragment)
    if text.startswith(":"):
        raise _fails("missing protocol scheme")
    match = re.match(_SCHEME, text)
    scheme, rest = (match[1].lower(), text[match.end() :]) if match else ("", text)
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if scheme:
            return Url(scheme, "", "", query, prefix=f"{scheme}:{rest}", fragment=fragment)
        if request:
            raise _fails("invalid URI for request")
        if ":" in rest.partition("/")[0]:
            raise _fails("first path segment in URL cannot contain colon")
    host, prefix = "", f"{scheme}:" if scheme else ""
    if rest.startswith("//") and (scheme or (not request and not rest.startswith("///"))):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
        user, at_sign, host = authority.rpartition("@")
        host = _host(scheme, host)
        if at_sign and not re.fullmatch(_USERINFO, user):
            raise _fails("net/url: invalid userinfo")
        _check_escapes(user)
        prefix += f"//{user}{at_sign}{host}"
    _check_escapes(rest)
    return Url(scheme, host, rest, query, prefix=prefix, fragment=fragment)


def _host(scheme: str, host: str) -> str:
    bracket = host.rfind("[")
    if bracket > 0:
        raise _fails("invalid IP-literal")
    if bracket < 0:
        colon = host.find(":")
        if colon >= 0 and scheme not in ("http", "https"):
            colon = host.rfind(":")
        if colon >= 0 and not re.fullmatch(_PORT, host[colon:]):
            raise _fails(f"invalid port {host[colon:]!r} after host")
        return _check_host(host)
    import ipaddress  # few selectors need it

    end = host.rfind("]")
    if end < 0:
        raise _fails("missing ']' in host")
    if host[end + 1 :] and not re.fullmatch(_PORT, host[end + 1 :]):
        raise _fails(f"invalid port {host[end + 1 :]!r} after host")
    name, zone, rest = host[1:end].partition("%25")
    _check_host(name)
    try:
        ipaddress.IPv6Address(name + ("%" + _unescape(rest) if zone else ""))
    except ValueError as error:
        raise _fails(f"invalid host: {error}") from None
    return f"[{name}{'%' + _unescape(rest) if zone else ''}]{host[end + 1 :]}"


def _check_host(host: str) -> str:
    if not re.fullmatch(_HOST, host):
        raise _fails("invalid character in host name")
    _check_escapes(host, host=True)
    return _unescape(host)


is_url = succeeds(partial(parse_url, request=True))


def _query(url: Url) -> dict[Value, Value]:
    values: dict[Value, Value] = {}
    parts = url.query.split("&")
    if len(parts) > _QUERY_PARTS:
        return values
    for part in parts:
        if not part or ";" in part:
            continue
        if not all(match[1] for match in re.finditer(_ESCAPE, part)):
            continue
        name, _, value = part.replace("+", " ").partition("=")
        values.setdefault(_unescape(name), []).append(_unescape(value))
    return values


FUNCTIONS: tuple[Overload, ...] = (
    over("url", "string_to_url", (STRING,), URL, lambda text: (parse_url(text, request=True), parse_url(text))[1]),
    over("isURL", "is_url_string", (STRING,), BOOL, is_url),
    method("getScheme", "url_get_scheme", (URL,), STRING, lambda url: url.scheme),
    method("getHost", "url_get_host", (URL,), STRING, lambda url: url.host),
    method("getHostname", "url_get_hostname", (URL,), STRING, lambda url: url.host_and_port()[0]),
    method("getPort", "url_get_port", (URL,), STRING, lambda url: url.host_and_port()[1]),
    method("getEscapedPath", "url_get_escaped_path", (URL,), STRING, lambda url: url.escaped_path),
    method("getQuery", "url_get_query", (URL,), map_of(STRING, list_of(STRING)), _query),
)  # fmt: skip
