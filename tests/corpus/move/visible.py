"""Devices that a container takes without a request: variables and runtime classes."""

from tests.corpus.move import GPU, Case, migrated_fleet, node, requesting_pod


def pod_with_variable(name, value="all", amount=0, **spec):
    pod = requesting_pod(amount, **spec)
    pod["spec"]["containers"][0]["env"] = [{"name": name, "value": value}]
    return pod


def with_init_container(pod, value=""):
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": value}] if value else []
    pod["spec"]["initContainers"] = [{"name": "init", "image": "i", "env": env}]
    return pod


def runtime(name, handler, **scheduling):
    runtime_class = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name},
        "handler": handler,
    }
    return runtime_class | ({"scheduling": scheduling} if scheduling else {})


OLD_NODES = (node("o", {"pool": "old"}, gpu=8), node("o2", {"pool": "old"}, gpu=8))
MIXED_NODES = (*migrated_fleet("a", labels={"pool": "new"}), *OLD_NODES)
TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
TAINTED_NODE = {**OLD_NODES[0], "metadata": {"name": "t", "labels": {"pool": "old"}}, "spec": {"taints": [TAINT]}}
NO_REQUEST_MESSAGES = ("takes devices without a request", "request devices instead")
POD_WITH_REQUEST_AND_RUNTIME_CLASS = requesting_pod(1, runtimeClassName="nvidia")
CASES = [
    *(
        Case(f"the environment variable of {vendor}", pod_with_variable(f"{vendor}_VISIBLE_DEVICES"), "left", (f"{vendor}_VISIBLE_DEVICES: it", *NO_REQUEST_MESSAGES))
        for vendor in ("NVIDIA", "HABANA", "ASCEND", "AMD", "MTHREADS")
    ),
    *(Case(f"runtime class {name}", requesting_pod(0, runtimeClassName=name), "left", ("runtimeClassName: it", *NO_REQUEST_MESSAGES)) for name in ("nvidia", "habana", "ascend", "amd")),
    *(Case(f"the value {value!r} of the variable gives no device", pod_with_variable("NVIDIA_VISIBLE_DEVICES", value, runtimeClassName="nvidia"), "silent") for value in ("void", "none", "")),
    Case("a variable with numbers of cards", pod_with_variable("NVIDIA_VISIBLE_DEVICES", "0,1"), "left", NO_REQUEST_MESSAGES),
    Case("a variable and a runtime class: only the variable is reported", pod_with_variable("NVIDIA_VISIBLE_DEVICES", runtimeClassName="nvidia"), "left", "NVIDIA_VISIBLE_DEVICES: it", never="runtimeClassName"),
    Case("a runtime class and a request", POD_WITH_REQUEST_AND_RUNTIME_CLASS, "translated", cluster_objects=migrated_fleet("a"), never="without a request"),
    Case("an init container without a variable, under a runtime class", with_init_container(requesting_pod(0, runtimeClassName="nvidia")), "left", "runtimeClassName: it", never="init"),
    Case("an init container with a variable, under a runtime class", with_init_container(requesting_pod(0, runtimeClassName="nvidia"), "all"), "left", ("runtimeClassName: it", "NVIDIA_VISIBLE_DEVICES: it")),
    Case("an init container beside a container with a variable, under a runtime class", with_init_container(pod_with_variable("NVIDIA_VISIBLE_DEVICES", runtimeClassName="nvidia")), "left", "NVIDIA_VISIBLE_DEVICES: it", never="runtimeClassName"),
    Case("a runtime class that gives no device", requesting_pod(0, runtimeClassName="gvisor"), "silent"),
    *(
        Case(f"a RuntimeClass whose handler is {handler}", requesting_pod(0, runtimeClassName="fast"), "left", ("runtimeClassName: it", *NO_REQUEST_MESSAGES), (runtime("fast", handler),))
        for handler in ("nvidia", "nvidia-cdi", "habana")
    ),
    Case("a RuntimeClass nvidia with a handler that gives no device", requesting_pod(0, runtimeClassName="nvidia"), "silent", cluster_objects=(runtime("nvidia", "runc"),)),
    Case("a RuntimeClass for migrated nodes", requesting_pod(1, runtimeClassName="fast"), "translated", cluster_objects=(*MIXED_NODES, runtime("fast", "x", nodeSelector={"pool": "new"}))),
    Case("a RuntimeClass for old nodes", requesting_pod(1, runtimeClassName="fast"), "left", "0 of", cluster_objects=(*MIXED_NODES, runtime("fast", "x", nodeSelector={"pool": "old"}))),
    Case("a RuntimeClass without a node selector", requesting_pod(1, runtimeClassName="fast"), "left", "2 of 3", cluster_objects=(*MIXED_NODES, runtime("fast", "x"))),
    Case("a RuntimeClass that tolerates the taint of old nodes", requesting_pod(1, runtimeClassName="fast"), "left", "0 of", cluster_objects=(*migrated_fleet("a"), TAINTED_NODE, runtime("fast", "x", nodeSelector={"pool": "old"}, tolerations=[{"key": "gpu", "operator": "Exists"}]))),
    Case("a RuntimeClass for other nodes than the pod's", requesting_pod(1, runtimeClassName="fast", nodeSelector={"pool": "old"}), "refused", "RuntimeClass fast and the pod have different values of pool", cluster_objects=(runtime("fast", "x", nodeSelector={"pool": "new"}),)),
    *(
        Case(f"a RuntimeClass with an invalid {word}", requesting_pod(1, runtimeClassName="fast"), "translated", cluster_objects=(*migrated_fleet("a"), {**runtime("fast", "x"), **garbled}))
        for word, garbled in (("handler", {"handler": ["nvidia"]}), ("scheduling", {"scheduling": {"nodeSelector": [1], "tolerations": {"a": 1}}}))
    ),
    Case("a runtime class that is not a text", requesting_pod(0, runtimeClassName=["nvidia"]), "silent"),
    Case("environment variables that are not a list", {**requesting_pod(0), "spec": {"containers": [{"name": "c", "image": "i", "env": {"a": 1}}]}}, "silent"),
    Case("a request without a variable", requesting_pod(1), "translated", cluster_objects=migrated_fleet("a"), never="VISIBLE"),
    Case("a pod without devices", requesting_pod(0), "silent"),
    Case("a variable and a request", pod_with_variable("NVIDIA_VISIBLE_DEVICES", amount=1), "translated", GPU, cluster_objects=migrated_fleet("a"), never="without a request"),
]  # fmt: skip
