"""Formats stories for a terminal: one fact per line, important facts first.

Long lists end with the number of entries that are left out. `-o json` has all entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocator.answer import NodeAnswer, SearchVerdict
from allocator.decisions import Outlook
from allocator.reasons import lines
from analysis.explain.stories import LoneClaimStory, PodStory, Trust, WorkloadStory
from analysis.loading import ServerSource
from analysis.report import Report, Screen
from dra.reason import Actor
from dra.server import Server, read_minor
from dra.texts import count_of, list_first
from webhook.dialects import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from analysis.explain.stories import ClaimStory, DeviceStory, PodState, Story, WebhookStory
    from analysis.loading import AssumedServer
    from analysis.prospects import Prospect, QuotaUse
    from dra.reason import Reason

_GROUPS = 3  # kinds of nodes
_NAMES = 3  # names in a short list
_DEVICES = 8
_HOLDERS = 8
_ROWS = 12
_LINES = 20
_WIDE = 12
_AT = {Actor.NONE: "", Actor.WEBHOOK: "at the webhook: ", Actor.USER: "at its author: "}
_TRUST = {
    Trust.VERIFIED: "drawbridge.dev/original is signed by this installation",
    Trust.FORGED: "drawbridge.dev/original does not verify: the annotation or the pod was changed after signing; do not trust the annotation",
    Trust.UNCHECKED: "drawbridge.dev/original cannot be verified here: the signing key was not given",
}
_VERDICTS = {
    SearchVerdict.FEASIBLE: "could serve it",
    SearchVerdict.INFEASIBLE: "cannot serve it",
    SearchVerdict.UNDECIDED: "could not be judged in time",
    SearchVerdict.ERROR: "cannot be judged because of an error",
}


def report(story: Story, server: AssumedServer) -> Report:
    """Return the report about a pod, a workload, a claim or a device."""
    match story:
        case PodStory():
            title, lines = f"Pod {story.name}", screen_of_pod(story)
        case WorkloadStory():
            title, lines = f"{story.kind} {story.name}", screen_of_workload(story)
        case LoneClaimStory():
            title, lines = f"Claim {story.claim.name}", screen_of_claim(story)
        case _:
            title, lines = f"Device {story.name}", screen_of_device(story)
    return Report(title, (Screen([*lines, *screen_of_server(server)]),))


def screen_of_pod(story: PodStory) -> Iterator[str]:
    """Format the story of a pod."""
    creator = f", created by {' of '.join(story.owners)}" if story.owners else ""
    where = f" on {story.node}" if story.node else ""
    yield f"pod {story.name}: {story.phase or 'in no cluster yet'}{where}, scheduler {story.scheduler}{creator}"
    yield from _state(story.state)
    removed: list[str] = []
    for container, requests in story.webhook.removed_keys.items():
        amounts = list_first([f"{key}: {value}" for key, value in requests.items()], _DEVICES)
        removed.append(f"container {container}: {amounts}")
    yield from _rows("requests", removed, _ROWS, "container")
    if story.webhook.trust is not Trust.NONE:
        yield _row("record", _TRUST[story.webhook.trust])
    yield from _webhook(story.webhook)
    for claim in story.claims[:_ROWS]:
        template = f", from template {claim.template}" if claim.template else ""
        name = f"{claim.entry} = {claim.name}" if claim.name and claim.entry else claim.entry or claim.name
        yield _row("claim", f"{name}: {claim.state}{template}")
        yield from _claim(claim)
    yield from _remaining_line(story.claims, _ROWS, "claim")
    yield from _rows("condition", story.conditions, _ROWS, "condition")
    yield from _prospect(story.prospect, story.state.reasons[0])
    yield from _quota(story.quota)


def _webhook(webhook: WebhookStory) -> Iterator[str]:
    """Format the webhook's decision about each key.

    A pod in the cluster:  main: nvidia.com/gpu (nvidia) translated: 1 whole GPU; now 2 of 2 nodes publish it as a whole GPU
    A pod of a file:       main: nvidia.com/gpu (nvidia) would be translated: 1 whole GPU; because 2 of 2 nodes publish it as a whole GPU
    """
    decisions: list[str] = []
    for decision in webhook.decisions:
        if decision.outcome is Outcome.REFUSED and webhook.refusals:
            continue  # is among the refusals
        where = f"{decision.container}: " if decision.container else ""
        key = f"{decision.key} " if decision.key else ""
        dialect = f"({decision.dialect}) " if decision.dialect else ""
        would = "would be " if webhook.predicted else ""
        outcome = "left unchanged" if decision.outcome is Outcome.LEFT else decision.outcome
        detail = f": {decision.reason}" if decision.reason else ""
        why = "because" if webhook.predicted else "now"
        basis = f"; {why} {decision.basis}" if decision.basis else ""
        decisions.append(f"{where}{key}{dialect}{would}{outcome}{detail}{basis}")
    yield from _rows("webhook", decisions, _LINES, "decision")
    yield from _rows("refused", [*map(str, webhook.refusals)], _ROWS, "refusal")


def screen_of_workload(story: WorkloadStory) -> Iterator[str]:
    """Format the story of a workload: the states of its pods, and the story of one pod. `explain pod NAME` explains each other pod."""
    desired = f", {count_of(story.desired_pods, 'pod')} wanted" if story.desired_pods is not None else ""
    yield f"{story.kind.lower()} {story.name}: {story.running_pods} running{desired}"
    yield from _rows("problem", story.conditions, _ROWS, "problem")
    for group in story.pods[:_ROWS]:
        begin = f"{len(group.names)}:" if group.first.phase else "none is created yet; the first would be"
        yield _row("pods", f"{begin} {list_first(group.names, _NAMES)}")
        yield _now(group.first.state.reasons[0])
    if not story.pods:
        unknown = "none is created yet; only its controller knows which pods it creates"
        yield _row("pods", unknown if story.desired_pods is None else "none")
    yield from _remaining_line(story.pods, _ROWS, "group")
    if not story.pods:
        yield from _webhook(story.webhook)
    for group in story.pods[:1]:
        yield ""
        yield from screen_of_pod(group.first)


def screen_of_claim(story: LoneClaimStory) -> Iterator[str]:
    """Format the story of a claim."""
    pods = f", named by pods {list_first(story.pods, _NAMES)}" if story.pods else ""
    yield f"claim {story.claim.name}: {story.claim.state}{pods}"
    yield from _reason(story.reason)
    yield from _claim(story.claim)
    yield from _prospect(story.prospect, story.reason)
    yield from _quota(story.quota)


def screen_of_device(story: DeviceStory) -> Iterator[str]:
    """Format the story of a device."""
    where = f" on {story.node}" if story.node else ""
    origin = f", ResourceSlice {story.slice}" if story.slice else ", no longer published by its driver"
    yield f"device {story.name}: {story.state}{where}{origin}"
    if story.attributes:
        yield _row("is", list_first([f"{name}={value}" for name, value in story.attributes.items()], _DEVICES))
    amounts = [
        f"{name}: {story.available.get(name) or 'unknown'} of {all_} left" for name, all_ in story.capacity.items()
    ]
    yield from _rows("capacity", amounts, _ROWS, "amount")
    taints = [f"{taint.taint} by {taint.source}{_since_suffix(taint.since)}" for taint in story.taints]
    yield from _rows("tainted", taints, _ROWS, "taint")
    holders: list[str] = []
    for holder in story.holders:
        share = f"holds {_amounts(holder.share)} of it" if holder.share_id else "holds all of it"
        amount = "has adminAccess" if holder.admin_access else share
        holders.append(f"claim {holder.claim} {amount}{_reserved_suffix(holder.pods)}{_since_suffix(holder.since)}")
    yield from _rows("held by", holders, _HOLDERS, "holder")
    yield from _rows("rule", [f"DeviceCompatibility/{rule}" for rule in story.rules], _ROWS, "rule")
    for neighbour in story.neighbours[:_ROWS]:
        names = (
            neighbour.devices[0]
            if len(neighbour.devices) == 1
            else f"{neighbour.devices[0]} .. {neighbour.devices[-1]} ({len(neighbour.devices)})"
        )
        if neighbour.usable_together:
            free = f", {neighbour.free_devices} of them free now" if neighbour.free_devices is not None else ""
            yield _row("goes with", f"{names}{free}")
        else:
            yield _row("never with", f"{names}: {neighbour.stage}: {neighbour.text}")
    yield from _remaining_line(story.neighbours, _ROWS, "kind", " of devices")
    yield from _rows("wrong", story.remarks, _ROWS, "problem")


def screen_of_server(server: AssumedServer) -> Iterator[str]:
    """Format the API server's version and gates, if they were declared or read."""
    version = f"Kubernetes {server.kubernetes}"
    match server.source:
        case ServerSource.OPTIONS:
            gates = frozenset([gate for gate, on in server.features.items() if on])
            yield _row("server", f"{Server(read_minor(server.kubernetes), gates)}, as the options say")
        case ServerSource.CONFIGURATION:
            off = [gate for gate, on in server.features.items() if not on]
            without = f" without {list_first(off, _DEVICES)}" if off else ""
            yield _row(
                "server", f"{version}{without}, as the configuration says; other feature gates are assumed to be on"
            )
        case ServerSource.CLUSTER:
            yield _row("server", f"{version}, as the cluster says; feature gates are not checked, and assumed to be on")
        case ServerSource.UNDECLARED:
            return


# ---- parts of several stories


def _state(state: PodState) -> Iterator[str]:
    if state.step is not None:
        yield _row("done", f"{', '.join(state.done) or 'nothing'}; next: {state.step}")
    for reason in state.reasons[:_ROWS]:
        yield from _reason(reason)


def _now(reason: Reason) -> str:
    code = f" [{reason.code}]" if reason.code else ""
    return _row("now", f"{_AT.get(reason.actor, f'at the {reason.actor}: ')}{reason.text}{code}")


def _reason(reason: Reason) -> Iterator[str]:
    yield _now(reason)
    yield from _rows("remedy", reason.remedies, _ROWS, "remedy")


def _claim(claim: ClaimStory) -> Iterator[str]:
    yield from _rows("  requests", claim.requests, _DEVICES, "request")
    # For example: "gpu-3 for req-0 since 2026-03-01T10:00:00Z, 20Gi memory, tainted x.example/unhealthy:NoExecute, not published any more".
    for device in claim.devices[:_DEVICES]:
        kind = f", {device.sharing}" if device.sharing != "exclusive" else ""
        share = (
            f"{kind}{' of' if device.sharing == 'share' else ','} {_amounts(device.share)}" if device.share else kind
        )
        unpublished = "" if device.published else ", not published any more"
        taints = f", tainted {', '.join(device.taints)}" if device.taints else ""
        yield _row(
            "  has", f"{device.device} for {device.request}{_since_suffix(claim.since)}{share}{taints}{unpublished}"
        )
        if device.network:
            yield _row("    network", device.network)
        yield from _rows("    driver", device.conditions, _DEVICES, "condition")
    yield from _remaining_line(claim.devices, _DEVICES, "device")
    pods: list[str] = []
    for pod in claim.reserved_for:
        node = f" on {pod.node}" if pod.node else ""
        pods.append(f"pod {pod.name} ({pod.phase}{node})" if pod.phase else f"pod {pod.name} (not found)")
    yield from _rows("  for", pods, _HOLDERS, "pod")
    yield from _rows("  wrong", claim.remarks, _ROWS, "problem")


def _prospect(prospect: Prospect | None, reason: Reason) -> Iterator[str]:
    if prospect is None:
        return
    barred = {node for barrier in prospect.other_reasons for node in barrier.nodes}
    if any(group.error for group in prospect.groups):
        yield _row("outlook", "an error ends the scheduler's search")
    elif prospect.reason.text and prospect.reason.text not in reason.text:
        yield _row("outlook", f"{prospect.outlook}: {prospect.reason.text}")
    elif prospect.way_out is None and prospect.outlook in (Outlook.FITS, Outlook.UNDECIDED):
        yield _row("outlook", "its claims fit now" if prospect.outlook is Outlook.FITS else "undecided")
    for group in prospect.groups[:_GROUPS]:
        verdict = _VERDICTS[group.verdict]
        if group.devices and barred.issuperset(group.nodes):
            verdict = f"{'has' if len(group.nodes) == 1 else 'have'} free devices for it, but the pod cannot run there"
        nodes = f"{count_of(len(group.nodes), 'node')} {verdict}"
        yield _row("nodes", f"{nodes}: {list_first(group.nodes, _NAMES)}")
        if group.devices:
            yield _row("  gives", list_first(group.devices, _DEVICES))
            continue
        answer = NodeAnswer(group.verdict, reasons=group.stages, error=group.error or None)
        for line in list(lines(answer))[:_LINES]:
            yield f"{' ' * (_WIDE + 2)}{line}"
    yield from _remaining_line(prospect.groups, _GROUPS, "kind", " of nodes")
    barriers = [f"{count_of(len(barrier.nodes), 'node')}: {barrier.text}" for barrier in prospect.other_reasons]
    yield from _rows("others", barriers, _GROUPS, "reason")
    if prospect.way_out is not None:
        obstacles = [
            f"{obstacle.text}{f'; {obstacle.remedy}' if obstacle.remedy else ''}"
            for obstacle in prospect.way_out.obstacles
        ]
        yield _row("degree", prospect.way_out.degree)
        yield from _rows("obstacles", obstacles, _HOLDERS, "obstacle")


def _quota(uses: Iterable[QuotaUse]) -> Iterator[str]:
    lines: list[str] = []
    for use in uses:
        more = f", {use.requested} more requested" if use.requested != "0" else ""
        over = f": too much, at most {use.remaining} can be requested" if use.exceeded else ""
        lines.append(f"{use.line}: {use.used} of {use.hard} used{more}{over}")
    yield from _rows("quota", lines, _ROWS, "line")


# ---- words


def _row(head: str, text: str) -> str:
    return f"  {head:<{_WIDE}}{text}"


def _rows(head: str, texts: Sequence[str], limit: int, noun: str, suffix: str = "") -> Iterator[str]:
    """Format a line for each of the first strings, and the number of the others."""
    for text in texts[:limit]:
        yield _row(head, text)
    yield from _remaining_line(texts, limit, noun, suffix)


def _remaining_line(values: Sequence[object], limit: int, noun: str, suffix: str = "") -> Iterator[str]:
    remaining = len(values) - limit
    if remaining > 0:
        plural = noun if remaining == 1 else f"{noun}s"
        yield _row("", f"and {remaining} more {plural}{suffix}, in -o json")


def _reserved_suffix(pods: Sequence[str]) -> str:
    return f" for {list_first(pods, _NAMES)}" if pods else ", not reserved for a pod"


def _since_suffix(stamp: str) -> str:
    return f" since {stamp}" if stamp else ""


def _amounts(amounts: Mapping[str, str]) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in amounts.items()) or "a share"
