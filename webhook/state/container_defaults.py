"""What LimitRanges give containers that say nothing of a resource, as the API server's LimitRanger does before it calls webhooks.

A LimitRange that no API server has stored lacks what that fills in: a maximum is the default limit, a default limit the default request,
and so is a minimum. Mirrors kubernetes:pkg/apis/core/v1/defaults.go (SetDefaults_LimitRangeItem) and
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

_Amounts = Mapping[str, str]


class Bounds(msgspec.Struct, frozen=True):
    """What a LimitRange lets a container ask for: between these, and with a limit of so many times the request at most."""

    name: str
    least: Mapping[str, Quantity] = {}
    most: Mapping[str, Quantity] = {}
    ratio: Mapping[str, Quantity] = {}


class ContainerDefaults(msgspec.Struct, frozen=True):
    """The limits and requests of a container that names neither, and what it may name."""

    limits: _Amounts = {}
    requests: _Amounts = {}
    bounds: tuple[Bounds, ...] = ()


def container_defaults(ranges: Iterable[LimitRange]) -> ContainerDefaults:
    """Sum up the LimitRanges of a namespace, in the order of their names: an API server takes them in any, and what is given first stays."""
    limits: dict[str, str] = {}
    requests: dict[str, str] = {}
    bounds: list[Bounds] = []
    for one in sorted(ranges, key=lambda one: one.metadata.name):
        own_limits: dict[str, str] = {}
        own_requests: dict[str, str] = {}
        for item in one.spec.limits:
            if item.type != "Container":
                continue
            bounds.append(Bounds(one.metadata.name, item.min, item.max, item.max_limit_request_ratio))
            of_item = {**item.max, **item.default}
            own_limits |= {name: str(amount) for name, amount in of_item.items()}
            asked = {**item.min, **of_item, **item.default_request}
            own_requests |= {name: str(amount) for name, amount in asked.items()}
        limits = own_limits | limits
        requests = own_requests | requests
    return ContainerDefaults(limits, requests, tuple(bounds))
