"""What a place in an object does with a key: one table of roles, by kind, by member and by form."""

from webhook.reading.roles import Place, PlaceRole, is_object, place_in, place_of, repeated_members
from webhook.reading.suppliers import PLUGIN_IMAGES, PLUGIN_KINDS, PLUGINS, PluginRunner

__all__ = [
    "PLUGINS",
    "PLUGIN_IMAGES",
    "PLUGIN_KINDS",
    "Place",
    "PlaceRole",
    "PluginRunner",
    "is_object",
    "place_in",
    "place_of",
    "repeated_members",
]
