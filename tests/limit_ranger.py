"""A second implementation of the API server's LimitRanger, to compare `webhook.admission.limit_ranges` with.

Steps of Kubernetes: a stored LimitRange has its defaults (SetDefaults_LimitRangeItem), a pod has a request for each limit (SetDefaults_Pod),
and then each LimitRange of the namespace is merged into each container (mergeContainerResources).
"""

import copy


def with_defaults(limit_range):
    """Return a LimitRange with the API's defaults."""
    changed_range = copy.deepcopy(limit_range)
    for limit in changed_range["spec"]["limits"]:
        if limit.get("type") == "Container":
            default, request = limit.setdefault("default", {}), limit.setdefault("defaultRequest", {})
            for name, amount in limit.get("max", {}).items():
                default.setdefault(name, amount)
            for name, amount in default.items():
                request.setdefault(name, amount)
            for name, amount in limit.get("min", {}).items():
                request.setdefault(name, amount)
    return changed_range


def with_requests(pod):
    """Return the pod with a request for each limit."""
    changed_pod = copy.deepcopy(pod)
    for container in containers(changed_pod):
        if container.get("resources", {}).get("limits"):
            requests = container["resources"].setdefault("requests", {})
            for name, amount in container["resources"]["limits"].items():
                requests.setdefault(name, amount)
    return changed_pod


def admitted(pod, ranges):
    """Return the pod as webhooks receive it in a namespace with these LimitRanges."""
    changed_pod = with_requests(pod)
    for limit_range in map(with_defaults, ranges):
        limits, requests = {}, {}
        for limit in limit_range["spec"]["limits"]:
            if limit.get("type") == "Container":
                requests.update(limit["defaultRequest"])
                limits.update(limit["default"])
        for container in containers(changed_pod):
            if not limits and not requests:
                continue
            resources = container.setdefault("resources", {})
            for field, defaults in (("limits", limits), ("requests", requests)):
                for name, amount in defaults.items():
                    resources.setdefault(field, {}).setdefault(name, amount)
    return changed_pod


def containers(pod):
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
