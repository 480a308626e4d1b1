"""Everything that looks like a device request is translated or reported."""

import pytest
from msgspec.structs import replace

from cluster import manifests
from dra.stock.stock import Stock
from tests.loops import every
from tests.objects import device_class, node, resource_slice
from tests.webhook.admission.test_verdict import FLEET, GPU, MEM, STATE, pod_in_n, state
from tests.webhook.pods import configured, expression, required_affinity, state_of_files
from webhook.admission import decide_object
from webhook.state.state import OF_DEVICES, State
from webhook.unknown.unanswered_requests import MAX_KEYS

EMPTY_STATE = State()
assert FLEET, "the example fleet has no objects"


def outcomes_of(item, state=EMPTY_STATE) -> dict[str, tuple[str, str]]:
    return {decision.key: (str(decision.outcome), decision.detail) for decision in decide_object(item, state).decisions}


@every(
    ("key", "detail_part"),
    [
        ("nvidia.com/gpumemory", "did you mean nvidia.com/gpumem?"),
        ("nvidia.com/gpus", "did you mean nvidia.com/gpu?"),
        ("nvidia-com/gpu", "did you mean nvidia.com/gpu?"),
        ("huawei.com/ascend910", "did you mean huawei.com/Ascend910?"),
        ("huawei.com/ASCEND910", "did you mean huawei.com/Ascend910?"),
        ("nvidia.com/weird", "no dialect knows it"),
        ("example.com/my-gpu", "no dialect knows it"),
        ("example.com/gpu", "no dialect knows it"),
        ("nvida.com/gpu", "did you mean nvidia.com/gpu?"),
        ("vke.volcengine.com/rdmas", "did you mean vke.volcengine.com/rdma?"),
        ("vke.volcengine.com/gpu-of-mine", "no dialect knows it"),
        ("volcengine.com/mgpu-core", "no dialect knows it"),
        ("example.com/dongle", "no dialect knows it"),
    ],
)
def test_a_resource_that_no_table_has_is_not_understood(key, detail_part):
    outcome, detail = outcomes_of(pod_in_n({key: 1}))[key]
    assert outcome == "unknown"
    assert detail_part in detail


@every("amount", [0, "0", "0.0", None, "0Mi"])
def test_an_amount_of_0_requests_nothing(amount):
    assert outcomes_of(pod_in_n({"example.com/gpu": amount})) == {}
    odd = {"apiVersion": "x.io/v1", "kind": "Odd", "metadata": {"name": "o"}}
    for key in ("example.com/gpu", GPU):
        assert outcomes_of(odd | {"spec": {"resources": {"limits": {key: amount}}}}) == {}
        assert key in outcomes_of(odd | {"spec": {"resources": {"limits": {key: "{{ n }}"}}}}), (
            "its amount is not known"
        )


def test_no_device_plugin_is_said_to_serve_a_key_without_a_domain():
    remedies = [decision.remedy for decision in decide_object(pod_in_n({"sriov_netdevice": 1}), STATE).decisions]
    assert remedies[0] == "write the domain of the resource, too"
    assert not any("device plugin" in remedy for remedy in remedies)


@pytest.mark.parametrize("key", ["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "a.kubernetes.io/b"])
def test_a_key_unrelated_to_devices_is_not_reported(key):
    assert outcomes_of(pod_in_n({key: 1})) == {}


def test_a_container_with_a_misspelt_key_is_left_unchanged():
    item = pod_in_n({GPU: 1, "nvidia.com/gpumemory": 4000})
    verdict = decide_object(item, STATE)
    assert verdict.operations == ()
    assert outcomes_of(item, STATE)[GPU][0] == "left"
    assert "did you mean nvidia.com/gpumem?" in verdict.warnings[0]


def test_an_advertised_key_is_not_a_misspelling():
    advertised = state(node("old", allocatable={"nvidia.com/gpumemory": "9"}))
    item = pod_in_n({GPU: 1, "nvidia.com/gpumemory": 4000})
    assert decide_object(item, advertised).operations
    assert outcomes_of(item, advertised)["nvidia.com/gpumemory"][1].startswith(
        "not understood; left to the device plugin that serves it on old"
    )


def test_annotations_and_variables_are_reported_too():
    item = pod_in_n({GPU: 1, MEM: 1000}, annotations={"nvidia.com/use-gputypes": "A100", "example.com/note": "gpu"})
    assert outcomes_of(item)["nvidia.com/use-gputypes"] == ("unknown", "did you mean nvidia.com/use-gputype?")
    assert "example.com/note" not in outcomes_of(item)
    item = pod_in_n({"cpu": 1})
    item["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    assert outcomes_of(item)["NVIDIA_VISIBLE_DEVICES"][0] == "left"


def test_names_of_unknown_programs_are_reported_if_their_value_may_be_a_request():
    values = {
        "a.com/gpu-count": "0.5",
        "b.com/gpu": "true",
        "c.com/accelerator-vendor": "nvidia",
        "d.com/gpus": '["x/gpu"]',
        "opendatahub.io/accelerator-count": "1",
    }
    reported = {
        key
        for key, (outcome, _) in outcomes_of(pod_in_n({GPU: 1}, annotations=values), STATE).items()
        if outcome == "unknown"
    }
    assert reported == {"a.com/gpu-count", "b.com/gpu"}


def test_devices_that_gke_injects_by_annotation_are_reported():
    item = pod_in_n({"cpu": 1}, annotations={"devices.gke.io/container.tcpx-daemon": "- path: /dev/nvidia0"})
    outcome, detail = outcomes_of(item)["devices.gke.io/container.tcpx-daemon"]
    assert outcome == "left"
    assert "takes devices without a request" in detail


def test_a_label_of_the_same_domain_is_no_misspelling():
    item = pod_in_n({GPU: 1})
    item["spec"]["nodeSelector"] = {"cloud.google.com/gke-os-distribution": "cos", "nvidia.com/gpu.produkt": "A100"}
    outcomes = outcomes_of(item)
    assert "cloud.google.com/gke-os-distribution" not in outcomes
    assert outcomes["nvidia.com/gpu.produkt"] == ("unknown", "did you mean nvidia.com/gpu.product?")


def test_the_implicit_name_of_a_class_is_served():
    key = "deviceclass.resource.kubernetes.io/gpu.example.com"
    outcome, detail = outcomes_of(pod_in_n({key: 1}))[key]
    assert outcome == "served"
    assert "DeviceClass gpu.example.com serves it" in detail


def test_a_pod_with_a_node_is_left_with_a_reason():
    item = pod_in_n({GPU: 1})
    item["spec"]["nodeName"] = "n1"
    assert outcomes_of(item)[GPU] == (
        "left",
        "nodeName is set: no scheduler would allocate a claim for the pod",
    )


def test_an_unmet_selector_is_reported_with_existing_values():
    item = pod_in_n({GPU: 1})
    item["spec"]["nodeSelector"] = {"disktype": "marble"}
    assert (
        outcomes_of(item, STATE)["disktype"][1]
        == "no node has disktype=marble: the pod waits until one does; no node has this label"
    )
    assert any("[D212]" in warning for warning in decide_object(item, STATE).warnings)
    assert decide_object(item, STATE).operations, "the pod is not translated"


def test_an_unmet_selector_is_not_reported_without_any_nodes():
    item = pod_in_n({GPU: 1})
    item["spec"]["nodeSelector"] = {"disktype": "marble"}
    assert "disktype" not in outcomes_of(item, replace(STATE, stock=Stock.of(), incomplete=OF_DEVICES))
    assert "disktype" in outcomes_of(item, replace(STATE, incomplete=frozenset({"Node"})))


def affinity_to_zone(zone):
    return required_affinity(expression("zone", "In", zone))


BY_CLAIM = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}


@pytest.mark.parametrize(
    ("spec", "limits", "keys"),
    [
        ({"affinity": affinity_to_zone("z")}, {GPU: 1}, {"nodeAffinity", GPU}),
        ({"affinity": affinity_to_zone("z")} | BY_CLAIM, {}, {"nodeAffinity"}),
        ({"nodeSelector": {"zone": "a", "disk": "ssd"}}, {GPU: 1}, {"nodeSelector", GPU}),
        ({"nodeSelector": {"zone": "a"}, "affinity": affinity_to_zone("b")}, {GPU: 1}, {"nodeAffinity", GPU}),
        ({"affinity": affinity_to_zone("a")}, {GPU: 1}, {GPU}),
        ({"affinity": affinity_to_zone("z")}, {"cpu": 1}, set()),
        ({"affinity": affinity_to_zone("new")}, {GPU: 1}, set()),
    ],
)
def test_the_keys_for_which_a_pod_waits_are_reported(spec, limits, keys):
    nodes = [node("n1", labels={"zone": "a"}), node("n2", labels={"zone": "b", "disk": "ssd"})]
    objects = [*nodes, resource_slice("s", "gpu-0", pool="n1", nodeName="n1"), device_class("gpu.example.com")]
    template = {"name": "t", "labels": {"zone": "new"}, "allocatable": {GPU: "1"}}
    configuration = configured(nodeTemplates=[template])
    item = pod_in_n(limits)
    item["spec"] |= spec
    texts = ("so the pod waits", "waits until one does")
    outcomes = outcomes_of(item, state_of_files(manifests.parse(manifests.dump(objects), "fleet"), configuration))
    waits = {name: detail for name, (_, detail) in outcomes.items() if any(text in detail for text in texts)}
    assert waits.keys() == keys


def test_a_placeholder_in_a_selector_is_reported():
    item = pod_in_n({GPU: 1})
    item["spec"]["nodeSelector"] = {"node.kubernetes.io/instance-type": "$INSTANCE_TYPE"}
    _, detail = outcomes_of(item, STATE)["node.kubernetes.io/instance-type"]
    assert "this looks like a placeholder" in detail
    assert "waits" not in detail


def test_node_selectors_of_the_gpu_operator_request_nothing():
    item = pod_in_n({"cpu": 1})
    item["spec"]["nodeSelector"] = {"nvidia.com/gpu.deploy.dcgm": "true"}
    assert outcomes_of(item)["nvidia.com/gpu.deploy.dcgm"][0] == "left"


def test_the_first_unexamined_key_is_reported():
    keys = [f"example.com/gpu-{number:03}" for number in range(MAX_KEYS + 2)]
    for count in (MAX_KEYS, MAX_KEYS + 1, MAX_KEYS + 2):
        item = pod_in_n(dict.fromkeys(keys[:count], 1))
        verdict = decide_object(item, EMPTY_STATE)
        unexamined = [decision for decision in verdict.decisions if decision.code == "D215"]
        assert [(decision.container, decision.key) for decision in unexamined] == [("main", keys[MAX_KEYS])] * (
            count > MAX_KEYS
        )
        assert any("[D215]" in warning for warning in verdict.warnings) == (count > MAX_KEYS)


INEFFECTIVE_NAMES = [
    ("labels", {"drawbridge.dev/skip": "yes"}, "drawbridge.dev/skip", 'only the value "true" makes drawbridge skip the pod'),
    ("labels", {"drawbridge.dev/skipp": "true"}, "drawbridge.dev/skipp", "did you mean drawbridge.dev/skip?"),
    ("labels", {"drawbridge.dev/mode": "off"}, "drawbridge.dev/mode", "it is read on Namespaces, not on pods"),
    ("annotations", {"drawbridge.dev/skip": "true"}, "drawbridge.dev/skip", "it has no effect as annotation, drawbridge reads it only as label"),
    ("annotations", {"drawbridge.dev/stratgey": "x"}, "drawbridge.dev/stratgey", "did you mean drawbridge.dev/strategy?"),
]  # fmt: skip


@pytest.mark.parametrize(("field", "values", "key", "detail"), INEFFECTIVE_NAMES)
def test_an_ineffective_drawbridge_label_or_annotation_is_reported(field, values, key, detail):
    item = pod_in_n({GPU: 1}, **{field: values})
    assert outcomes_of(item)[key] == ("unknown", detail)
    assert any(detail in text for text in decide_object(item, EMPTY_STATE).warnings)


@pytest.mark.parametrize("value", ["false", "true"])
def test_a_valid_drawbridge_label_is_not_reported(value):
    item = pod_in_n({GPU: 1}, labels={"drawbridge.dev/skip": value}, annotations={"drawbridge.dev/strategy": "Packed"})
    assert "unknown" not in {outcome for outcome, _ in outcomes_of(item).values()}


def test_a_key_under_a_dropped_field_is_reported():
    item = pod_in_n({})
    item["spec"]["containers"][0]["resources"] = {"limit": {GPU: 1}}
    assert outcomes_of(item)[GPU] == ("unknown", "it is under limit, which is not a field of resources: did you mean limits?")  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value", "suggestion"),
    [
        ("resource", {"limits": {GPU: 1}}, "resources"),
        ("Resources", {"requests": {GPU: 1}}, "resources"),
        ("limits", {GPU: 1}, "resources.limits"),
        ("requests", {GPU: 1}, "resources.requests"),
    ],
)
def test_a_key_under_a_dropped_container_field_is_reported(field, value, suggestion):
    item = pod_in_n({})
    item["spec"]["containers"][0] |= {field: value}
    detail = f"it is under {field}, which is not a field of a container: did you mean {suggestion}?"
    assert outcomes_of(item)[GPU] == ("unknown", detail)
    [code] = [decision.code for decision in decide_object(item, STATE).decisions if decision.key == GPU]
    assert code == "D211"
    item["spec"]["containers"][0][field] = {"cpu": 1, "limits": {"cpu": 1}}
    assert GPU not in outcomes_of(item)


def test_a_key_in_pod_level_resources_is_invalid():
    item = pod_in_n({})
    item["spec"]["resources"] = {"limits": {GPU: 1}}
    assert [decision.code for decision in decide_object(item, EMPTY_STATE).decisions] == ["R001"]
