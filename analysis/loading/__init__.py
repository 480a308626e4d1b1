"""Reads the input of reports from files, a snapshot or a cluster, in one way for all commands, and records what is unreadable."""

from analysis.loading.objects import (
    CLUSTER,
    HELD,
    KINDS,
    Gathered,
    ObjectIdentity,
    Trimmer,
    Unread,
    identity_of,
    owner_of,
    serves_node,
)
from analysis.loading.portion import Portion
from analysis.loading.scene import (
    MeantBy,
    Scene,
    ServerMeant,
    for_server,
    look_at,
    read_dump,
    scene_of,
    server_meant,
    visit,
)
from analysis.loading.visit import (
    NECESSARY_KINDS,
    Visit,
    as_documents,
    configuration_of_cluster,
    evidence_in,
    gather,
    look_around,
    read_installed,
)
from analysis.loading.webhook_state import state_of
from dra.raw import Object, inside, items, text

__all__ = [
    "CLUSTER",
    "HELD",
    "KINDS",
    "NECESSARY_KINDS",
    "Gathered",
    "MeantBy",
    "Object",
    "ObjectIdentity",
    "Portion",
    "Scene",
    "ServerMeant",
    "Trimmer",
    "Unread",
    "Visit",
    "as_documents",
    "configuration_of_cluster",
    "evidence_in",
    "for_server",
    "gather",
    "identity_of",
    "inside",
    "items",
    "look_around",
    "look_at",
    "owner_of",
    "read_dump",
    "read_installed",
    "scene_of",
    "server_meant",
    "serves_node",
    "state_of",
    "text",
    "visit",
]
