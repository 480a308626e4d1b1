"""Rules of `doctor` and `survey`: a command is a table of rules.

Each rule has a function to findings, their codes, and the inputs that it needs. A rule whose input was not read does not run, and is listed.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from analysis.report import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from analysis.explain import PodRule
    from analysis.loading import Reading


class Observed(Protocol):
    """The input of rules: a reading, and what else the rules of one command need."""

    @property
    def reading(self) -> Reading:
        """What was read."""


class Rule(NamedTuple):
    """A function that returns findings, their codes, and the inputs that it needs: kinds of objects, and others.

    `may_be_none` has kinds of which a cluster need not have any object. The rule runs on a dump without objects of these kinds, but not on
    a live cluster that forbids listing them.
    """

    find: Callable[..., Iterable[Any]]  # of findings, or findings with repairs; of a rule about pods, reasons
    codes: str
    needs: tuple[str, ...] = ()
    may_be_none: tuple[str, ...] = ()
    repair: str = ""  # what `doctor --repair` does
    each: bool = False  # the rule judges each input by itself, so it runs on those that were read


class NotChecked(msgspec.Struct, frozen=True):
    """Missing inputs, the codes that were therefore not checked, and why the inputs are missing, or how to provide them."""

    inputs: tuple[str, ...]
    codes: tuple[str, ...]
    reason: str


def run(rules: Iterable[Rule], observed: Observed, missing: Mapping[str, str]) -> Iterator[Any]:
    """Yield the results of the rules whose inputs were read. `missing` has the reason for each input that was not."""
    for rule in rules:
        if rule.each or not missing_inputs(rule, observed.reading, missing):
            yield from rule.find(observed)


def missing_inputs(rule: Rule | PodRule, reading: Reading, missing: Mapping[str, str]) -> set[str]:
    """Return the inputs of a rule that were not read."""
    return missing.keys() & (rule.needs if not reading.is_live else (*rule.needs, *rule.may_be_none))


def not_checked(rules: Iterable[Rule], reading: Reading, missing: Mapping[str, str]) -> tuple[NotChecked, ...]:
    """Return which findings were not checked, by the missing inputs."""
    codes_of: defaultdict[str, set[str]] = defaultdict(set)
    for rule in rules:
        for kind in missing_inputs(rule, reading, missing):
            codes_of[kind].update(rule.codes.split())
    inputs_of: defaultdict[tuple[tuple[str, ...], str], list[str]] = defaultdict(list)
    for kind, codes in sorted(codes_of.items()):
        inputs_of[tuple(sorted(codes)), missing[kind]].append(kind)
    return tuple(NotChecked(tuple(kinds), codes, why) for (codes, why), kinds in inputs_of.items())


def table_of_not_checked(unchecked: Iterable[NotChecked]) -> Rows:
    """Make the table of the codes that were not checked, with the missing input."""
    rows = [(" ".join(entry.codes), ", ".join(entry.inputs), entry.reason) for entry in unchecked]
    return Rows(("Codes", "Missing input", "Reason"), rows, "Not checked")
