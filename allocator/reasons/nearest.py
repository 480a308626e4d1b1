"""Finds the smallest changes with which refused claims would fit.

Every hint was tried with the allocator. If the budget is used up, some hints are missing, but no hint is a guess. The budget counts steps,
so a busy machine gives the same hints. The hints that harm no other pod come first, in this order: another node, claims without pods that
end, fewer claims, a smaller request, a toleration. Then come claims whose pods end, and last the changes that give the pod other devices
than it requests: one constraint or selector fewer, another class. There is a hint of kind "never" if the claims would not fit even if no
device were in use.
"""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from allocator.reasons import relax
from dra.errors import NodeSelectorError
from dra.objects import EXTENDED_CLAIM, DeviceTaint, DeviceToleration, blocks, holder_name, holding_pod
from dra.policy import FENCE_TOLERATION
from dra.quantity import Quantity
from dra.reason import Harm
from dra.stock import PoolStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from allocator.reasons.relax import Claims, RequestPosition
    from dra.objects import ResourceClaim
    from dra.stock import Stock

    Fits = Callable[[Stock, Claims], bool | None]  # None if undecided

TRIES = 400
HOLDERS = 64  # claims that are tried one by one as the claim that has to end
CLASSES = 12  # other DeviceClasses that are tried
PIECES = range(2, 9)  # numbers of devices over which a capacity that is too large is split


class Kind(StrEnum):
    """The kind of change."""

    RELEASE = "release"
    CLAIM = "claim"
    AMOUNT = "amount"
    SPLIT = "split"
    COUNT = "count"
    TAINT = "taint"
    CONSTRAINT = "constraint"
    SELECTOR = "selector"
    CLASS = "class"
    NODE = "node"
    NEVER = "never"


_OTHER_DEVICES = (Kind.CONSTRAINT, Kind.SELECTOR, Kind.CLASS)


class NearestFit(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change with which the claims fit, or kind `never`.

    For kind `release`, `claims` are the claims that would have to end; for kind `claim`, they are the claims to leave out. If any one of
    several claims is enough, `text` joins them with "or". `value` is the value to request instead, the taint to tolerate, or the
    constraint or selector to remove.
    """

    kind: Kind
    text: str
    claim: str = ""
    request: str = ""
    value: str = ""
    claims: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    harm: Harm = Harm.NONE


class _Spent(Exception):  # noqa: N818  not an error: the search for hints ends here
    """No tries are left."""


class _NotDecided(Exception):  # noqa: N818  not an error: this hint is left out
    """An attempt was undecided."""


def nearest_fits(
    stock: Stock,
    node: str,
    claims: Sequence[ResourceClaim],
    *,
    fits: Fits,
    elsewhere: Sequence[str] = (),
    tries: int = TRIES,
) -> list[NearestFit]:
    """Return changes after which claims would fit on a node; `fits` calls the allocator for that node.

    `elsewhere` names other nodes on which the claims fit unchanged.
    """
    tries_left = tries

    def try_once(tried: Stock, tried_claims: Claims) -> bool:
        nonlocal tries_left
        if tries_left <= 0:
            raise _Spent
        tries_left -= 1
        fit = fits(tried, tried_claims)
        if fit is None:
            raise _NotDecided
        return fit

    hints = (
        [NearestFit(Kind.NODE, f"fits unchanged on {_join(elsewhere, 'and', 5)}", nodes=tuple(elsewhere))]
        if elsewhere
        else []
    )
    try:
        hints.extend(_Finder(stock, node, tuple(claims), try_once).hints())
    except (_Spent, NodeSelectorError):  # after NodeSelectorError it is unknown which pools the node can reach
        pass
    return sorted(hints, key=lambda hint: (hint.kind in _OTHER_DEVICES, hint.harm))


class _Finder:
    def __init__(self, stock: Stock, node: str, claims: Claims, fits: Callable[[Stock, Claims], bool]) -> None:
        self.stock = stock
        self.node = node
        self.claims = claims
        self.fits = fits
        # Equal requests of a claim would get the same hint, so only the first of them is considered.
        first_equal: dict[tuple[int, bytes], RequestPosition] = {}
        all_spots = list(relax.request_positions(claims))
        for spot in reversed(all_spots):
            encoded = msgspec.json.encode(spot.body, enc_hook=str)
            first_equal[spot.claim, encoded] = spot
        self.spots = list(first_equal.values())
        self.spots.reverse()

    def hints(self) -> Iterator[NearestFit]:
        idle = self.stock.idle()
        fits_idle: bool | None = None
        with suppress(_NotDecided):
            fits_idle = self.fits(idle, self.claims)
        if fits_idle:
            yield from _decided(self._releases())
        elif fits_idle is False:
            unusable = ["/".join(pool.id) for pool in self.stock.pools(self.node) if pool.status is not PoolStatus.OK]
            text = f"no free device would help: the claims would not fit even on an idle {self.node}"
            yield NearestFit(Kind.NEVER, f"{text} (unusable pools: {_all(unusable)})" if unusable else text)
        yield from _decided(self._fewer_claims())
        smaller = list(self._smaller_amounts(self.stock, " now"))
        yield from smaller
        yield from _decided(self._conditions(self.stock))
        if fits_idle is False and not smaller:
            for hint in self._smaller_amounts(idle, ""):
                yield msgspec.structs.replace(hint, text=f"on an idle {self.node}: {hint.text}")

    def _releases(self) -> Iterator[NearestFit]:
        """Yield a hint about claims that would have to end: those that no pod uses, if they are enough.

        These are all claims of which any one is enough or, if there is no such claim, one set of claims that must all end.
        """
        result_counts: dict[str, int] = {}  # by claim: the number of devices that it holds in pools of this node
        for pool in self.stock.pools(self.node):
            for key, results in self.stock.results.get(pool.id, {}).items():
                result_counts[key] = result_counts.get(key, 0) + len(results)
        reserved = {key for key in result_counts if self.stock.claims[key].status.reserved_for}
        harms = {key: Harm.LIVE_POD if key in reserved else Harm.NONE for key in result_counts}
        holders = sorted(result_counts, key=lambda key: (harms[key], result_counts[key], key))
        sufficient = [
            key for key in islice(holders, HOLDERS) if self.fits(self.stock.without("ResourceClaim", key), self.claims)
        ]
        if sufficient:
            sufficient = [key for key in sufficient if key not in reserved] or sufficient
            yield self._release(sufficient, any_suffices=True)
            return
        ended, stock = [], self.stock
        for key in holders:
            stock = stock.without("ResourceClaim", key)
            ended.append(key)
            if self.fits(stock, self.claims):
                break
        else:
            return
        for key in tuple(ended):
            fewer = [other for other in ended if other != key]
            remaining_stock = self.stock
            for other in fewer:
                remaining_stock = remaining_stock.without("ResourceClaim", other)
            if self.fits(remaining_stock, self.claims):
                ended = fewer
        yield self._release(ended, any_suffices=False)

    def _release(self, keys: Sequence[str], *, any_suffices: bool) -> NearestFit:
        """Return the hint that one of these claims, or all of them, must be released. A claim that no pod uses must be deleted."""
        claims = [self.stock.claims[key] for key in keys]
        names = [holder_name(claim) for claim in claims]
        holders = _either(names) if any_suffices else _all(names)
        verb = "is" if any_suffices else "are"
        are_reserved = {bool(claim.status.reserved_for) for claim in claims}
        if are_reserved == {False}:
            condition = f", used by no pod, {verb} deleted"
        elif all(holding_pod(claim) for claim in claims):
            condition = " ends" if any_suffices else " end"
        else:
            condition = f" {verb} released" if are_reserved == {True} else f" {verb} released or deleted"
        harm = Harm.LIVE_POD if True in are_reserved else Harm.NONE
        return NearestFit(Kind.RELEASE, f"would fit once {holders}{condition}", claims=tuple(keys), harm=harm)

    def _fewer_claims(self) -> Iterator[NearestFit]:
        """Yield hints about claims without which the other claims fit."""
        if len(self.claims) < 2:
            return
        names = [
            claim.metadata.key
            for index, claim in enumerate(self.claims)
            if self.fits(self.stock, (*self.claims[:index], *self.claims[index + 1 :]))
        ]
        if names:
            yield NearestFit(Kind.CLAIM, f"the other claims would fit without {_either(names)}", claims=tuple(names))

    def _smaller_amounts(self, stock: Stock, now: str) -> Iterator[NearestFit]:
        """Yield hints about smaller amounts and counts that fit. Their texts contain `now`; for an idle stock it is ""."""
        for spot in self.spots:
            body = spot.body
            if body.capacity is not None:
                for name, amount in body.capacity.requests.items():
                    yield from _decided(self._amount(stock, spot, name, amount, now))
            if body.allocation_mode == "ExactCount" and body.count > 1:
                with suppress(_NotDecided):

                    def fits(count: int, spot: RequestPosition = spot) -> bool:
                        return self.fits(stock, relax.with_fields(self.claims, spot, count=count))

                    if largest := relax.largest(body.count - 1, fits):
                        text = f"{largest} of {body.count} devices would fit{now}"
                        yield NearestFit(Kind.COUNT, text, spot.claim_name, spot.name, str(largest))

    def _amount(
        self, stock: Stock, spot: RequestPosition, name: str, amount: Quantity, now: str
    ) -> Iterator[NearestFit]:
        largest = relax.largest_amount(self.claims, spot, name, amount, lambda claims: self.fits(stock, claims))
        if largest is None:
            return
        text = f"the most {name} that fits{now} is {largest}, not {amount}"
        yield NearestFit(Kind.AMOUNT, text, spot.claim_name, spot.name, f"{name}={largest}")
        if spot.body.allocation_mode != "ExactCount" or spot.body.count != 1:
            return
        step = relax.grain(amount)
        for pieces in PIECES:
            steps = -(-amount.nano // (pieces * step))  # rounded up
            piece = Quantity.from_nano(steps * step, amount.format)
            split = relax.with_amount(self.claims, spot, name, piece)
            if self.fits(stock, relax.with_fields(split, spot, count=pieces)):
                text = f"{pieces} devices with {piece} of {name} each fit{now}"
                yield NearestFit(Kind.SPLIT, text, spot.claim_name, spot.name, f"{pieces} x {name}={piece}")
                return

    def _conditions(self, stock: Stock) -> Iterator[NearestFit]:
        claims = self.claims
        for spot in self.spots:
            yield from self._taints(stock, spot)
        for at, claim in enumerate(claims):
            for number, constraint in enumerate(claim.spec.devices.constraints):
                if not self.fits(stock, relax.without_constraint(claims, at, number)):
                    continue
                kind = "matchAttribute" if constraint.match_attribute else "distinctAttribute"
                attribute = constraint.match_attribute or constraint.distinct_attribute or ""
                text = f"would fit without the constraint {kind} {attribute}"
                yield NearestFit(Kind.CONSTRAINT, text, claim=claim.metadata.key, value=attribute)
        for spot in self.spots:
            for number, selector in enumerate(spot.body.selectors):
                other_selectors = tuple(selector for at, selector in enumerate(spot.body.selectors) if at != number)
                if not self.fits(stock, relax.with_fields(claims, spot, selectors=other_selectors)):
                    continue
                expression = selector.cel.expression if selector.cel else ""
                text = f"would fit without the selector {expression}"
                yield NearestFit(Kind.SELECTOR, text, spot.claim_name, spot.name, expression)
            requested_class = spot.body.device_class_name
            # Sorted by name, because the order of informers is not deterministic.
            classes = (name for name in sorted(self.stock.classes) if name != requested_class)
            fitting = [
                name
                for name in islice(classes, CLASSES)
                if self.fits(stock, relax.with_fields(claims, spot, device_class_name=name))
            ]
            if fitting:
                text = f"would fit with the class {_either(fitting)} instead of {requested_class}"
                yield NearestFit(Kind.CLASS, text, spot.claim_name, spot.name, fitting[0])

    def _taints(self, stock: Stock, spot: RequestPosition) -> Iterator[NearestFit]:
        blocking: dict[tuple[str, str, str], DeviceTaint] = {}
        tolerated = spot.body.tolerations
        for pool in stock.pools(self.node):
            for page in pool.accessible:
                for device in page.devices:
                    for taint in device.taints:
                        key = taint.key, taint.value, taint.effect
                        if blocks(taint, tolerated):
                            blocking.setdefault(key, taint)
        blocking_taints = list(blocking.values())
        for taints in [
            *([taint] for taint in blocking_taints),
            *([blocking_taints] if len(blocking_taints) > 1 else []),
        ]:
            tolerations = tuple(
                DeviceToleration(key=taint.key, operator="Equal", value=taint.value, effect=taint.effect)
                for taint in taints
            )
            if self.fits(stock, relax.with_fields(self.claims, spot, tolerations=(*tolerated, *tolerations))):
                taint_text = _all(
                    [f"{taint.key}{taint.value and f'={taint.value}'}:{taint.effect}" for taint in taints]
                )
                text = f"would fit if the request tolerated {taint_text}"
                if self.claims[spot.claim].metadata.annotations.get(EXTENDED_CLAIM) == "true":
                    # kube-scheduler creates this claim for an extended resource, and no field of the pod adds a toleration to the claim.
                    text = f"would fit without the taint {taint_text}, which claims for extended resources cannot tolerate: write a ResourceClaim"
                    if all(taint.key == FENCE_TOLERATION.key for taint in taints):
                        text = f"would fit if the webhook translated the pod (`extendedResources`), because the webhook's claims tolerate {taint_text}"
                yield NearestFit(Kind.TAINT, text, spot.claim_name, spot.name, taint_text)
                return


def _decided(hints: Iterator[NearestFit]) -> Iterator[NearestFit]:
    """Yield hints until an attempt is undecided."""
    with suppress(_NotDecided):
        yield from hints


def _either(names: Sequence[str]) -> str:
    return _join(names, "or", limit=3)


def _all(names: Sequence[str]) -> str:
    return _join(names, "and", limit=8)


def _join(names: Sequence[str], word: str, limit: int) -> str:
    shown = [*names[:limit], f"{len(names) - limit} more"] if len(names) > limit else list(names)
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} {word} {shown[-1]}"
