"""What a survey looks at, read from a live cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis import loop
from analysis.loading import configuration_of_cluster, evidence_in, gather
from rendering.output import progress
from webhook.state import Features

if TYPE_CHECKING:
    from analysis.configuration import ConfigurationInForce
    from analysis.loading import Gathered
    from cluster.protocol import Cluster


def read_cluster(
    kubeconfig: str, context: str, given: ConfigurationInForce | None, *, namespace: str = "", probe: bool = True
) -> tuple[Gathered, Features, ConfigurationInForce]:
    """Read a cluster, or one namespace of it; return its objects, what its server can do, and the configuration in force."""

    async def look(cluster: Cluster) -> tuple[Gathered, ConfigurationInForce]:
        in_force = await configuration_of_cluster(cluster, given)
        around = evidence_in(in_force.configuration, narrow=bool(namespace))
        with progress() as report_progress:
            gathered = await gather(cluster, namespace or None, report_progress, probe=probe, namespaces=around)
        return gathered, in_force

    gathered, in_force = loop.visit(kubeconfig, context, look, "docs/survey.md")
    assert gathered.server is not None
    declared = in_force.configuration.file.kubernetes.declared()
    return gathered, Features.combine(gathered.server.minor, gathered.server.gates, declared), in_force
