"""CEL selectors of Dynamic Resource Allocation. A selector is compiled once and evaluated on any number of devices.

    selector = cel.compile('device.attributes["gpu.example.com"].model == "x"')
    selector.matches(cel.view_of("gpu.example.com", device))

Types, functions, costs and errors match those of Kubernetes `dra.server.RELEASE`
(k8s.io/dynamic-resource-allocation/cel). `compile` also accepts other minors.
"""

from dra.cel.cost import MAX_COST, MAX_TEXT
from dra.cel.device_view import DeviceView, TextView, view_of
from dra.cel.environment import NEW, STORED, TEXT
from dra.cel.reads import Reads
from dra.cel.selector import Selector, compile, compile_or_none  # noqa: A004 - used as `cel.compile`

__all__ = [
    "MAX_COST",
    "MAX_TEXT",
    "NEW",
    "STORED",
    "TEXT",
    "DeviceView",
    "Reads",
    "Selector",
    "TextView",
    "compile",
    "compile_or_none",
    "view_of",
]
