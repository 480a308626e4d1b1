"""A second implementation of the API server's LimitRanger, to compare `webhook.admission.limit_ranges` with.

Steps of Kubernetes: a stored LimitRange has its defaults (SetDefaults_LimitRangeItem), a pod has a request for each limit (SetDefaults_Pod),
and then each LimitRange of the namespace is merged into each container (mergeContainerResources).
"""

import copy


def stored(limit_range):
    """Return a LimitRange with the API's defaults."""
    made = copy.deepcopy(limit_range)
    for item in made["spec"]["limits"]:
        if item.get("type") == "Container":
            default, request = item.setdefault("default", {}), item.setdefault("defaultRequest", {})
            for name, amount in item.get("max", {}).items():
                default.setdefault(name, amount)
            for name, amount in default.items():
                request.setdefault(name, amount)
            for name, amount in item.get("min", {}).items():
                request.setdefault(name, amount)
    return made


def with_requests(pod):
    """Return the pod with a request for each limit."""
    made = copy.deepcopy(pod)
    for container in containers(made):
        if container.get("resources", {}).get("limits"):
            requests = container["resources"].setdefault("requests", {})
            for name, amount in container["resources"]["limits"].items():
                requests.setdefault(name, amount)
    return made


def admitted(pod, ranges):
    """Return the pod as webhooks receive it in a namespace with these LimitRanges."""
    made = with_requests(pod)
    for limit_range in map(stored, ranges):
        limits, requests = {}, {}
        for item in limit_range["spec"]["limits"]:
            if item.get("type") == "Container":
                requests.update(item["defaultRequest"])
                limits.update(item["default"])
        for container in containers(made):
            if not limits and not requests:
                continue
            resources = container.setdefault("resources", {})
            for part, defaults in (("limits", limits), ("requests", requests)):
                for name, amount in defaults.items():
                    resources.setdefault(part, {}).setdefault(name, amount)
    return made


def containers(pod):
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
