"""The keys by which Kubernetes' ResourceQuota counts claims.

    CLASS.deviceclass.resource.k8s.io/devices          the devices of the class
    requests.deviceclass.resource.kubernetes.io/CLASS  the devices of the class, by its implicit resource name
    requests.NAME                                      the devices of the class, by its extendedResourceName
    count/resourceclaims.resource.k8s.io               the claims, whatever they request

This module mirrors k8s.io/kubernetes/pkg/quota/v1/evaluator/core/resource_claims.go, which counts by resource names
only if the feature gate DRAExtendedResource is on. It does not decide which quotas apply. A quota with scopes counts no
claims.
"""

from __future__ import annotations

from typing import Final

from dra.objects import IMPLICIT

COUNT_KEY: Final = "count/resourceclaims.resource.k8s.io"
BY_CLASS: Final = ".deviceclass.resource.k8s.io/devices"  # after the name of a class
BY_NAME: Final = "requests."  # before the name of an extended resource
BY_IMPLICIT_NAME: Final = f"{BY_NAME}{IMPLICIT}"  # before the name of a class


def quota_keys(class_name: str, extended_resource: str | None, *, by_name: bool = True) -> frozenset[str]:
    """Return the keys that count a claim of a class; `by_name` says whether keys with resource names count claims."""
    keys = {COUNT_KEY, f"{class_name}{BY_CLASS}"}
    if by_name:
        keys.add(f"{BY_IMPLICIT_NAME}{class_name}")
        if extended_resource:
            keys.add(f"{BY_NAME}{extended_resource}")
    return frozenset(keys)
