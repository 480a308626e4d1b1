"""The HTTP server of every port: aiohttp's, behind limits of connections, bytes and times.

A `Handler`, such as the webhook or the allocator, answers the requests.
"""

from serving.http.limits import Address, Limits, listens
from serving.http.listener import Listener
from serving.http.messages import Head, Reply, count_members, text
from serving.http.site import Refused, Request, Route, Site, html
from serving.http.turns import Crowded, Turns

__all__ = [
    "Address",
    "Crowded",
    "Head",
    "Limits",
    "Listener",
    "Refused",
    "Reply",
    "Request",
    "Route",
    "Site",
    "Turns",
    "count_members",
    "html",
    "listens",
    "text",
]
