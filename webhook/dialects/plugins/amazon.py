"""AWS: Neuron devices and cores, and the vGPU plugin of old.

Whole Neuron devices have a DRA driver; cores do not, but an administrator who knows how many a device has may declare it. Keys
follow the Neuron SDK's documentation (containers/neuron-dra) and awslabs/aws-virtual-gpu-device-plugin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.dialects.demand import Answer, Demand, Keyed, Left, Note
from webhook.dialects.table import Action, Dialect, Position, Role, Row, Unit
from webhook.dialects.vocabulary import Vocabulary
from webhook.dialects.words import Mistake, Options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.dialects.words import Amount, Words

_GROUPS = (4, 8, 16)  # connected devices that the driver publishes an attribute for

DIALECT = Dialect(
    name="amazon",
    title="AWS Neuron and vGPU",
    target="neuron",
    apart=True,
    keys=(
        Row(name="aws.amazon.com/neuron", meaning="whole Neuron devices", role=Role.COUNT),
        Row(name="aws.amazon.com/neurondevice", meaning="whole Neuron devices, the older name", role=Role.COUNT),
        Row(
            name="aws.amazon.com/neuroncore",
            meaning="cores of Neuron devices",
            role=Role.CORES,
            action=Action.APPROXIMATED,
            because="the driver gives whole devices only: left unless `amazon.coresPerDevice` is declared",
        ),
        Row(
            name="k8s.amazonaws.com/vgpu",
            meaning="slots of a GPU under MPS, without a limit of memory or compute",
            role=Role.SHARES,
            action=Action.LEFT,
            because="a slot has no counterpart: nothing is limited on either side, and it shares the node's MPS daemon",
        ),
        Row(
            name="k8s.amazonaws.com/accelerator",
            place=Position.NODE_SELECTOR,
            unit=Unit.TEXT,
            meaning="kind of accelerator of the node",
            action=Action.LEFT,
            because="stays where it is: node selectors keep their meaning beside claims",
        ),
        *(
            Row(
                name=f"aws.amazon.com/{name}",
                place=Position.ANNOTATION,
                unit=Unit.LIST,
                meaning="which Neuron devices may serve (HAMi)",
                role=Role.OPT_OUT,
                action=Action.LEFT,
                because="the driver publishes no such identity to choose by",
            )
            for name in ("use-neuron-uuid", "nouse-neuron-uuid")
        ),
    ),
)


class AmazonOptions(Options, frozen=True, kw_only=True):
    """How the Neuron nodes are set up."""

    # Cores of each device, by instance type and logical core size; 0 leaves what asks for cores.
    cores_per_device: int = 0
    # The driver publishes groups of connected devices (`resource.aws.com/devicegroup4_id` and so on).
    device_groups: bool = False

    def mistakes(self) -> Iterable[Mistake]:
        """A device has a number of cores."""
        if not 0 <= self.cores_per_device <= 64:
            reason = f"{self.cores_per_device} is not a number of cores"
            yield Mistake("/coresPerDevice", reason, "write 1 to 64, or 0 to leave such keys")


def read(words: Words[AmazonOptions]) -> Answer:
    """Read one container: devices, or cores by the device."""
    demands: list[Keyed] = []
    notes: list[Note] = []
    for amount in words.said[0].amounts:
        if amount.row.action is Action.LEFT:
            return Answer(left=Left(amount.key, amount.row.because))
        if not amount.value:
            continue
        count, note = _devices(amount, words.options)
        if not count:
            return Answer(left=Left(amount.key, amount.row.because))
        grouped = words.options.device_groups and count in _GROUPS
        same = f"resource.aws.com/devicegroup{count}_id" if grouped else ""
        demand = Demand(target="neuron", count=count, same=same)
        demands.append(Keyed(amount.key, demand))
        notes.append(note)
    return Answer(demands=tuple(demands), notes=tuple(notes))


def _devices(amount: Amount, options: AmazonOptions) -> tuple[int, Note]:
    """Say how many devices an amount comes to; none where that is not known."""
    key, value = amount.key, amount.value
    if amount.row.role is Role.CORES:
        cores = options.cores_per_device
        count = -(-value // cores) if cores else 0
        text = f"{value} cores are {count} whole devices of {cores} (`amazon.coresPerDevice`)"
        return count, Note(key, Action.APPROXIMATED, text)
    connected = options.device_groups or value == 1
    action = Action.TRANSLATED if connected else Action.APPROXIMATED
    plural = "s" if value > 1 else ""
    lost = "" if connected else "; that they are connected is not asked for (`amazon.deviceGroups`)"
    return value, Note(key, action, f"{value} whole device{plural}{lost}")


VOCABULARY = Vocabulary(table=DIALECT, read=read, options=AmazonOptions)
