"""Reads dialects that consist of a table only.

A count key or a network key is a resource of a container, and requests a number of devices of its target. Memory and compute keys set the
size of each device that the count key requests; without a count key they request one device of this size. Annotations, labels and node
selectors of the pod, and environment variables of a container, only refine the requests of resource keys and request no devices themselves.
If several keys have the same role, a resource key takes precedence over a variable, and a variable over a key of the pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from dra import cel, step_limits
from dra.budget import Budget
from dra.errors import OutOfBudget, QuantityError, SelectorError
from dra.quantity import MAX, NANO, parse
from dra.reason import Reason
from webhook.dialects.table import Dialect, Outcome, Position, Role, Unit
from webhook.dialects.vocabulary import (
    UNREADABLE,
    Amount,
    ContainerAmounts,
    Demand,
    DialectAnswer,
    DialectOptions,
    DialectRequest,
    KeyedDemand,
    Note,
    Vocabulary,
    count_of,
    leave,
    refuse,
)
from webhook.refusals import Code

if TYPE_CHECKING:
    from dra.cel import Selector
    from webhook.dialects.targets import Target
    from webhook.dialects.vocabulary import Hint

    Expressions = Mapping[str, Selector]

_NETWORK = (Role.NIC, Role.RDMA)
_DEVICE = (Role.COUNT, Role.MEMORY, Role.MEMORY_PERCENT, Role.CORES)
_TEXTS = (Role.PROFILE, Role.MODELS, Role.NOT_MODELS, Role.UUIDS, Role.NOT_UUIDS)
# Roles that refine a request. A table may have one key of each role on the pod, and one among the variables of a container
# (`rules._wrong_shaping`).
SHAPING = (*_DEVICE, *_TEXTS)
_KEEPING_ROLES = (Role.PLACED, Role.OPT_OUT, Role.CLAIMED)
# The roles that this reader supports, by the position of the key. A resource has a number. A key at another position refines a request, or
# keeps the pod as it is.
ROLES: Mapping[Position, tuple[Role, ...]] = {
    Position.RESOURCE: (*_DEVICE, *_NETWORK),
    **dict.fromkeys((Position.ANNOTATION, Position.LABEL, Position.NODE_SELECTOR), (*SHAPING, *_KEEPING_ROLES)),
    Position.ENV: SHAPING,
}


LONGEST_EXPRESSION = 1_024
MAX_ENTRIES = 256
_LETTERS = 64  # the longest text of an amount
# An expression that is too costly on one of these texts is rejected when the configuration is read.
_SAMPLES = ("1" * cel.MAX_TEXT, "," * cel.MAX_TEXT, "a1," * (cel.MAX_TEXT // 3))


def cel_types(role: Role) -> tuple[str, ...]:
    """Return the CEL types that an expression for a role may return; () for a role without a value."""
    if role in _DEVICE or role in _NETWORK:
        return ("int",)
    if role is Role.PROFILE:
        return ("string",)
    return ("string", "list(string)") if role in _TEXTS else ()


def vocabulary_of(table: Dialect, *targets: Target) -> Vocabulary[DialectOptions]:
    """Return the vocabulary of a dialect that consists of a table only, and of targets that its keys may request."""
    by_name = {target.name: target for target in targets}
    texts = {row.expression for row in table.keys if row.expression}
    expressions = {text: compile_expression(text) for text in texts}
    return Vocabulary(
        table=table,
        targets=targets,
        read=lambda request: read(request, by_name, expressions),
        options=DialectOptions,
    )


class _HintValues(msgspec.Struct, frozen=True):
    """Amounts and texts that refine a container's requests: from its variables, and from annotations, labels and selectors of the pod."""

    amounts: tuple[Amount, ...] = ()
    texts: Mapping[Role, tuple[str, ...]] = {}
    notes: tuple[Note, ...] = ()


def read(
    request: DialectRequest[DialectOptions], targets: Mapping[str, Target], expressions: Expressions
) -> DialectAnswer | Reason:
    """Return the demands of one container, or of the whole pod for pod scope, by the table alone."""
    table = request.table
    containers: list[ContainerAmounts] = []
    for container_amounts in request.containers:
        for amount in container_amounts.amounts:
            if amount.row.outcome is Outcome.LEFT and amount.value:
                return leave(amount.key, amount.row.because)
    for container_amounts in request.containers:
        amounts: list[Amount] = []
        for amount in container_amounts.amounts:
            number = convert(amount, expressions)
            if not isinstance(number, Amount):
                return number
            amounts.append(number)
        containers.append(msgspec.structs.replace(container_amounts, amounts=tuple(amounts)))
    container = containers[0] if len(containers) == 1 else total(tuple(containers))
    hint_values = _read_hints(container, request.hints, expressions)
    if not isinstance(hint_values, _HintValues):
        return hint_values
    demands = _demand_devices(container, hint_values, table)
    if not isinstance(demands, list):
        return demands
    notes: list[Note] = []
    for amount in container.amounts:
        row = amount.row
        counted = row.role is Role.COUNT and not row.because
        if row.is_dropped:
            notes.append(Note.of_dropped(amount.key, row.because))
        else:
            notes.append(Note(amount.key, row.outcome, count_of(amount.value, "device") if counted else row.because))
        if row.role in _NETWORK and amount.value:
            # A driver that publishes pools by name gets the resource name as the name of the pool.
            target = targets[row.target or table.target]
            pool = amount.key if target.pooled else ""
            rdma = row.role is Role.RDMA
            nic = Demand(target=target.name, count=amount.value, resource=pool, rdma=rdma)
            demands.append(KeyedDemand(amount.key, nic))
    if demands:
        notes += hint_values.notes
    return DialectAnswer(demands=tuple(demands), notes=tuple(notes))


def _read_hints(
    container: ContainerAmounts, hints: Mapping[Role, Hint], expressions: Expressions
) -> _HintValues | Reason:
    """Read the keys that refine the container's requests; a resource key of the same role takes precedence."""
    if not any(amount.row.role in _DEVICE for amount in container.amounts):
        return _HintValues()
    amounts: list[Amount] = []
    texts: dict[Role, tuple[str, ...]] = {}
    notes: list[Note] = []
    for role, hint in hints.items():
        if role not in SHAPING:
            continue
        if hint.row.outcome is Outcome.LEFT:
            return leave(hint.key, hint.row.because)
        resource_amount = container.amount_of(role)
        if resource_amount:
            notes.append(
                Note(
                    hint.key,
                    Outcome.TRANSLATED,
                    f"has no effect, because {resource_amount.key} on the container takes precedence",
                )
            )
            continue
        value = number_of(hint, expressions) if role in _DEVICE else texts_of(hint, expressions)
        if isinstance(value, Reason):
            return value
        if isinstance(value, Amount):
            amounts.append(value)
        else:
            texts[role] = value
        notes.append(Note(hint.key, hint.row.outcome, hint.row.because))
    return _HintValues(tuple(amounts), texts, tuple(notes))


def total(containers: tuple[ContainerAmounts, ...]) -> ContainerAmounts:
    """Return the amounts of a pod: for each key the sum of containers and sidecars, or the amount of an init container if it is larger."""
    lasting: dict[str, Amount] = {}
    passing: dict[str, Amount] = {}
    for container in containers:
        for amount in container.amounts:
            key = amount.key
            if container.ordinary_init:
                earlier = passing.get(key)
                passing[key] = _larger(amount, earlier)
            else:
                earlier = lasting.get(key)
                value = amount.value + (earlier.value if earlier else 0)
                lasting[key] = msgspec.structs.replace(amount, value=value)
    sums = dict(lasting)
    for key, amount in passing.items():
        sums[key] = _larger(lasting.get(key, amount), amount)
    return ContainerAmounts("", tuple(sums.values()))


def _larger(amount: Amount, other: Amount | None) -> Amount:
    return other if other is not None and other.value > amount.value else amount


def _demand_devices(container: ContainerAmounts, hinted: _HintValues, table: Dialect) -> list[KeyedDemand] | Reason:
    """Return the demands of a container's keys; the container stays as it is if two keys contradict each other."""
    own = [amount for amount in container.amounts if amount.row.role in _DEVICE]
    amounts = (*own, *hinted.amounts)
    counts = [amount for amount in amounts if amount.row.role is Role.COUNT]
    effective_counts = [amount for amount in counts if amount.value]
    if not own:
        return []
    if counts and not effective_counts:
        if any(amount.value for amount in amounts):
            return leave(counts[0].key, "a count of 0 requests no device, whatever the other keys say")
        return []
    sizes: dict[Role, Amount] = {}
    for amount in amounts:
        if amount.row.role is not Role.COUNT and amount.value:
            other = sizes.setdefault(amount.row.role, amount)
            if other.key != amount.key:
                return leave(amount.key, f"sets the {amount.row.role} of a device, as does {other.key}")
    texts = hinted.texts
    if len(effective_counts) > 1:
        if sizes or texts:
            reason = f"requested together with {effective_counts[0].key}: it is unclear which of the two the other keys refine"
            return leave(effective_counts[1].key, reason)
        return [
            KeyedDemand(amount.key, Demand(target=amount.row.target or table.target, count=amount.value))
            for amount in effective_counts
        ]
    # Of two count keys, a key with 0 is ignored, and the other key requests the devices.
    own = list(filter(_is_effective, own)) or own
    parts = ContainerAmounts(container.name, tuple(filter(_is_effective, amounts)))
    target = table.target
    for amount in (*own, *effective_counts):
        target = amount.row.target or target
    memory, cores = parts.amount_of(Role.MEMORY), parts.amount_of(Role.CORES)
    bytes_ = memory.value * memory.row.unit.size if memory else 0
    if memory and bytes_ > MAX:
        reason = f"{memory.value} {memory.row.unit} is more than an amount may be"
        return refuse(memory.key, reason, "write less", Code.RANGE)
    demand = Demand(
        target=target,
        count=parts.number(Role.COUNT, 1),
        memory=bytes_ or None,
        memory_percent=parts.number(Role.MEMORY_PERCENT) or None,
        cores=cores.value if cores else None,
        profile=" ".join(texts.get(Role.PROFILE, ())),
        models=texts.get(Role.MODELS, ()),
        not_models=texts.get(Role.NOT_MODELS, ()),
        uuids=texts.get(Role.UUIDS, ()),
        not_uuids=texts.get(Role.NOT_UUIDS, ()),
    )
    return [KeyedDemand(own[0].key, demand)]


def _is_effective(amount: Amount) -> bool:
    """Return whether an amount is not a count of 0."""
    return bool(amount.value) or amount.row.role is not Role.COUNT


# Values of keys. A text becomes a number or a list of names, by its row's unit or by its CEL expression. An administrator writes the
# expression and a tenant the text, so both are bounded: the text by its length, the evaluation by its own budget. Nothing is guessed: a text
# that is not a number is refused, as the API server refuses such an amount of a resource. If the expression fails, or the value is unknown
# before the container starts, the pod stays as it is.


def compile_expression(text: str) -> Selector:
    """Compile an expression over `value` within a budget. Raises SelectorError with the reason."""
    if len(text) > LONGEST_EXPRESSION:
        raise SelectorError(f"an expression of more than {LONGEST_EXPRESSION} letters is not read")
    try:
        return cel.compile(
            text,
            cel.TEXT,
            derived=True,
            budget=Budget(20 * step_limits.EXPRESSION, max_call_steps=20 * step_limits.EXPRESSION_CALL),
        )
    except OutOfBudget:
        raise SelectorError("it takes too long to compile") from None


def too_costly(expression: Selector) -> bool:
    """Return whether an expression exceeds its budget on the longest texts."""
    for sample in _SAMPLES:
        try:
            expression.derive(
                cel.TextView(sample), Budget(step_limits.EXPRESSION, max_call_steps=step_limits.EXPRESSION_CALL)
            )
        except OutOfBudget:
            return True
        except SelectorError:
            continue
    return False


def evaluate(key: str, expression: Selector, text: str) -> object:
    """Return the result of an expression on a text, or the reason why there is none."""
    if len(text) > cel.MAX_TEXT:
        return leave(key, f"a value of more than {cel.MAX_TEXT} letters is not read by an expression")
    try:
        return expression.derive(
            cel.TextView(text), Budget(step_limits.EXPRESSION, max_call_steps=step_limits.EXPRESSION_CALL)
        )
    except OutOfBudget:
        return leave(key, "its expression costs too much on this value")
    except SelectorError as error:
        return leave(key, f"its expression cannot read {text[:40]!r}: {error.message}")


def convert(amount: Amount, expressions: Expressions) -> Amount | Reason:
    """Return an amount with the value that its row's expression computes; unchanged without an expression."""
    row = amount.row
    if not row.expression:
        return amount
    result = evaluate(amount.key, expressions[row.expression], str(amount.value))
    if isinstance(result, Reason):
        return result
    if type(result) is not int or not 0 <= result <= MAX:
        return leave(amount.key, f"its expression makes {result!r} of {amount.value}, which is not an amount")
    return Amount(amount.key, row, result, amount.part)


def number_of(hint: Hint, expressions: Expressions) -> Amount | Reason:
    """Read an annotation, label, variable or node selector as a number."""
    row = hint.row
    if _is_unknown(hint):
        return _unknown(hint)
    if row.expression:
        result = evaluate(hint.key, expressions[row.expression], hint.text)
        if isinstance(result, Reason):
            return result
        number = result if type(result) is int else -1
    else:
        # A quantity such as 8Gi is accepted only for the unit bytes.
        number, text = -1, hint.text.strip()
        if row.unit is not Unit.BYTES and len(text) <= _LETTERS and text.isascii() and text.isdecimal():
            number = int(text)
        elif row.unit is Unit.BYTES and len(text) <= _LETTERS:
            with suppress(QuantityError):
                number, part = divmod(parse(text).nano, NANO)
                number = -1 if part else number
    if number < 0 or number > MAX:
        reason = f"{hint.text[:40]!r} is not a whole number of {row.unit}"
        return refuse(hint.key, reason, f"write a whole number, {row.bounds}", Code.RANGE)
    if not row.takes(number):
        problem = f"{hint.text[:40]} is out of range"
        return refuse(hint.key, problem, f"write a whole number of {row.unit}, {row.bounds}", Code.RANGE)
    return Amount(hint.key, row, number)


def texts_of(hint: Hint, expressions: Expressions) -> tuple[str, ...] | Reason:
    """Read an annotation, label, variable or node selector as one name or a list of names."""
    if _is_unknown(hint):
        return _unknown(hint)
    if not hint.row.expression:
        text = hint.text.strip()
        return hint.entries or ((text,) if text else ())
    expression = expressions[hint.row.expression]
    result = evaluate(hint.key, expression, hint.text)
    if isinstance(result, Reason):
        return result
    entries = result if isinstance(result, list) else [result]
    texts = [entry for entry in entries if isinstance(entry, str)]
    if len(texts) < len(entries) or len(texts) > MAX_ENTRIES:
        reason = f"its expression makes no list of at most {MAX_ENTRIES} texts of {hint.text[:40]!r}"
        return leave(hint.key, reason)
    return tuple([text for text in texts if text])


def _is_unknown(hint: Hint) -> bool:
    """Return whether a hint has no single known value.

    If a node selector allows several values, its text contains a blank (`owner._labels`). Label values have no blanks.
    """
    several = hint.row.place is Position.NODE_SELECTOR and (not hint.text or " " in hint.text)
    return several or hint.text == UNREADABLE


def _unknown(hint: Hint) -> Reason:
    return leave(
        hint.key, "its value is not known before the container starts, or differs between the nodes that it allows"
    )
