"""The HTTP server of every port: aiohttp's, behind limits of connections, bytes and times.

A `Handler`, such as the webhook or the allocator, answers the requests.
"""

from serving.http.limits import Address, Limits, listens
from serving.http.listener import Listener
from serving.http.messages import Head, Reply, count_members, text
from serving.http.site import HttpRequest, Route, Site, StatusError, html
from serving.http.turns import Crowded, Turns

__all__ = [
    "Address",
    "Crowded",
    "Head",
    "HttpRequest",
    "Limits",
    "Listener",
    "Reply",
    "Route",
    "Site",
    "StatusError",
    "Turns",
    "count_members",
    "html",
    "listens",
    "text",
]
