"""Malicious pods: each is small enough for the API server, and made to cause much work.

`PODS` maps names to functions that make a new pod in each call. The pods are plain values, for tests of functions and of a
live webhook. The tests accept any answer that comes soon enough. For each newly found attack, add a function with `@hostile`.
"""

import json
from collections.abc import Callable

PODS: dict[str, Callable[[], dict]] = {}

GPU = "nvidia.com/gpu"
# Annotations of Koordinator, whose values are JSON.
JOINT = "scheduling.koordinator.sh/device-joint-allocate"
HINT = "scheduling.koordinator.sh/device-allocate-hint"
PARTITION = "scheduling.koordinator.sh/gpu-partition-spec"
LEVELS = 100_000  # of nested lists or objects in an annotation


def hostile(make: Callable[[], dict]) -> Callable[[], dict]:
    """Add a function to `PODS` under its name."""
    PODS[make.__name__] = make
    return make


def container(name: str, **limits) -> dict:
    return {"name": name, "image": "x", "resources": {"limits": limits, "requests": dict(limits)}}


def pod(*containers: dict, annotations: dict | None = None, init: tuple = (), **spec) -> dict:
    metadata = {"name": "p", "namespace": "n", "annotations": annotations or {}}
    pod_spec = {"containers": list(containers), "initContainers": list(init), **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec}


@hostile
def a_number_of_4000_digits() -> dict:
    return pod(container("main", **{GPU: "9" * 4000 + "e300"}))


@hostile
def a_number_with_a_large_exponent() -> dict:
    return pod(container("main", **{GPU: "999e4000"}))


@hostile
def numbers_with_large_exponents_everywhere() -> dict:
    keys = ("gpu", "gpumem", "gpumem-percentage", "gpucores", "mig-1g.5gb", "gpu.shared")
    return pod(*(container(f"c{i}", **{f"nvidia.com/{key}": "7e3999"}) for i, key in enumerate(keys)))


@hostile
def a_number_of_200000_zeros() -> dict:
    return pod(container("main", **{"nvidia.com/gpumem": "0" * 200_000 + "x"}))


@hostile
def sums_beyond_64_bits() -> dict:
    limits = {f"koordinator.sh/{key}": 2**63 - 1 for key in ("gpu-core", "gpu-memory", "gpu.shared", "rdma")}
    return pod(*(container(f"c{i}", **limits) for i in range(500)))


@hostile
def amounts_that_are_not_numbers() -> dict:
    amounts = [None, True, [], {}, [[[]]], 1e400, -0.0, "", " ", "1e", "٣", "\ud800"]
    return pod(*(container(f"c{i}", **{GPU: value}) for i, value in enumerate(amounts)))


@hostile
def deep_lists_in_koordinators_annotations() -> dict:
    deep = "[" * LEVELS + "]" * LEVELS
    return pod(container("main", **{"koordinator.sh/gpu": 100}), annotations={JOINT: deep})


@hostile
def deep_selectors_in_a_hint() -> dict:
    deep = '{"rdma":{"vfSelector":' + '{"a":' * LEVELS + "1" + "}" * (LEVELS + 2)
    return pod(container("main", **{"koordinator.sh/rdma": 100}), annotations={HINT: deep})


@hostile
def deep_bandwidth_in_a_partition() -> dict:
    deep = '{"ringBusBandwidth":' + "[" * LEVELS + "]" * LEVELS + "}"
    return pod(container("main", **{"koordinator.sh/gpu": 200}), annotations={PARTITION: deep})


@hostile
def a_bandwidth_of_9000_digits() -> dict:
    return pod(
        container("main", **{"koordinator.sh/gpu": 200}),
        annotations={PARTITION: f'{{"ringBusBandwidth":{"9" * 9000}}}'},
    )


@hostile
def many_device_types_in_a_hint() -> dict:
    hints = {f"type-{i}": {"selector": {"a": "b"}} for i in range(4_000)}
    return pod(container("main", **{"koordinator.sh/rdma": 100}), annotations={HINT: json.dumps(hints)})


@hostile
def a_long_list_of_models_on_a_thousand_containers() -> dict:
    models = ",".join(f"nvidia-{i:08}" for i in range(15_000))  # about 260 KiB
    containers = (container(f"c{i}", **{"nvidia.com/gpumem": 1000 + i}) for i in range(1_000))
    return pod(*containers, annotations={"nvidia.com/use-gputype": models})


@hostile
def as_many_models_as_fit_a_selector_on_many_containers() -> dict:
    models = ",".join(f"nv{i}" for i in range(120))
    containers = (container(f"c{i}", **{"nvidia.com/gpumem": 1000 + i}) for i in range(100))
    return pod(*containers, annotations={"nvidia.com/use-gputype": models, "nvidia.com/nouse-gputype": models})


@hostile
def short_models_on_a_hundred_containers() -> dict:
    containers = (container(f"c{i}", **{"nvidia.com/gpumem": 1000 + i}) for i in range(100))
    return pod(*containers, annotations={"nvidia.com/use-gputype": ",".join("nvidia" for _ in range(600))})


@hostile
def a_list_of_commas() -> dict:
    return pod(container("main", **{"nvidia.com/gpumem": 1}), annotations={"nvidia.com/use-gpuuuid": "," * 250_000})


@hostile
def eight_thousand_mig_keys() -> dict:
    return pod(container("main", **{f"nvidia.com/mig-1g.{i}gb": 1 for i in range(8_000)}))


@hostile
def a_mig_key_of_200000_letters() -> dict:
    return pod(container("main", **{"nvidia.com/mig-" + "1g." * 66_000 + "gb": 1}))


@hostile
def five_thousand_init_containers() -> dict:
    init = tuple(container(f"i{i}", **{GPU: 1 + i % 3}) for i in range(5_000))
    return pod(container("main", **{GPU: 3}), init=init)


@hostile
def five_thousand_init_containers_with_shares() -> dict:
    init = tuple(container(f"i{i}", **{"nvidia.com/gpumem": 1 + i}) for i in range(5_000))
    return pod(container("main", **{"nvidia.com/gpumem": 3}), init=init)


@hostile
def ten_thousand_containers() -> dict:
    return pod(*(container(f"c{i}", **{GPU: 1, "nvidia.com/gpumem": 1}) for i in range(10_000)))


@hostile
def four_thousand_containers_with_koordinator_keys() -> dict:
    return pod(*(container(f"c{i}", **{"koordinator.sh/gpu": 100}) for i in range(4_000)))


@hostile
def one_container_name_four_thousand_times() -> dict:
    return pod(*(container("main", **{GPU: 1}) for _ in range(4_000)))


@hostile
def every_name_of_a_generated_claim_is_taken() -> dict:
    entries = [{"name": "drawbridge-main-gpu"}, *({"name": f"drawbridge-main-gpu-{i}"} for i in range(2, 20_000))]
    return pod(container("main", **{GPU: 1}), resourceClaims=entries)


@hostile
def forty_thousand_selector_expressions() -> dict:
    expressions = [{"key": f"k{i}", "operator": "In", "values": ["v"]} for i in range(40_000)]
    terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return pod(container("main", **{GPU: 1}), affinity=affinity)


@hostile
def twenty_thousand_labels() -> dict:
    hostile_pod = pod(container("main", **{GPU: 1}))
    hostile_pod["metadata"]["labels"] = {f"hami.io/label-{i}": "x" for i in range(20_000)}
    return hostile_pod


@hostile
def annotations_of_the_wrong_type() -> dict:
    hostile_pod = pod(container("main", **{"nvidia.com/gpumem": 1}))
    hostile_pod["metadata"]["annotations"] = {
        "nvidia.com/use-gputype": [1],
        "nvidia.com/numa-bind": {},
        JOINT: 3,
        HINT: None,
    }
    return hostile_pod


@hostile
def deep_records_of_an_earlier_translation() -> dict:
    deep = '{"containers":{"main":{"a":' + "[" * LEVELS + "]" * LEVELS + "}}}"
    hostile_pod = pod(container("main", **{GPU: 1}), annotations={"drawbridge.dev/original": deep})
    hostile_pod["metadata"]["annotations"] |= {"drawbridge.dev/decision": deep, "drawbridge.dev/devices": deep}
    return hostile_pod


@hostile
def as_many_shares_as_the_limits_allow() -> dict:
    filters = {"use-gputype": [f"nv{i}" for i in range(90)], "nouse-gputype": [f"m{i}" for i in range(90)]}
    filters |= {
        "use-gpuuuid": [f"GPU-{i:030}" for i in range(150)],
        "nouse-gpuuuid": [f"G-{i:030}" for i in range(150)],
    }
    annotations = {f"nvidia.com/{key}": ",".join(words) for key, words in filters.items()}
    init = tuple(
        container(f"i{i}", **{"nvidia.com/gpumem": 1000 + i, "nvidia.com/gpucores": i % 99}) for i in range(200)
    )
    main = (container(f"c{i}", **{"nvidia.com/gpumem": 5000 + i, "nvidia.com/gpucores": i % 99}) for i in range(50))
    return pod(*main, init=init, annotations=annotations)


@hostile
def as_many_percentages_as_the_limits_allow() -> dict:
    init = tuple(
        container(f"i{i}", **{"nvidia.com/gpu": 1 + i % 16, "nvidia.com/gpumem-percentage": 1 + i % 99})
        for i in range(250)
    )
    return pod(container("main", **{"nvidia.com/gpumem-percentage": 50}), init=init)


@hostile
def as_many_mig_keys_as_the_limits_allow() -> dict:
    init = tuple(
        container(f"i{i}", **{f"nvidia.com/mig-{1 + k % 7}g.{i * 16 + k}gb": 1 + k % 2 for k in range(16)})
        for i in range(63)
    )
    return pod(container("main", **{"nvidia.com/mig-1g.5gb": 1}), init=init)


@hostile
def as_many_whole_devices_as_the_limits_allow() -> dict:
    init = tuple(container(f"i{i}", **{GPU: 1 + i % 120}) for i in range(254))
    return pod(container("main", **{GPU: 128}), init=init)


@hostile
def as_many_pairs_of_gpu_and_nic_as_the_limits_allow() -> dict:
    joint = json.dumps({"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"})
    limits = {"koordinator.sh/gpu": 100, "koordinator.sh/rdma": 100}
    return pod(*(container(f"c{i}", **limits) for i in range(60)), annotations={JOINT: joint})


def nested(levels: int) -> list:
    """Return nested lists, for tests of functions that copy or visit values recursively."""
    inner: list = []
    for _ in range(levels):
        inner = [inner]
    return inner


@hostile
def unknown_fields_of_900_levels() -> dict:
    hostile_pod = pod(container("main", **{GPU: 1}), unknown=nested(900))
    hostile_pod["spec"]["containers"][0]["resources"]["unknown"] = nested(900)
    hostile_pod["metadata"]["unknown"] = nested(900)
    return hostile_pod


@hostile
def nested_lists_where_scalars_belong() -> dict:
    hostile_pod = pod(container("main", **{GPU: nested(900)}), resourceClaims=nested(900), tolerations=nested(900))
    hostile_pod["metadata"] |= {"name": nested(900), "generateName": nested(900), "ownerReferences": nested(900)}
    hostile_pod["spec"] |= {"schedulerName": nested(900), "serviceAccountName": nested(900), "nodeName": nested(900)}
    return hostile_pod


@hostile
def ten_thousand_environment_variables() -> dict:
    variables = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": f"{i}"} for i in range(10_000)]
    hostile_pod = pod(container("main", **{GPU: 1}))
    hostile_pod["spec"]["containers"][0]["env"] = variables
    return hostile_pod


@hostile
def keys_that_differ_in_case_alone() -> dict:
    names = (
        "nvidia.com/gpu",
        "NVIDIA.com/gpu",
        "nvidia.com/GPU",
        "Nvidia.Com/Gpu",
        "nvidia.com/gpuMem",
        "nvidia.com/gpumem",
    )
    return pod(container("main", **dict.fromkeys(names, "1")))


@hostile
def annotations_of_the_maximum_size() -> dict:
    hostile_pod = pod(container("main", **{GPU: 1, "nvidia.com/gpumem": 100}))
    hostile_pod["metadata"]["annotations"] = {"a": "x" * (256 * 1024 - 1)}
    return hostile_pod


@hostile
def keys_on_the_pod_and_in_ephemeral_containers() -> dict:
    debug = [container(f"debug-{i}", **{GPU: 1, "koordinator.sh/gpu": 100}) for i in range(2_000)]
    pod_resources = {
        "limits": {GPU: "8", "nvidia.com/gpumem": "1"},
        "requests": {GPU: "8"},
        "claims": [{"name": "x"}] * 2_000,
    }
    return pod(container("main", **{GPU: 1}), ephemeralContainers=debug, resources=pod_resources)


@hostile
def names_that_are_paths_and_patches() -> dict:
    names = ("a/b", "~0~1", "..", "/spec/containers/0", "-", "0", "a\u202eb", "\x00", "é" * 200, "x" * 60_000)
    hostile_pod = pod(*(container(name, **{GPU: 1}) for name in names))
    hostile_pod["metadata"]["generateName"] = "x" * 60_000
    return hostile_pod


@hostile
def containers_and_pod_without_a_name() -> dict:
    hostile_pod = pod(container("main", **{GPU: 1}), {"resources": {"limits": {GPU: 1}}}, {"name": None}, {"name": 7})
    del hostile_pod["metadata"]["name"]
    return hostile_pod


@hostile
def twenty_thousand_owners_and_selectors() -> dict:
    hostile_pod = pod(
        container("main", **{GPU: 1}), nodeSelector={f"nvidia.com/gpu.product-{i}": "x" for i in range(20_000)}
    )
    hostile_pod["metadata"]["ownerReferences"] = [{"kind": "Job", "name": f"j{i}"} for i in range(20_000)]
    return hostile_pod


@hostile
def twenty_thousand_tolerations() -> dict:
    tolerations = [{"key": GPU, "operator": "Exists", "tolerationSeconds": i} for i in range(20_000)]
    return pod(container("main", **{GPU: 1}), tolerations=tolerations)


@hostile
def a_thousand_claims_in_each_container() -> dict:
    hostile_pod = pod(*(container(f"c{i}", **{GPU: 1}) for i in range(50)))
    for hostile_container in hostile_pod["spec"]["containers"]:
        hostile_container["resources"]["claims"] = [{"name": f"x{i}", "request": "y"} for i in range(1_000)]
    return hostile_pod
