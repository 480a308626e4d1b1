"""Formats a survey: outcomes, open decisions, obstacles, devices, and the workloads by namespace."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Final

from analysis.findings import by_object, table_of_findings
from analysis.report import Marked, Report, Rows, Screen, Why
from analysis.rules import table_of_not_checked
from analysis.survey.verdicts import MoveReason
from dra.texts import count_of, joined, list_first
from webhook.dialects import Outcome
from webhook.translate import decides_outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from analysis.report import Cell, Part
    from analysis.skipped import SkippedFile
    from analysis.survey.overview import Asking, Overview
    from analysis.survey.pools import PoolDeclarations
    from analysis.survey.verdicts import Key

_NAMED: Final = 5  # named nodes of one state
_NAMESPACES: Final = 50  # namespaces that are listed
_SHOWN: Final = 25  # workloads of a namespace that are listed one by one
_OWN_CLAIMS: Final = "own claims"  # in place of an outcome
_OUTCOME_TEXTS: Final = {
    _OWN_CLAIMS: "have no keys, but claims of their own",
    Outcome.TRANSLATED: "claims replace all their keys",
    Outcome.APPROXIMATED: "claims replace all their keys, but do not request exactly the same",
    Outcome.SERVED: "need no change: a DeviceClass serves their keys",
    Outcome.PARTLY: "claims replace some of their keys",
    Outcome.LEFT: "keep their keys, for the reasons below",
    Outcome.UNKNOWN: "have a key that drawbridge does not recognise",
    Outcome.REFUSED: "would be refused",
}
# The states of a node between device plugin and driver, in order.
_SIDE_TEXTS: Final = {
    "plugin": "device plugin",
    "both": "device plugin and driver",
    "plugin_without_devices": "device plugin without devices",
    "driver": "driver",
    "neither": "no driver and no device plugin",
}


def report(overview: Overview, skipped: Sequence[SkippedFile] = (), *, whole: bool) -> Report:
    """Make the report. Unless `whole`, it has only the first workloads of each namespace, without single keys.

    `skipped` are the files that are not read as objects.
    """
    counted = list(_totals(overview))
    outcomes = [(Marked(outcome), number, meaning) for outcome, number, meaning in counted]
    reasons = [
        (
            Marked(reason.outcome),
            reason.workloads,
            reason.pods,
            reason.key,
            Why(f"{why(reason)}{_code(reason.code)}", reason.remedy),
        )
        for reason in overview.reasons
    ]
    plugins = [
        (
            plugin.key,
            plugin.nodes,
            plugin.devices,
            plugin.migrating_devices,
            plugin.staying_devices,
            plugin.freed_devices,
            plugin.stranded_devices,
        )
        for plugin in overview.plugins
    ]
    deletable = [
        (plugin.key, "no" if plugin.needed_by else "yes", "; ".join(plugin.needed_by)) for plugin in overview.plugins
    ]
    drivers = [(driver.driver, driver.nodes, driver.devices) for driver in overview.drivers]
    sides: list[Sequence[Cell]] = []
    for side in overview.nodes_by_key if plugins or drivers else ():
        for name, meaning in _SIDE_TEXTS.items():
            if nodes := getattr(side, name):
                sides.append((side.key, len(nodes), meaning, list_first(nodes, len(nodes) if whole else _NAMED)))
    used = ("Used by pods that move", "Used by pods that stay", "Will be free", "Will be idle")
    parts: list[Part] = [
        Rows(("Outcome", "Workloads", ""), outcomes),
        Rows(("Outcome", "Workloads", "Pods", "Key", "Why, and what to do"), reasons, "To decide"),
        *(Screen(lines, title) for title, lines in _network_declarations(overview.network)),
        table_of_findings(by_object(overview.obstacles), title="Obstacles"),
        table_of_not_checked(overview.not_checked),
        Rows(("Key", "Nodes", "Devices", *used), plugins, "Devices of device plugins"),
        Rows(("Key", "Safe", "Because"), deletable, "Is it safe to delete the device plugin?"),
        Rows(("Driver", "Nodes", "Devices"), drivers, "Devices of drivers"),
        Rows(("Key", "Nodes", "Served by", "Names"), sides, "Nodes by key"),
    ]
    grouped = [
        (name, list(group)) for name, group in groupby(overview.workloads, key=lambda workload: workload.namespace)
    ]
    for namespace, workloads in grouped if whole else grouped[:_NAMESPACES]:
        mode = overview.modes.get(namespace, "")
        shown = workloads if whole else workloads[:_SHOWN]
        times = Counter((workload.kind, workload.name) for workload in shown)
        rows = [_row(workload, whole=whole, with_file=times[workload.kind, workload.name] > 1) for workload in shown]
        title = f"Workloads of {namespace}{f' (mode {mode})' if mode else ''}"
        parts.append(Rows(("Outcome", "Workload", "Pods", "Requests"), rows, title))
        if remaining := len(workloads) - len(shown):
            parts.append(f"... and {remaining:,} more, which `-o wide` and `-o json` list")
    if not whole and (more := len(grouped) - _NAMESPACES) > 0:
        parts.append(f"... and {count_of(more, 'more namespace')}, which `-o wide` and `-o json` list")
    requesting = [(skip.file, skip.line, skip.key, skip.kind) for skip in skipped if skip.key]
    parts.append(Rows(("File", "Line", "Key", ""), requesting, "Requests outside of objects"))
    return Report("Accelerator workloads: what becomes of them", parts, _summary(overview, counted, len(requesting)))


def _summary(overview: Overview, counted: Sequence[tuple[str, int, str]], outside: int) -> str:
    """Return the survey in four lines: the workloads by outcome, what to decide, the obstacles, and what was read."""
    workloads = count_of(len(overview.workloads), "workload")
    outcomes = f": {', '.join(f'{number:,} {outcome}' for outcome, number, _ in counted)}" if counted else ""
    files = f", and {count_of(outside, 'file')} outside of objects" if outside else ""
    requests = f"{workloads} with devices{outcomes}{files}" if counted or outside else "no workload requests a device"
    first = next(iter(overview.reasons), None)
    such = f", such as {first.key} ({count_of(first.workloads, 'workload')})" if first else ""
    decisions = f"{count_of(len(overview.reasons), 'reason')} why keys stay or change{such}" if such else "nothing"
    unchecked = len({code for entry in overview.not_checked for code in entry.codes})
    missing = f"; {count_of(unchecked, 'code')} not checked, for lack of input" if unchecked else ""
    read = f"{count_of(overview.objects, 'object')}, among them {count_of(overview.pods, 'unfinished pod')}"
    lines = (
        requests,
        f"To decide: {decisions}",
        f"Obstacles: {len(overview.obstacles) or 'none'}{missing}",
        f"Read: {f'Kubernetes {overview.server}, ' if overview.server else ''}{read}",
    )
    return "\n".join(f"{line}." for line in lines)


def _row(workload: Asking, *, whole: bool, with_file: bool) -> Sequence[Cell]:
    """Format a workload; with `whole`, also the decision about each key and its warnings."""
    # Each key is written once, although two containers may request it.
    amounts_by_key: dict[str, list[str]] = {}
    listed: set[tuple[str, str, str]] = set()
    for key in [key for key in workload.keys if decides_outcome(key.enforced())] or workload.keys:
        amounts = amounts_by_key.setdefault(key.key, [])
        if key.amount and key.place not in listed:
            amounts.append(key.amount)
        listed.add(key.place)
    keys = ", ".join(f"{key}={'+'.join(amounts)}" if amounts else key for key, amounts in amounts_by_key.items() if key)
    texts = [f"{f'would be {workload.potential_outcome}: ' if workload.potential_outcome else ''}{keys}"]
    # An object with values is long, and has requests in several places.
    texts += dict.fromkeys(f"{workload.file}:{key.line} {key.container}" for key in workload.keys if key.line)
    for key in workload.keys if whole else ():
        reason = f"  {because}" if (because := why(key)) else ""
        texts.append(f"{key.outcome} {joined(key.container or 'pod', key.key)}{reason}{_code(key.code)}")
        texts += [key.remedy] if key.remedy else []
    texts += workload.warnings if whole else ()
    name = f"{workload.kind}/{workload.name}{f' ({workload.file})' if with_file else ''}"
    return Marked(workload.outcome or _OWN_CLAIMS), name, f"{workload.running_pods}/{workload.pods}", tuple(texts)


def _code(code: str) -> str:
    return f" [{code}]" if code else ""


def why(decision: Key | MoveReason) -> str:
    """Return why a key is not simply translated, and until when it is left."""
    stays = (
        f"the object keeps it, and its pods get claims at the webhook: {decision.keep_reason}"
        if decision.keep_reason
        else ""
    )
    detail = decision.detail if isinstance(decision, MoveReason) else decision.reason
    return "; ".join(filter(None, (stays, detail, f"until {decision.until}" if decision.until else "")))


def _totals(overview: Overview) -> Iterator[tuple[str, int, str]]:
    """Yield each outcome, its number of workloads, and its meaning, with counts of pods and of workloads that wait or keep keys."""
    for outcome in _OUTCOME_TEXTS:
        workloads = [workload for workload in overview.workloads if (workload.outcome or _OWN_CLAIMS) == outcome]
        if not workloads:
            continue
        pods, moved = (
            sum(workload.pods for workload in workloads),
            sum(workload.pods_with_claims for workload in workloads),
        )
        enforced = Counter(workload.potential_outcome for workload in workloads if workload.potential_outcome)
        stays = sum(any(key.keep_reason for key in workload.keys) for workload in workloads)
        until = sum(any(key.until for key in workload.keys) for workload in workloads)
        notes = [
            count_of(pods, "pod"),
            f"{moved:,} of them with claims already" if moved else "",
            f"{stays:,} only at the webhook" if stays else "",
            f"{until:,} until the cluster is ready" if until else "",
            *[f"{number:,} would be {would} in mode enforce" for would, number in enforced.items()],
        ]
        yield outcome, len(workloads), f"{_OUTCOME_TEXTS[outcome]} ({', '.join(filter(None, notes))})"


def _network_declarations(network: PoolDeclarations) -> Iterator[tuple[str, list[str]]]:
    """Format the declarations for pools of network devices, each with its title."""
    if network.pools:
        yield "Pools of network devices", [f"{name}: {selection}" for name, selection in network.pools.items()]
    if network.configuration:
        yield (
            "A configuration that claims these devices by what their drivers publish",
            network.configuration.splitlines(),
        )
    if network.driver_objects:
        yield (
            "Or objects that make the SR-IOV driver publish the names, for Multus",
            network.driver_objects.splitlines(),
        )
        yield "with this configuration", network.driver_configuration.splitlines()
