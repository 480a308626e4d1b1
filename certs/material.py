"""What the shared Secret holds, and how one rotation step changes it. Values only; `certs.store` reads and writes them.

| key | holds |
|---|---|
| tls.crt, tls.key | the leaf that replicas serve |
| ca.crt | the bundle: every authority that is trusted now |
| authority.crt, authority.key | the authority that signs now |
| next.crt, next.key | the authority that will sign (INTRODUCED) |
| previous.crt | the authority that signed before (SWITCHED) |
| since | when the phase last changed, RFC 3339 |
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm

from certs import authority
from certs.authority import Pair
from certs.rotation import Phase, Step, View

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from certs.rotation import Policy

AUTHORITY_NAME = "drawbridge"
# Every entry that belongs to us, so that a step can also take one away.
ENTRIES = frozenset(
    ("authority.crt", "authority.key", "tls.crt", "tls.key", "next.crt", "next.key", "previous.crt", "ca.crt", "since")
)


class Material(NamedTuple):
    """Everything about certificates that replicas share."""

    authority: Pair | None = None
    leaf: Pair | None = None
    next: Pair | None = None
    previous: bytes | None = None
    since: dt.datetime | None = None

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


def view(material: Material, names: Sequence[str], *, bundle_everywhere: bool) -> View:
    """Reduce material to what `rotation.step` decides on."""
    signer, leaf = material.authority, material.leaf
    sound = (
        signer is not None
        and leaf is not None
        and authority.signed_by(leaf.certificate, signer.certificate)
        and frozenset(names) <= authority.names(leaf.certificate)
    )
    return View(
        phase=material.phase,
        authority=signer and authority.span(signer.certificate),
        leaf=leaf and authority.span(leaf.certificate),
        leaf_sound=sound,
        since=material.since,
        bundle_everywhere=bundle_everywhere,
    )


def apply(material: Material, step: Step, names: Sequence[str], *, now: dt.datetime, policy: Policy) -> Material:
    """Carry out one step."""
    match step:
        case Step.REMAKE:
            signer = authority.authority(AUTHORITY_NAME, now=now, life=policy.authority_life)
            return Material(signer, _leaf(signer, names, now, policy), since=now)
        case Step.SIGN:
            return material._replace(leaf=_leaf(_there(material.authority), names, now, policy))
        case Step.INTRODUCE:
            made = authority.authority(AUTHORITY_NAME, now=now, life=policy.authority_life)
            return material._replace(next=made, previous=None, since=now)
        case Step.SWITCH:
            signer = _there(material.next)
            old = _there(material.authority).certificate
            return Material(signer, _leaf(signer, names, now, policy), previous=old, since=now)
        case Step.RETIRE:
            return material._replace(previous=None, since=now)


def decode(data: Mapping[str, bytes]) -> Material:
    """Read material out of a Secret's data. A pair that cannot be used counts as not there."""
    return Material(
        authority=_pair(data, "authority"),
        leaf=_pair(data, "tls"),
        next=_pair(data, "next"),
        previous=data.get("previous.crt") or None,
        since=_instant(data.get("since", b"")),
    )


def encode(material: Material) -> dict[str, bytes]:
    """Write material as a Secret's data."""
    pairs = {"authority": material.authority, "tls": material.leaf, "next": material.next}
    data = {f"{name}.crt": pair.certificate for name, pair in pairs.items() if pair}
    data |= {f"{name}.key": pair.key for name, pair in pairs.items() if pair}
    data["ca.crt"] = material.bundle
    if material.previous:
        data["previous.crt"] = material.previous
    if material.since:
        data["since"] = material.since.isoformat().encode()
    return data


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
