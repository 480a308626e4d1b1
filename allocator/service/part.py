"""What the parts of the allocator's process share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from allocator.service.knowledge import Knowledge, Lead
    from allocator.service.metrics import Metrics
    from allocator.service.pending_pods import PendingPods
    from allocator.service.question_runner import QuestionRunner
    from allocator.service.quota.quotas import Quotas
    from cluster.protocol import Cluster


class Shared(NamedTuple):
    cluster: Cluster
    knowledge: Knowledge
    lead: Lead
    pods: PendingPods
    quotas: Quotas
    runner: QuestionRunner
    metrics: Metrics


class Part:
    """The base of the classes that use what is shared."""

    def __init__(self, shared: Shared) -> None:
        (
            self._cluster,
            self._knowledge,
            self._lead,
            self._pods,
            self._quotas,
            self._runner,
            self._metrics,
        ) = shared
