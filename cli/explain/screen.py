"""Stories for a screen: one subject a line, what matters first, and never more lines than a person reads. Pure.

What is left out is counted; `-o json` has all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocator.answer import Answer, Verdict
from allocator.decisions import Outlook
from allocator.reasons import lines
from cli.explain.stories import (
    ClaimStory,
    DeviceStory,
    GateWords,
    Keeper,
    Loner,
    MeantBy,
    NodesAlike,
    PodStory,
    Prospect,
    Standing,
    Trust,
)
from dra.server import Server, read_minor
from webhook.dialects import Action

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cli.explain.stories import Blocker, Neighbour, QuotaUse, ServerMeant
    from cli.survey import Unread
    from webhook.translate import Decision

_GROUPS = 3  # kinds of nodes
_NODES = 3  # names of each
_DEVICES = 8
_HOLDERS = 8
_ROWS = 12
_WORDS = 20
_WIDE = 12


def screen_of_pod(told: PodStory) -> Iterator[str]:
    """Write the story of a pod."""
    made = f", made by {' of '.join(told.owners)}" if told.owners else ""
    where = f" on {told.node}" if told.node else ""
    yield f"pod {told.name}: {told.phase or 'in no cluster yet'}{where}, scheduler {told.scheduler}{made}"
    yield from _standing(told.standing)
    yield from _gate(told.gate)
    for claim in told.claims[:_ROWS]:
        yield from _claim(claim)
    yield from _rest(told.claims, _ROWS, "claim")
    for condition in told.conditions[:_ROWS]:
        yield _row("says", condition)
    yield from _prospect(told.prospect, told.standing)
    yield from _quota(told.quota)


def screen_of_claim(told: Loner) -> Iterator[str]:
    """Write the story of a claim."""
    pods = f", of pods {_few(told.pods, _NODES)}" if told.pods else ""
    yield f"claim {told.claim.name}: {told.claim.state}{pods}"
    yield from _standing(told.standing)
    yield from _claim_body(told.claim)
    yield from _prospect(told.prospect, told.standing)
    yield from _quota(told.quota)


def screen_of_device(told: DeviceStory) -> Iterator[str]:
    """Write the story of a device."""
    where = f" on {told.node}" if told.node else ""
    origin = f", ResourceSlice {told.slice}" if told.slice else ", which its driver does not publish any more"
    yield f"device {told.name}: {told.state}{where}{origin}"
    if told.attributes:
        words = [f"{name}={value}" for name, value in told.attributes.items()]
        yield _row("is", _few(words, _DEVICES))
    for name, amount in list(told.capacity.items())[:_ROWS]:
        left = told.available.get(name, "")
        yield _row("capacity", f"{name}: {left or 'unknown'} of {amount} left")
    for taint in told.taints[:_ROWS]:
        since = f" since {taint.since}" if taint.since else ""
        yield _row("tainted", f"{taint.taint} by {taint.source}{since}")
    for holder in told.holders[:_HOLDERS]:
        share = f"{_amounts(holder.share)} of it" if holder.share_id else "all of it"
        what = "looks at it with adminAccess" if holder.admin_access else f"holds {share}"
        yield _row("held by", f"claim {holder.claim} {what}{_for(holder.pods)}{_since(holder.since)}")
    yield from _rest(told.holders, _HOLDERS, "holder")
    for rule in told.rules[:_ROWS]:
        yield _row("rule", f"DeviceCompatibility/{rule}")
    yield from _neighbours(told.neighbours)
    for remark in told.remarks[:_ROWS]:
        yield _row("wrong", remark)


def screen_of_unread(unread: Sequence[Unread]) -> Iterator[str]:
    """Name what could not be read."""
    for one in unread[:_ROWS]:
        yield _row("not read", f"{one.kind}: {one.reason}")
    yield from _rest(unread, _ROWS, "thing")


def screen_of_server(told: ServerMeant) -> Iterator[str]:
    """Say which server the answer is for, unless nobody said anything of one."""
    version = f"Kubernetes {told.kubernetes}"
    match told.said_by:
        case MeantBy.OPTIONS:
            gates = frozenset([gate for gate, on in told.features.items() if on])
            server = Server(read_minor(told.kubernetes), gates)
            yield _row("server", f"{server}, as the options say")
        case MeantBy.CONFIGURATION:
            off = [gate for gate, on in told.features.items() if not on]
            without = f" without {_few(off, _DEVICES)}" if off else ""
            yield _row(
                "server", f"{version}{without}, as the configuration says; gates that it does not name count as on"
            )
        case MeantBy.CLUSTER:
            yield _row("server", f"{version}, as the cluster says; its gates were not asked for, and count as on")
        case MeantBy.NOBODY:
            return


def _row(head: str, text: str) -> str:
    return f"  {head:<{_WIDE}}{text}"


def _standing(one: Standing) -> Iterator[str]:
    keeper = f"at the {one.keeper}: " if one.keeper is not Keeper.NOBODY else ""
    if one.keeper is Keeper.USER:
        keeper = f"with {one.keeper}: "
    yield _row("stands", f"{keeper}{one.message}")


# ---- the gate


def _gate(told: GateWords) -> Iterator[str]:
    asked = [_asked(container, words) for container, words in told.removed.items()]
    for one in asked[:_ROWS]:
        yield _row("asked", one)
    if told.trust is not Trust.NONE:
        yield _row("record", _TRUST[told.trust])
    yield from _decisions(told)
    for refusal in told.refusals[:_ROWS]:
        yield _row("refused", refusal)


def _decisions(told: GateWords) -> Iterator[str]:
    """Tell the decisions; a refusal is told once, as one."""
    shown = [one for one in told.decisions if one.action is not Action.REFUSED or not told.refusals]
    for decision in shown[:_WORDS]:
        decided = _decision(decision, foretold=told.foretold)
        yield _row("gate", decided)
    yield from _rest(shown, _WORDS, "decision")


def _asked(container: str, words: Mapping[str, object]) -> str:
    amounts = [f"{key}: {value}" for key, value in words.items()]
    return f"container {container}: {_few(amounts, _DEVICES)}"


def _decision(one: Decision, *, foretold: bool) -> str:
    where = f"{one.container}: " if one.container else ""
    key = f"{one.key} " if one.key else ""
    by = f"({one.dialect}) " if one.dialect else ""
    would = "would be " if foretold else ""
    detail = f": {one.detail}" if one.detail else ""
    why = "because" if foretold else "as it stands now,"
    basis = f"; {why} {one.basis}" if one.basis else ""
    return f"{where}{key}{by}{would}{one.action}{detail}{basis}"


_TRUST = {
    Trust.VERIFIED: "drawbridge.dev/original is sealed by this installation",
    Trust.FORGED: "drawbridge.dev/original does not verify: somebody else wrote it, or changed the pod; believe nothing of it",
    Trust.UNCHECKED: "drawbridge.dev/original cannot be verified here: the seal's key was not given",
}


# ---- claims


def _claim(claim: ClaimStory) -> Iterator[str]:
    template = f", from template {claim.template}" if claim.template else ""
    entry = f"{claim.entry}" if claim.entry else claim.name
    name = f" = {claim.name}" if claim.name and claim.entry else ""
    yield _row("claim", f"{entry}{name}: {claim.state}{template}")
    yield from _claim_body(claim)


def _claim_body(claim: ClaimStory) -> Iterator[str]:
    for asks in claim.asks[:_DEVICES]:
        yield _row("  asks", asks)
    for device in claim.devices[:_DEVICES]:
        share = f", {_amounts(device.share)}" if device.share else ""
        gone = "" if device.published else ", not published any more"
        taints = f", tainted {', '.join(device.taints)}" if device.taints else ""
        yield _row("  has", f"{device.device} for {device.request}{share}{taints}{gone}{_since(claim.since)}")
        for condition in device.conditions[:_DEVICES]:
            yield _row("    says", condition)
    yield from _rest(claim.devices, _DEVICES, "device")
    for one in claim.reserved_for[:_HOLDERS]:
        what = f"{one.phase}{f' on {one.node}' if one.node else ''}" if one.phase else "not found"
        yield _row("  for", f"pod {one.name} ({what})")
    yield from _rest(claim.reserved_for, _HOLDERS, "pod")
    for remark in claim.remarks[:_ROWS]:
        yield _row("  wrong", remark)


# ---- what is in the way


def _prospect(prospect: Prospect | None, standing: Standing) -> Iterator[str]:
    if prospect is None:
        return
    if prospect.message and prospect.message not in standing.message:
        yield _row("outlook", f"{prospect.outlook}: {prospect.message}")
    elif prospect.outlook in _SAID:
        yield _row("outlook", _SAID[prospect.outlook])
    for group in prospect.groups[:_GROUPS]:
        yield from _group(group)
    yield from _rest(prospect.groups, _GROUPS, "kind", " of nodes")
    for one in prospect.beside[:_GROUPS]:
        yield _row("besides", f"{one.count} nodes with devices: {one.message}")
    yield from _blockers(prospect.blockers)
    if prospect.nearest:
        yield _row("would fit", prospect.nearest)


_SAID = {
    Outlook.FITS: "fits now",
    Outlook.FULL: "fits once others have ended",
    Outlook.NEVER: "fits nowhere, whoever ends",
    Outlook.UNDECIDED: "not found out in time",
}


_VERDICTS = {
    Verdict.FEASIBLE: "could serve it",
    Verdict.INFEASIBLE: "cannot serve it",
    Verdict.UNDECIDED: "not decided in time",
    Verdict.ERROR: "with an error",
}
_ALONE = {True: "; its end alone would do", False: "; its end alone would not do", None: ""}


def _group(group: NodesAlike) -> Iterator[str]:
    are = "node" if group.count == 1 else "nodes"
    yield _row("nodes", f"{group.count} {are} {_VERDICTS[group.verdict]}: {_few(group.nodes, _NODES)}")
    if group.devices:
        yield _row("  gives", _few(group.devices, _DEVICES))
        return
    answer = Answer(group.verdict, reasons=group.stages, error=group.error or None)
    for line in list(lines(answer))[:_WORDS]:
        yield f"{' ' * (_WIDE + 2)}{line}"


def _blockers(blockers: Sequence[Blocker]) -> Iterator[str]:
    for one in blockers[:_HOLDERS]:
        devices = _few(one.devices, _NODES)
        held = f"{one.node}: claim {one.claim} holds {devices}{_for(one.pods)}{_since(one.since)}"
        yield _row("in the way", f"{held}{_ALONE[one.alone]}")
    yield from _rest(blockers, _HOLDERS, "claim", " in the way")


def _quota(uses: Iterable[QuotaUse]) -> Iterator[str]:
    for one in list(uses)[:_ROWS]:
        more = f", {one.asked} more asked for" if one.asked != "0" else ""
        over = f": too much, the most that would pass is {one.largest}" if one.exceeded else ""
        yield _row("quota", f"{one.line}: {one.used} of {one.hard} used{more}{over}")


# ---- beside a device


def _neighbours(neighbours: Sequence[Neighbour]) -> Iterator[str]:
    for one in neighbours[:_ROWS]:
        names = _run(one.devices)
        if one.together:
            yield _row("goes with", f"{names}, of which {one.free} could be had now")
        else:
            yield _row("never with", f"{names}: {one.stage}: {one.text}")
    yield from _rest(neighbours, _ROWS, "kind", " of devices")


def _run(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} .. {names[-1]} ({len(names)})"


# ---- words


def _for(pods: Sequence[str]) -> str:
    return f" for {_few(pods, _NODES)}" if pods else ", reserved for nobody"


def _since(stamp: str) -> str:
    return f" since {stamp}" if stamp else ""


def _amounts(amounts: Mapping[str, str]) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in amounts.items()) or "a share"


def _few(names: Sequence[str], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _rest(values: Sequence[object], most: int, what: str, of: str = "") -> Iterator[str]:
    left = len(values) - most
    if left > 0:
        plural = what if left == 1 else f"{what}s"
        yield _row("", f"and {left} more {plural}{of}, in -o json")
