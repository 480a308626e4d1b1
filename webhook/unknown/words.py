"""The names of devices: which keys, fields, variables, runtime classes and files are about devices, and which keys a text requests.

All patterns about keys are here. None of them backtracks, so a long text takes linear time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from webhook.dialects import VOCABULARIES, Position

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dra.wire import Json

_DEVICE = re.compile(
    r"(?:^|[-_./])v?(?:gpu|npu|tpu|dcu|mlu|ppu|fpga|accelerator|neuron|cuda|(?:mig|vf|hca)(?![a-z]))|rdma|sriov",
    re.IGNORECASE,
)
# Domains of generic device plugins, and names of their groups of device files that are accelerators.
_GENERIC = ("squat.ai", "devic.es", "devices.kubevirt.io")
_OF_GENERIC = re.compile(r"dri\b|drm|render|video|[gntv]pu|kfd|nvidia|coral|apex|hailo", re.IGNORECASE).search
# Domains whose unknown keys have nothing to do with devices, with a dot before them.
_OWN = (".kubernetes.io", ".k8s.io", ".drawbridge.dev", ".opendatahub.io")
_RESOURCE_ROWS = [
    row
    for vocabulary in VOCABULARIES
    for row in vocabulary.table.keys
    if row.place is Position.RESOURCE and "/" in row.name
]
# Domains of device vendors, with a dot before them. Their device plugins also use names that no table has.
_VENDORS = (
    *(".gke.io", ".llm-d.io", ".qualcomm.com", ".run.ai", ".volcengine.com"),
    *{domain for row in _RESOURCE_ROWS if not (domain := f".{row.name.partition('/')[0]}").endswith(_OWN)},
)
# Values of these variables that add no device.
NO_DEVICE = ("", "none", "void")
# Variables and runtime classes by which a vendor's container runtime adds devices without a request.
VARIABLES = tuple(f"{vendor}_VISIBLE_DEVICES" for vendor in ("NVIDIA", "HABANA", "ASCEND", "AMD", "MTHREADS"))
RUNTIMES = ("nvidia", "nvidia-cdi", "nvidia-legacy", "habana", "ascend", "amd", "mthreads")
RUNTIME = "runtimeClassName"
# Paths of device files, which a volume of a pod gives to its containers without a request.
DEVICE_FILE = re.compile(r"/dev/(?:dri|kfd|infiniband|nvidia[\w-]*)(?:/[\w-]*)?").fullmatch
# Matches values of unknown labels and annotations that may be requests: an amount, a model or a switch. Words only describe the pod.
MAY_REQUEST = re.compile(r"[0-9]|(?i:true|enabled?)$").search
PARTS = ("limits", "requests")  # of the resources of a container
# Names of fields with an amount of devices and without a resource name: `gpus`, `numGpus`, `gpu_count`, `vgpu`, `workerGPUs`, `gpusPerWorker`.
_DEVICES = r"v?(?:gpu|npu|tpu|hpu|xpu|dcu|gcu|mlu|fpga|accelerator|neuron[-_]?core)s?"
FIELD = re.compile(
    r"(?:(?:num|n|number[-_]?of|total|request|limit|required|entrypointnum|nvidia|amd|intel|worker|replica|head|master|driver|executor)s?[-_]?)?"
    rf"{_DEVICES}"
    r"(?:[-_]?(?:count|num|number|quantity|amount|limit|request|memory|mem|fraction|portion|share|percent|percentage)s?"
    r"|[-_]?per[-_]?(?:worker|replica|pod|task|process|container))?",
    re.IGNORECASE,
).fullmatch
# Names of fields with one or more objects that describe devices, and names of fields of such an object with the number of devices.
OBJECT = re.compile(rf"{_DEVICES}(?:memory|portion|fraction|devices|resources)?", re.IGNORECASE).fullmatch
NUMBERS = ("count", "number", "quantity", "value", "quota", "limit", "size")
_POSITIVE = re.compile(r"0*(?:\.0*)?[1-9].*")
_ZERO = re.compile(r"0+(?:\.0*)?[A-Za-z]*").fullmatch
# A text that contains a part of a pod has limits or requests.
OF_POD = re.compile(r"\b(?:limits|requests)\b").search
# Paths of maps with labels, selectors and annotations, whose names request nothing.
LABELS = re.compile(r"(?:label|selector|annotation|affinity)[^/]*(?:/|$)", re.IGNORECASE).search
QUALIFIED = re.compile(r"[\w.-]{1,253}/[\w.-]{1,63}").fullmatch  # an image may have more slashes and a colon
NAMES = ("name", "resourceName", "rdmaResourceName", "deviceName", "identifier", "processingResourceType", "type")
# A key and its amount in a text of YAML, JSON or a template for them.
_IN_TEXT = re.compile(r"""(?<![\w.-])([\w.-]{1,253}/[\w.-]{1,63})["']?[ \t]*:[ \t]*["']?(?=[1-9$]|\{[{\w])""")
# Where a comment of YAML begins; inside a string a `#` mostly has no space before it.
_COMMENT = re.compile(r"(?:^|[ \t])#")
QUOTED = re.compile(r""""([\w.-]{1,253}/[\w.-]{1,63})\"""").findall
# A resource name in the text of a compiled step of Kubeflow Pipelines.
NAMED_IN_TEXT = re.compile(r"""\b(?:name|resourceType)["']?[ \t]*:[ \t]*["']?([\w.-]{1,253}/[\w.-]{1,63})""").findall
# The part of a path of variables, pod settings, volumes or amounts below the container, pod or chart that has them.
PART_OF_OWNER = re.compile(r"/(?:env|pod|defaultPodOptions|persistence|resources|limits|requests)/.*")


def adds_devices(name: Json, value: Json) -> bool:
    """Return whether a vendor's container runtime adds devices to a container with this variable and value."""
    return name in VARIABLES and isinstance(value, str) and value not in NO_DEVICE


def is_about_devices(name: str) -> bool:
    """Return whether a name looks like an accelerator or an RDMA device."""
    return bool(_DEVICE.search(name))


def is_accelerator(key: str) -> bool:
    """Return whether a key is not that of a generic device plugin for other device files, such as a tuner or a serial port."""
    domain, _, name = key.partition("/")
    return domain not in _GENERIC or bool(_OF_GENERIC(name))


def is_vendors(key: str) -> bool:
    return _is_below(key, _VENDORS)


def is_own(key: str) -> bool:
    """Return whether a key is one of Kubernetes or of drawbridge."""
    return _is_below(key, _OWN)


def _is_below(key: str, domains: tuple[str, ...]) -> bool:
    """Return whether the domain of a key is one of these, or below one."""
    domain, slash, _ = key.partition("/")
    return bool(slash) and f".{domain}".endswith(domains)


def amounts_in(written: str) -> Iterator[tuple[str, int]]:
    """Yield the keys with an amount in a text of YAML, JSON or a template for them, with their offsets. Comments are skipped."""
    begin = 0
    for line in written.split("\n"):
        for match in _IN_TEXT.finditer(_COMMENT.split(line, 1)[0]):
            yield match[1], begin + match.start()
        begin += len(line) + 1


def gives_devices(key: str) -> bool:
    """Return whether a key gives devices without a request: a variable, the runtime class or a device file."""
    return key == RUNTIME or key.endswith("_VISIBLE_DEVICES") or key.startswith("/dev/")


def is_zero(value: Json) -> bool:
    """Return whether an amount of a resource is 0, as null is; a placeholder is not."""
    return value is None or (not isinstance(value, bool) and bool(_ZERO(str(value))))


def is_positive(value: Json) -> bool:
    if isinstance(value, str):
        return bool(_POSITIVE.fullmatch(value))
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
