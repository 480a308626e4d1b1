"""AWS: Neuron devices and cores, and the archived vGPU plugin.

The Neuron DRA driver allocates whole devices only. Cores become whole devices if an administrator declares how many cores a device has. Keys
follow the Neuron SDK's documentation (containers/neuron-dra) and awslabs/aws-virtual-gpu-device-plugin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from webhook.dialects.table import Dialect, Outcome, Position, Role, Unit, node_label, row, untranslated
from webhook.dialects.targets import Target
from webhook.dialects.vocabulary import Demand, DialectOptions, Vocabulary, count_of, leave, read_each
from webhook.names import CONFIGURATION_PAGE

if TYPE_CHECKING:
    from dra.reason import Reason
    from webhook.dialects.vocabulary import Amount, DialectRequest, KeyAnswer

_GROUPS = (4, 8, 16)  # sizes of the groups of connected devices for which the driver publishes an attribute

DIALECT = Dialect(
    name="amazon",
    title="AWS Neuron and vGPU",
    target="neuron",
    independent=True,
    keys=(
        row("aws.amazon.com/neuron", "whole Neuron devices", Role.COUNT),
        row("aws.amazon.com/neurondevice", "whole Neuron devices, the older name", Role.COUNT),
        row(
            "aws.amazon.com/neuroncore",
            "cores of Neuron devices",
            Role.CORES,
            unit=Unit.COUNT,
            outcome=Outcome.APPROXIMATED,
            because=f"the driver allocates whole devices only: an administrator can declare how many cores a device has, as in `amazon: {{coresPerDevice: 2}}` ({CONFIGURATION_PAGE})",
        ),
        untranslated(
            "k8s.amazonaws.com/vgpu",
            "slots of a GPU under MPS, without a limit of memory or compute",
            "a slot has no counterpart: it limits nothing, and shares the node's MPS daemon",
            role=Role.SHARES,
        ),
        node_label("k8s.amazonaws.com/accelerator", "kind of accelerator of the node"),
        *(
            untranslated(
                f"aws.amazon.com/{name}",
                "which Neuron devices HAMi may choose for the pod",
                "the driver publishes no such attribute to select by",
                Position.ANNOTATION,
                role=Role.OPT_OUT,
                unit=Unit.LIST,
            )
            for name in ("use-neuron-uuid", "nouse-neuron-uuid")
        ),
    ),
)


class AmazonOptions(DialectOptions, frozen=True, kw_only=True):
    """How the Neuron nodes are set up."""

    # Cores of each device, which depend on instance type and logical core size. With 0, containers that request cores stay as they are.
    cores_per_device: Annotated[int, Meta(ge=0, le=64)] = 0
    # Whether the driver publishes groups of connected devices (`resource.aws.com/devicegroup4_id` and so on).
    device_groups: bool = False


def ask(amount: Amount, request: DialectRequest[AmazonOptions]) -> KeyAnswer | Reason:
    options, value, row = request.options, amount.value, amount.row
    cores = options.cores_per_device
    if row.role is Role.CORES and not cores:
        return leave(amount.key, row.because)
    count, outcome = value, Outcome.TRANSLATED
    text = count_of(value, "whole device")
    if row.role is Role.CORES:
        count, outcome = -(-value // cores), Outcome.APPROXIMATED
        text = f"{value} cores are {count} whole devices of {cores} cores each (`amazon.coresPerDevice`)"
    elif not options.device_groups and value > 1:
        outcome = Outcome.APPROXIMATED
        text = f"{text}; the claim does not require them to be connected (`amazon.deviceGroups`)"
    grouped = options.device_groups and count in _GROUPS
    same_attribute = f"resource.aws.com/devicegroup{count}_id" if grouped else ""
    return Demand(target="neuron", count=count, same_attribute=same_attribute), outcome, text


VOCABULARY = Vocabulary(
    table=DIALECT,
    targets=(
        Target(
            name="neuron",
            title="Neuron device",
            driver="neuron.aws.com",
            classes=("neuron.aws.com",),
            type="neuron_device",
            where={"resourceType": "neuron_device"},
            unique="neuron.aws.com/deviceId",
            attributes=tuple(f"resource.aws.com/devicegroup{size}_id" for size in (1, 4, 8, 16)),
            request="neuron",
        ),
    ),
    read=lambda request: read_each(request, ask),
    options=AmazonOptions,
)
