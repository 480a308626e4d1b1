"""What reports look at, read once in one way: from files, a snapshot or a cluster; and what could not be read, by name."""

from __future__ import annotations

from cli.loading.objects import (
    CLUSTER,
    HELD,
    KINDS,
    Gathered,
    Trimmer,
    Unread,
    Who,
    is_extended,
    owner_of,
    serves_node,
    who,
)
from cli.loading.scene import (
    MeantBy,
    Scene,
    ServerMeant,
    for_server,
    look_at,
    meant,
    read_dump,
    scene_of,
    trim,
    visit,
)
from cli.loading.visit import TELLING, Visit, evidence_in, gather, look_around
from cli.loading.webhook_state import state_of
from dra.raw import Object, inside, items, text

__all__ = [
    "CLUSTER",
    "HELD",
    "KINDS",
    "TELLING",
    "Gathered",
    "MeantBy",
    "Object",
    "Scene",
    "ServerMeant",
    "Trimmer",
    "Unread",
    "Visit",
    "Who",
    "evidence_in",
    "for_server",
    "gather",
    "inside",
    "is_extended",
    "items",
    "look_around",
    "look_at",
    "meant",
    "owner_of",
    "read_dump",
    "scene_of",
    "serves_node",
    "state_of",
    "text",
    "trim",
    "visit",
    "who",
]
