"""Templates are named by the hash of their content, and a signature on the pod proves that the webhook chose them.

A template's name is `drawbridge-` and 32 hex digits of the SHA-256 of the canonical JSON of its spec. Equal requests
therefore share one template, and a template whose content does not match its name is not ours.

The pod carries the specs in `drawbridge.dev/templates`, signed by an HMAC with a key that only drawbridge has. The signature
covers the specs and what identifies the pod and cannot change after admission: its namespace, its name (or
`generateName`, from which the name is made later), its service account, and its original request
(`drawbridge.dev/original`). On any other pod the signature is invalid.

The signature cannot cover the UID, which no pod has during admission, nor the owner, which adoption changes. So pods of one controller
can carry each other's signature, but they have the same requests. A signature proves what was allowed once, not what is allowed now;
`webhook.claims.template_lifecycle` checks that again before it creates a template.
"""

from __future__ import annotations

import hashlib
import hmac
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from dra.raw import mapping
from webhook import names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra.objects import Pod
    from dra.wire import Json

DIGITS = 32
_VERSION = "v2"
# The Secret's key is never used directly: each purpose has its own key, derived with the purpose's name.
_PURPOSE = f"{names.TEMPLATES}/{_VERSION}".encode()

# Encodes a template spec for hashing: with sorted keys and without blanks.
canonical = msgspec.json.Encoder(order="sorted").encode


class TemplatesError(ValueError):
    """A `drawbridge.dev/templates` value that this installation did not write for this pod, or that was changed."""


class SignedPod(NamedTuple):
    """The pod that a signature is for: what is known during its admission and cannot change afterwards."""

    namespace: str
    name: str = ""
    account: str = ""
    original: str = ""  # the text of drawbridge.dev/original


def identify_raw(pod: Mapping[str, Json], namespace: str, original: str | None = None) -> SignedPod:
    """Identify a raw pod; `original` is the original request if it is not on the pod yet."""
    metadata = mapping(pod.get("metadata"))
    if original is None:
        original = str(mapping(metadata.get("annotations")).get(names.ORIGINAL, ""))
    name = metadata.get("generateName") or metadata.get("name")
    account = mapping(pod.get("spec")).get("serviceAccountName")
    return SignedPod(namespace, str(name or ""), str(account or ""), original)


def identify(pod: Pod, namespace: str = "") -> SignedPod:
    metadata = pod.metadata
    return SignedPod(
        namespace=namespace or metadata.namespace,
        name=metadata.generate_name or metadata.name,
        account=pod.spec.service_account_name,
        original=metadata.annotations.get(names.ORIGINAL, ""),
    )


def name_of(spec: Json) -> str:
    return names.PREFIX + hashlib.sha256(canonical(spec)).hexdigest()[:DIGITS]


def name_matches(name: str, spec: Json) -> bool:
    return name == name_of(spec)


def object_of(name: str, spec: Json, namespace: str = "") -> dict[str, Json]:
    metadata: dict[str, Json] = {"name": name, "labels": dict(names.LABELS)}
    if namespace:
        metadata["namespace"] = namespace
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": metadata,
        "spec": spec,
    }


def sign(templates: Mapping[str, Json], key: bytes, pod: SignedPod) -> str:
    """Write the value of `drawbridge.dev/templates` for one pod."""
    body = canonical(dict(templates))
    return f"{_VERSION} {signature_of(body, key, pod)} {body.decode()}"


def signature_of(body: bytes, key: bytes, pod: SignedPod) -> str:
    # Each part is preceded by its length, so that no two pods have the same encoding.
    head = b""
    for part in pod:
        encoded = part.encode(errors="surrogatepass")
        head += b"%d:%b," % (len(encoded), encoded)
    code = _keyed(key).copy()
    code.update(head + body)
    return code.hexdigest()


def verify(value: str, pod: SignedPod, *keys: bytes) -> dict[str, Json]:
    """Read a value that `sign` wrote for this pod with one of the keys; raise TemplatesError for any other value.

    There are several keys during a rotation. The name of each template must match its content.
    """
    version, _, rest = value.partition(" ")
    code, _, body = rest.partition(" ")
    if version != _VERSION:
        raise TemplatesError(f"unknown version {version[:16]!r} of the templates annotation")
    data = body.encode(errors="surrogatepass")
    claimed_signature = code.encode(errors="surrogatepass")
    matches = [hmac.compare_digest(signature_of(data, key, pod).encode(), claimed_signature) for key in keys]
    if not any(matches):
        raise TemplatesError(
            "the templates annotation was not written by this installation for this pod, or was changed afterwards"
        )
    try:
        templates: dict[str, Json] = msgspec.json.decode(data, type=dict[str, dict[str, object]])
    except msgspec.DecodeError as error:
        raise TemplatesError(f"the templates annotation is not valid: {error}") from error
    for name, spec in templates.items():
        if not name_matches(name, spec):
            raise TemplatesError(f"the content of template {name} does not match its name")
    return templates


@lru_cache(maxsize=8)
def _keyed(key: bytes) -> hmac.HMAC:
    """Start an HMAC with the key for signatures, derived from a Secret's key."""
    return hmac.new(hmac.digest(key, _PURPOSE, "sha256"), digestmod="sha256")
