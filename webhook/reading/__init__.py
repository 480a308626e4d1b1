"""What a place in an object does with a key: one table of roles, by kind, by member and by form."""

from webhook.reading.roles import PlaceRole, place_in, place_of, repeated_members
from webhook.reading.suppliers import PLUGIN_IMAGES, PLUGIN_KINDS, PLUGINS, PluginRunner

__all__ = [
    "PLUGINS",
    "PLUGIN_IMAGES",
    "PLUGIN_KINDS",
    "PlaceRole",
    "PluginRunner",
    "place_in",
    "place_of",
    "repeated_members",
]
