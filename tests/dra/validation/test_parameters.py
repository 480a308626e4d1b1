"""Valid and invalid driver parameters in claims and classes."""

import json
import random

import pytest

from dra.objects import OpaqueDeviceConfiguration, ResourceClaim
from dra.validation.parameters.entries import DRIVERS, parameter_problems, read_members
from dra.validation.parameters.reach import claim_settings
from dra.validation.parameters.scope import DeviceScope, conjuncts
from dra.wire import Opaque, convert
from tests.dra.validation.driver_parameters import (
    BAD,
    DOMAIN,
    GATE_FINDINGS,
    GOOD,
    GPU,
    GPU_CLASS,
    NVIDIA,
    PARAMETERS,
    UID,
    claim_with,
    config,
    entry,
    picking,
    sharing,
    typed,
)
from tests.dra.validation.manifests import claim, class_, codes, codes_and_paths, messages, request
from tests.loops import every


def class_entry(driver, parameters):
    return {"opaque": {"driver": driver, "parameters": parameters}}


CILIUM = "networkdriver.cilium.io"
CNI = "cni.dra.networking.x-k8s.io"
MACVLAN = {
    "cniVersion": "1.0.0",
    "name": "macvlan-eth0",
    "plugins": [{"type": "macvlan", "master": "eth0", "ipam": {"type": "host-local"}}],
}
# Driver, parameters, code and pointer (None: no finding). These drivers apply an entry only to requests that it names.
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
    (CNI, {"ifName": "net1", "config": MACVLAN | {"plugins": [{"master": "eth0"}]}}, "D703", "/config/plugins/0"),
    (CNI, {"ifName": "net1", "config": MACVLAN | {"cniVersion": 1.0}}, "D703", "/config/cniVersion"),
    (CNI, {"ifname": "net1", "ifName": "net1", "config": MACVLAN}, "D702", "/ifname"),
]  # fmt: skip


HOST_LOCAL = {"type": "host-local"}
IN_A_RANGE = HOST_LOCAL | {"subnet": "192.0.2.0/24", "rangeStart": "192.0.2.9", "rangeEnd": "192.0.2.19"}
# A CNI plugin, and the code and path of the finding about it.
PLUGINS = [
    ({"type": "macvlan", "mode": "brige"}, "D703", "/mode"),
    ({"type": "macvlan", "mode": "", "mtu": 0}, "", ""),
    ({"type": "macvlan", "mtu": "1500"}, "D703", "/mtu"),
    ({"type": "ipvlan", "mode": "l4"}, "D703", "/mode"),
    ({"type": "ipvlan", "mode": "bridge"}, "D703", "/mode"),
    ({"type": "ipvlan", "mtu": -1}, "D703", "/mtu"),
    ({"type": "vlan", "master": "eth0", "vlanId": 99999}, "D703", "/vlanId"),
    ({"type": "vlan", "master": "eth0", "vlanId": "7"}, "D703", "/vlanId"),
    ({"type": "vlan", "master": "eth0", "vlanId": 4094}, "", ""),
    ({"type": "vlan", "vlanId": 7}, "D703", ""),
    ({"type": "bridge", "vlan": 4095}, "D703", "/vlan"),
    ({"type": "bridge", "vlanTrunk": [{"id": 7}, {"minID": 8, "maxID": 9}]}, "", ""),
    ({"type": "bridge", "vlanTrunk": [{"id": 0}]}, "D703", "/vlanTrunk/0/id"),
    ({"type": "bridge", "vlanTrunk": [{"minID": 9}]}, "D703", "/vlanTrunk/0"),
    ({"type": "bridge", "vlanTrunk": [{"minID": 9, "maxID": 8}]}, "D703", "/vlanTrunk/0/maxID"),
    ({"type": "bridge", "vlan": 7, "vlanTrunk": [{"id": 8}]}, "D704", "/vlanTrunk"),
    ({"type": "bridge", "hairpinMode": True, "promiscMode": True}, "D704", "/promiscMode"),
    ({"type": "bridge", "ipMasq": "yes"}, "D703", "/ipMasq"),
    ({"type": "sriov", "vlan": 4095}, "D703", "/vlan"),
    ({"type": "sriov", "vlan": 7, "vlanQoS": 7, "vlanProto": "802.1Q", "link_state": "auto"}, "", ""),
    ({"type": "sriov", "vlan": 7, "vlanQoS": 8}, "D703", "/vlanQoS"),
    ({"type": "sriov", "vlanQoS": 7}, "D703", "/vlanQoS"),
    ({"type": "sriov", "vlan": 7, "vlanProto": "802.1x"}, "D703", "/vlanProto"),
    ({"type": "sriov", "link_state": "up"}, "D703", "/link_state"),
    ({"type": "own", "mode": "brige", "vlan": 99999, "ipam": {"type": "own", "subnet": "nonsense"}}, "", ""),
    ({"type": "macvlan", "ipam": []}, "D703", "/ipam"),
    ({"type": "macvlan", "ipam": {}}, "", ""),
    ({"type": "macvlan", "ipam": IN_A_RANGE}, "", ""),
    ({"type": "own", "ipam": HOST_LOCAL | {"subnet": "nonsense"}}, "D703", "/ipam/subnet"),
    ({"type": "macvlan", "ipam": HOST_LOCAL | {"subnet": 7}}, "D703", "/ipam/subnet"),
    ({"type": "macvlan", "ipam": HOST_LOCAL | {"subnet": "192.0.2.0/31"}}, "D703", "/ipam/subnet"),
    ({"type": "macvlan", "ipam": IN_A_RANGE | {"rangeStart": "first"}}, "D703", "/ipam/rangeStart"),
    ({"type": "macvlan", "ipam": IN_A_RANGE | {"rangeStart": "192.0.3.9"}}, "D703", "/ipam/rangeStart"),
    ({"type": "macvlan", "ipam": IN_A_RANGE | {"rangeEnd": "192.0.2.8"}}, "D703", "/ipam/rangeEnd"),
    ({"type": "macvlan", "ipam": IN_A_RANGE | {"gateway": "2001:db8::1"}}, "D703", "/ipam/gateway"),
    ({"type": "macvlan", "ipam": IN_A_RANGE | {"routes": [{"dst": "0.0.0.0/0"}]}}, "", ""),
    ({"type": "macvlan", "ipam": IN_A_RANGE | {"routes": [{"dst": "everywhere"}]}}, "D703", "/ipam/routes/0/dst"),
    ({"type": "macvlan", "ipam": IN_A_RANGE | {"routes": [{"gw": "192.0.2.1"}]}}, "D703", "/ipam/routes/0"),
    ({"type": "macvlan", "ipam": HOST_LOCAL | {"ranges": [{"subnet": "192.0.2.0/24"}]}}, "D703", "/ipam/ranges/0"),
    ({"type": "macvlan", "ipam": HOST_LOCAL | {"ranges": [[{"subnet": "10.0.0.0/33"}]]}}, "D703", "/ipam/ranges/0/0/subnet"),
    ({"type": "macvlan", "ipam": HOST_LOCAL | {"ranges": [[{"gateway": "10.0.0.1"}]]}}, "D703", "/ipam/ranges/0/0"),
    ({"type": "macvlan", "ipam": {"type": "static", "addresses": [{"address": "192.0.2.1/24"}]}}, "", ""),
    ({"type": "macvlan", "ipam": {"type": "static", "addresses": [{"address": "192.0.2.1"}]}}, "D703", "/ipam/addresses/0/address"),
]  # fmt: skip


@every(("plugin", "code", "where"), PLUGINS)
def test_values_that_cni_plugins_refuse_are_reported(plugin, code, where):
    parameters = {"ifName": "net1", "config": MACVLAN | {"plugins": [plugin]}}
    reported = codes_and_paths(
        claim(
            request(exactly="deviceClassName: c") + "\n    - {name: other, exactly: {deviceClassName: c}}",
            config(entry(CNI, parameters, ["r"])),
        ),
        picking(CNI),
    )
    assert reported == ({(code, f"{PARAMETERS}/config/plugins/0{where}")} if code else set())


@pytest.mark.parametrize(
    ("plugin", "remedy"),
    [
        ({"type": "macvlan", "mode": "brige"}, "did you mean bridge? one of bridge, private, vepa, passthru"),
        ({"type": "ipvlan", "mode": "L2"}, "did you mean l2? one of l2, l3, l3s"),
        ({"type": "sriov", "link_state": "on"}, "one of auto, enable, disable"),
    ],
)
def test_a_wrong_value_of_a_cni_plugin_has_the_allowed_values_as_its_remedy(plugin, remedy):
    parameters = {"ifName": "net1", "config": MACVLAN | {"plugins": [plugin]}}
    opaque = OpaqueDeviceConfiguration(driver=CNI, parameters=Opaque.encode(parameters))
    assert [problem.remedy for problem in parameter_problems(opaque, "")] == [remedy]


@pytest.mark.parametrize("name", GOOD)
def test_parameters_that_a_driver_accepts_are_not_reported(name):
    driver, class_of, parameters = GOOD[name]
    assert codes(claim_with(driver, parameters), class_of) <= GATE_FINDINGS


@every(("driver", "class_of", "parameters", "code", "where"), BAD)
def test_parameters_that_a_driver_refuses_are_reported_at_their_path(driver, class_of, parameters, code, where):
    reported = {
        finding
        for finding in codes_and_paths(claim_with(driver, parameters), class_of)
        if finding[0] not in GATE_FINDINGS
    }
    assert reported == {(code, PARAMETERS + where)}


@every(("driver", "parameters", "code", "where"), LISTED)
def test_parameters_are_judged_for_drivers_that_need_named_requests(driver, parameters, code, where):
    two_requests = request(exactly="deviceClassName: c") + "\n    - {name: other, exactly: {deviceClassName: c}}"
    reported = codes_and_paths(claim(two_requests, config(entry(driver, parameters, ["r"]))), picking(driver))
    assert reported == ({(code, PARAMETERS + where)} if code else set())
    assert ("D707", "/spec/devices/config/0/requests") in codes_and_paths(
        claim_with(driver, parameters), picking(driver)
    )


def test_unread_members_of_a_cni_configuration_are_dropped():
    secret = {"ifName": "net1", "config": {**MACVLAN, "args": {"password": "hunter2"}}}
    assert "hunter2" not in json.dumps(read_members(secret))
    assert "host-local" not in json.dumps(read_members(secret))
    assert '"macvlan"' in json.dumps(read_members(secret))


def test_a_class_is_judged_like_a_claim():
    entries = json.dumps([class_entry(GPU, sharing("Fair"))])
    text = class_("c", f"selectors: [], config: {entries}")
    assert codes_and_paths(text) == {("D703", "/spec/config/0/opaque/parameters/sharing/strategy")}
    of_other_type = class_(
        "c", f"{_selectors(GPU, 'mig')}, config: {json.dumps([class_entry(GPU, typed('GpuConfig'))])}"
    )
    assert codes_and_paths(of_other_type) == {("D705", "/spec/config/0/opaque/parameters/kind")}
    of_other_driver = class_("c", f"{_selectors(GPU)}, config: {json.dumps([class_entry('gpu.example.com', {})])}")
    assert codes_and_paths(of_other_driver) == {("D313", "/spec/config/0/opaque/driver")}


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
    assert codes_and_paths(body, GPU_CLASS) == {("D702", "/spec/spec/devices/config/0/opaque/parameters/sharin")}


def test_a_setting_behind_a_feature_gate_is_reported():
    for strategy, gate in (("TimeSlicing", "TimeSlicingSettings"), ("MPS", "MPSSupport")):
        text = claim_with(GPU, sharing(strategy))
        assert codes_and_paths(text, GPU_CLASS) == {("D709", f"{PARAMETERS}/sharing/strategy")}
        assert gate in " ".join(messages(text, GPU_CLASS))
    vfio = claim_with(GPU, typed("VfioDeviceConfig"))
    assert codes_and_paths(vfio, picking(GPU, "vfio")) == {("D709", PARAMETERS)}
    assert "PassthroughSupport" in " ".join(messages(vfio, picking(GPU, "vfio")))


def test_a_mistaken_parameter_is_reported_with_the_likely_correction():
    def messages_of(parameters, driver=GPU):
        return " ".join(messages(claim_with(driver, parameters), picking(driver)))

    assert "did you mean sharing?" in messages_of(typed("GpuConfig", sharin={}))
    assert "did you mean TimeSlicing?" in messages_of(sharing("timeslicing"))
    assert "did you mean GpuConfig?" in messages_of(typed("GPUConfig"))
    assert f"write apiVersion: {NVIDIA}" in messages_of(typed("GpuConfig", "nvidia.com/v1"))
    assert f"it is a kind of {DOMAIN}" in messages_of(typed("ComputeDomainChannelConfig", domainID=UID))
    assert "put it below sharing:" in messages_of(typed("GpuConfig", strategy="MPS"))
    assert "not by its name" in messages_of(typed("ComputeDomainChannelConfig", domainID="training"), DOMAIN)


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
    full_scope = DeviceScope()
    assert full_scope.may_pick([f"device.driver != 'd{number}'" for number in range(64)], GPU)
    assert full_scope.may_pick(["device.driver == 'other'"], GPU)  # beyond the limit, the answer is unknown


# Arbitrary values


def _random_json(rng, depth):
    plain = [None, True, 0, -1, 2**70, 1.5, "", "MPS", "x" * 300, "192.0.2.1/33"]
    if depth == 0 or rng.random() < 0.4:
        return rng.choice(plain)
    if rng.random() < 0.4:
        return [_random_json(rng, depth - 1) for _ in range(rng.randrange(4))]
    names = ["sharing", "strategy", "mpsConfig", "timeSlicingConfig", "interval", "interface", "vrf", "routes", "rules"]
    names += ["gateway", "destination", "scope", "kind", "apiVersion", "domainID", "iommu", "~/", "", "addresses"]
    return {rng.choice(names): _random_json(rng, depth - 1) for _ in range(rng.randrange(6))}


@every("seed", range(20))
def test_no_json_makes_the_check_of_parameters_fail(seed):
    rng = random.Random(seed)
    for _ in range(200):
        driver = rng.choice([*DRIVERS, "gpu.example.com"])
        value = _random_json(rng, 5)
        if isinstance(value, dict) and rng.random() < 0.7:
            known_driver = DRIVERS.get(driver)
            kinds = list(known_driver.kinds) if known_driver is not None else []
            value |= {"apiVersion": known_driver.version if known_driver else "", "kind": rng.choice([*kinds, "Other"])}
        opaque = OpaqueDeviceConfiguration(driver=driver, parameters=Opaque.encode(value))
        for problem in parameter_problems(opaque, "/opaque"):
            assert problem.path.startswith("/opaque/parameters")
            assert problem.message


def test_a_hostile_claim_is_judged_in_bounded_time():
    def selectors(*numbers):
        text = f"device.driver == 'd' && device.attributes['{GPU}'].type != '{numbers}'"
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
    # Quadratic work would exceed the time limit of a test.
    assert len(list(claim_settings(devices, "", {}))) < 32 * 32


def test_an_entry_with_many_errors_has_few_findings():
    fields = {f"sharin{number}": number for number in range(500)}
    opaque = OpaqueDeviceConfiguration(driver=GPU, parameters=Opaque.encode(typed("GpuConfig", **fields)))
    assert len(list(parameter_problems(opaque, ""))) == 16


def test_oversized_parameters_are_reported_only_as_too_long():
    fields = {f"x{number}": "y" * 100 for number in range(200)}
    assert codes(claim_with(GPU, typed("GpuConfig", **fields)), GPU_CLASS) == {"D103"}
