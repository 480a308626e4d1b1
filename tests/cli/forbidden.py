"""Clusters whose user may not list some kinds."""

from cluster.embedded import Embedded
from cluster.errors import Forbidden


def forbidding(*kinds):
    """Return a class of clusters that forbid listing these kinds."""

    class ForbiddingCluster(Embedded):
        async def list(self, resource, *rest, **options):
            if resource.kind in kinds:
                raise Forbidden(f"{resource.id} is forbidden")
            return await super().list(resource, *rest, **options)

    return ForbiddingCluster
