"""The plugin's protocol (`/plugin/v1/...`): what it asks and is answered, as JSON, and nothing more.

`nodes` of a prefilter says in two numbers which nodes the scheduler knows (`allocator.decisions.KnownNodes`). If we know the same, the answer leaves
the largest kind of them unnamed, and `rest` says what holds for it: fit and score, or message. A scheduler that does not say, or knows others, gets every
name and no `rest`. So a plugin and an allocator of different versions understand each other.

A prefilter with `suppose`, any name, is about a group for which room may be made: less important pods are gone, with `below` those below that
priority, and what is reserved with such an answer's token counts as held, for the next question with the same name. Nodes where no
further pod has to go score 100.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from allocator.decisions import KnownNodes, known_nodes, other_nodes
from allocator.service.app import Endpoint, HttpError, json, query, read_as
from allocator.service.preemption.supposition import SUPPOSED
from dra.objects import Pod
from dra.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from allocator.decisions import OtherNodes, Outlooks
    from allocator.service.allocator import Allocator
    from allocator.service.knowledge import Knowledge, Lead
    from allocator.service.preemption.evictions import Evictions
    from allocator.service.preemption.supposition import Supposition
    from allocator.service.requeue_events import RequeueEvents
    from dra.objects import Node
    from runtime.http import Reply

COMMIT_SECONDS = 8.0  # the plugin waits 10 s for the answer to a commit
POLL_SECONDS = 25.0
LONGEST_REASONS = 16
_NUMBER = re.compile(r"[0-9]{1,18}")


class PodQuestion(Wire, frozen=True, kw_only=True):
    pod: Pod
    nodes: KnownNodes | None = None  # those that the scheduler knows
    suppose: str = ""
    below: int = 1 << 31  # more than a priority can be


class FilterQuestion(Wire, frozen=True, kw_only=True):
    token: str
    node: str
    add: tuple[Pod, ...] = ()
    remove: tuple[Pod, ...] = ()


class NodeQuestion(Wire, frozen=True, kw_only=True):
    token: str
    node: str


class ReservationQuestion(Wire, frozen=True, kw_only=True):
    reservation: str = ""
    token: str = ""
    node: str = ""


class GroupMember(Wire, frozen=True, kw_only=True):
    pod: Pod
    node: str


class PreemptionQuestion(Wire, frozen=True, kw_only=True):
    pod: Pod | None = None
    nodes: tuple[str, ...] = ()
    group: tuple[GroupMember, ...] = ()


class Plugin:
    """Answers the plugin."""

    def __init__(
        self,
        *,
        allocator: Allocator,
        evictions: Evictions,
        supposition: Supposition,
        requeue_events: RequeueEvents,
        knowledge: Knowledge,
        lead: Lead,
        identity: str,
        expires: float,
        poll: float = POLL_SECONDS,
    ) -> None:
        """`expires` is how long a reservation lasts that is not committed."""
        self._allocator = allocator
        self._evictions = evictions
        self._supposition = supposition
        self._requeue_events = requeue_events
        self._knowledge = knowledge
        self._lead = lead
        self._identity = identity
        self._expires = expires
        self._poll = poll
        self._counted: Mapping[str, Node] = {}
        self._census = known_nodes(())

    def state(self) -> Reply:
        answer = {
            "leading": self._lead.leads,
            "ready": not self._knowledge.what_is_unread(),  # a standby is ready, and does not lead
            "identity": self._identity,
            "message": self._lead.unready(),
        }
        return json(answer)

    async def prefilter(self, question: PodQuestion) -> Reply:
        pod = question.pod
        if question.suppose:
            token, found = await self._supposition.outlook(pod, question.suppose, question.below)
        else:
            token, found = await self._allocator.outlook(pod)
        nodes = self._knowledge.stock.nodes
        if nodes is not self._counted:  # one of them has changed: they are another mapping then
            self._counted = nodes
            self._census = known_nodes(nodes)
        same = question.nodes == self._census
        return json(_outlook(token, found, other_nodes(found, nodes) if same else None))

    async def filter(self, question: FilterQuestion) -> Reply:
        judge = self._supposition if question.token.startswith(SUPPOSED) else self._allocator
        problem = await judge.fits(question.token, question.node, question.add, question.remove)
        return json({"fits": not problem, "message": problem})

    async def reserve(self, question: NodeQuestion) -> Reply:
        if question.token.startswith(SUPPOSED):
            await self._supposition.place(question.token, question.node)
        else:
            await self._allocator.reserve(question.token, question.node)
        return json(
            {
                "reservation": question.token,
                "expiresSeconds": round(self._expires),
                "unready": self._allocator.is_unready(question.token),
            }
        )

    def unreserve(self, question: ReservationQuestion) -> Reply:
        # A reservation uses the token of the question it came from.
        token = question.reservation or question.token
        if token.startswith(SUPPOSED):
            self._supposition.take_back(token)
        else:
            self._allocator.release(token)
        return json({})

    async def postfilter(self, question: PreemptionQuestion) -> Reply:
        pod = question.pod
        if pod is not None:
            if taken_back := self._allocator.take_back_elsewhere(pod, question.nodes):
                return json({"nominatedNode": "", "victims": [], "message": taken_back})
            found = await self._evictions.make_room(pod, question.nodes)
        else:
            found = await self._evictions.make_room_together([(one.pod, one.node) for one in question.group])
        answer: dict[str, Any] = {"victims": [_named(victim) for victim in found.victims], "message": found.message}
        if pod is not None:
            answer["nominatedNode"] = found.places[0][1] if found.places else ""
        else:
            answer["nominations"] = [_named(one) | {"node": node} for one, node in found.places]
        return json(answer)

    async def commit(self, question: ReservationQuestion) -> Reply:
        progress = await self._allocator.commit(question.reservation, COMMIT_SECONDS)
        status = HTTPStatus.OK if progress.committed else HTTPStatus.ACCEPTED
        return json(progress, status)

    async def wake(self, query: Mapping[str, str]) -> Reply:
        after = query.get("after", "0")
        if not _NUMBER.fullmatch(after):
            problem = f"after={after[:40]!r} is not a number of up to 18 digits"
            raise HttpError(HTTPStatus.BAD_REQUEST, problem, "begin with after=0")
        news = await self._requeue_events.after(int(after), self._poll)
        return json(news)


def _named(pod: Pod) -> dict[str, str]:
    meta = pod.metadata
    return {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid}


def _outlook(token: str, found: Outlooks, rest: OtherNodes | None) -> dict[str, Any]:
    """Put into words what was found; the nodes of `rest` need no names."""
    hindrances = found.hindrances
    if rest is None or not rest.fit:
        hindrances = hindrances[:LONGEST_REASONS]
    liked = rest.score if rest is not None and rest.fit else None
    common_message = rest.message if rest is not None and not rest.fit else None
    nodes = [{"name": name, "score": score} for name, score in found.nodes.items() if score != liked]
    reasons: list[dict[str, Any]] = []
    for one in hindrances:
        named = () if one.message == common_message else one.nodes
        reasons.append({"message": one.message, "nodes": named, "count": one.count})
    answer: dict[str, Any] = {
        "verdict": str(found.outlook),
        "token": token,
        "nodes": nodes,
        "message": found.message,
        "reasons": reasons,
    }
    if rest is not None:
        answer["rest"] = rest
    return answer


PLUGIN_ENDPOINTS = (
    Endpoint("GET", "/plugin/v1/state", Plugin.state, "leading, ready, identity, message"),
    Endpoint(
        "POST",
        "/plugin/v1/prefilter",
        Plugin.prefilter,
        "pod, nodes; verdict, token, nodes with scores, message, reasons, rest: the answer for the nodes that it does not name. "
        "With `suppose`: as if less important pods were gone, with `below` those below that priority, and held in thought alone",
        read_as(PodQuestion),
    ),
    Endpoint(
        "POST",
        "/plugin/v1/filter",
        Plugin.filter,
        "token, node, add, remove; fits, message: with nominated pods, without victims",
        read_as(FilterQuestion),
    ),
    Endpoint(
        "POST",
        "/plugin/v1/reserve",
        Plugin.reserve,
        "token, node; reservation, expiresSeconds, unready: whether devices have to be made ready before the binding; 409 if the devices were taken, or with `exceeded` if a quota is. Idempotent",
        read_as(NodeQuestion),
    ),
    Endpoint(
        "POST",
        "/plugin/v1/unreserve",
        Plugin.unreserve,
        "reservation, or token and node; an unknown one is fine",
        read_as(ReservationQuestion),
    ),
    Endpoint(
        "POST",
        "/plugin/v1/commit",
        Plugin.commit,
        "reservation; committed, or 202 and what it waits for: ask again; 409 if another claim got the devices first",
        read_as(ReservationQuestion),
    ),
    Endpoint(
        "POST",
        "/plugin/v1/postfilter",
        Plugin.postfilter,
        "pod, nodes; nominatedNode, victims, message. For a group: group, of which each has a pod and its node; nominations, "
        "victims, message",
        read_as(PreemptionQuestion),
    ),
    Endpoint(
        "GET",
        "/plugin/v1/wake",
        Plugin.wake,
        f"with `?after=SEQ`, a poll of up to {POLL_SECONDS:.0f} s: seq, pods, all: pods worth another try",
        query,
    ),
)
