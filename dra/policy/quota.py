"""DeviceQuotas: what their lines are, what is used of each, and which line something would cross.

    gpu.nvidia.com/devices       devices of a class
    gpu.nvidia.com/shares        ... that are shares of devices which others may have, too
    gpu.nvidia.com/memory        the sum of a capacity, of whatever name: of shares what they take, of a device taken whole all it has
    mig.nvidia.com/profile.1g.10gb, .../counter.memory   parts of devices: how many of a profile, and what they take of counters
    */devices, */memory          the same over all classes

A claim's devices are its request and its limit at once, so `requests.` and `limits.` before a class change nothing. A quota with a
scopeSelector is about the pods of its priority classes, and what such pods have. What counts, and how much of it, is said in
`dra.stock.amounts`; amounts are in nano-units. A request that asks for nothing of a line does not cross it.
"""

from __future__ import annotations

import re
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
    OfQuota = Callable[[DeviceQuota], Amounts]  # how much of what a quota is about

MOST_LINES: Final = 64  # of one quota; the API server takes no more
LONGEST_KEY: Final = 320
_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,62}"
# The same stands in CEL in manifests/base/crds.yaml; a test compares the two.
_KEY: Final = re.compile(
    rf"(?:requests\.|limits\.)?(?P<class_name>\*|{SUBDOMAIN})/"
    rf"(?P<what>(?:{SUBDOMAIN}/)?{_NAME}|profile\.[-+.A-Za-z0-9]{{1,64}}|counter\.[-a-z0-9]{{1,63}})",
    re.ASCII,
)
_NAMED = 5  # keys in one sentence
_LONGEST = 80  # letters of a key in a sentence


class Limit(msgspec.Struct, frozen=True):
    """One line of a quota."""

    quota: str  # namespace/name
    key: str  # as it is written
    hard: Quantity
    class_name: str  # or ALL_CLASSES
    what: str


class QuotaLine(msgspec.Struct, frozen=True):
    """What a decision adds to one line of a quota, and what is used of it already."""

    key: str  # whatever names the line, such as namespace/quota: class/devices
    asked: int
    hard: int
    used: int = 0
    waiting: int = 0  # of what is used: for pods and claims that were let in and have no devices yet
    replicas: int = 1  # equal ones, which ask for it together

    @property
    def left(self) -> int:
        """The largest amount that would pass."""
        return max(0, self.hard - self.used)

    @property
    def exceeded(self) -> bool:
        return self.asked > self.left

    @property
    def replicas_left(self) -> int:
        """How many of the replicas would pass."""
        return min(self.replicas, self.left * self.replicas // self.asked) if self.asked else self.replicas

    def write(self, amount: int) -> str:
        """Write an amount of this line for people."""
        return write_amount(self.key, amount)

    def facts(self) -> dict[str, str]:
        """What is known of it, for programs."""
        amounts = {"asked": self.asked, "hard": self.hard, "used": self.used, "largest": self.left}
        if self.waiting:
            amounts["waiting"] = self.waiting
        facts = {"line": self.key} | {name: self.write(amount) for name, amount in amounts.items()}
        if self.replicas != 1:
            facts["replicas"] = str(self.replicas)
            facts["replicasLeft"] = str(self.replicas_left)
        return facts

    def __str__(self) -> str:
        asked, used, hard = map(self.write, (self.asked, self.used, self.hard))
        most = self.write(self.left)
        waiting = f", {self.write(self.waiting)} of it by what waits for devices" if self.waiting else ""
        by = f" by {self.replicas} replicas" if self.replicas != 1 else ""
        some = f", {self.replicas_left} of the replicas" if by and self.exceeded else ""
        return f"quota {self.key}: {asked} asked for{by}, {used} of {hard} used{waiting}; the most that would pass is {most}{some}"


def write_amount(key: str, amount: int) -> str:
    """Write an amount of a line with this key: counts as such, all else as memory is written."""
    what = key.rpartition("/")[2]
    return str(Quantity.from_nano(amount, "DecimalSI" if is_count(what) else "BinarySI"))


def read_key(key: str) -> tuple[str, str] | None:
    """Read which class a line is about, or ALL_CLASSES, and what of it; None if the line cannot be read."""
    read = _KEY.fullmatch(key) if len(key) <= LONGEST_KEY else None
    return (read["class_name"], read["what"]) if read else None


def is_count(what: str) -> bool:
    """Say whether a line counts devices, and adds up no amounts."""
    return what in (DEVICES, SHARES) or what.startswith(PROFILE)


def limits_of(quota: DeviceQuota) -> Iterator[Limit]:
    """List the lines of a quota that can be read."""
    name = quota.metadata.key
    for key, hard in list(quota.spec.hard.items())[:MOST_LINES]:
        read = read_key(key)
        if read:
            # Less than nothing counts as nothing, and what no amount can reach as the most there is.
            within = min(max(hard.nano, 0), MAX * NANO)
            bounded = hard if within == hard.nano else Quantity.from_nano(within, hard.format)
            yield Limit(name, key, bounded, *read)


def misread(quota: DeviceQuota) -> str:
    """Say which lines of a quota cannot be read, and so limit nothing; "" if all can."""
    keys = list(quota.spec.hard)
    idle = [key for key in keys[:MOST_LINES] if not read_key(key)] + keys[MOST_LINES:]
    if not idle:
        return ""
    named = [repr(key[:_LONGEST]) for key in idle[:_NAMED]]
    if len(idle) > _NAMED:
        named.append(f"{len(idle) - _NAMED} more")
    why = f"a key is <class>/{DEVICES}, <class>/{SHARES} or <class>/<capacity>, with * for all classes"
    most = f", and there are {MOST_LINES} at most" if len(keys) > MOST_LINES else ""
    return f"limits nothing by {', '.join(named)}: {why}{most}"


def amount_of(limit: Limit, held: Amounts) -> int:
    """Say how much is held of what a line limits."""
    return held.get((limit.class_name, limit.what), 0)


def in_scope(quota: DeviceQuota, priority_class: str) -> bool:
    """Say whether a quota is about pods of a priority class. A requirement that cannot be read is met by all."""
    selector = quota.spec.scope_selector
    if selector is None:
        return True
    for one in selector.match_expressions:
        met = {
            "In": priority_class in one.values,
            "NotIn": priority_class not in one.values,
            "Exists": bool(priority_class),
            "DoesNotExist": not priority_class,
        }
        if not met.get(one.operator, True):
            return False
    return True


def held_of_quota(quota: DeviceQuota, stock: Stock, find_pod: FindPod) -> Amounts:
    """Say how much claims have of what a quota is about; a claim of several pods is about each of them."""
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
    """Say whether a quota is about a claim: about one of its pods, or, where no pod uses it, about pods without a class."""
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
    return any(in_scope(quota, one) for one in classes or {""})


def quota_lines(
    quotas: Iterable[DeviceQuota],
    who: tuple[str, str],
    asked: Amounts,
    held: OfQuota,
    waiting: OfQuota = lambda _: {},
) -> tuple[QuotaLine, ...]:
    """Say what is added to which lines of the quotas of a namespace, with a priority class (`whose`).

    `held` says how much claims have of what a quota is about, `waiting` how much was let in besides.
    """
    namespace, priority_class = who
    found: list[QuotaLine] = []
    for quota in quotas:
        if (quota.metadata.namespace or "default") != namespace or not in_scope(quota, priority_class):
            continue
        limits = [limit for limit in limits_of(quota) if amount_of(limit, asked)]
        if not limits:
            continue
        used, coming = held(quota), waiting(quota)
        for limit in limits:
            key, more = f"{limit.quota}: {limit.key}", amount_of(limit, coming)
            line = QuotaLine(key, amount_of(limit, asked), limit.hard.nano, amount_of(limit, used) + more, more)
            found.append(line)
    return tuple(found)


def whose(pod: Pod) -> tuple[str, str]:
    """Say whose quotas a pod is under: those of its namespace that are about its priority class."""
    return pod.metadata.namespace or "default", pod.spec.priority_class_name
