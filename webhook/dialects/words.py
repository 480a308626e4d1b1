"""What a rule is given and what it answers: one dialect's words on one pod.

A rule is pure arithmetic on this. It never sees the pod, the fleet or other dialects, so what it decides can be written
into a table of cases; finding the words, removing them and making claims is the engine's (`webhook.translate.translate`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from webhook.dialects.demand import Demand, Left, Note, Pairs, Refusal
from webhook.dialects.table import Row

if TYPE_CHECKING:
    from webhook.dialects.table import Role


class Amount(msgspec.Struct, frozen=True, gc=False):
    """A resource key on a container: a whole number, already checked as the API server would have."""

    key: str
    row: Row
    value: int
    part: str = ""  # what stood for the `<…>` of the row's name
    limited: bool = True  # whether it stands in limits; requests alone would have been refused


class Hint(msgspec.Struct, frozen=True, gc=False):
    """An annotation, label, variable or selector of the pod that a dialect knows."""

    key: str
    row: Row
    text: str

    @property
    def entries(self) -> tuple[str, ...]:
        """The parts between commas, trimmed, empty ones dropped."""
        return tuple(part for part in map(str.strip, self.text.split(",")) if part)


class Said(msgspec.Struct, frozen=True, gc=False):
    """What one container says in a dialect. `ordinary_init`: it ends before the others begin."""

    container: str
    amounts: tuple[Amount, ...]
    ordinary_init: bool = False
    init: bool = False

    def of(self, role: Role) -> Amount | None:
        """Find the amount that plays a role, if there is one."""
        return next((amount for amount in self.amounts if amount.row.role is role), None)

    def number(self, role: Role, default: int = 0) -> int:
        """Read the amount that plays a role."""
        amount = self.of(role)
        return default if amount is None else amount.value


class Answer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a rule makes of a container (or, for dialects of pod scope, of the pod)."""

    # Each with the key that stands for it in reports.
    demands: tuple[tuple[str, Demand | Pairs], ...] = ()
    notes: tuple[Note, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    left: Left | None = None


class HamiOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What HAMi's device ConfigMap says, where it differs from HAMi's own defaults."""

    memory_factor: int = 1
    default_gpu_num: int = msgspec.field(name="defaultGPUNum", default=1)
    default_memory: int = 0  # MiB; 0 is the whole memory
    default_cores: int = 0


class KoordinatorOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How Koordinator is set up."""

    # Its mutating webhook rewrites every app container (feature DisableDeviceResourceSpec off, the default).
    webhook: bool = True
    # A share of a NIC becomes one whole NIC, since NIC drivers know no shares.
    whole_nic_for_share: bool = msgspec.field(name="wholeNICForShare", default=False)


class NvidiaOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How the NVIDIA DRA driver is set up."""

    # `shares` is published (ConsumableShares integer mode) with as many units as the plugin had replicas.
    consumable_shares: bool = False


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The set-up of the systems that the dialects come from, as declared in the configuration."""

    nvidia: NvidiaOptions = NvidiaOptions()
    hami: HamiOptions = HamiOptions()
    koordinator: KoordinatorOptions = KoordinatorOptions()
    # What a bare `nvidia.com/gpu` is on this pod, if not a whole GPU: a MIG device of a profile, or a replica.
    profile: str = ""
    replicas: bool = False
