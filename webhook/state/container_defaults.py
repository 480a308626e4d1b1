"""The defaults of LimitRanges for containers, as the API server's LimitRanger applies them before it calls webhooks.

The API server first defaults the LimitRange itself: `max` becomes the default limit, and the default limit, or else `min`,
becomes the default request. Mirrors kubernetes:pkg/apis/core/v1/defaults.go (SetDefaults_LimitRangeItem) and
plugin/pkg/admission/limitranger (defaultContainerResourceRequirements).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from dra.quantity import Quantity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cluster.objects import LimitRange

_Amounts = Mapping[str, str]  # quantities by resource


class Bounds(msgspec.Struct, frozen=True):
    """The bounds that one LimitRange sets for each Container or Pod: minimum, maximum, and largest ratio of limit to request."""

    name: str
    type: str
    least: Mapping[str, Quantity] = {}
    most: Mapping[str, Quantity] = {}
    ratio: Mapping[str, Quantity] = {}


class ContainerDefaults(msgspec.Struct, frozen=True):
    """The default limits and requests of a namespace's containers, and the bounds of all of its LimitRanges."""

    limits: _Amounts = {}
    requests: _Amounts = {}
    bounds: tuple[Bounds, ...] = ()


def container_defaults(ranges: Iterable[LimitRange]) -> ContainerDefaults:
    """Combine the LimitRanges of a namespace. The first by name wins; the API server applies them in an undefined order."""
    limits: dict[str, str] = {}
    requests: dict[str, str] = {}
    bounds: list[Bounds] = []
    for limit_range in sorted(ranges, key=lambda entry: entry.metadata.name):
        own_limits: dict[str, str] = {}
        own_requests: dict[str, str] = {}
        for item in limit_range.spec.limits:
            if item.type in ("Container", "Pod"):
                ratio = item.max_limit_request_ratio
                bounds.append(Bounds(limit_range.metadata.name, item.type, item.min, item.max, ratio))
            if item.type != "Container":
                continue
            of_item = {**item.max, **item.default}
            own_limits |= {name: str(amount) for name, amount in of_item.items()}
            default_requests = {**item.min, **of_item, **item.default_request}
            own_requests |= {name: str(amount) for name, amount in default_requests.items()}
        limits = own_limits | limits
        requests = own_requests | requests
    return ContainerDefaults(limits, requests, tuple(bounds))
