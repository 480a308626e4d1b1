"""Ascend cards. HAMi's keys request cards of a model, templates (fixed parts of a card) or shares; Huawei's key requests whole cards.

HAMi: the arithmetic is that of its webhook and scheduler (Project-HAMi/HAMi 4707fb02: pkg/device/ascend), and the tables are those of its
chart. The target is HAMi's Ascend driver (Project-HAMi/ascend-dra-driver) in its default mode, which shares cards by memory and cores. This
mode has no templates: the memory of a template becomes a limit, and its AI cores become a percentage of the card's time. The driver's other
mode, with whole cards and templates, is unfinished and not used here.

Huawei: the plugin counts cards of any Ascend 910 by one name (`huawei.com/Ascend910`). Huawei's driver (Ascend/mind-cluster of 2026-08-21:
component/ascend-dynamic-resource-allocation) publishes the chip of each card and serves this name. HAMi's driver serves it only if
`ascend.products` names the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from dra.reason import Reason
from webhook.dialects.table import Dialect, Outcome, Position, Role, Unit, row, untranslated
from webhook.dialects.targets import Target
from webhook.dialects.vocabulary import (
    MAX_MIB,
    MIB,
    Demand,
    DialectAnswer,
    DialectOptions,
    KeyedDemand,
    NodeRequirement,
    Note,
    Vocabulary,
    count_of,
    leave,
    refuse,
)
from webhook.refusals import Code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.dialects.vocabulary import Amount, DialectRequest, Hint

_TARGET = Target(
    name="ascend",
    title="share of an Ascend card",
    driver="ascend.project-hami.io",
    classes=("hami-vnpu-core.project-hami.io",),
    type="HAMivNPUCore",
    unique="ascend.project-hami.io/uuid",
    product="ascend.project-hami.io/productName",
    # The driver writes the limits of each claim into the same variables of the container.
    separable=False,
    attributes=("ascend.project-hami.io/uuid", "ascend.project-hami.io/productName"),
    request="npu",
)
_WHOLE = Target(
    name="ascendNpu",
    title="whole Ascend NPU",
    driver="npu.huawei.com",
    classes=("npu.huawei.com",),
    unique="npu.huawei.com/physicId",
    product="npu.huawei.com/deviceType",
    attributes=("npu.huawei.com/deviceType", "npu.huawei.com/physicId"),
    request="npu",
)
_ANY_910 = "Ascend910"
# The chip names of Huawei's driver for the cards that its plugin counts as Ascend910.
_CHIPS = (_ANY_910, "Ascend910B", "Ascend910A3")
_UUID = "HAMi names a card by the id of its chip; the driver (public source at dc1db52) names it by node and number"


class Template(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A fixed part of a card; with 100 % of the cores, the whole card."""

    memory: Annotated[int, Meta(ge=1, le=MAX_MIB - 1)]  # MiB
    cores: Annotated[int, Meta(ge=1, le=100)]  # percent of the card's AI cores


def _steps(whole: int, cores: int, **parts: int) -> tuple[Template, ...]:
    """Return the templates of a card with `cores` AI cores; `m3072=1` is a template of 3072 MiB with 1 AI core. `whole` is the card's memory."""
    cut = [Template(memory=int(name[1:]), cores=own * 100 // cores) for name, own in parts.items()]
    return (*cut, Template(memory=whole, cores=100))


# From HAMi's chart, by model: the product name of the driver, and the templates. Ascend910C is missing, because each of its cards is a pair
# of chips, which the driver does not publish.
_PRODUCTS = {
    "Ascend910A": "910A",
    "Ascend910B2": "910B2",
    "Ascend910B3": "910B3",
    "Ascend910B4": "910B4",
    "Ascend910B4-1": "910B4-1",
    "Ascend310P": "310P3",
}
_TEMPLATES = {
    "Ascend910A": _steps(32768, 30, m2184=2, m4369=4, m8738=8, m17476=16),
    "Ascend910B2": _steps(65536, 24, m8192=3, m16384=6, m32768=12),
    "Ascend910B3": _steps(65536, 20, m16384=5, m32768=10),
    "Ascend910B4": _steps(32768, 20, m8192=5, m16384=10),
    "Ascend910B4-1": _steps(65536, 20, m16384=5, m32768=10),
    "Ascend310P": _steps(24576, 8, m3072=1, m6144=2, m12288=4),
}

DIALECT = Dialect(
    name="ascend",
    title="Ascend cards (HAMi, Huawei's device plugin)",
    target=_TARGET.name,
    independent=True,
    schedulers=("hami-scheduler", "volcano", "koord-scheduler"),
    keys=(
        row(
            "huawei.com/Ascend<model>",
            "distinct cards of the model: whole ones unless another key requests less",
            Role.COUNT,
            because="the key stays if neither HAMi's chart nor `ascend.products` has the driver's name of the model, as for "
            "Ascend910C (pairs of chips) and Ascend310P-2c (a part of a card that was created before)",
        ),
        row(
            "huawei.com/Ascend<model>-memory",
            "MiB of a card, rounded up to HAMi's templates (`ascend.templates`); above the largest template it is the whole card",
            Role.MEMORY,
            unit=Unit.MIB,
            most=MAX_MIB - 1,
            outcome=Outcome.APPROXIMATED,
            because="the template's AI cores become a percentage of the card's time; the amount is not rounded if the mode is hami-core, or beside the key that ends in -core",
        ),
        row(
            "huawei.com/Ascend<model>-core",
            "compute of each card in percent (hami-core); more than 100 counts as 100; without the key, no compute is reserved",
            Role.CORES,
        ),
        untranslated(
            "huawei.com/npu",
            "cards of any model (Huawei's device plugin)",
            "the key names no model, and a claim for any model may get one that the pod's image does not support",
        ),
        row(
            "huawei.com/vnpu-mode",
            "with hami-core, HAMi enforces amounts as limits and does not round them to templates, as the driver of the claim does",
            Role.MODE,
            Position.ANNOTATION,
            because="with any other mode the container stays as it is",
        ),
        *(
            untranslated(
                f"hami.io/{word}-{name}-uuid",
                f"which {name} HAMi may choose for the pod",
                _UUID,
                Position.ANNOTATION,
                role=Role.OPT_OUT,
            )
            for name in _PRODUCTS
            for word in ("use", "no-use")
        ),
        untranslated(
            "huawei.com/recover-strategy",
            "what Huawei's scheduler does with a job after a fault",
            "a claim cannot express it, and that scheduler also reads it on pods with claims",
            Position.ANNOTATION,
        ),
    ),
)


class AscendOptions(DialectOptions, frozen=True, kw_only=True):
    """Models in HAMi's device ConfigMap that differ from HAMi's chart or are not in it."""

    # Model as in keys (Ascend910): the `productName` that the driver publishes.
    products: dict[str, Annotated[str, Meta(min_length=1)]] = {}
    # Model: memory and cores of its templates. The template with 100 % of the cores is the card; its memory is the maximum.
    templates: dict[str, tuple[Template, ...]] = {}


def read(request: DialectRequest[AscendOptions]) -> DialectAnswer | Reason:
    """Return the demand of one container as HAMi reads it."""
    container, options, mode = request.containers[0], request.options, request.hints.get(Role.MODE)
    first = container.amounts[0]
    for amount in container.amounts:
        if amount.row.outcome is Outcome.LEFT:
            return leave(amount.key, amount.row.because)
        if amount.part != first.part:
            reason = f"requested together with {first.key}, and the driver gives a container one set of limits"
            return leave(amount.key, reason)
    if mode and mode.text not in ("", "hami-core"):
        return leave(mode.key, f"mode {mode.text[:40]!r} has no counterpart")
    name = f"Ascend{first.part}"
    count, memory, core_amount = (
        container.amount_of(Role.COUNT),
        container.amount_of(Role.MEMORY),
        container.amount_of(Role.CORES),
    )
    cores = core_amount.value if core_amount else 0
    if count is None or not count.value:
        return leave(first.key, f"requests no card without a number of cards (huawei.com/{name})")
    product = (_PRODUCTS | options.products).get(name)
    if product is None and name == _ANY_910 and len(container.amounts) == 1 and not mode:
        chips = NodeRequirement(_WHOLE.product, "In", _CHIPS)
        demand = Demand(target=_WHOLE.name, count=count.value, attributes=(chips,))
        note = Note(count.key, Outcome.TRANSLATED, f"{count_of(count.value, 'card')} of any Ascend 910")
        return DialectAnswer(demands=(KeyedDemand(count.key, demand),), notes=(note,))
    if product is None:
        reason = f"`ascend.products` has no product name for {name}"
        return leave(first.key, reason)
    part: Template | None = None
    notes = [Note(count.key, Outcome.TRANSLATED, f"{count_of(count.value, 'card')}, {product}")]
    if core_amount and cores > 100:
        notes.append(Note.of_clamped(core_amount))
    if cores or (mode and mode.text):
        # Without limits the demand is for whole cards. Without a memory limit a share has all memory, so no other pod fits.
        memory_value = memory.value if memory else 0
        part = Template(memory=memory_value, cores=min(cores, 100)) if memory_value or 0 < cores < 100 else None
        notes += _limit_notes(count, memory, cores, mode)
    elif memory:
        template_choice = _template(count, memory, name, (_TEMPLATES | options.templates).get(name, ()))
        if isinstance(template_choice, Reason):
            return template_choice
        part, note = template_choice
        notes.append(note)
    demand = Demand(
        target=_TARGET.name,
        count=count.value,
        memory=part.memory * MIB or None if part else None,
        cores=part.cores if part else None,
        attributes=(NodeRequirement(_TARGET.product, "In", (product,)),),
    )
    return DialectAnswer(demands=(KeyedDemand(count.key, demand),), notes=tuple(notes))


def _limit_notes(count: Amount, memory: Amount | None, cores: int, mode: Hint | None) -> Iterator[Note]:
    if mode:
        yield Note(mode.key, Outcome.TRANSLATED, "the parts become limits, as the driver defines them")
    if memory:
        text = f"{memory.value} MiB of each card" if memory.value else "0 is the whole memory"
        yield Note(memory.key, Outcome.TRANSLATED, text)
        if memory.value and not cores:
            text = "no compute is requested: cores are 0, and compute is neither reserved nor limited"
            yield Note(count.key, Outcome.APPROXIMATED, text)


def _template(
    count: Amount, memory: Amount, name: str, templates: tuple[Template, ...]
) -> Reason | tuple[Template | None, Note]:
    """Return the smallest template with enough memory, or None for the whole card, and the note; or why there is none."""
    if not templates:
        reason = f"`ascend.templates` does not say how a card of {name} is partitioned"
        return leave(memory.key, reason)
    fitting = [template for template in templates if memory.value <= template.memory]
    if not fitting:
        largest = max(template.memory for template in templates)
        return refuse(memory.key, f"a card of {name} has {largest} MiB", f"ask for {largest} at most", Code.RANGE)
    part = min(fitting, key=lambda template: template.memory)
    if part.cores == 100:
        return None, Note(memory.key, Outcome.TRANSLATED, "the whole card, because no template is that large")
    if count.value > 1:
        reason = f"a template is a part of one card, and {count.value} cards are requested"
        remedy = "ask for whole cards, or set huawei.com/vnpu-mode to hami-core"
        return refuse(memory.key, reason, remedy)
    text = f"a template of {part.memory} MiB: its AI cores become {part.cores} % of the card's time"
    return part, Note(memory.key, Outcome.APPROXIMATED, text)


VOCABULARY = Vocabulary(table=DIALECT, targets=(_TARGET, _WHOLE), read=read, options=AscendOptions)
