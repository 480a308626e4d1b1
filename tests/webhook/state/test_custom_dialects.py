"""Keys, device kinds (`targets`) and dialects (tables of the keys of one system) that a configuration adds, renames or disables."""

from tests.loops import every
from tests.webhook.pods import (
    GPU_MODELS,
    HAMI,
    WHOLE_GPUS,
    configured,
    devices,
    exactly,
    example_fleet,
    pod,
    untouched,
    verdict_of,
)
from tests.webhook.state.configurations import PAIR, mistakes
from tests.webhook.state.fleets import example_fleet_with, typed_class
from webhook.dialects import PCIE_ROOT


def test_keys_may_be_renamed_to_valid_names():
    renames = {"hami": {"nvidia.com/gpumem": "our.org/mem", "nvidia.com/gpucores": ""}}
    patterned = {"nvidia": {"nvidia.com/mig-<profile>": "our.org/mig-<profile>"}}
    assert configured(keys={**renames, **patterned}, joint=[{**PAIR, "attribute": "our.org/root"}, PAIR])
    assert configured(bridge={"schedulerName": "x", "drivers": ["gpu.nvidia.com"]}, kueue={"deviceClasses": ["gpu.x"]})
    assert configured(evidence={"drivers": ["gpu.nvidia.com"], "nodeSelector": {"our.org/pool": ""}})


def table(*keys: dict, name: str = "ours", **fields) -> dict:
    return {"name": name, "title": "Ours", "keys": [{"meaning": "m", **key} for key in keys], **fields}


UNUSABLE_SELECTORS = {
    "device.attributes": "must evaluate to bool",
    "true &&": "unexpected",
    'device.attributes["dra.net"].ipv4 == "a"': "fails on a device that publishes nothing",
    f'"{"a" * 10_300}" == ""': "too long or costs too much",
    'device.attributes["a"].?b.orValue("").matches("(a*)*b") || ' * 120 + "true": "too long or costs too much",
}


@every(
    ("fields", "path", "message_part"),
    [
        ({"dialects": [table({"name": "our/mem", "place": "annotation", "role": "memory", "unit": "MiB"})]}, "keys/0/role", "container"),
        ({"dialects": [table({"name": "OUR_MEM", "place": "env", "role": "placed"})]}, "keys/0/role", "env"),
        ({"dialects": [table({"name": "cpu", "role": "count"})]}, "keys/0/name", "Kubernetes"),
        ({"dialects": [table({"name": "kubernetes.io/x", "role": "count"})]}, "keys/0/name", "Kubernetes"),
        ({"dialects": [table({"name": "our/x", "role": "profile"})]}, "keys/0/role", "profile"),
        ({"dialects": [table({"name": "nvidia.com/gpumem", "role": "memory", "unit": "MiB"})]}, "keys/0/name", "hami"),
        ({"dialects": [table({"name": "our/x"}), table({"name": "our/x"}, name="b")]}, "dialects/1/keys/0/name", "ours"),
        ({"dialects": [table({"name": "rdma/hca", "role": "nic"}, target="nic")]}, "keys/0/role", "RDMA"),
        ({"dialects": [table({"name": "our/x", "least": 3, "most": 2})]}, "keys/0/most", "below"),
        ({"classes": {"gpu": "dranet"}}, "/classes/gpu", "'nic'"),
        ({"targets": [{"name": "mi300", "driver": "d", "classes": ["gpu.amd.com"]}], "classes": {"gpu": "gpu.amd.com"}}, "/classes/gpu", "'mi300'"),
        ({"targets": [{"name": "gpu", "driver": "gpu.amd.com"}]}, "/targets/0/name", "exists"),
        ({"targets": [{"name": "mi300", "driver": ""}]}, "/targets/0/driver", "is empty"),
        ({"targets": [{"name": "mi300", "driver": "d", "instead": "x"}]}, "/targets/0/instead", "unknown target"),
        ({"targets": [{"name": "mi300"}]}, "/targets/0", "driver"),
        ({"targets": [{"name": "mi300", "driver": "d", "request": "GPU_"}]}, "/targets/0/request", "request"),
        ({"targets": [{"name": "mi300", "driver": "d", "unique": "uuid"}]}, "/targets/0/unique", "full name"),
        ({"targets": [{"name": "mi300", "driver": "dra.cpu", "cores": "dra.cpu/cpu"}]}, "/targets/0/cores", "the driver's domain"),
        ({"hami": {"defaultCores": 101}}, "/hami/defaultCores", "not from 0 to 100"),
        ({"nics": {"targets": {"rdma/a": "other"}}}, "/nics/targets/rdma~1a", "unknown target 'other'"),
        ({"nics": {"targets": {"nvidia.com/gpu": "nic"}}}, "/nics/targets/nvidia.com~1gpu", "not a pool"),
        ({"nics": {"targets": {"mlxnics": "vf"}}}, "/nics/targets/mlxnics", "not a resource name"),
        (
            {"nics": {"targets": {"rdma/a": "vf"}, "pools": ["rdma/a"]}},
            "/nics/targets/rdma~1a",
            "also named under `pools`",
        ),
        *(
            ({"targets": [{"name": "t", "driver": "dra.net", "selectors": [text]}]}, "/targets/0/selectors/0", message)
            for text, message in UNUSABLE_SELECTORS.items()
        ),
    ],
)  # fmt: skip
def test_an_invalid_table_target_or_class_is_rejected(fields, path, message_part):
    ((pointer, message),) = mistakes(**fields).items()
    assert pointer.endswith(path)
    assert message_part in message


def test_a_row_may_reuse_a_renamed_or_disabled_key():
    dialects = [table({"name": "nvidia.com/gpumem", "role": "memory", "unit": "MiB"}, target="vgpu")]
    assert configured(dialects=dialects, keys={"hami": {"nvidia.com/gpumem": ""}})
    assert configured(dialects=dialects, disabled=["hami"])


AMD = {
    "name": "mi300",
    "title": "AMD GPU",
    "driver": "gpu.amd.com",
    "classes": ["gpu.amd.com"],
    "unique": "gpu.amd.com/uuid",
}


def test_a_declared_device_kind_is_added():
    dialect = table({"name": "amd.example.com/gpu", "role": "count"}, target="mi300")
    verdict = verdict_of(
        pod({"amd.example.com/gpu": 2}, {"nvidia.com/gpu": 1}), targets=[AMD], dialects=[dialect], **WHOLE_GPUS
    )
    requests = [spec["spec"]["devices"]["requests"][0]["exactly"] for spec in verdict.templates.values()]
    assert {(request["deviceClassName"], request["count"]) for request in requests} == {
        ("gpu.amd.com", 2),
        ("gpu.nvidia.com", 1),
    }


def test_device_kinds_with_one_request_name_get_distinct_names():
    dialect = table({"name": "amd.example.com/gpu", "role": "count"}, target="mi300")
    joint = [{"primary": "nvidia.com/gpu", "secondary": "amd.example.com/gpu", "attribute": PCIE_ROOT}]
    target = {**AMD, "attributes": [PCIE_ROOT]}
    manifest = pod({"nvidia.com/gpu": 2, "amd.example.com/gpu": 2})
    verdict = verdict_of(manifest, targets=[target], dialects=[dialect], joint=joint, **WHOLE_GPUS)
    names = [request["name"] for request in devices(verdict)["requests"]]
    assert names == ["gpu-0", "gpu-beside-0", "gpu-1", "gpu-beside-1"]


def test_a_key_needing_an_undeclared_target_field_is_left_unchanged():
    target = {"name": "mi300", "driver": "gpu.amd.com", "classes": ["gpu.amd.com"]}
    rows = [{"name": "our/gpu", "role": "count"}, {"name": "our/mem", "role": "memory", "unit": "bytes"}]
    percent = {"name": "our/percent", "role": "memoryPercent"}
    config = {"targets": [target], "dialects": [table(*rows, percent, target="mi300")], **GPU_MODELS}
    two_gpus = verdict_of(pod({"our/gpu": 2, "our/mem": 5}), **config)
    percentage = verdict_of(pod({"our/percent": 50}), **config)
    assert untouched(two_gpus)
    assert "unique" in two_gpus.warnings[0]
    assert untouched(percentage)
    assert "product" in percentage.warnings[0]
    assert verdict_of(pod({"our/gpu": 1, "our/mem": 5}), **config).changed


def test_a_class_of_another_driver_does_not_serve_a_target():
    fleet = example_fleet_with(classes=[typed_class("odd", "device.driver == 'dra.net'")])
    verdict = verdict_of(pod({"nvidia.com/gpu": 1}), fleet=fleet, classes={"gpu": "odd"}, **WHOLE_GPUS)
    assert untouched(verdict)
    assert "dra.net" in verdict.warnings[0]
    assert "targets" in verdict.warnings[0]


def test_rdma_network_devices_are_requested_by_role():
    dialect = table({"name": "rdma/hca", "role": "rdma"}, target="nic")
    (request,) = exactly(verdict_of(pod({"rdma/hca": 1}), dialects=[dialect], fleet=example_fleet()))
    assert request["cel"] == ['device.attributes["dra.net"].?rdma.orValue(false)']


def test_a_label_of_a_custom_dialect_prevents_translation():
    rows = [
        {"name": "our/gpu", "role": "count"},
        {"name": "our/done", "place": "label", "role": "placed", "because": "x"},
    ]
    manifest = pod({"our/gpu": 1})
    assert verdict_of(manifest, dialects=[table(*rows)]).changed
    manifest["metadata"]["labels"] = {"our/done": "yes"}
    assert untouched(verdict_of(manifest, dialects=[table(*rows)]))


def test_keys_may_be_renamed_for_a_cluster():
    renamed = {"keys": {"hami": {"nvidia.com/gpumem": "our.org/vmem"}}}
    assert exactly(verdict_of(pod({"our.org/vmem": 100}), **renamed))[0]["class"] == HAMI
    assert untouched(verdict_of(pod({"nvidia.com/gpumem": 100}), **renamed))


def test_a_key_or_a_dialect_can_be_switched_off():
    manifest = pod({"nvidia.com/gpumem": 100})
    assert untouched(verdict_of(manifest, keys={"hami": {"nvidia.com/gpumem": ""}}))
    assert untouched(verdict_of(manifest, disabled=["hami"]))
