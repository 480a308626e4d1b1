"""The content of the four shared Secrets, and how a rotation step changes it. Values only; `certs.store` reads and writes them.

Only the authority process reads the authority's Secret. A replica of the webhook serves with the serving Secret. Webhook and controller
sign and verify with the signing Secret. An allocator serves reservations with its own Secret, like the webhook's but with another key
and other names, so that neither can answer for the other.

| authority's Secret | content |
|---|---|
| authority.crt, authority.key | the current CA |
| next.crt, next.key | the next CA (INTRODUCED) |
| previous.crt | the previous CA (SWITCHED) |
| since | when the phase last changed, RFC 3339 |

| serving and allocator's Secret | content |
|---|---|
| tls.crt, tls.key | the serving certificate ("leaf") of its replicas |
| ca.crt | the bundle: every trusted CA |

| signing and authority's Secret | content |
|---|---|
| signature.key | the current key |
| signature-next.key | the next key, which every replica has before the first uses it (INTRODUCED) |
| signature-previous.key | the previous key; its signatures are valid until the next switch |

The signing keys rotate with the CA in the same steps. They are in two Secrets, so that signatures stay valid if one Secret is lost.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm

from certs import authority
from certs.authority import Pair
from certs.rotation import RotationPhase, RotationStep, View, is_due

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from certs.rotation import Policy

AUTHORITY_NAME = "drawbridge"
SIGNING_KEY_BYTES = 32
SIGNING_KEYS = frozenset(("signature.key", "signature-next.key", "signature-previous.key"))
AUTHORITY_ENTRIES = (
    frozenset(("authority.crt", "authority.key", "next.crt", "next.key", "previous.crt", "since")) | SIGNING_KEYS
)
SERVING_ENTRIES = frozenset(("tls.crt", "tls.key", "ca.crt"))
# All entries that drawbridge owns, so that a step can delete those that are no longer wanted.
ENTRIES = AUTHORITY_ENTRIES | SERVING_ENTRIES


class Names(NamedTuple):
    """The names in the leaves of webhook and allocator. Without names the allocator has no leaf."""

    webhook: Sequence[str]
    allocator: Sequence[str] = ()


class SigningKeys(NamedTuple):
    """The keys that sign templates."""

    current: bytes = b""
    next: bytes = b""
    previous: bytes = b""

    @property
    def keys(self) -> tuple[bytes, ...]:
        """All keys that verify; the first one signs."""
        return tuple(key for key in self if key)


class Material(NamedTuple):
    """All certificates and keys that replicas share."""

    authority: Pair | None = None
    leaf: Pair | None = None
    next: Pair | None = None
    previous: bytes | None = None
    since: dt.datetime | None = None
    signing_keys: SigningKeys = SigningKeys()
    allocator: Pair | None = None  # the allocator's leaf

    @property
    def phase(self) -> RotationPhase:
        if self.authority is None:
            return RotationPhase.EMPTY
        if self.next is not None:
            return RotationPhase.INTRODUCED
        return RotationPhase.STEADY if self.previous is None else RotationPhase.SWITCHED

    @property
    def bundle(self) -> bytes:
        """All trusted CAs, the current one first."""
        parts = [self.authority and self.authority.certificate, self.next and self.next.certificate, self.previous]
        return b"".join(part.strip() + b"\n" for part in parts if part)


def view(material: Material, names: Names, *, bundle_everywhere: bool) -> View:
    """Return the view on which `rotation.step` decides."""
    signer, leaf, allocator = material.authority, material.leaf, material.allocator
    spans = [authority.span(pair.certificate) for pair in (leaf, allocator) if pair is not None]
    sound = _is_sound(leaf, names.webhook, signer, never=names.allocator)
    if names.allocator:
        sound = sound and _is_sound(allocator, names.allocator, signer, never=names.webhook)
    return View(
        phase=material.phase,
        authority=signer and authority.span(signer.certificate),
        leaves=tuple(spans),
        leaves_sound=sound,
        since=material.since,
        bundle_everywhere=bundle_everywhere,
    )


def _is_sound(leaf: Pair | None, names: Sequence[str], signer: Pair | None, *, never: Sequence[str]) -> bool:
    """Report whether a leaf is for these names, none of `never`, and signed by the current CA.

    `never` are the names of the other leaf: with the names of both, webhook and allocator could answer for each other.
    """
    if signer is None or leaf is None:
        return False
    required_names, leaf_names = frozenset(names), authority.names(leaf.certificate)
    fits = required_names <= leaf_names and leaf_names.isdisjoint(frozenset(never) - required_names)
    return fits and authority.signed_by(leaf.certificate, signer.certificate)


def apply(
    material: Material,
    step: RotationStep,
    names: Names,
    *,
    now: dt.datetime,
    policy: Policy,
    new_signing_key: Callable[[], bytes],
) -> Material:
    """Return the material after one step. `new_signing_key` creates a key of `SIGNING_KEY_BYTES`."""
    match step:
        case RotationStep.REMAKE:
            signer = authority.authority(AUTHORITY_NAME, now=now, life=policy.authority_life)
            # Replicas still serve the old CA's leaves for some seconds.
            old = material.authority and material.authority.certificate
            new_material = Material(signer, previous=old, since=now, signing_keys=material.signing_keys)
            return _sign(new_material, names, now, policy)
        case RotationStep.SIGN:
            # A sound leaf is kept when the other leaf is due: if two replicas start together, and the first replica has written only one
            # leaf so far, the second replica must not replace that leaf.
            current_ca, current = material.authority, material
            if not (
                _is_sound(current.leaf, names.webhook, current_ca, never=names.allocator)
                and _is_fresh(current.leaf, now, policy)
            ):
                current = current._replace(leaf=None)
            allocator_leaf = current.allocator
            is_sound = _is_sound(allocator_leaf, names.allocator, current_ca, never=names.webhook)
            if not (is_sound and _is_fresh(allocator_leaf, now, policy)):
                current = current._replace(allocator=None)
            return _sign(current, names, now, policy)
        case RotationStep.INTRODUCE:
            next_ca = authority.authority(AUTHORITY_NAME, now=now, life=policy.authority_life)
            signing_keys = material.signing_keys._replace(next=new_signing_key())
            return material._replace(next=next_ca, previous=None, since=now, signing_keys=signing_keys)
        case RotationStep.SWITCH:
            signer = _required(material.next)
            old = _required(material.authority).certificate
            signing_keys = material.signing_keys
            if signing_keys.next:  # empty if both Secrets with signing keys were lost since INTRODUCE
                signing_keys = SigningKeys(current=signing_keys.next, previous=signing_keys.current)
            new_material = Material(signer, previous=old, since=now, signing_keys=signing_keys)
            return _sign(new_material, names, now, policy)
        case RotationStep.RETIRE:
            return material._replace(previous=None, since=now)


def _sign(material: Material, names: Names, now: dt.datetime, policy: Policy) -> Material:
    """Let the current CA sign the missing leaves, each with its own key."""
    signer = _required(material.authority)
    leaf = material.leaf or _leaf(signer, names.webhook, now, policy)
    allocator = None
    if names.allocator:
        allocator = material.allocator or _leaf(signer, names.allocator, now, policy)
    return material._replace(leaf=leaf, allocator=allocator)


def _is_fresh(leaf: Pair | None, now: dt.datetime, policy: Policy) -> bool:
    return leaf is not None and not is_due(authority.span(leaf.certificate), now, policy)


def ensure_signing_key(material: Material, new_signing_key: Callable[[], bytes]) -> Material:
    """Add a signing key if there is none."""
    if material.signing_keys.current:
        return material
    return material._replace(signing_keys=material.signing_keys._replace(current=new_signing_key()))


class Data(NamedTuple):
    """The entries of the four Secrets; None for a missing one."""

    serving: Mapping[str, bytes] | None = None
    authority: Mapping[str, bytes] | None = None
    signing: Mapping[str, bytes] | None = None
    allocator: Mapping[str, bytes] | None = None


def decode(data: Data) -> Material:
    """Return the material in the Secrets' data. An unusable pair counts as missing."""
    serving = data.serving or {}
    authority_data = data.authority or {}
    # All signing keys come from the first of their Secrets that has a current one.
    sources = authority_data, data.signing or {}
    signing = next((source for source in sources if _signing_key(source, "signature.key")), {})
    return Material(
        authority=_pair(authority_data, "authority"),
        leaf=_pair(serving, "tls"),
        next=_pair(authority_data, "next"),
        previous=_certificate(authority_data.get("previous.crt", b"")),
        since=_time(authority_data.get("since", b"")),
        signing_keys=SigningKeys(
            *[_signing_key(signing, name) for name in ("signature.key", "signature-next.key", "signature-previous.key")]
        ),
        allocator=_pair(data.allocator or {}, "tls"),
    )


def encode(material: Material) -> Data:
    """Return the data of all four Secrets."""
    signing_keys = {
        "signature.key": material.signing_keys.current,
        "signature-next.key": material.signing_keys.next,
        "signature-previous.key": material.signing_keys.previous,
    }
    serving = {
        **_entries("tls", material.leaf),
        "ca.crt": material.bundle,
    }
    allocator = {
        **_entries("tls", material.allocator),
        "ca.crt": material.bundle if material.allocator else b"",
    }
    since = b""
    if material.since:
        since = material.since.isoformat().encode()
    authority_data = {
        **signing_keys,
        **_entries("authority", material.authority),
        **_entries("next", material.next),
        "previous.crt": material.previous or b"",
        "since": since,
    }
    secrets = (serving, authority_data, signing_keys, allocator)
    return Data(*[{name: value for name, value in data.items() if value} for data in secrets])


def _entries(name: str, pair: Pair | None) -> dict[str, bytes]:
    return {f"{name}.crt": pair.certificate, f"{name}.key": pair.key} if pair else {}


def _signing_key(data: Mapping[str, bytes], name: str) -> bytes:
    key = data.get(name, b"")
    return key if len(key) >= SIGNING_KEY_BYTES else b""


def _pair(data: Mapping[str, bytes], name: str) -> Pair | None:
    certificate, key = data.get(f"{name}.crt"), data.get(f"{name}.key")
    if not certificate or not key:
        return None
    try:
        return pair if authority.matches(pair := Pair(certificate, key)) else None
    except (ValueError, TypeError, UnsupportedAlgorithm):  # from cryptography: not a key or certificate
        return None


def _certificate(data: bytes) -> bytes | None:
    """Return a readable certificate, or None: one invalid certificate would make the whole bundle invalid."""
    try:
        authority.span(data)
    except ValueError:
        return None
    return data


def _time(text: bytes) -> dt.datetime | None:
    try:
        parsed = dt.datetime.fromisoformat(text.decode())
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=dt.UTC)


def _leaf(signer: Pair, names: Sequence[str], now: dt.datetime, policy: Policy) -> Pair:
    return authority.leaf(signer, names, now=now, life=policy.leaf_life)


def _required(pair: Pair | None) -> Pair:
    if pair is None:
        raise ValueError("this step needs an authority that the Secret does not hold")
    return pair
