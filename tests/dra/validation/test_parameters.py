"""What drivers read of the parameters in claims and classes: schemas, and what an entry reaches."""

import json
import random
import time

import pytest
import yaml

from dra.objects import OpaqueDeviceConfiguration, ResourceClaim, ResourceSlice
from dra.validation.parameters.entries import DRIVERS, parameter_problems, read_members
from dra.validation.parameters.reach import claim_settings
from dra.validation.parameters.scope import DeviceScope, conjuncts
from dra.wire import Opaque, convert
from tests.dra.validation.manifests import claim, class_, codes, found, join, messages, request
from tests.webhook.pods import EXAMPLES

NVIDIA = "resource.nvidia.com/v1beta1"
SRIOV = "sriovnetwork.k8snetworkplumbingwg.io"
UID = "6f3e2f5c-0d2b-4c61-9a7e-0b1c2d3e4f50"
PARAMETERS = "/spec/devices/config/0/opaque/parameters"


def typed(kind, version=NVIDIA, **fields):
    return {"apiVersion": version, "kind": kind, **fields}


def sharing(strategy, kind="GpuConfig", **fields):
    return typed(kind, sharing={"strategy": strategy, **fields})


def entry(driver, parameters, requests=()):
    opaque = {"driver": driver, "parameters": parameters}
    return {"requests": list(requests), "opaque": opaque}


def of_class(driver, parameters):
    return {"opaque": {"driver": driver, "parameters": parameters}}


def config(*entries):
    return f"    config: {json.dumps(entries)}"


def asked(driver, parameters, requests=()):
    """A claim for one device of class `c`, with an entry of parameters."""
    return claim(request(exactly="deviceClassName: c"), config(entry(driver, parameters, requests)))


def picking(driver, type_="", name="c"):
    """A class as the drivers' charts write them."""
    text = f"device.driver == '{driver}'"
    if type_:
        text += f" && device.attributes['{driver}'].type == '{type_}'"
    return class_(name, f'selectors: [{{cel: {{expression: "{text}"}}}}]')


CILIUM = "networkdriver.cilium.io"
CNI = "cni.dra.networking.x-k8s.io"
GPU = "gpu.nvidia.com"
MIG = "mig"
HAMI = "hami-core-gpu.project-hami.io"
DOMAIN = "compute-domain.nvidia.com"
GPU_CLASS = picking(GPU, "gpu")
# Driver, class, parameters: what their drivers take, and nothing is to be said about.
GOOD = {
    "gpu": (GPU, GPU_CLASS, typed("GpuConfig")),
    "vfio": (GPU, picking(GPU, "vfio"), typed("VfioDeviceConfig", iommu={"backendPolicy": "PreferIommuFD", "enableAPIDevice": True})),
    "mig": (GPU, picking(GPU, "mig"), typed("MigDeviceConfig", sharing=None)),
    "hami": (HAMI, picking(HAMI, "hami-gpu"), typed("GpuConfig")),
    "channel": (DOMAIN, picking(DOMAIN, "channel"), typed("ComputeDomainChannelConfig", domainID=UID, allocationMode="All")),
    "daemon": (DOMAIN, picking(DOMAIN, "daemon"), typed("ComputeDomainDaemonConfig", domainID=UID)),
    "dranet, nothing": ("dra.net", picking("dra.net"), {}),
    "dranet": ("dra.net", picking("dra.net"), {
        "interface": {"name": "net0", "addresses": ["192.0.2.1/24", "2001:db8::1/64"], "mtu": 9000, "arpIgnore": 8,
                      "hardwareAddr": "02:00:5e:10:00:01", "vrf": {"name": "vrf0", "table": 252}},
        "routes": [{"destination": "0.0.0.0/0", "gateway": "192.0.2.254"}, {"destination": "198.51.100.0/24", "scope": 253}],
        "neighbors": [{"destination": "192.0.2.7", "hardwareAddr": "0200.5e10.0001"}],
        "ethtool": {"features": {"tcp-segmentation-offload": False}},
    }),
    "amd": ("gpu.amd.com", picking("gpu.amd.com"), typed("GpuConfig", "gpu.resource.amd.com/v1alpha1")),
    "unknown driver": ("gpu.example.com", picking("gpu.example.com"), {"anything": {"at": ["all"]}}),
}  # fmt: skip
# Driver, class, parameters, and the one thing that is said: code and pointer below the parameters.
BAD = [
    (GPU, GPU_CLASS, {"kind": "GpuConfig"}, "D701", ""),
    (GPU, GPU_CLASS, {"apiVersion": NVIDIA}, "D701", ""),
    (GPU, GPU_CLASS, typed("GpuConfig", "gpu.nvidia.com/v1alpha1"), "D701", "/apiVersion"),
    (GPU, GPU_CLASS, typed("GPUConfig"), "D701", "/kind"),
    (GPU, GPU_CLASS, typed("GpuConfig", sharin={}), "D702", "/sharin"),
    (GPU, GPU_CLASS, typed("GpuConfig", strategy="MPS"), "D702", "/strategy"),
    (GPU, GPU_CLASS, typed("GpuConfig", sharing={}), "D703", "/sharing"),
    (GPU, GPU_CLASS, typed("GpuConfig", sharing=[]), "D703", "/sharing"),
    (GPU, GPU_CLASS, sharing("timeslicing"), "D703", "/sharing/strategy"),
    (GPU, GPU_CLASS, sharing("TimeSlicing", timeSlicingConfig={}), "D703", "/sharing/timeSlicingConfig"),
    (GPU, GPU_CLASS, sharing("TimeSlicing", timeSlicingConfig={"interval": "long"}), "D703", "/sharing/timeSlicingConfig/interval"),
    (GPU, GPU_CLASS, sharing("MPS", mpsConfig={"defaultActiveThreadPercentage": 101}), "D703", "/sharing/mpsConfig/defaultActiveThreadPercentage"),
    (GPU, GPU_CLASS, sharing("MPS", mpsConfig={"defaultActiveThreadPercentage": "50"}), "D703", "/sharing/mpsConfig/defaultActiveThreadPercentage"),
    (GPU, GPU_CLASS, sharing("MPS", mpsConfig={"defaultPinnedDeviceMemoryLimit": "1000Ki"}), "D703", "/sharing/mpsConfig/defaultPinnedDeviceMemoryLimit"),
    (GPU, GPU_CLASS, sharing("MPS", mpsConfig={"defaultPinnedDeviceMemoryLimit": "8GiB"}), "D703", "/sharing/mpsConfig/defaultPinnedDeviceMemoryLimit"),
    (GPU, GPU_CLASS, sharing("MPS", mpsConfig={"defaultPerDevicePinnedMemoryLimit": {"gpu0": "1Gi"}}), "D703", "/sharing/mpsConfig/defaultPerDevicePinnedMemoryLimit/gpu0"),
    (GPU, GPU_CLASS, sharing("MPS", mpsConfig={"multiUser": "yes"}), "D703", "/sharing/mpsConfig/multiUser"),
    (GPU, GPU_CLASS, sharing("MPS", timeSlicingConfig={"interval": "Long"}), "D704", "/sharing/timeSlicingConfig"),
    (GPU, GPU_CLASS, sharing("TimeSlicing", mpsConfig={}), "D704", "/sharing/mpsConfig"),
    (GPU, picking(GPU, "mig"), sharing("MPS", "MigDeviceConfig", timeSlicingConfig={"interval": "Long"}), "D702", "/sharing/timeSlicingConfig"),
    (GPU, picking(GPU, "mig"), sharing("TimeSlicing", "MigDeviceConfig"), "D708", "/sharing/strategy"),
    (GPU, picking(GPU, "mig"), sharing("TimeSlicing", "MigDeviceConfig", mpsConfig={}), "D704", "/sharing/mpsConfig"),
    (GPU, picking(GPU, "vfio"), typed("VfioDeviceConfig", iommu={"backendPolicy": "IommuFD"}), "D703", "/iommu/backendPolicy"),
    (GPU, picking(GPU, "mig"), typed("GpuConfig"), "D705", "/kind"),
    (GPU, picking(GPU, "vfio"), sharing("MPS"), "D705", "/kind"),
    (HAMI, picking(HAMI, "hami-gpu"), typed("MigDeviceConfig"), "D705", "/kind"),
    (DOMAIN, picking(DOMAIN, "channel"), typed("ComputeDomainDaemonConfig", domainID=UID), "D705", "/kind"),
    (DOMAIN, picking(DOMAIN, "channel"), typed("ComputeDomainChannelConfig"), "D703", ""),
    (DOMAIN, picking(DOMAIN, "channel"), typed("ComputeDomainChannelConfig", domainID="training"), "D703", "/domainID"),
    (DOMAIN, picking(DOMAIN, "channel"), typed("ComputeDomainChannelConfig", domainID=UID, allocationMode="Every"), "D703", "/allocationMode"),
    (DOMAIN, picking(DOMAIN, "daemon"), typed("ComputeDomainDaemonConfig", domainID=UID, allocationMode="All"), "D702", "/allocationMode"),
    (GPU, GPU_CLASS, typed("ComputeDomainChannelConfig", domainID=UID), "D701", "/kind"),
    ("dra.net", picking("dra.net"), {"kind": "NetworkConfig"}, "D702", "/kind"),
    ("dra.net", picking("dra.net"), {"interface": {"name": "a-name-of-16-let"}}, "D703", "/interface/name"),
    ("dra.net", picking("dra.net"), {"interface": {"name": "a/b"}}, "D703", "/interface/name"),
    ("dra.net", picking("dra.net"), {"interface": {"mtu": 67}}, "D703", "/interface/mtu"),
    ("dra.net", picking("dra.net"), {"interface": {"addresses": ["192.0.2.1"]}}, "D703", "/interface/addresses/0"),
    ("dra.net", picking("dra.net"), {"interface": {"addresses": ["fe80::1%eth0/64"]}}, "D703", "/interface/addresses/0"),
    ("dra.net", picking("dra.net"), {"interface": {"hardwareAddr": "02:00:5e"}}, "D703", "/interface/hardwareAddr"),
    ("dra.net", picking("dra.net"), {"interface": {"arpIgnore": 4}}, "D703", "/interface/arpIgnore"),
    ("dra.net", picking("dra.net"), {"interface": {"vrf": {"name": "v", "table": 254}}}, "D703", "/interface/vrf/table"),
    ("dra.net", picking("dra.net"), {"interface": {"vrf": {"table": 5}}}, "D703", "/interface/vrf"),
    ("dra.net", picking("dra.net"), {"interface": {"dhcp": True, "addresses": ["192.0.2.1/24"]}}, "D704", "/interface/dhcp"),
    ("dra.net", picking("dra.net"), {"interface": {"vrf": {"name": "v"}}, "rules": [{"priority": 1}]}, "D704", "/rules"),
    ("dra.net", picking("dra.net"), {"routes": [{"destination": "0.0.0.0/0"}]}, "D703", "/routes/0"),
    ("dra.net", picking("dra.net"), {"routes": [{"destination": "0.0.0.0/0", "gateway": "2001:db8::1"}]}, "D703", "/routes/0/gateway"),
    ("dra.net", picking("dra.net"), {"routes": [{"destination": "0.0.0.0/0", "gateway": "192.0.2.1", "scope": 200}]}, "D703", "/routes/0/scope"),
    ("dra.net", picking("dra.net"), {"rules": [{"priority": 40000}]}, "D703", "/rules/0/priority"),
    ("dra.net", picking("dra.net"), {"rules": [{"source": "192.0.2.0/24", "destination": "2001:db8::/32"}]}, "D703", "/rules/0/destination"),
    ("dra.net", picking("dra.net"), {"neighbors": [{"destination": "192.0.2.7"}]}, "D703", "/neighbors/0"),
    ("dra.net", picking("dra.net"), {"ethtool": {"features": {"tso": "on"}}}, "D703", "/ethtool/features/tso"),
    ("gpu.amd.com", picking("gpu.amd.com"), typed("GpuConfig", "gpu.resource.amd.com/v1alpha1", sharing={}), "D702", "/sharing"),
    ("gpu.amd.com", picking("gpu.amd.com"), typed("GpuConfig"), "D701", "/apiVersion"),
    ("gpu.intel.com", picking("gpu.intel.com"), {"sharing": {}}, "D708", ""),
]  # fmt: skip
# The same of drivers that read an entry only for requests that it names.
MACVLAN = {
    "cniVersion": "1.0.0",
    "name": "macvlan-eth0",
    "plugins": [{"type": "macvlan", "master": "eth0", "ipam": {"type": "host-local"}}],
}
LISTED = [
    (CILIUM, {}, None, ""),
    (CILIUM, {"podIfName": "sriov0", "vlan": 1001, "interfaceSysctlIPv4": {"arp_filter": "1"}}, None, ""),
    (CILIUM, {"ipv4Addr": "192.0.2.1/24", "ipv6Addr": "2001:db8::1/64"}, None, ""),
    (CILIUM, {"podIfName": "cilium_net"}, "D703", "/podIfName"),
    (CILIUM, {"podIfName": "a-name-of-16-let"}, "D703", "/podIfName"),
    (CILIUM, {"vlan": 4095}, "D703", "/vlan"),
    (CILIUM, {"vlan": "7"}, "D703", "/vlan"),
    (CILIUM, {"ipv4Addr": "2001:db8::1/64"}, "D703", "/ipv4Addr"),
    (CILIUM, {"ipv4Addr": "192.0.2.1"}, "D703", "/ipv4Addr"),
    (CILIUM, {"ipPool": "blue", "ipv4Addr": "192.0.2.1/24"}, "D704", "/ipv4Addr"),
    (CILIUM, {"interfaceSysctlIPv4": {"arp_filter": ""}}, "D703", "/interfaceSysctlIPv4/arp_filter"),
    (CILIUM, {"interfaceSysctlIPv4": {"a/b": "1"}}, "D703", "/interfaceSysctlIPv4/a~1b"),
    (CILIUM, {"ip-pool": "blue"}, "D702", "/ip-pool"),
    (CNI, typed("CNI", "cni.networking.x-k8s.io/v1alpha1", ifName="net1", config=MACVLAN), None, ""),
    (CNI, {"ifName": "net1", "config": MACVLAN | {"disableCheck": True}}, None, ""),
    (CNI, {"config": MACVLAN}, "D703", ""),
    (CNI, {"ifName": "", "config": MACVLAN}, "D703", "/ifName"),
    (CNI, {"ifName": "a/b", "config": MACVLAN}, "D703", "/ifName"),
    (CNI, {"ifName": "net1"}, "D703", ""),
    (CNI, {"ifName": "net1", "config": {"name": "n", "cniVersion": "1.0.0", "type": "macvlan"}}, "D703", "/config"),
    (CNI, {"ifName": "net1", "config": MACVLAN | {"plugins": []}}, "D703", "/config/plugins"),
    (CNI, {"ifName": "net1", "config": MACVLAN | {"plugins": [{"type": "macvlan", "mode": "brige"}]}}, "D703", "/config/plugins/0/mode"),
    (CNI, {"ifName": "net1", "config": MACVLAN | {"plugins": [{"type": "ipvlan", "mode": "l4"}]}}, "D703", "/config/plugins/0/mode"),
    (CNI, {"ifName": "net1", "config": MACVLAN | {"plugins": [{"type": "vlan", "vlanId": 99999}]}}, "D703", "/config/plugins/0/vlanId"),
    (CNI, {"ifName": "net1", "config": MACVLAN | {"plugins": [{"type": "sriov", "vlan": 4095}]}}, "D703", "/config/plugins/0/vlan"),
    (CNI, {"ifName": "net1", "config": MACVLAN | {"plugins": [{"type": "macvlan", "ipam": {"type": "host-local", "subnet": "nonsense"}}]}}, "D703", "/config/plugins/0/ipam/subnet"),
    (CNI, {"ifName": "net1", "config": MACVLAN | {"plugins": [{"type": "macvlan", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.0.0.0/33"}]]}}]}}, "D703", "/config/plugins/0/ipam/ranges/0/0/subnet"),
    (CNI, {"ifName": "net1", "config": MACVLAN | {"plugins": [{"master": "eth0"}]}}, "D703", "/config/plugins/0"),
    (CNI, {"ifName": "net1", "config": MACVLAN | {"cniVersion": 1.0}}, "D703", "/config/cniVersion"),
    (CNI, {"ifname": "net1", "ifName": "net1", "config": MACVLAN}, "D702", "/ifname"),
]  # fmt: skip
# What depends on how the driver runs is said beside whatever else is.
GATES = {"D709"}


@pytest.mark.parametrize("name", GOOD)
def test_parameters_that_a_driver_accepts_are_not_reported(name):
    driver, class_of, parameters = GOOD[name]
    assert codes(asked(driver, parameters), class_of) <= GATES


@pytest.mark.parametrize(("driver", "class_of", "parameters", "code", "where"), BAD)
def test_parameters_that_a_driver_refuses_are_reported_at_their_path(driver, class_of, parameters, code, where):
    told = {one for one in found(asked(driver, parameters), class_of) if one[0] not in GATES}
    assert told == {(code, PARAMETERS + where)}


@pytest.mark.parametrize(("driver", "parameters", "code", "where"), LISTED)
def test_parameters_of_drivers_that_read_them_for_named_requests(driver, parameters, code, where):
    more = request(exactly="deviceClassName: c") + "\n    - {name: other, exactly: {deviceClassName: c}}"
    told = found(claim(more, config(entry(driver, parameters, ["r"]))), picking(driver))
    assert told == ({(code, PARAMETERS + where)} if code else set())
    assert ("D707", "/spec/devices/config/0/requests") in found(asked(driver, parameters), picking(driver))


def test_of_a_cni_configuration_only_what_is_read_is_kept():
    secret = {"ifName": "net1", "config": {**MACVLAN, "args": {"password": "hunter2"}}}
    assert "hunter2" not in json.dumps(read_members(secret))
    assert "host-local" not in json.dumps(read_members(secret))
    assert '"macvlan"' in json.dumps(read_members(secret))


@pytest.mark.parametrize("driver", sorted(DRIVERS))
def test_every_driver_has_cases(driver):
    assert driver in {case[0] for case in (*BAD, *LISTED)} | {SRIOV, "gaudi.intel.com", "qat.intel.com"}
    kinds = {case[2].get("kind") for case in [*GOOD.values(), *BAD] if case[0] == driver and case[2]}
    assert (
        set(DRIVERS[driver].kinds)
        - {"NetworkConfig", "VfConfig", "VfioDeviceConfig", "MigDeviceConfig", "CNIConfig", "DeviceConfig"}
        <= kinds
    )


def test_a_class_is_judged_like_a_claim():
    entries = json.dumps([of_class(GPU, sharing("Fair"))])
    text = class_("c", f"selectors: [], config: {entries}")
    assert found(text) == {("D703", "/spec/config/0/opaque/parameters/sharing/strategy")}
    wrong = class_("c", f"{_selectors(GPU, 'mig')}, config: {json.dumps([of_class(GPU, typed('GpuConfig'))])}")
    assert found(wrong) == {("D705", "/spec/config/0/opaque/parameters/kind")}
    other = class_("c", f"{_selectors(GPU)}, config: {json.dumps([of_class('gpu.example.com', {})])}")
    assert found(other) == {("D313", "/spec/config/0/opaque/driver")}


def _selectors(driver, type_=""):
    return picking(driver, type_).rpartition("spec: {")[2].rpartition("}")[0]


def test_a_template_is_judged_like_a_claim():
    body = json.dumps({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "t"},
        "spec": {"spec": {"devices": {
            "requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}],
            "config": [entry(GPU, typed("GpuConfig", sharin={}))],
        }}},
    })  # fmt: skip
    assert found(body, GPU_CLASS) == {("D702", "/spec/spec/devices/config/0/opaque/parameters/sharin")}


def test_a_strategy_behind_a_gate_is_said_to_be_one():
    for strategy, gate in (("TimeSlicing", "TimeSlicingSettings"), ("MPS", "MPSSupport")):
        text = asked(GPU, sharing(strategy))
        assert found(text, GPU_CLASS) == {("D709", f"{PARAMETERS}/sharing/strategy")}
        assert gate in " ".join(messages(text, GPU_CLASS))
    vfio = asked(GPU, typed("VfioDeviceConfig"))
    assert found(vfio, picking(GPU, "vfio")) == {("D709", PARAMETERS)}
    assert "PassthroughSupport" in " ".join(messages(vfio, picking(GPU, "vfio")))


def test_a_mistaken_parameter_is_reported_with_the_likely_correction():
    def said(parameters, driver=GPU):
        return " ".join(messages(asked(driver, parameters), picking(driver)))

    assert "did you mean sharing?" in said(typed("GpuConfig", sharin={}))
    assert "did you mean TimeSlicing?" in said(sharing("timeslicing"))
    assert "did you mean GpuConfig?" in said(typed("GPUConfig"))
    assert f"write apiVersion: {NVIDIA}" in said(typed("GpuConfig", "nvidia.com/v1"))
    assert f"it is a kind of {DOMAIN}" in said(typed("ComputeDomainChannelConfig", domainID=UID))
    assert "put it below sharing:" in said(typed("GpuConfig", strategy="MPS"))
    assert "not by its name" in said(typed("ComputeDomainChannelConfig", domainID="training"), DOMAIN)


# What an entry reaches


def test_parameters_for_a_driver_whose_devices_no_request_can_get():
    text = asked("gpu.intel.com", {})
    assert ("D706", "/spec/devices/config/0/opaque/driver") in found(text, GPU_CLASS)
    # An unknown driver is judged as well: the class says it.
    assert codes(asked("gpu.example.com", {}), GPU_CLASS) == {"D706"}
    # The request's own selectors count, and a class that may pick from several drivers.
    wide = class_("c", "selectors: []")
    assert not codes(asked(GPU, typed("GpuConfig")), wide)
    only = request(exactly="deviceClassName: c, selectors: [{cel: {expression: \"device.driver == 'gpu.intel.com'\"}}]")
    assert codes(claim(only, config(entry(GPU, typed("GpuConfig")))), wide) == {"D706"}


def test_parameters_for_a_class_of_unknown_devices_are_not_reported():
    assert not codes(asked(GPU, typed("GpuConfig")))
    guarded = class_("c", f"selectors: [{{cel: {{expression: \"has(device.attributes['{GPU}'].uuid)\"}}}}]")
    assert not codes(asked(GPU, typed("GpuConfig")), guarded)
    broken = class_("c", 'selectors: [{cel: {expression: "device.driver =="}}]')
    assert not codes(asked(GPU, typed("GpuConfig")), broken)


def test_a_part_that_reads_more_does_not_hide_the_driver():
    more = f"device.attributes['{GPU}'].?productName.orValue('') == 'x'"
    both = class_("c", f"selectors: [{{cel: {{expression: \"device.driver == '{GPU}' && {more}\"}}}}]")
    assert codes(asked("gpu.example.com", {}), both) == {"D706"}
    assert not codes(asked(GPU, typed("GpuConfig")), both)
    either = class_("c", f"selectors: [{{cel: {{expression: \"device.driver == '{GPU}' || {more}\"}}}}]")
    assert not codes(asked("gpu.example.com", {}), either)


TWO = "    - {name: one, exactly: {deviceClassName: c}}\n    - {name: two, exactly: {deviceClassName: m}}"
TWO_CLASSES = join(GPU_CLASS, picking(GPU, "mig", "m"))


def test_a_kind_for_other_requests_is_wrong_by_name_only():
    gpu = typed("GpuConfig")
    assert not codes(claim(TWO, config(entry(GPU, gpu))), TWO_CLASSES)
    assert not codes(claim(TWO, config(entry(GPU, gpu, ["one"]))), TWO_CLASSES)
    assert found(claim(TWO, config(entry(GPU, gpu, ["two"]))), TWO_CLASSES) == {("D705", f"{PARAMETERS}/kind")}
    assert "write kind: MigDeviceConfig" in " ".join(
        messages(claim(TWO, config(entry(GPU, gpu, ["two"]))), TWO_CLASSES)
    )


def test_one_unsuitable_request_makes_the_driver_refuse_the_list():
    three = TWO + "\n    - {name: three, exactly: {deviceClassName: c}}"
    some = claim(three, config(entry(GPU, typed("GpuConfig"), ["one", "two"])))
    assert found(some, TWO_CLASSES) == {("D705", f"{PARAMETERS}/kind")}
    every = claim(three, config(entry(GPU, typed("GpuConfig"), ["one", "two", "three"])))
    assert not codes(every, TWO_CLASSES)


ALTERNATIVES = """    - {name: one, exactly: {deviceClassName: c}}
    - {name: two, firstAvailable: [{name: a, deviceClassName: c}, {name: b, deviceClassName: c}]}"""


def test_a_driver_looks_for_the_alternative_that_was_taken():
    gpu = typed("GpuConfig")
    text = claim(ALTERNATIVES, config(entry(GPU, gpu, ["two"])))
    assert found(text, GPU_CLASS) == {("D707", "/spec/devices/config/0/requests/0")}
    assert "name two/a, two/b instead" in " ".join(messages(text, GPU_CLASS))
    assert not codes(claim(ALTERNATIVES, config(entry(GPU, gpu, ["two/a", "two/b"]))), GPU_CLASS)
    # A list that names all requests is cleared, and then means all.
    assert not codes(claim(ALTERNATIVES, config(entry(GPU, gpu, ["one", "two"]))), GPU_CLASS)


def test_an_sriov_function_gets_the_parameters_of_listed_requests():
    vf = typed("VfConfig", f"{SRIOV}/v1alpha1", netAttachDefName="net")
    two = "    - {name: one, exactly: {deviceClassName: c}}\n    - {name: two, exactly: {deviceClassName: c}}"
    class_of = picking(SRIOV)
    at = ("D707", "/spec/devices/config/0/requests")
    assert found(asked(SRIOV, vf), class_of) == {at}
    assert found(asked(SRIOV, vf, ["r"]), class_of) == {at}
    assert not codes(claim(two, config(entry(SRIOV, vf, ["one"]), entry(SRIOV, vf, ["two"]))), class_of)
    laid = config(entry(SRIOV, vf, ["one"]), entry(SRIOV, vf | {"ifName": "net1"}, ["one"]))
    assert not codes(claim(two, laid), class_of)  # they are laid over each other
    lost = vf | {"addVhostMount": True, "netAttachDefName": ""}
    assert codes(claim(two, config(entry(SRIOV, lost, ["one"]))), class_of) == {"D708", "D709"}


def test_of_several_entries_for_a_device_one_counts():
    gpu, net = typed("GpuConfig"), {"interface": {"mtu": 9000}}
    assert found(claim(request(exactly="deviceClassName: c"), config(entry(GPU, gpu), entry(GPU, gpu))), GPU_CLASS) == {
        ("D708", "/spec/devices/config/0")
    }
    two = claim(request(exactly="deviceClassName: c"), config(entry("dra.net", net), entry("dra.net", net)))
    assert found(two, picking("dra.net")) == {("D708", "/spec/devices/config/1")}
    apart = config(entry(GPU, gpu), entry(GPU, gpu, ["one"]))
    assert not codes(claim(TWO, apart), join(GPU_CLASS, picking(GPU, "gpu", "m")))
    kinds = config(entry(GPU, gpu), entry(GPU, typed("MigDeviceConfig")))
    assert not codes(claim(TWO, kinds), TWO_CLASSES)


# Sharing against the request


def limited(*names, count=1):
    limits = sharing("MPS", mpsConfig={"defaultPerDevicePinnedMemoryLimit": dict.fromkeys(names, "1Gi")})
    return claim(request(exactly=f"deviceClassName: c, count: {count}"), config(entry(GPU, limits)))


def test_limits_are_for_devices_that_the_claim_gets():
    at = f"{PARAMETERS}/sharing/mpsConfig/defaultPerDevicePinnedMemoryLimit"
    assert codes(limited("0", "GPU-1"), GPU_CLASS) <= GATES
    assert ("D703", f"{at}/1") in found(limited("0", "1"), GPU_CLASS)
    assert codes(limited("0", "1", count=2), GPU_CLASS) <= GATES
    assert ("D703", f"{at}/2") in found(limited("2", count=2), GPU_CLASS)
    every = limited("7").replace("count: 1", "allocationMode: All")
    assert codes(every, GPU_CLASS) <= GATES


def test_mps_is_refused_beside_shares():
    mps = config(entry(GPU, sharing("MPS")))
    for name in ("shares", f"{GPU}/shares"):
        text = claim(request(exactly=f"deviceClassName: c, capacity: {{requests: {{{name}: 1}}}}"), mps)
        assert ("D704", f"{PARAMETERS}/sharing/strategy") in found(text, GPU_CLASS)
    memory = claim(request(exactly="deviceClassName: c, capacity: {requests: {memory: 1Gi}}"), mps)
    assert codes(memory, GPU_CLASS) <= GATES


VFIO = typed("VfioDeviceConfig")
VFIO_CLASSES = join(picking(GPU, "vfio"), picking(GPU, "gpu", "m"))
TWICE = TWO.replace("deviceClassName: m", "deviceClassName: c")


@pytest.mark.parametrize(
    ("requests", "entries", "refused"),
    [
        (TWICE, [entry(GPU, VFIO)], False),
        (TWICE, [entry(GPU, VFIO, ["one", "two"])], False),
        (TWICE, [entry(GPU, VFIO, ["one"])], True),
        (TWICE, [entry(GPU, VFIO, ["one"]), entry(GPU, VFIO, ["two"])], True),
        (TWICE, [], False),
        (TWO, [entry(GPU, VFIO, ["one"])], False),
    ],
    ids=["for all", "for all by name", "for one of two", "one each", "none", "beside a GPU"],
)
def test_devices_that_are_passed_through_have_one_setup_a_claim(requests, entries, refused):
    told = found(claim(requests, config(*entries)), VFIO_CLASSES)
    assert (("D704", "/spec/devices/config") in told) is refused
    assert {code for code, _ in told} <= GATES | ({"D704"} if refused else set())


def sharing_pod(*names, by="resourceClaimTemplateName"):
    containers = [{"name": name, "image": "x", "resources": {"claims": [{"name": "gpu"}]}} for name in names]
    spec = {"containers": containers, "resourceClaims": [{"name": "gpu", by: "t"}]}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})


def shared_template(parameters, kind="ResourceClaimTemplate", **more):
    exactly = {"deviceClassName": "c"} | more
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}], "config": [entry(GPU, parameters)]}}
    spec = {"spec": spec} if kind == "ResourceClaimTemplate" else spec
    return json.dumps({"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": "t"}, "spec": spec})


def test_sharing_with_a_single_container_is_reported():
    at = ("D708", "/spec/resourceClaims/0")
    mps = shared_template(sharing("MPS"))
    assert at in found(join(mps, sharing_pod("main")))
    assert at not in found(join(mps, sharing_pod("main", "other")))
    assert at not in found(join(shared_template(typed("GpuConfig")), sharing_pod("main")))
    # Of one device in shares others are beside it, and so are the other pods that use one claim.
    part = shared_template(sharing("TimeSlicing"), capacity={"requests": {"shares": "1"}})
    assert at not in found(join(part, sharing_pod("main")))
    claim_of_many = shared_template(sharing("MPS"), "ResourceClaim")
    assert at not in found(join(claim_of_many, sharing_pod("main", by="resourceClaimName")))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a && b && c", ["a ", " b ", " c"]),
        ("(a && b) && c", ["(a && b) ", " c"]),
        ("x == 'a && b' && c", ["x == 'a && b' ", " c"]),
        ("a || b && c", ["a || b && c"]),
        ("a && b ? c : d", ["a && b ? c : d"]),
        ("d.?x.orValue(1) == 1 && c", ["d.?x.orValue(1) == 1 ", " c"]),
        ("a // && b", ["a // && b"]),
        (r"x == 'it\'s' && c", [r"x == 'it\'s' && c"]),
    ],
)
def test_simple_selectors_are_split_into_their_conditions(text, parts):
    assert conjuncts(text) == parts


def test_a_hostile_number_of_selectors_is_not_compiled_for_parameters():
    scope = DeviceScope()
    many = [f"device.driver == 'd{number}'" for number in range(64)]
    assert not scope.may_pick(many, GPU)
    assert DeviceScope().may_pick(["device.driver == device.driver"] * 3 + [f"{'(' * 290}true{')' * 290}"], GPU)
    chain = [f"device.driver != 'd{number}'" for number in range(64)]
    assert not DeviceScope().may_pick([" && ".join([*chain[1:], "device.driver == 'other'"])], GPU)
    assert DeviceScope().may_pick([" && ".join([*chain, "device.driver == 'other'"])], GPU)  # the 65th part
    beyond = DeviceScope()
    assert beyond.may_pick([f"device.driver != 'd{number}'" for number in range(64)], GPU)
    assert beyond.may_pick(["device.driver == 'other'"], GPU)  # asked too often: nothing is known


# Anything at all


def _anything(rng, depth):
    plain = [None, True, 0, -1, 2**70, 1.5, "", "MPS", "x" * 300, "192.0.2.1/33"]
    if depth == 0 or rng.random() < 0.4:
        return rng.choice(plain)
    if rng.random() < 0.4:
        return [_anything(rng, depth - 1) for _ in range(rng.randrange(4))]
    names = ["sharing", "strategy", "mpsConfig", "timeSlicingConfig", "interval", "interface", "vrf", "routes", "rules"]
    names += ["gateway", "destination", "scope", "kind", "apiVersion", "domainID", "iommu", "~/", "", "addresses"]
    return {rng.choice(names): _anything(rng, depth - 1) for _ in range(rng.randrange(6))}


@pytest.mark.parametrize("seed", range(20))
def test_no_json_makes_the_judge_fail(seed):
    rng = random.Random(seed)
    for _ in range(200):
        driver = rng.choice([*DRIVERS, "gpu.example.com"])
        value = _anything(rng, 5)
        if isinstance(value, dict) and rng.random() < 0.7:
            known = DRIVERS.get(driver)
            kinds = list(known.kinds) if known is not None else []
            value |= {"apiVersion": known.version if known else "", "kind": rng.choice([*kinds, "Other"])}
        opaque = OpaqueDeviceConfiguration(driver=driver, parameters=Opaque.encode(value))
        for problem in parameter_problems(opaque, "/opaque"):
            assert problem.path.startswith("/opaque/parameters")
            assert problem.message


def test_a_hostile_claim_is_judged_in_bounded_time():
    def selectors(*of):
        text = f"device.driver == 'd' && device.attributes['{GPU}'].type != '{of}'"
        return [
            {"cel": {"expression": text if number else f"{text} && {'(' * 900}true{')' * 900}"}} for number in range(40)
        ]

    requests = [
        {"name": f"r{n}", "firstAvailable": [{"name": f"s{m}", "deviceClassName": "c", "selectors": selectors(n, m)} for m in range(40)]}
        for n in range(40)
    ]  # fmt: skip
    nonsense = {f"sharin{number}": "x" for number in range(500)}
    entries = [entry(GPU, typed("GpuConfig", **nonsense), [f"r{n}" for n in range(40)]) for _ in range(40)]
    value = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": {"devices": {"requests": requests, "config": entries}}}  # fmt: skip
    devices = convert(value, ResourceClaim).spec.devices
    began = time.process_time()
    found = list(claim_settings(devices, "", {}))
    # Far above what is needed on a busy machine, far below what asking everything about everything takes.
    assert time.process_time() - began < 15
    assert len(found) < 32 * 32


@pytest.mark.parametrize(("without", "strategy", "found"), [("", "MPS", True), ("", "TimeSlicing", False), ("counters", "MPS", False)])  # fmt: skip
def test_mps_is_refused_where_all_nodes_have_dynamic_mig(without, strategy, found):
    fleet = (EXAMPLES / "partitions" / "nvidia-dynamic-mig.yaml").read_text()
    slices = [one for one in yaml.safe_load_all(fleet) if one["kind"] == "ResourceSlice"]
    if without:  # one of the two nodes runs without DynamicMIG
        slices = [slice_ for slice_ in slices if slice_["metadata"]["name"] != f"h100-dynamic-1-{GPU}-{without}"]
    devices = convert(yaml.safe_load(asked(GPU, sharing(strategy))), ResourceClaim).spec.devices
    typed_slices = [convert(slice_, ResourceSlice) for slice_ in slices]
    problems = [
        (claim_setting.code, claim_setting.path)
        for claim_setting in claim_settings(devices, "", {}, slices=typed_slices)
    ]
    assert (("D704", "/config/0/opaque/parameters/sharing/strategy") in problems) is found


def test_an_entry_with_many_errors_has_few_findings():
    fields = {f"sharin{number}": number for number in range(500)}
    opaque = OpaqueDeviceConfiguration(driver=GPU, parameters=Opaque.encode(typed("GpuConfig", **fields)))
    assert len(list(parameter_problems(opaque, ""))) == 16


def test_oversized_parameters_are_reported_only_as_too_long():
    fields = {f"x{number}": "y" * 100 for number in range(200)}
    assert codes(asked(GPU, typed("GpuConfig", **fields)), GPU_CLASS) == {"D103"}
