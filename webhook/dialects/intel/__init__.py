"""Intel: whole GPUs by kernel driver, whole Gaudi accelerators, and QAT functions by their services.

A unit of `gpu.intel.com/i915` is a card, unless the plugin was started with `shared-dev-num`. So a unit counts as a card only if
`meanings` declares it, or if most nodes publish cards, as for `nvidia.com/gpu`. Keys follow intel/intel-device-plugins-for-kubernetes: cmd/gpu_plugin and
cmd/qat_plugin; the targets follow intel/intel-resource-drivers-for-kubernetes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.dialects.table import Dialect, Outcome, Position, Role, placed, row, untranslated
from webhook.dialects.targets import PCIE_ROOT, Target
from webhook.dialects.vocabulary import BareKey, Demand, DialectOptions, Vocabulary, count_of, read_each

if TYPE_CHECKING:
    from webhook.dialects.vocabulary import Amount, DialectRequest, KeyAnswer

_QAT = "qat.intel.com/"
# By the plugin's name for the services of a QAT physical function: the driver's name for them.
_SERVICES = {
    "cy": "sym;asym",
    "dc": "dc",
    "sym": "sym",
    "asym": "asym",
    "sym-dc": "sym;dc",
    "asym-dc": "asym;dc",
}
_SERVED_BY_NAME = "the driver's DeviceClass serves it if the class has this extendedResourceName: no claim is needed"

DIALECT = Dialect(
    name="intel",
    title="Intel GPU, Gaudi and QAT",
    target="intelI915",
    independent=True,
    keys=(
        row(
            "gpu.intel.com/i915",
            "GPUs on the i915 driver, if the cluster shows that a unit is a whole GPU",
            Role.COUNT,
            target="intelI915",
            common=True,
        ),
        row(
            "gpu.intel.com/xe",
            "GPUs on the xe driver, if the cluster shows that a unit is a whole GPU",
            Role.COUNT,
            target="intelXe",
            common=True,
        ),
        row("habana.ai/gaudi", "Gaudi accelerators", Role.COUNT, target="gaudi"),
        *(
            untranslated(
                f"gpu.intel.com/{name}",
                "sees all GPUs of the node, for telemetry",
                "this needs a claim with adminAccess in a namespace labelled for such claims: write the claim by hand",
            )
            for name in ("monitoring", "i915_monitoring", "xe_monitoring")
        ),
        untranslated(
            "gpu.intel.com/dxg",
            "GPUs of a Windows host under WSL",
            "no DRA driver publishes them: the device plugin keeps serving them",
        ),
        *(
            untranslated(
                f"gpu.intel.com/{name}", text, "parts of a card have no counterpart: the driver allocates whole cards"
            )
            for name, text in (
                ("millicores", "thousandths of a GPU's compute"),
                ("memory.max", "bytes of a GPU's memory"),
                ("tiles", "tiles of a GPU"),
            )
        ),
        *(
            row(
                f"{_QAT}{name}",
                f"QAT functions for {' and '.join(services.split(';'))}",
                Role.COUNT,
                outcome=Outcome.APPROXIMATED,
                target="qat",
                because="the driver binds the function to vfio-pci, and sets no variable with its address (`QAT0`)",
            )
            for name, services in _SERVICES.items()
        ),
        untranslated(
            f"{_QAT}generic",
            "QAT functions whose services the plugin could not determine",
            "their generation is unknown, and the driver publishes only functions of the fourth generation",
        ),
        *(
            untranslated(
                name,
                text,
                "only GPU Aware Scheduling implements it: the pod keeps its scheduler",
                Position.ANNOTATION,
                role=Role.OPT_OUT,
            )
            for name, text in (
                ("gas-allow", "cards that the pod may use"),
                ("gas-deny", "cards that the pod may not use"),
                ("gas-same-gpu", "containers that share one card"),
                ("gas-allocate-xelink", "cards that are linked"),
                ("gas-allocate-single-numa", "cards of one NUMA node"),
            )
        ),
        *(placed(name, "GPU Aware Scheduling") for name in ("gas-container-cards", "gas-container-tiles", "gas-ts")),
        *(
            untranslated(f"intel.com/{name}", text, _SERVED_BY_NAME)
            for name, text in (
                ("gpu", "GPUs of Intel's driver"),
                ("gaudi", "Gaudi accelerators of Intel's driver"),
                ("qat", "QAT functions of Intel's driver"),
            )
        ),
    ),
)


def ask(amount: Amount, _: DialectRequest[DialectOptions]) -> KeyAnswer:
    key, row = amount.key, amount.row
    services = _SERVICES.get(key.removeprefix(_QAT), "")
    demand = Demand(target=row.target, count=amount.value, profile=services)
    text = count_of(amount.value, "function" if services else "whole device")
    return demand, row.outcome, f"{text} for {services}; {row.because}" if services else text


VOCABULARY = Vocabulary(
    table=DIALECT,
    targets=(
        *(
            Target(
                name=name,
                title=f"GPU on {kernel}",
                driver="gpu.intel.com",
                classes=("gpu.intel.com",),
                type=kernel,
                where={"type": "gpu", "driver": kernel},
                unique="resource.kubernetes.io/pciBusID",
                product="gpu.intel.com/model",
                attributes=(PCIE_ROOT, "gpu.intel.com/model"),
            )
            for name, kernel in (("intelI915", "i915"), ("intelXe", "xe"))
        ),
        Target(
            name="gaudi",
            title="Gaudi accelerator",
            driver="gaudi.intel.com",
            classes=("gaudi.intel.com",),
            true=("healthy",),
            unique="gaudi.intel.com/serial",
            product="gaudi.intel.com/model",
            attributes=(PCIE_ROOT,),
            request="gaudi",
        ),
        Target(
            name="qat",
            title="QAT virtual function",
            driver="qat.intel.com",
            classes=("qat.intel.com",),
            profile="services",
            request="qat",
        ),
    ),
    read=lambda request: read_each(request, ask),
    options=DialectOptions,
    bare=BareKey(choices="whole"),
)
