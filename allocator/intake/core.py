"""Which lines of core's ResourceQuotas count the same devices in other words, for who was turned back and would ask there next. Pure.

    <class>.deviceclass.resource.k8s.io/devices      devices of the class, by claims
    requests.<extended resource>                     the name that the class serves, and the one that every class has
    count/resourceclaims.resource.k8s.io             claims, whatever they ask for

A quota with scopes is about pods, or volume claims: core's evaluator of ResourceClaims matches no scope whatever
(k8s.io/kubernetes/pkg/quota/v1/evaluator/core/resource_claims.go), so none of its lines counts what claims ask for.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from dra.stock import ALL_CLASSES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cluster.objects import ResourceQuota
    from dra.objects import DeviceClass
    from dra.stock import Amounts

MOST = 5  # lines in one sentence
_CLAIMS = "count/resourceclaims.resource.k8s.io"


def beside_core(
    quotas: Iterable[ResourceQuota], namespace: str, wanted: Amounts, classes: Mapping[str, DeviceClass]
) -> str:
    """Say which lines of a namespace's ResourceQuotas count what is wanted as well; "" if none does."""
    keys = set(_keys(wanted, classes))
    here = [one for one in quotas if one.metadata.namespace == namespace]
    told = list(islice(_lines(here, keys), MOST + 1))
    if not told:
        return ""
    more = " and more" if len(told) > MOST else ""
    return f"core's ResourceQuota counts besides: {', '.join(told[:MOST])}{more}"


def _keys(wanted: Amounts, classes: Mapping[str, DeviceClass]) -> Iterator[str]:
    """Name the keys under which core counts it."""
    yield _CLAIMS
    for name in {class_name for class_name, _ in wanted if class_name != ALL_CLASSES}:
        yield f"{name}.deviceclass.resource.k8s.io/devices"
        yield f"requests.deviceclass.resource.kubernetes.io/{name}"
        found = classes.get(name)
        if found is not None and found.spec.extended_resource_name:
            yield f"requests.{found.spec.extended_resource_name}"


def _lines(quotas: Iterable[ResourceQuota], keys: set[str]) -> Iterator[str]:
    for quota in sorted(quotas, key=lambda one: one.metadata.name):
        spec, status = quota.spec, quota.status
        if spec.scopes or spec.scope_selector:
            continue
        for key, hard in spec.hard.items():
            if key in keys:
                used = status.used.get(key, "?")  # core has not counted yet
                yield f"{quota.metadata.name}: {key} {used} of {hard} used"
