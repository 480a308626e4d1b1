"""DeviceQuotas, how much of each line is used, and the lines that a request would exceed. A line is a key of `hard`:

    gpu.nvidia.com/devices            the number of devices of a class gpu.nvidia.com/shares             the number of
    shares of devices; each share also counts as a device gpu.nvidia.com/memory             the sum of a capacity, here
    memory; a share counts its part, a whole device all of it mig.nvidia.com/profile.1g.10gb    the number of partitions
    with a profile mig.nvidia.com/counter.memory     the sum of a counter, here memory, that partitions consume
    */devices, */memory               the same amounts over all classes

A claim has no separate requests and limits, so a prefix `requests.` or `limits.` of a key changes nothing. A quota with
a scopeSelector applies to pods of the priority classes that it selects. `dra.stock.amounts` defines what is counted.
Amounts are in nano-units. A request that adds nothing to a line does not exceed the line.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from dra.names import SUBDOMAIN
from dra.quantity import MAX, NANO, Quantity
from dra.stock import DEVICES, PROFILE, SHARES, amounts_of, total

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from dra.objects import DeviceQuota, Pod, ResourceClaim
    from dra.stock import Amounts, Stock

    FindPod = Callable[[str, str], Pod | None]  # by namespace and name
    OfQuota = Callable[[DeviceQuota], Amounts]  # the amounts within the scope of a quota

MAX_LINES: Final = 64  # lines of one quota; the API server allows no more
MAX_KEY: Final = 320
_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,62}"
# manifests/base/crds.yaml has the same pattern in CEL; a test compares the two.
_KEY: Final = re.compile(
    rf"(?:requests\.|limits\.)?(?P<class_name>\*|{SUBDOMAIN})/"
    rf"(?P<what>(?:{SUBDOMAIN}/)?{_NAME}|profile\.[-+.A-Za-z0-9]{{1,64}}|counter\.[-a-z0-9]{{1,63}})",
    re.ASCII,
)
_MAX_SHOWN = 5  # keys in one message
_MAX_SHOWN_KEY = 80  # characters of a key in a message


class Limit(msgspec.Struct, frozen=True):
    """One line of a quota."""

    quota: str  # namespace/name
    key: str  # as it is written
    hard: Quantity
    class_name: str  # or ALL_CLASSES
    resource: str


class QuotaLine(msgspec.Struct, frozen=True):
    """What a request adds to one line of a quota, and how much of the line is used without the request."""

    key: str  # the quota and the line, such as namespace/quota: class/devices
    requested: int
    hard: int
    used: int = 0
    waiting: int = 0  # the part of `used` for admitted pods and claims that have no devices yet
    replicas: int = 1  # the number of equal pods or claims, which request `requested` together

    @property
    def remaining(self) -> int:
        """How much of the line is still available."""
        return max(0, self.hard - self.used)

    @property
    def exceeded(self) -> bool:
        return self.requested > self.remaining

    @property
    def replicas_left(self) -> int:
        """The number of replicas for which the quota has room."""
        return min(self.replicas, self.remaining * self.replicas // self.requested) if self.requested else self.replicas

    def write(self, amount: int) -> str:
        """Format an amount of this line for people."""
        return write_amount(self.key, amount)

    def facts(self) -> dict[str, str]:
        """Return the fields of the line for programs."""
        amounts = {"requested": self.requested, "hard": self.hard, "used": self.used, "remaining": self.remaining}
        if self.waiting:
            amounts["pending"] = self.waiting
        facts = {"line": self.key} | {name: self.write(amount) for name, amount in amounts.items()}
        if self.replicas != 1:
            facts["replicas"] = str(self.replicas)
            facts["replicasLeft"] = str(self.replicas_left)
        return facts

    def __str__(self) -> str:
        """Describe the line: "quota team/q: gpu/devices: 3 requested, 6 of 8 used; at most 2 can be requested"."""
        requested, used, hard = map(self.write, (self.requested, self.used, self.hard))
        most = self.write(self.remaining)
        waiting = f", including {self.write(self.waiting)} by pods that wait for devices" if self.waiting else ""
        by = f" by {self.replicas} replicas" if self.replicas != 1 else ""
        enough = f", enough for {self.replicas_left} of the replicas" if by and self.exceeded else ""
        use = f"{used} of {hard} used{waiting}"
        return f"quota {self.key}: {requested} requested{by}, {use}; at most {most} can be requested{enough}"


def write_amount(key: str, amount: int) -> str:
    """Format an amount of a line with this key. Counts are decimal; other amounts have binary units."""
    resource = key.rpartition("/")[2]
    return str(Quantity.from_nano(amount, "DecimalSI" if is_count(resource) else "BinarySI"))


def read_key(key: str) -> tuple[str, str] | None:
    """Split a key into the class (or ALL_CLASSES) and the resource that the key limits; None if the key is invalid."""
    read = _KEY.fullmatch(key) if len(key) <= MAX_KEY else None
    return (read["class_name"], read["what"]) if read else None


def is_count(resource: str) -> bool:
    """Whether a line counts devices, rather than adding up amounts."""
    return resource in (DEVICES, SHARES) or resource.startswith(PROFILE)


def limits_of(quota: DeviceQuota) -> Iterator[Limit]:
    """List the valid lines of a quota."""
    name = quota.metadata.key
    for key, hard in list(quota.spec.hard.items())[:MAX_LINES]:
        read = read_key(key)
        if read:
            # Clamp the limit to the largest amount that a quantity can represent.
            within = min(max(hard.nano, 0), MAX * NANO)
            bounded = hard if within == hard.nano else Quantity.from_nano(within, hard.format)
            yield Limit(name, key, bounded, *read)


def misread(quota: DeviceQuota) -> str:
    """Return a message about the invalid lines of a quota, which have no effect; "" if there are none."""
    keys = list(quota.spec.hard)
    invalid = [key for key in keys[:MAX_LINES] if not read_key(key)] + keys[MAX_LINES:]
    if not invalid:
        return ""
    shown_keys = [repr(key[:_MAX_SHOWN_KEY]) for key in invalid[:_MAX_SHOWN]]
    if len(invalid) > _MAX_SHOWN:
        shown_keys.append(f"{len(invalid) - _MAX_SHOWN} more")
    why = f"a key is <class>/{DEVICES}, <class>/{SHARES} or <class>/<capacity>, where <class> can be * for all classes"
    limit = f", and a quota has at most {MAX_LINES} keys" if len(keys) > MAX_LINES else ""
    return f"these keys limit nothing: {', '.join(shown_keys)}; {why}{limit}"


def amount_of(limit: Limit, amounts: Amounts) -> int:
    """Return the part of `amounts` that counts for a line."""
    return amounts.get((limit.class_name, limit.resource), 0)


def in_scope(quota: DeviceQuota, priority_class: str) -> bool:
    """Whether a quota applies to pods of a priority class. A requirement with an unknown operator counts as met."""
    selector = quota.spec.scope_selector
    if selector is None:
        return True
    for requirement in selector.match_expressions:
        met = {
            "In": priority_class in requirement.values,
            "NotIn": priority_class not in requirement.values,
            "Exists": bool(priority_class),
            "DoesNotExist": not priority_class,
        }
        if not met.get(requirement.operator, True):
            return False
    return True


def held_of_quota(quota: DeviceQuota, stock: Stock, find_pod: FindPod) -> Amounts:
    """Return how much is held by the claims to which a quota applies."""
    namespace = quota.metadata.namespace or "default"
    if quota.spec.scope_selector is None:
        return stock.sums.get(namespace, {})
    parts: list[Amounts] = []
    for key in stock.holders.get(namespace, ()):
        claim = stock.claims[key]
        if concerns(quota, claim, find_pod):
            parts.append(amounts_of(claim, stock.pages_of))
    return total(parts)


def concerns(quota: DeviceQuota, claim: ResourceClaim, find_pod: FindPod) -> bool:
    """Whether a quota applies to one of a claim's pods.

    If none of them is known, whether it applies to pods without priority class.
    """
    if quota.spec.scope_selector is None:
        return True
    names = [owner.name for owner in claim.metadata.owner_references if owner.kind == "Pod"]
    names += [consumer.name for consumer in claim.status.reserved_for if consumer.is_pod]
    namespace = claim.metadata.namespace or "default"
    classes: set[str] = set()
    for name in names:
        pod = find_pod(namespace, name)
        if pod is not None:
            classes.add(pod.spec.priority_class_name)
    return any(in_scope(quota, priority_class) for priority_class in classes or {""})


def quotas_for(quotas: Iterable[DeviceQuota], scope: tuple[str, str]) -> list[DeviceQuota]:
    """List the quotas that apply to a `scope`, which is a namespace and a priority class."""
    namespace, priority_class = scope
    return [
        quota
        for quota in quotas
        if (quota.metadata.namespace or "default") == namespace and in_scope(quota, priority_class)
    ]


def quota_lines(
    quotas: Iterable[DeviceQuota],
    scope: tuple[str, str],
    requested: Amounts,
    used_by_claims: OfQuota,
    waiting: OfQuota = lambda _: {},
    *,
    unrequested: bool = False,
) -> tuple[QuotaLine, ...]:
    """List the lines to which a request adds, in the quotas of a `scope`; with `unrequested`, list all their lines.

    For a quota, `used_by_claims` returns how much its claims hold, and `waiting` how much was admitted but not
    allocated.
    """
    lines: list[QuotaLine] = []
    for quota in quotas_for(quotas, scope):
        limits = [limit for limit in limits_of(quota) if unrequested or amount_of(limit, requested)]
        if not limits:
            continue
        used, pending = used_by_claims(quota), waiting(quota)
        for limit in limits:
            key, pending_amount = f"{limit.quota}: {limit.key}", amount_of(limit, pending)
            line = QuotaLine(
                key,
                amount_of(limit, requested),
                limit.hard.nano,
                amount_of(limit, used) + pending_amount,
                pending_amount,
            )
            lines.append(line)
    return tuple(lines)


def lines_of_claims(
    quotas: Iterable[DeviceQuota],
    pod: Pod,
    claims: Iterable[ResourceClaim],
    stock: Stock,
    find_pod: FindPod,
    *,
    unrequested: bool = False,
) -> tuple[QuotaLine, ...]:
    """List the lines to which new allocations of a pod's claims add, as `quota_lines`.

    `stock` is without the allocations.
    """
    requested = total(amounts_of(claim, stock.pages_of) for claim in claims)
    used_by_claims = partial(held_of_quota, stock=stock, find_pod=find_pod)
    return quota_lines(quotas, quota_scope(pod), requested, used_by_claims, unrequested=unrequested)


def quota_scope(pod: Pod) -> tuple[str, str]:
    """Return the namespace and priority class that determine the quotas of a pod."""
    return pod.metadata.namespace or "default", pod.spec.priority_class_name
