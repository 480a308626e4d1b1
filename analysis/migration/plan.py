"""The plan of a move from device plugins to DRA drivers, from the files of a Git tree.

    consumers  the places that request devices by a legacy key, and what happens to each
    families   by driver: the keys, the plugin that serves them now, how it shares devices, and the chart that replaces it
    follow     what depends on the plugin and has to change in the same commit
    lost       what works with the plugin and not with the driver
    blockers   what has to be true before, as far as the tree shows it
    byHand     what a person does before and after

A person decides about `decision`, `sharing.decision` and `verdict`; everything else is made again by `plan --check`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import replace

from analysis.migration.followers import Follower
from dra.raw import Object

if TYPE_CHECKING:
    from collections.abc import Iterator

Verdict = Literal["edit", "by hand", "cannot"]
Decision = Literal["move", "stay"]
FirstStepState = Literal["in force", "prepare", "gate", "unknown version"]
SharingDecision = Literal["exclusive", "named claim", "shares", "admin access", "undecided"]


class _PlanPart(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A part of a plan."""


class Consumer(_PlanPart, frozen=True, kw_only=True):
    """A place in a tree that requests devices by a legacy key."""

    object: str
    file: str
    line: int
    place: str  # a JSON pointer into the object
    key: str
    amount: str = ""
    device_class: str = ""
    drivers: tuple[str, ...] = ()  # that the devices may belong to
    verdict: Verdict
    why: str = ""  # why the program cannot edit it, or the lines to write by hand


class InstalledRelease(_PlanPart, frozen=True, kw_only=True):
    """A release in the tree that runs a device plugin or its operator, or that installs a driver."""

    object: str
    file: str
    line: int
    chart: str = ""
    version: str = ""
    how: str = ""  # how the move changes a plugin


class Replacement(_PlanPart, frozen=True, kw_only=True):
    """The chart of the driver."""

    chart: str
    url: str
    version: str
    values: Object
    notes: tuple[str, ...] = ()
    installed: InstalledRelease | None = None  # if the tree has it already


class DeviceSharing(_PlanPart, frozen=True, kw_only=True):
    """How pods share devices now, and the decision about it."""

    now: str
    devices: int  # that `exclusive` needs
    decision: SharingDecision
    because: str
    choices: dict[str, str]
    # What the decision `shares` adds to the values of the driver's chart.
    values_for_shares: Object = {}


class FirstStep(_PlanPart, frozen=True, kw_only=True):
    """DeviceClasses with `extendedResourceName`. With them, pods that request a key get devices of the driver without an edit."""

    keys: tuple[str, ...]
    objects: tuple[str, ...]  # the consumers
    state: FirstStepState  # `prepare`: that step of `migrate pr` adds the missing classes
    what: str
    limits: str  # what it does not do
    device_classes: tuple[Object, ...] = ()  # that neither the tree nor the driver's chart has

    def serves(self, consumer: Consumer) -> bool:
        """Return whether the DeviceClasses serve a consumer, so that it can keep its key."""
        return self.state == "in force" and consumer.object in self.objects and consumer.key in self.keys


class Family(_PlanPart, frozen=True, kw_only=True):
    """The keys that one driver serves, and whether its devices move to the driver now."""

    driver: str
    decision: Decision
    reasons: tuple[str, ...] = ()  # why it is `stay`
    keys: tuple[str, ...]
    device_classes: tuple[str, ...]
    plugins: tuple[InstalledRelease, ...]
    replacement: Replacement | None = None
    sharing: DeviceSharing | None = None
    first_step: FirstStep | None = None


class MigrationPlan(_PlanPart, frozen=True, kw_only=True):
    """The plan of a move."""

    api_version: Literal["drawbridge.dev/v1alpha1"]
    kind: Literal["MigrationPlan"]
    families: tuple[Family, ...]
    consumers: tuple[Consumer, ...]
    follow: tuple[Follower, ...]
    lost: tuple[str, ...]
    blockers: tuple[str, ...]
    by_hand: tuple[str, ...]
    skipped: tuple[str, ...]

    def keeps(self, consumer: Consumer) -> bool:
        """Return whether a consumer needs no edit, because a DeviceClass serves its key by name."""
        steps = [family.first_step for family in self.families if family.driver in consumer.drivers]
        return consumer.verdict == "by hand" and any(step is not None and step.serves(consumer) for step in steps)

    def left_of(self, family: Family) -> Iterator[str]:
        """Yield the remaining plugins of a family, and the consumers that still need them."""
        yield from (plugin.object for plugin in family.plugins)
        yield from (
            entry.object for entry in self.consumers if family.driver in entry.drivers and not self.keeps(entry)
        )

    @property
    def is_done(self) -> bool:
        """Whether the tree has all drivers and no device plugins."""
        new = [family.replacement for family in self.families if not family.plugins]
        are_installed = len(new) == len(self.families) and all(entry and entry.installed for entry in new)
        return are_installed and all(map(self.keeps, self.consumers))

    @property
    def staying(self) -> tuple[Family, ...]:
        """The families that keep their plugins."""
        return tuple(family for family in self.families if family.decision == "stay")

    @property
    def why_staying(self) -> list[str]:
        """The reasons why plugins stay."""
        decided = ("the plan decides so",)
        return [f"{family.driver}: {reason}" for family in self.staying for reason in family.reasons or decided]

    def with_all(self) -> MigrationPlan:
        """Return the plan as if all families moved."""
        return replace(self, families=tuple(replace(family, decision="move") for family in self.families))

    def of_moving(self) -> MigrationPlan:
        """Return the plan reduced to families that move."""
        moving = {family.driver for family in self.families if family.decision == "move"}
        return replace(
            self,
            families=tuple(family for family in self.families if family.driver in moving),
            consumers=tuple(entry for entry in self.consumers if moving.intersection(entry.drivers)),
            follow=tuple(entry for entry in self.follow if moving.intersection(entry.drivers)),
        )
