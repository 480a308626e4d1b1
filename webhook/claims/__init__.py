"""Turns demands (device requests read from a pod's keys) into claims and templates, and decides which container uses which claim."""

from webhook.claims import template, template_lifecycle
from webhook.claims.maker import ClaimMaker, ServedDemand, claim_maker, make_template
from webhook.claims.sharing import ContainerDemand, Grant, SharedClaims, pass_fence, share, taint_rule
from webhook.claims.spec import count_devices
from webhook.claims.template_lifecycle import Due, TemplateKey, metadata_at_admission

__all__ = [
    "ClaimMaker",
    "ContainerDemand",
    "Due",
    "Grant",
    "ServedDemand",
    "SharedClaims",
    "TemplateKey",
    "claim_maker",
    "count_devices",
    "make_template",
    "metadata_at_admission",
    "pass_fence",
    "share",
    "taint_rule",
    "template",
    "template_lifecycle",
]
