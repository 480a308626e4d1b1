"""Templates by the hash of their content, and the proof on a pod that it was us who asked for them.

A template's name says what is in it: `drawbridge-` and 16 hex digits of the SHA-256 of the canonical JSON of its spec.
Equal requests therefore share one template, and a template whose content does not fit its name is not ours. The pod
carries the specs in `drawbridge.dev/templates`, under an HMAC with a key that only our processes know; the templates
controller creates what verifies and nothing else, so writing that annotation by hand gives nobody our rights.
The annotation is not bound to a namespace: a copied one asks for a template that its author could have had anyway.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

import msgspec

from webhook import names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra.wire import Json

_VERSION = "v1"

_canonical = msgspec.json.Encoder(order="sorted").encode


class TemplatesError(ValueError):
    """A `drawbridge.dev/templates` value that was not written by us, or was changed since."""


def canonical(spec: Json) -> bytes:
    """Write a template spec the one way that its hash is taken of: sorted keys, no blanks."""
    return _canonical(spec)


def name_of(spec: Json) -> str:
    """Name a template by its content."""
    return names.PREFIX + hashlib.sha256(canonical(spec)).hexdigest()[:16]


def object_of(name: str, spec: Json, namespace: str = "") -> dict[str, Json]:
    """Make the whole ResourceClaimTemplate object."""
    metadata: dict[str, Json] = {"name": name, "labels": dict(names.LABELS)}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec}


def seal(templates: Mapping[str, Json], key: bytes) -> str:
    """Write the value of `drawbridge.dev/templates`."""
    body = canonical(dict(templates))
    return f"{_VERSION} {_code(body, key)} {body.decode()}"


def unseal(value: str, *keys: bytes) -> dict[str, Json]:
    """Read a value that `seal` wrote with one of the keys; raise TemplatesError for anything else.

    Several keys are for rotation. Besides the code, every name must fit its content.
    """
    version, _, rest = value.partition(" ")
    code, _, body = rest.partition(" ")
    if version != _VERSION:
        raise TemplatesError(f"unknown version {version[:16]!r} of the templates annotation")
    data = body.encode()
    good = [hmac.compare_digest(_code(data, key).encode(), code.encode()) for key in keys]
    if not any(good):
        raise TemplatesError("the templates annotation was not written by this installation, or was changed since")
    try:
        templates: dict[str, Json] = msgspec.json.decode(data, type=dict[str, dict[str, object]])
    except msgspec.DecodeError as error:
        raise TemplatesError(f"the templates annotation is damaged: {error}") from error
    for name, spec in templates.items():
        if name_of(spec) != name:
            raise TemplatesError(f"template {name} does not hold what its name says")
    return templates


def _code(body: bytes, key: bytes) -> str:
    return hmac.new(key, body, hashlib.sha256).hexdigest()
