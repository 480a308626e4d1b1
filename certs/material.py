"""What the four shared Secrets hold, and how one rotation step changes it. Values only; `certs.store` reads and writes them.

The first is the authority's alone; the second is what a replica of the webhook serves with; the third is for the process that seals
or verifies, the webhook and the controller; the fourth is what an allocator shows where API servers ask about quotas. It looks like
the second, under another key and other names: its holder cannot answer in place of the other.

| authority's | holds |
|---|---|
| authority.crt, authority.key | the authority that signs now |
| next.crt, next.key | the authority that will sign (INTRODUCED) |
| previous.crt | the authority that signed before (SWITCHED) |
| since | when the phase last changed, RFC 3339 |

| serving, and the allocator's | hold |
|---|---|
| tls.crt, tls.key | the leaf that its replicas serve |
| ca.crt | the bundle: every authority that is trusted now |

| sealing, and the authority's | hold |
|---|---|
| seal.key | the key that seals now |
| seal-next.key | the key that will seal, known to every replica before the first uses it (INTRODUCED) |
| seal-previous.key | the key that sealed before; what it sealed is still believed, until the next switch |

The seal's keys change with the authority and by the same steps. They stand in two Secrets so that the loss of either loses
no seal. Older versions had them in the serving Secret too, and the oldest one Secret with everything in it: what is missing
where it belongs is looked for there, and moves at the first write.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm

from certs import authority
from certs.authority import Pair
from certs.rotation import Phase, Step, View, is_due

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from certs.rotation import Policy

AUTHORITY_NAME = "drawbridge"
SEAL_BYTES = 32
SEALS = frozenset(("seal.key", "seal-next.key", "seal-previous.key"))
AUTHORITYS = frozenset(("authority.crt", "authority.key", "next.crt", "next.key", "previous.crt", "since")) | SEALS
SERVING = frozenset(("tls.crt", "tls.key", "ca.crt"))
# Every entry that belongs to us, so that a step can also take one away.
ENTRIES = AUTHORITYS | SERVING


class Names(NamedTuple):
    """What leaves are for: the webhook's, and the allocator's, which has none without names."""

    webhook: Sequence[str]
    allocator: Sequence[str] = ()


class Seals(NamedTuple):
    """The keys that templates are sealed with."""

    current: bytes = b""
    next: bytes = b""
    previous: bytes = b""

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The first one seals, all of them verify."""
        return tuple(key for key in self if key)


class Material(NamedTuple):
    """Everything about certificates that replicas share."""

    authority: Pair | None = None
    leaf: Pair | None = None
    next: Pair | None = None
    previous: bytes | None = None
    since: dt.datetime | None = None
    seals: Seals = Seals()
    allocator: Pair | None = None  # the leaf that an allocator shows

    @property
    def phase(self) -> Phase:
        if self.authority is None:
            return Phase.EMPTY
        if self.next is not None:
            return Phase.INTRODUCED
        return Phase.STEADY if self.previous is None else Phase.SWITCHED

    @property
    def bundle(self) -> bytes:
        """All trusted authorities, the signing one first."""
        parts = [self.authority and self.authority.certificate, self.next and self.next.certificate, self.previous]
        return b"".join(part.strip() + b"\n" for part in parts if part)


def view(material: Material, names: Names, *, bundle_everywhere: bool) -> View:
    """Reduce material to what `rotation.step` decides on."""
    signer, leaf, allocator = material.authority, material.leaf, material.allocator
    spans = [authority.span(one.certificate) for one in (leaf, allocator) if one is not None]
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
    """Say whether a leaf is for these names, and the present authority signed it.

    An older version had one leaf for webhook and allocator, and mounted its key in both: its holder could answer for both.
    """
    if signer is None or leaf is None:
        return False
    wanted, has = frozenset(names), authority.names(leaf.certificate)
    fits = wanted <= has and has.isdisjoint(frozenset(never) - wanted)
    return fits and authority.signed_by(leaf.certificate, signer.certificate)


def apply(
    material: Material,
    step: Step,
    names: Names,
    *,
    now: dt.datetime,
    policy: Policy,
    new_seal: Callable[[], bytes],
) -> Material:
    """Carry out one step. `new_seal` makes a key of `SEAL_BYTES`."""
    match step:
        case Step.REMAKE:
            signer = authority.authority(AUTHORITY_NAME, now=now, life=policy.authority_life)
            # Replicas serve what the old one signed for some seconds more.
            old = material.authority and material.authority.certificate
            made = Material(signer, previous=old, since=now, seals=material.seals)
            return _sign(made, names, now, policy)
        case Step.SIGN:
            # A leaf that is good is never signed again for the sake of the other: two replicas start together, one has written the
            # first leaf and not yet the second, and a replica that reads in between must find the first as good as its writer does.
            by, kept = material.authority, material
            if not (_is_sound(kept.leaf, names.webhook, by, never=names.allocator) and _lasts(kept.leaf, now, policy)):
                kept = kept._replace(leaf=None)
            of_allocator = kept.allocator
            is_sound = _is_sound(of_allocator, names.allocator, by, never=names.webhook)
            if not (is_sound and _lasts(of_allocator, now, policy)):
                kept = kept._replace(allocator=None)
            return _sign(kept, names, now, policy)
        case Step.INTRODUCE:
            following = authority.authority(AUTHORITY_NAME, now=now, life=policy.authority_life)
            seals = material.seals._replace(next=new_seal())
            return material._replace(next=following, previous=None, since=now, seals=seals)
        case Step.SWITCH:
            signer = _there(material.next)
            old = _there(material.authority).certificate
            seals = material.seals
            if seals.next:  # a version that knew one key only had introduced the authority
                seals = Seals(current=seals.next, previous=seals.current)
            made = Material(signer, previous=old, since=now, seals=seals)
            return _sign(made, names, now, policy)
        case Step.RETIRE:
            return material._replace(previous=None, since=now)


def _sign(material: Material, names: Names, now: dt.datetime, policy: Policy) -> Material:
    """Have the present authority sign the leaves that are not there, each with a key of its own."""
    signer = _there(material.authority)
    leaf = material.leaf or _leaf(signer, names.webhook, now, policy)
    allocator = None
    if names.allocator:
        allocator = material.allocator or _leaf(signer, names.allocator, now, policy)
    return material._replace(leaf=leaf, allocator=allocator)


def _lasts(leaf: Pair | None, now: dt.datetime, policy: Policy) -> bool:
    return leaf is not None and not is_due(authority.span(leaf.certificate), now, policy)


def ensure_seal(material: Material, new_seal: Callable[[], bytes]) -> Material:
    """Give material a seal key if it has none."""
    if material.seals.current:
        return material
    return material._replace(seals=material.seals._replace(current=new_seal()))


class Data(NamedTuple):
    """The entries of the four Secrets; None for one that is not there."""

    serving: Mapping[str, bytes] | None = None
    authoritys: Mapping[str, bytes] | None = None
    sealing: Mapping[str, bytes] | None = None
    allocator: Mapping[str, bytes] | None = None


def decode(data: Data) -> Material:
    """Read material out of the Secrets' data. A pair that cannot be used counts as not there."""
    serving = data.serving or {}
    held = serving if data.authoritys is None else data.authoritys
    # The keys of the first Secret that has one to seal with.
    places = held, data.sealing or {}, serving
    sealing = next((one for one in places if _seal(one, "seal.key")), {})
    return Material(
        authority=_pair(held, "authority"),
        leaf=_pair(serving, "tls"),
        next=_pair(held, "next"),
        previous=_certificate(held.get("previous.crt", b"")),
        since=_instant(held.get("since", b"")),
        seals=Seals(*[_seal(sealing, name) for name in ("seal.key", "seal-next.key", "seal-previous.key")]),
        allocator=_pair(data.allocator or {}, "tls"),
    )


def encode(material: Material) -> Data:
    """Write material as the data of all four Secrets."""
    seals = {
        "seal.key": material.seals.current,
        "seal-next.key": material.seals.next,
        "seal-previous.key": material.seals.previous,
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
    authoritys = {
        **seals,
        **_entries("authority", material.authority),
        **_entries("next", material.next),
        "previous.crt": material.previous or b"",
        "since": since,
    }
    secrets = (serving, authoritys, seals, allocator)
    return Data(*[{name: value for name, value in data.items() if value} for data in secrets])


def _entries(name: str, pair: Pair | None) -> dict[str, bytes]:
    return {f"{name}.crt": pair.certificate, f"{name}.key": pair.key} if pair else {}


def _seal(data: Mapping[str, bytes], name: str) -> bytes:
    key = data.get(name, b"")
    return key if len(key) >= SEAL_BYTES else b""


def _pair(data: Mapping[str, bytes], name: str) -> Pair | None:
    certificate, key = data.get(f"{name}.crt"), data.get(f"{name}.key")
    if not certificate or not key:
        return None
    try:
        return pair if authority.matches(pair := Pair(certificate, key)) else None
    except (
        ValueError,
        TypeError,
        UnsupportedAlgorithm,
    ):  # what cryptography raises for bytes that are no key or certificate
        return None


def _certificate(data: bytes) -> bytes | None:
    """A certificate that can be read, None for anything else: rubbish in a bundle would spoil all of it."""
    try:
        authority.span(data)
    except ValueError:
        return None
    return data


def _instant(text: bytes) -> dt.datetime | None:
    try:
        parsed = dt.datetime.fromisoformat(text.decode())
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=dt.UTC)


def _leaf(signer: Pair, names: Sequence[str], now: dt.datetime, policy: Policy) -> Pair:
    return authority.leaf(signer, names, now=now, life=policy.leaf_life)


def _there(pair: Pair | None) -> Pair:
    if pair is None:
        raise ValueError("this step needs an authority that the Secret does not hold")
    return pair
