"""Builds the story of a single claim: the pods that use it or wait for it, and whether devices for it are available."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from analysis.explain.claim_story import claim_story
from analysis.explain.stories import ClaimState, LoneClaimStory
from analysis.explain.why import scheduler_actor
from analysis.prospects import prospect_of, quota_of
from dra.objects import ObjectMeta, Pod, PodResourceClaim, PodSpec, claim_keys
from dra.reason import Actor, Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.explain.stories import ClaimStory
    from analysis.loading import Reading
    from analysis.prospects import Prospect
    from webhook.state import Configuration


def lone_claim_story(key: str, reading: Reading) -> LoneClaimStory:
    """Return the story of one claim, by namespace/name."""
    claim = reading.stock.claims[key]
    story = claim_story(claim, reading)
    namespace = claim.metadata.namespace or "default"
    name = claim.metadata.name
    users = [pod for pod in reading.pods.values() if not pod.has_ended and key in claim_keys(pod)]
    # Without users, evaluate the claim for a pod that requests only this claim.
    entry = PodResourceClaim(name="claim", resource_claim_name=name)
    stand_in = Pod(metadata=ObjectMeta(name="stand-in", namespace=namespace), spec=PodSpec(resource_claims=(entry,)))
    judged_pod = users[0] if users else stand_in
    prospect = prospect_of(judged_pod, reading) if story.state is ClaimState.PENDING else None
    return LoneClaimStory(
        claim=story,
        reason=_reason(story, users, prospect, reading.configuration),
        pods=tuple(pod.metadata.key for pod in users),
        prospect=prospect,
        quota=quota_of(judged_pod, prospect, reading),
    )


def _reason(story: ClaimStory, users: Sequence[Pod], prospect: Prospect | None, configuration: Configuration) -> Reason:
    if story.state is ClaimState.DELETING:
        consumers = ", ".join(consumer.name for consumer in story.reserved_for)
        goes = f"pods {consumers} have ended" if consumers else "its finalizers are removed"
        return Reason(actor=Actor.CLAIMS, text=f"it is being deleted, and is gone once {goes}")
    if prospect is not None:
        name = users[0].spec.scheduler_name or "default-scheduler" if users else ""
        actor = scheduler_actor(name, configuration) if users else Actor.USER
        reason = (
            prospect.way_out.reason(actor) if prospect.way_out is not None else replace(prospect.reason, actor=actor)
        )
        if not users:
            text = reason.text or "devices for it are free"
            return replace(reason, text=f"no pod uses it, so no scheduler allocates it; {text}")
        free = f"devices for it are free, and {name} has not placed pod {users[0].metadata.key} yet"
        return replace(reason, text=reason.text or free)
    if story.reserved_for:
        living = ", ".join(consumer.name for consumer in story.reserved_for if consumer.phase)
        used = f"used by {living}" if living else "its pods were not found"
        return Reason(actor=Actor.NONE, text=f"it is {story.state}, and {used}")
    if users:
        message = f"it is allocated, and pod {users[0].metadata.key} is not bound yet"
        return Reason(actor=Actor.SCHEDULER, text=message)
    return Reason(actor=Actor.USER, text="it is allocated, and no pod uses it")
