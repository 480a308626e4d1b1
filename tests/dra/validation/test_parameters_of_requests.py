"""The requests and devices of a claim to which an entry of driver parameters applies."""

import json

import pytest
import yaml

from cluster import manifests
from dra.objects import ResourceClaim, ResourceSlice
from dra.server import server_of
from dra.validation import review
from dra.validation.parameters.reach import claim_settings
from dra.wire import convert
from tests.dra.validation.driver_parameters import (
    GATE_FINDINGS,
    GPU,
    GPU_CLASS,
    PARAMETERS,
    SRIOV,
    claim_with,
    config,
    entry,
    picking,
    sharing,
    typed,
)
from tests.dra.validation.manifests import claim, class_, codes, codes_and_paths, join, messages, request
from tests.webhook.pods import EXAMPLES

# The requests and devices to which an entry applies


def test_parameters_for_a_driver_that_no_request_reaches_are_reported():
    text = claim_with("gpu.intel.com", {})
    assert ("D706", "/spec/devices/config/0/opaque/driver") in codes_and_paths(text, GPU_CLASS)
    # The finding also appears for an unknown driver, because the class selects another driver.
    assert codes(claim_with("gpu.example.com", {}), GPU_CLASS) == {"D706"}
    # A class may select devices of several drivers. The request's own selectors count, too.
    class_of_all = class_("c", "selectors: []")
    assert not codes(claim_with(GPU, typed("GpuConfig")), class_of_all)
    intel_request = request(
        exactly="deviceClassName: c, selectors: [{cel: {expression: \"device.driver == 'gpu.intel.com'\"}}]"
    )
    assert codes(claim(intel_request, config(entry(GPU, typed("GpuConfig")))), class_of_all) == {"D706"}


def test_parameters_for_a_class_of_unknown_devices_are_not_reported():
    assert not codes(claim_with(GPU, typed("GpuConfig")))
    guarded = class_("c", f"selectors: [{{cel: {{expression: \"has(device.attributes['{GPU}'].uuid)\"}}}}]")
    assert not codes(claim_with(GPU, typed("GpuConfig")), guarded)
    broken = class_("c", 'selectors: [{cel: {expression: "device.driver =="}}]')
    assert not codes(claim_with(GPU, typed("GpuConfig")), broken)


def test_further_conditions_in_a_selector_hide_no_driver():
    condition = f"device.attributes['{GPU}'].?productName.orValue('') == 'x'"
    and_class = class_("c", f"selectors: [{{cel: {{expression: \"device.driver == '{GPU}' && {condition}\"}}}}]")
    assert codes(claim_with("gpu.example.com", {}), and_class) == {"D706"}
    assert not codes(claim_with(GPU, typed("GpuConfig")), and_class)
    or_class = class_("c", f"selectors: [{{cel: {{expression: \"device.driver == '{GPU}' || {condition}\"}}}}]")
    assert not codes(claim_with("gpu.example.com", {}), or_class)


TWO_REQUESTS = "    - {name: one, exactly: {deviceClassName: c}}\n    - {name: two, exactly: {deviceClassName: m}}"
TWO_CLASSES = join(GPU_CLASS, picking(GPU, "mig", "m"))


def test_parameters_of_another_kind_for_a_request_are_reported():
    gpu = typed("GpuConfig")
    assert not codes(claim(TWO_REQUESTS, config(entry(GPU, gpu))), TWO_CLASSES)
    assert not codes(claim(TWO_REQUESTS, config(entry(GPU, gpu, ["one"]))), TWO_CLASSES)
    assert codes_and_paths(claim(TWO_REQUESTS, config(entry(GPU, gpu, ["two"]))), TWO_CLASSES) == {
        ("D705", f"{PARAMETERS}/kind")
    }
    assert "write kind: MigDeviceConfig" in " ".join(
        messages(claim(TWO_REQUESTS, config(entry(GPU, gpu, ["two"]))), TWO_CLASSES)
    )


def test_an_entry_naming_a_request_of_another_kind_is_reported():
    three_requests = TWO_REQUESTS + "\n    - {name: three, exactly: {deviceClassName: c}}"
    two_of_three = claim(three_requests, config(entry(GPU, typed("GpuConfig"), ["one", "two"])))
    assert codes_and_paths(two_of_three, TWO_CLASSES) == {("D705", f"{PARAMETERS}/kind")}
    # Kubernetes clears a list that names all requests, and the entry then applies where its kind fits.
    all_three = claim(three_requests, config(entry(GPU, typed("GpuConfig"), ["one", "two", "three"])))
    assert not codes(all_three, TWO_CLASSES)


REQUEST_WITH_ALTERNATIVES = """    - {name: one, exactly: {deviceClassName: c}}
    - {name: two, firstAvailable: [{name: a, deviceClassName: c}, {name: b, deviceClassName: c}]}"""


def test_an_entry_naming_a_request_with_alternatives_is_reported():
    gpu = typed("GpuConfig")
    text = claim(REQUEST_WITH_ALTERNATIVES, config(entry(GPU, gpu, ["two"])))
    assert codes_and_paths(text, GPU_CLASS) == {("D707", "/spec/devices/config/0/requests/0")}
    assert "name two/a, two/b instead" in " ".join(messages(text, GPU_CLASS))
    assert not codes(claim(REQUEST_WITH_ALTERNATIVES, config(entry(GPU, gpu, ["two/a", "two/b"]))), GPU_CLASS)
    # Kubernetes clears a list that names all requests, and an empty list applies to all requests.
    assert not codes(claim(REQUEST_WITH_ALTERNATIVES, config(entry(GPU, gpu, ["one", "two"]))), GPU_CLASS)


def test_an_sriov_entry_that_names_no_request_is_reported():
    vf = typed("VfConfig", f"{SRIOV}/v1alpha1", netAttachDefName="net")
    two_requests = "    - {name: one, exactly: {deviceClassName: c}}\n    - {name: two, exactly: {deviceClassName: c}}"
    class_of = picking(SRIOV)
    finding = ("D707", "/spec/devices/config/0/requests")
    assert codes_and_paths(claim_with(SRIOV, vf), class_of) == {finding}
    assert codes_and_paths(claim_with(SRIOV, vf, ["r"]), class_of) == {finding}
    assert not codes(claim(two_requests, config(entry(SRIOV, vf, ["one"]), entry(SRIOV, vf, ["two"]))), class_of)
    both_for_one = config(entry(SRIOV, vf, ["one"]), entry(SRIOV, vf | {"ifName": "net1"}, ["one"]))
    assert not codes(claim(two_requests, both_for_one), class_of)  # the driver merges both entries
    with_lost_fields = vf | {"addVhostMount": True, "netAttachDefName": ""}
    assert codes(claim(two_requests, config(entry(SRIOV, with_lost_fields, ["one"]))), class_of) == {"D708", "D709"}


@pytest.mark.parametrize(("minor", "finds"), [(36, False), (37, True)])
def test_only_newer_servers_clear_a_list_that_names_every_request(minor, finds):
    vf = typed("VfConfig", f"{SRIOV}/v1alpha1", netAttachDefName="net")
    objects = [*yaml.safe_load_all(claim_with(SRIOV, vf, ["r"])), *yaml.safe_load_all(picking(SRIOV))]
    findings = review(objects, server=server_of(minor))
    assert any(finding.code == "D707" for finding in findings[0]) is finds


def test_an_entry_that_another_entry_overrides_is_reported():
    gpu, net = typed("GpuConfig"), {"interface": {"mtu": 9000}}
    assert codes_and_paths(
        claim(request(exactly="deviceClassName: c"), config(entry(GPU, gpu), entry(GPU, gpu))), GPU_CLASS
    ) == {("D708", "/spec/devices/config/0")}
    two = claim(request(exactly="deviceClassName: c"), config(entry("dra.net", net), entry("dra.net", net)))
    assert codes_and_paths(two, picking("dra.net")) == {("D708", "/spec/devices/config/1")}
    for_different_requests = config(entry(GPU, gpu), entry(GPU, gpu, ["one"]))
    assert not codes(claim(TWO_REQUESTS, for_different_requests), join(GPU_CLASS, picking(GPU, "gpu", "m")))
    kinds = config(entry(GPU, gpu), entry(GPU, typed("MigDeviceConfig")))
    assert not codes(claim(TWO_REQUESTS, kinds), TWO_CLASSES)


# Settings for sharing, compared with the request


def limited(*names, count=1):
    limits = sharing("MPS", mpsConfig={"defaultPerDevicePinnedMemoryLimit": dict.fromkeys(names, "1Gi")})
    return claim(request(exactly=f"deviceClassName: c, count: {count}"), config(entry(GPU, limits)))


def test_a_limit_for_a_device_beyond_the_count_is_reported():
    pointer = f"{PARAMETERS}/sharing/mpsConfig/defaultPerDevicePinnedMemoryLimit"
    assert codes(limited("0", "GPU-1"), GPU_CLASS) <= GATE_FINDINGS
    assert ("D703", f"{pointer}/1") in codes_and_paths(limited("0", "1"), GPU_CLASS)
    assert codes(limited("0", "1", count=2), GPU_CLASS) <= GATE_FINDINGS
    assert ("D703", f"{pointer}/2") in codes_and_paths(limited("2", count=2), GPU_CLASS)
    mode_all = limited("7").replace("count: 1", "allocationMode: All")
    assert codes(mode_all, GPU_CLASS) <= GATE_FINDINGS


def test_mps_with_a_request_for_shares_is_reported():
    mps = config(entry(GPU, sharing("MPS")))
    for name in ("shares", f"{GPU}/shares"):
        text = claim(request(exactly=f"deviceClassName: c, capacity: {{requests: {{{name}: 1}}}}"), mps)
        assert ("D704", f"{PARAMETERS}/sharing/strategy") in codes_and_paths(text, GPU_CLASS)
    memory = claim(request(exactly="deviceClassName: c, capacity: {requests: {memory: 1Gi}}"), mps)
    assert codes(memory, GPU_CLASS) <= GATE_FINDINGS


VFIO = typed("VfioDeviceConfig")
VFIO_CLASSES = join(picking(GPU, "vfio"), picking(GPU, "gpu", "m"))
TWO_OF_ONE_CLASS = TWO_REQUESTS.replace("deviceClassName: m", "deviceClassName: c")


@pytest.mark.parametrize(
    ("requests", "entries", "refused"),
    [
        (TWO_OF_ONE_CLASS, [entry(GPU, VFIO)], False),
        (TWO_OF_ONE_CLASS, [entry(GPU, VFIO, ["one", "two"])], False),
        (TWO_OF_ONE_CLASS, [entry(GPU, VFIO, ["one"])], True),
        (TWO_OF_ONE_CLASS, [entry(GPU, VFIO, ["one"]), entry(GPU, VFIO, ["two"])], True),
        (TWO_OF_ONE_CLASS, [], False),
        (TWO_REQUESTS, [entry(GPU, VFIO, ["one"])], False),
    ],
    ids=[
        "an entry for all",
        "an entry that names all",
        "an entry for one of two",
        "an entry for each",
        "no entry",
        "only one VFIO device",
    ],
)
def test_two_setups_of_vfio_devices_in_one_claim_are_reported(requests, entries, refused):
    reported = codes_and_paths(claim(requests, config(*entries)), VFIO_CLASSES)
    assert (("D704", "/spec/devices/config") in reported) is refused
    assert {code for code, _ in reported} <= GATE_FINDINGS | ({"D704"} if refused else set())


def sharing_pod(*names, by="resourceClaimTemplateName"):
    containers = [{"name": name, "image": "x", "resources": {"claims": [{"name": "gpu"}]}} for name in names]
    spec = {"containers": containers, "resourceClaims": [{"name": "gpu", by: "t"}]}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})


def shared_template(parameters, kind="ResourceClaimTemplate", **fields):
    exactly = {"deviceClassName": "c"} | fields
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}], "config": [entry(GPU, parameters)]}}
    spec = {"spec": spec} if kind == "ResourceClaimTemplate" else spec
    return json.dumps({"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": "t"}, "spec": spec})


def test_sharing_with_a_single_container_is_reported():
    finding = ("D708", "/spec/resourceClaims/0")
    mps = shared_template(sharing("MPS"))
    assert finding in codes_and_paths(join(mps, sharing_pod("main")))
    assert finding not in codes_and_paths(join(mps, sharing_pod("main", "other")))
    assert finding not in codes_and_paths(join(shared_template(typed("GpuConfig")), sharing_pod("main")))
    # Other pods may use the same device, through other shares or through the same ResourceClaim.
    with_share = shared_template(sharing("TimeSlicing"), capacity={"requests": {"shares": "1"}})
    assert finding not in codes_and_paths(join(with_share, sharing_pod("main")))
    claim_of_many = shared_template(sharing("MPS"), "ResourceClaim")
    assert finding not in codes_and_paths(join(claim_of_many, sharing_pod("main", by="resourceClaimName")))


@pytest.mark.parametrize(("without", "strategy", "is_reported"), [("", "MPS", True), ("", "TimeSlicing", False), ("counters", "MPS", False)])  # fmt: skip
def test_mps_is_refused_where_all_nodes_have_dynamic_mig(without, strategy, is_reported):
    fleet = [document.object for document in manifests.read([EXAMPLES / "partitions" / "nvidia-dynamic-mig.yaml"])]
    slices = [obj for obj in fleet if obj["kind"] == "ResourceSlice"]
    if without:  # one of the two nodes runs without DynamicMIG
        slices = [slice_ for slice_ in slices if slice_["metadata"]["name"] != f"h100-dynamic-1-{GPU}-{without}"]
    devices = convert(yaml.safe_load(claim_with(GPU, sharing(strategy))), ResourceClaim).spec.devices
    typed_slices = [convert(slice_, ResourceSlice) for slice_ in slices]
    problems = [
        (claim_setting.code, claim_setting.path)
        for claim_setting in claim_settings(devices, "", {}, slices=typed_slices)
    ]
    assert (("D704", "/config/0/opaque/parameters/sharing/strategy") in problems) is is_reported
