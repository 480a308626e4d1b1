"""Somebody at the door: a pod or a claim that is being created, and the claims that would be made for it."""

from __future__ import annotations

import msgspec

from dra.objects import ResourceClaimSpec


class Wanted(msgspec.Struct, frozen=True):
    """A claim that will be made: of a template that is stored under a name, or else, if it is known already, of this spec."""

    template: str = ""
    spec: ResourceClaimSpec | None = None


class Newcomer(msgspec.Struct, frozen=True):
    """Who is at the door. A claim is wanted under no entry; what a pod names and exists counts by itself."""

    uid: str
    namespace: str
    name: str = ""
    priority_class: str = ""
    wants: dict[str, Wanted] = {}  # by the pod's entry
    dry_run: bool = False
