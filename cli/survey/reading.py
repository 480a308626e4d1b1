"""What a survey looks at, read from a live cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli import contract as inputs
from cli import loop
from cli.loading import evidence_in, gather
from webhook.state import Features

if TYPE_CHECKING:
    from cli.loading import Gathered
    from cluster.protocol import Cluster
    from webhook.state import Configuration


def read_cluster(
    kubeconfig: str, context: str, configuration: Configuration, *, namespace: str = "", probe: bool = True
) -> tuple[Gathered, Features]:
    """Read a cluster, or one namespace of it, and say what its server can do."""
    around = evidence_in(configuration, narrow=bool(namespace))

    async def look(cluster: Cluster) -> Gathered:
        with inputs.progress() as report_progress:
            return await gather(cluster, namespace or None, report_progress, probe=probe, namespaces=around)

    gathered = loop.visit(kubeconfig, context, look, "docs/survey.md")
    assert gathered.server is not None
    declared = configuration.file.kubernetes.declared()
    return gathered, Features.combine(gathered.server.minor, gathered.server.gates, declared)
