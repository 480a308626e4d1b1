"""The story of a claim by itself: who uses it, who waits for it, and whether it can be had. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.explain.claims import tell_claim
from cli.explain.pods import scheduler_keeper
from cli.explain.prospects import prospect_of, quota_of
from cli.explain.stories import ClaimState, Keeper, Loner, Prospect, Standing
from dra.objects import ObjectMeta, Pod, PodResourceClaim, PodSpec, claim_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.explain.scene import Scene
    from cli.explain.stories import ClaimStory
    from dra.objects import ResourceClaim
    from webhook.state import Configuration


def tell_loner(key: str, scene: Scene, configuration: Configuration) -> Loner:
    """Tell of one claim, by namespace/name."""
    claim = scene.stock.claims[key]
    told = tell_claim(claim, scene)
    users = _users(claim, scene)
    asking = users[0] if users else _stand_in(claim)
    waits = told.state is ClaimState.PENDING
    prospect = prospect_of(asking, scene) if waits else None
    return Loner(
        claim=told,
        standing=_standing(told, users, prospect, configuration),
        pods=tuple(pod.metadata.key for pod in users),
        prospect=prospect,
        quota=quota_of(asking, prospect, scene),
    )


def _users(claim: ResourceClaim, scene: Scene) -> list[Pod]:
    """The pods that name a claim and are not finished."""
    namespace = claim.metadata.namespace or "default"
    name = claim.metadata.name
    users: list[Pod] = []
    for pod in scene.pods.values():
        here = (pod.metadata.namespace or "default") == namespace
        if here and not pod.has_ended and name in claim_names(pod):
            users.append(pod)
    return users


def _stand_in(claim: ResourceClaim) -> Pod:
    """A pod that would want nothing but this claim."""
    namespace = claim.metadata.namespace or "default"
    entry = PodResourceClaim(name="claim", resource_claim_name=claim.metadata.name)
    metadata = ObjectMeta(name="nobody", namespace=namespace)
    return Pod(metadata=metadata, spec=PodSpec(resource_claims=(entry,)))


def _standing(
    told: ClaimStory, users: Sequence[Pod], prospect: Prospect | None, configuration: Configuration
) -> Standing:
    if told.state is ClaimState.DELETING:
        return Standing(keeper=Keeper.CLAIMS, message=_deleting(told))
    if prospect is None:
        return _of_allocated(told, users)
    if not users:
        said = prospect.message or "devices for it are free"
        return Standing(keeper=Keeper.USER, message=f"no pod asks for it, so no scheduler looks at it; {said}")
    name = users[0].spec.scheduler_name or "default-scheduler"
    said = prospect.message or f"devices for it are free, and {name} has not placed pod {users[0].metadata.key} yet"
    return Standing(keeper=scheduler_keeper(name, configuration), message=said)


def _deleting(told: ClaimStory) -> str:
    living = [one.name for one in told.reserved_for]
    if living:
        return f"it is being deleted, and goes once pods {', '.join(living)} have ended"
    return "it is being deleted, and goes once its finalizers are taken off"


def _of_allocated(told: ClaimStory, users: Sequence[Pod]) -> Standing:
    if told.reserved_for:
        living = [one.name for one in told.reserved_for if one.phase]
        used = f"used by {', '.join(living)}" if living else "those pods were not found"
        return Standing(keeper=Keeper.NOBODY, message=f"it is {told.state}, and {used}")
    if users:
        return Standing(
            keeper=Keeper.SCHEDULER, message=f"it is allocated, and pod {users[0].metadata.key} is not bound yet"
        )
    return Standing(keeper=Keeper.USER, message="it is allocated, and nobody uses it")
