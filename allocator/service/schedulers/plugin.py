"""The HTTP calls of the scheduler plugin (`bridge/plugin`, paths `/plugin/v1/...`): JSON in, one call of the `Allocator`, JSON out.

For a pod the plugin calls prefilter, reserve and commit, or unreserve to give up. The answer of prefilter lists as few nodes as possible;
see `allocator.decisions.compact_answer`.

A prefilter with `suppose` is a step of preemption for a PodGroup. The answer is as if pods of lower priority held no devices; with `below`,
only pods with a priority below this number. In the answer, a node scores 100 if no further pod has to be evicted there. A reserve with the
token of this answer changes only the simulation that `suppose` names, not the ledger.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from allocator.decisions import CompactAnswers
from allocator.service.app import Endpoint, HttpError, json, query, read_as
from allocator.service.preemption.evictions import SUPPOSED
from allocator.service.schedulers.plugin_messages import (
    FilterQuestion,
    NodeQuestion,
    PodQuestion,
    PreemptionQuestion,
    ReservationQuestion,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from allocator.service.allocator import Allocator
    from allocator.service.knowledge import Knowledge, Lead
    from allocator.service.preemption.evictions import Evictions
    from allocator.service.requeue_events import RequeueEvents
    from dra.objects import Pod
    from serving.http import Reply

COMMIT_SECONDS = 8.0  # the plugin waits 10 s for the answer to a commit
POLL_SECONDS = 25.0
_NUMBER = re.compile(r"[0-9]{1,18}")


class Plugin:
    """Answers the calls of the plugin."""

    def __init__(
        self,
        *,
        allocator: Allocator,
        evictions: Evictions,
        requeue_events: RequeueEvents,
        knowledge: Knowledge,
        lead: Lead,
        identity: str,
        expires: float,
    ) -> None:
        """A reservation that is not committed expires after `expires` seconds."""
        self._allocator = allocator
        self._evictions = evictions
        self._requeue_events = requeue_events
        self._knowledge = knowledge
        self._lead = lead
        self._identity = identity
        self._expires = expires
        self._answers = CompactAnswers()

    def state(self) -> Reply:
        answer = {
            "leading": self._lead.leads,
            "ready": not self._knowledge.what_is_unread(),  # a standby replica is ready, and does not lead
            "identity": self._identity,
            "message": self._lead.unready(),
        }
        return json(answer)

    async def prefilter(self, question: PodQuestion) -> Reply:
        pod = question.pod
        if question.suppose:
            token, fleet_outlook = await self._evictions.suppose(pod, question.suppose, question.below)
        else:
            token, fleet_outlook = await self._allocator.outlook(pod, question.served, question.claim_versions)
        return json(self._answers.answer(token, fleet_outlook, question.nodes, self._knowledge.stock.nodes))

    def _issuer(self, token: str) -> Allocator | Evictions:
        """Return the object that issued a token. Both kinds have `why_not_fits`, `reserve` and `release`."""
        return self._evictions if token.startswith(SUPPOSED) else self._allocator

    async def filter(self, question: FilterQuestion) -> Reply:
        issuer = self._issuer(question.token)
        problem = await issuer.why_not_fits(question.token, question.node, question.add, question.remove)
        return json({"fits": not problem, "message": problem})

    async def reserve(self, question: NodeQuestion) -> Reply:
        await self._issuer(question.token).reserve(question.token, question.node)
        return json(
            {
                "reservation": question.token,
                "expiresSeconds": round(self._expires),
                "unready": self._allocator.is_unready(question.token),
            }
        )

    def unreserve(self, question: ReservationQuestion) -> Reply:
        # The id of a reservation is the token of its prefilter. If a reserve call got no answer, the plugin knows only the token.
        token = question.reservation or question.token
        self._issuer(token).release(token)
        return json({})

    async def postfilter(self, question: PreemptionQuestion) -> Reply:
        pod = question.pod
        if pod is not None:
            if deallocation_reason := self._allocator.take_back_elsewhere(pod, question.nodes):
                return json({"nominatedNode": "", "victims": [], "message": deallocation_reason})
            preemption = await self._evictions.make_room([(pod, node) for node in question.nodes])
        else:
            preemption = await self._evictions.make_room(
                [(member.pod, member.node) for member in question.group], together=True
            )
        answer: dict[str, Any] = {
            "victims": [_named(victim) for victim in preemption.victims],
            "message": preemption.message,
        }
        if pod is not None:
            answer["nominatedNode"] = preemption.places[0][1] if preemption.places else ""
        else:
            answer["nominations"] = [_named(nominated) | {"node": node} for nominated, node in preemption.places]
        return json(answer)

    async def commit(self, question: ReservationQuestion) -> Reply:
        progress = await self._allocator.commit(question.reservation, COMMIT_SECONDS)
        status = HTTPStatus.OK if progress.committed else HTTPStatus.ACCEPTED
        answer: dict[str, Any] = {"committed": progress.committed, "message": progress.message}
        if progress.resource_version:
            answer["resourceVersion"] = progress.resource_version
        if progress.resources:
            answer["resources"] = progress.resources
        return json(answer, status)

    async def wake(self, query: Mapping[str, str]) -> Reply:
        after = query.get("after", "0")
        if not _NUMBER.fullmatch(after):
            problem = f"after={after[:40]!r} is not a number of up to 18 digits"
            raise HttpError(HTTPStatus.BAD_REQUEST, problem, "begin with after=0")
        return json(await self._requeue_events.after(int(after), POLL_SECONDS))


def _named(pod: Pod) -> dict[str, str]:
    meta = pod.metadata
    return {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid}


PLUGIN_ENDPOINTS = (
    Endpoint("GET", "/plugin/v1/state", Plugin.state, "leading, ready, identity, message"),
    Endpoint(
        "POST",
        "/plugin/v1/prefilter",
        Plugin.prefilter,
        "takes pod, nodes, served (the pod's extended resources that a DeviceClass serves), claimVersions (the resourceVersions of its claims); returns verdict, token, nodes with scores, message, reasons, and in `rest` the answer for all unnamed nodes. "
        "With `suppose`, as if lower-priority pods (with `below`, pods below that priority) were gone; reservations are simulated",
        read_as(PodQuestion),
    ),
    Endpoint(
        "POST",
        "/plugin/v1/filter",
        Plugin.filter,
        "takes token, node, add (nominated pods), remove (victims); returns fits, message",
        read_as(FilterQuestion),
    ),
    Endpoint(
        "POST",
        "/plugin/v1/reserve",
        Plugin.reserve,
        "takes token, node; returns reservation, expiresSeconds, unready (the devices have to be prepared before the binding). "
        "409 if the devices are taken, or with `exceeded` if a quota is exceeded. Idempotent",
        read_as(NodeQuestion),
    ),
    Endpoint(
        "POST",
        "/plugin/v1/unreserve",
        Plugin.unreserve,
        "takes reservation, or token and node; an unknown reservation is no error",
        read_as(ReservationQuestion),
    ),
    Endpoint(
        "POST",
        "/plugin/v1/commit",
        Plugin.commit,
        "takes reservation; returns committed and the extended resources that the claims request (resources), or 202 and what the commit "
        "waits for (call again). With `resourceVersion`, bind only this version of the pod. 409 if another claim got the devices, or the pod's status names another claim",
        read_as(ReservationQuestion),
    ),
    Endpoint(
        "POST",
        "/plugin/v1/postfilter",
        Plugin.postfilter,
        "takes pod, nodes; returns nominatedNode, victims, message. For a pod group it takes group, a list of pod and node, and "
        "returns nominations, victims, message",
        read_as(PreemptionQuestion),
    ),
    Endpoint(
        "GET",
        "/plugin/v1/wake",
        Plugin.wake,
        f"long poll with `?after=SEQ`, up to {POLL_SECONDS:.0f} s; returns seq and the pods to requeue (pods, or all)",
        query,
    ),
)
