"""Turns demands into claims and templates, and decides which container uses which claim."""

from webhook.claims import template
from webhook.claims.maker import ClaimMaker, ServedDemand, claim_maker, make_template
from webhook.claims.sharing import ContainerDemand, Grant, SharedClaims, pass_fence, share, taint_rule
from webhook.claims.spec import Impossible, count_devices

__all__ = [
    "ClaimMaker",
    "ContainerDemand",
    "Grant",
    "Impossible",
    "ServedDemand",
    "SharedClaims",
    "claim_maker",
    "count_devices",
    "make_template",
    "pass_fence",
    "share",
    "taint_rule",
    "template",
]
