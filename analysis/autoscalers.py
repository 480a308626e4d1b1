"""Finds autoscalers that create no node for a pod with claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.finding import Finding, make_finding
from dra.texts import list_first

if TYPE_CHECKING:
    from collections.abc import Iterator

    from analysis.rules import Observed

_NAMED = 5


def reference(where: str) -> str:
    """Write "Kind namespace/name" as the object of a finding: Kind/namespace/name."""
    return where.replace(" ", "/", 1)


def autoscaler_findings(observed: Observed) -> Iterator[Finding]:
    """Yield the autoscalers that do not consider claims, and node groups without nodes."""
    for scaler in observed.reading.state.fleet.installed.autoscalers:
        if not scaler.considers_claims:
            pools = f" for NodePool {list_first([pool.name for pool in scaler.pools], _NAMED)}" if scaler.pools else ""
            yield make_finding(
                "S008",
                reference(scaler.where) or scaler.name,
                f"{scaler.release}{pools} does not consider claims, so it creates no node for a pod with claims",
                f"{scaler.remedy}, or keep such pods unchanged with `extendedResources: {{autoscaled: leave}}`",
            )
        if scaler.empty:
            yield make_finding(
                "S009",
                reference(scaler.where) or scaler.name,
                f"no node of {list_first(scaler.empty, _NAMED)} exists: an autoscaler creates one for a claim only if the cloud provider reports the devices of such a node",
            )
