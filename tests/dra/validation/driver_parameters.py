"""Driver parameters, valid and invalid ones, and claims and classes that contain them."""

import json

from tests.dra.validation.manifests import claim, class_, request

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


def config(*entries):
    return f"    config: {json.dumps(entries)}"


def claim_with(driver, parameters, requests=()):
    """Return a claim for one device of class `c` with an entry of parameters."""
    return claim(request(exactly="deviceClassName: c"), config(entry(driver, parameters, requests)))


def picking(driver, type_="", name="c"):
    """Return a class with the selector that the drivers' charts write."""
    text = f"device.driver == '{driver}'"
    if type_:
        text += f" && device.attributes['{driver}'].type == '{type_}'"
    return class_(name, f'selectors: [{{cel: {{expression: "{text}"}}}}]')


GPU = "gpu.nvidia.com"
HAMI = "hami-core-gpu.project-hami.io"
DOMAIN = "compute-domain.nvidia.com"
GPU_CLASS = picking(GPU, "gpu")
# Driver, class, and parameters that the driver accepts, so that there is no finding.
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
# Driver, class, parameters, and the only finding: its code, and its pointer below the parameters.
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
# The finding that a feature gate of the driver must be on. It may come with any other finding.
GATE_FINDINGS = {"D709"}
