"""The seal on the templates a pod carries: what lets a controller believe an annotation that any pod author can write.

`drawbridge.dev/templates` holds, per template name, the canonical spec and an HMAC-SHA-256 over namespace, name and spec
with a key from our Secret. The namespace is part of it, so that a pod copied elsewhere does not carry rights along. Keys
are a list: the first seals, all of them open, so a key can be replaced without breaking pods that are already there.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from dra.wire import Json, Wire

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ANNOTATION = "drawbridge.dev/templates"


class SealError(ValueError):
    """An annotation that this installation did not write, or that was changed since."""


class _Sealed(Wire, frozen=True, kw_only=True):
    spec: Json
    mac: str


_decode = msgspec.json.Decoder(dict[str, _Sealed]).decode
_encoder = msgspec.json.Encoder(order="deterministic")


def close(templates: Mapping[str, Json], *, namespace: str, keys: Sequence[bytes]) -> str:
    """Write the annotation for these templates (name to spec)."""
    sealed = {name: _Sealed(spec=spec, mac=_mac(keys[0], namespace, name, spec)) for name, spec in templates.items()}
    return _encoder.encode(sealed).decode()


def open_(text: str, *, namespace: str, keys: Sequence[bytes]) -> dict[str, Json]:
    """Read the templates out of an annotation; raise SealError unless every one of them is ours and unchanged."""
    try:
        sealed = _decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise SealError(f"not written by drawbridge: {error}") from error
    for name, item in sealed.items():
        given = item.mac.encode(errors="replace")
        if not any(hmac.compare_digest(_mac(key, namespace, name, item.spec).encode(), given) for key in keys):
            raise SealError(f"template {name} was not sealed here for namespace {namespace}, or was changed since")
    return {name: item.spec for name, item in sealed.items()}


def _mac(key: bytes, namespace: str, name: str, spec: Json) -> str:
    # Neither a namespace nor a name can hold a line feed, so the three parts cannot be shifted against each other.
    return hmac.new(key, b"\n".join((namespace.encode(), name.encode(), _encoder.encode(spec))), sha256).hexdigest()
