"""Turns demands into claims and templates, and decides which container uses which claim."""

from webhook.claims import template
from webhook.claims.maker import Made, Workshop, make_template, workshop
from webhook.claims.sharing import Grant, Sharing, Wish, pass_fence, share, taint_rule
from webhook.claims.spec import Impossible, results

__all__ = [
    "Grant",
    "Impossible",
    "Made",
    "Sharing",
    "Wish",
    "Workshop",
    "make_template",
    "pass_fence",
    "results",
    "share",
    "taint_rule",
    "template",
    "workshop",
]
