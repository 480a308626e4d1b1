"""Keys of devices without a DRA driver, or whose driver cannot serve these keys. All of these keys stay on the pod, and the row of each says why.

Most keys are HAMi's, for devices of other vendors. The device plugin keeps serving these containers, and the pod keeps its scheduler.
Keys follow Project-HAMi/HAMi: pkg/device; plain counts follow the vendors' own plugins. Hygon's whole cards and Ascend's cards have
drivers; their keys are in modules of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.dialects.plain import vocabulary_of
from webhook.dialects.table import Dialect, Position, untranslated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.dialects.table import Row

# By domain: the name of the device, the keys on containers, and the annotations that choose devices.
_VENDORS = {
    "cambricon.com": (
        "Cambricon MLU",
        (
            "vmlu",
            "mlu",
            "mlunum",
            "mlumem",
            "mlu.smlu.vmemory",
            "mlu.smlu.vcore",
            "mlu370.smlu.vmemory",
            "mlu370.smlu.vcore",
        ),
        ("use-mlutype", "nouse-mlutype", "use-gpuuuid", "nouse-gpuuuid"),
    ),
    "hygon.com": (
        "Hygon DCU",
        ("dcunum", "dcumem", "dcucores", "dcu-share-<size>", "dcu-mig-<profile>"),
        ("use-dcutype", "nouse-dcutype", "use-gpuuuid", "nouse-gpuuuid"),
    ),
    "huawei.com": ("Ascend card of Huawei Cloud", ("ascend-<chip>",), ()),
    "iluvatar.ai": ("Iluvatar GPU", ("gpu", "<chip>-vgpu", "<chip>.vCore", "<chip>.vMem"), ()),
    "iluvatar.com": ("Iluvatar GPU", ("gpu",), ()),
    "mthreads.com": ("Moore Threads GPU", ("gpu", "vgpu", "sgpu-memory", "sgpu-core"), ()),
    "kunlunxin.com": ("Kunlunxin XPU", ("xpu", "vxpu", "vxpu-memory"), ()),
    "metax-tech.com": (
        "MetaX GPU",
        ("gpu", "sgpu", "vcore", "vmemory"),
        ("sgpu-qos-policy", "sgpu-app-class", "sgpu-topology-aware", "use-gpuuuid", "nouse-gpuuuid"),
    ),
    "enflame.com": (
        "Enflame GCU",
        ("gcu", "drs-gcu", "gcu-memory", "gcu-core", "vgcu", "vgcu-percentage"),
        ("use-gpuuuid", "nouse-gpuuuid"),
    ),
    "vastaitech.com": ("Vastai card", ("va",), ("use-gpuuuid", "nouse-gpuuuid", "use-va", "nouse-va")),
    "birentech.com": ("Biren GPU", ("gpu",), ("use-gpuuuid", "nouse-gpuuuid", "use-biren", "nouse-biren")),
    "dcu.com": ("Hygon DCU", ("gpu",), ()),
    "dsa.intel.com": ("Intel DSA device", ("<queue>",), ()),
    "iaa.intel.com": ("Intel IAA device", ("<queue>",), ()),
    "dlb.intel.com": ("Intel DLB device", ("pf", "vf"), ()),
    "npu.intel.com": ("Intel NPU", ("accel",), ()),
    "sgx.intel.com": ("Intel SGX enclave", ("epc", "enclave", "provision"), ()),
    "fpga.intel.com": ("Intel FPGA", ("<region>",), ()),
    "xilinx.com": ("AMD Alveo card", ("<shell>",), ()),
    "furiosa.ai": ("FuriosaAI NPU", ("rngd", "warboy"), ()),
    "tenstorrent.com": ("Tenstorrent card", ("<card>",), ()),
    "intel.com": (
        "Intel FEC accelerator",
        ("intel_fec_5g", "intel_fec_lte", "intel_fec_acc100", "intel_fec_acc200", "intel_vrb1", "intel_vrb2"),
        (),
    ),
    "ibm.com": ("IBM Spyre card", ("spyre_<kind>",), ()),
    "beta.hpe.com": ("Slingshot NIC", ("cxi",), ()),
    "nvidia.com": ("vgpu-manager share of a GPU", ("vgpu-<part>",), ()),
    "devices.kubevirt.io": ("KubeVirt host device", ("<device>",), ()),
    "vke.volcengine.com": ("Volcengine RDMA NIC", ("rdma",), ()),
    # The default domain of squat/generic-device-plugin, and that of home-operations.
    "squat.ai": ("group of device files", ("<device>",), ()),
    "devic.es": ("group of device files", ("<device>",), ()),
}
_UNKNOWN_DRIVER = "DRA driver is unknown to drawbridge: a dialect of your own (`dialects:`, `targets:`) can describe it"
# By domain: why an existing driver does not serve these keys.
_REASONS = {
    "hygon.com": "Hygon's DRA driver counts a share's compute in units, not in percent, and gives a card to four claims at most: its plugin keeps serving it",
    "enflame.com": f"HAMi's Enflame {_UNKNOWN_DRIVER}",
    **dict.fromkeys(("furiosa.ai", "tenstorrent.com", "ibm.com"), f"its vendor's {_UNKNOWN_DRIVER}"),
    "nvidia.com": f"vgpu-manager's {_UNKNOWN_DRIVER}",
    **dict.fromkeys(
        ("squat.ai", "devic.es"),
        "the generic device plugin keeps giving these device files; a GPU among them can be requested from its vendor's DRA driver",
    ),
}
_OTHERS = {
    "mthreads.ai/use-gpuuuid": "Moore Threads GPU",
    "mthreads.ai/nouse-gpuuuid": "Moore Threads GPU",
    "baidu.com/use-gpuuuid": "Kunlunxin XPU",
    "baidu.com/nouse-gpuuuid": "Kunlunxin XPU",
    "hami.io/use-xpu-uuid": "Kunlunxin XPU",
    "hami.io/no-use-xpu-uuid": "Kunlunxin XPU",
    "hami.io/use-<device>-uuid": "Iluvatar devices",
    "hami.io/no-use-<device>-uuid": "Iluvatar devices",
}
# Koordinator's table has these keys too, with a reason of its own.
_COMMON = frozenset(("dcu.com/gpu", "metax-tech.com/sgpu"))


def _rows() -> Iterator[Row]:
    """Yield the rows of each vendor's resource names, then those of annotations that choose devices."""
    choices: dict[str, str] = {}
    for domain, (device, keys, hints) in _VENDORS.items():
        article = "an" if device[0] in "AEIOU" else "a"
        undriven = f"no DRA driver for {article} {device} is known: its device plugin keeps serving it"
        reason = _REASONS.get(domain) or undriven
        for key in keys:
            name = f"{domain}/{key}"
            yield untranslated(name, f"{device}: {key.rpartition('>')[2] or key}", reason, common=name in _COMMON)
        choices |= {f"{domain}/{name}": device for name in hints}
    for name, device in (choices | _OTHERS).items():
        meaning = f"which {device} may serve, and how"
        yield untranslated(name, meaning, "stays with the keys that it refers to", Position.ANNOTATION)


DIALECT = Dialect(
    name="undriven",
    title="devices that no DRA driver serves",
    independent=True,
    schedulers=("hami-scheduler", "volcano", "koord-scheduler"),
    keys=tuple(_rows()),
)
VOCABULARY = vocabulary_of(DIALECT)
