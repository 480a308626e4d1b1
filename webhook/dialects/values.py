"""Values of a plain table's keys: a text becomes a number or a list of names, by its row's unit or by its CEL expression.

An expression is written by an administrator and reads what a tenant wrote, so both are bounded: the text by its length, the
evaluation by a budget of its own. What cannot be read is never guessed: a text that is not a number is refused as a number on
a container would be, and where the expression fails, or the value is not known before the container starts, the pod is left.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from dra import cel
from dra.budget import Budget
from dra.errors import OutOfBudget, QuantityError, SelectorError
from dra.quantity import NANO, parse
from webhook.dialects.table import Position, Unit
from webhook.dialects.vocabulary import UNREADABLE, Amount, Left, Refusal
from webhook.refusals import Code

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra.cel import Selector
    from webhook.dialects.vocabulary import Hint

    Expressions = Mapping[str, Selector]

LONGEST_EXPRESSION = 1_024
MOST_ENTRIES = 256
_MOST = 2**63 - 1
_LETTERS = 64  # of an amount
# Steps of one evaluation, and of one call in it that cannot be ended halfway: a step is about a microsecond.
_STEPS, _LONGEST = 2_000, 1_000
# An expression that is too costly for one of these is turned back when the file is read.
_SAMPLES = ("1" * cel.MAX_TEXT, "," * cel.MAX_TEXT, "a1," * (cel.MAX_TEXT // 3))


def compile_expression(text: str) -> Selector:
    """Compile an expression over `value`, at a bounded expense; raise SelectorError with what is wrong with it."""
    if len(text) > LONGEST_EXPRESSION:
        raise SelectorError(f"an expression of more than {LONGEST_EXPRESSION} letters is not read")
    try:
        return cel.compile(text, cel.TEXT, derived=True, budget=Budget(20 * _STEPS, longest=20 * _LONGEST))
    except OutOfBudget:
        raise SelectorError("it takes too long to compile") from None


def too_costly(expression: Selector) -> bool:
    """Whether it cannot be evaluated on every text that may come."""
    for sample in _SAMPLES:
        try:
            expression.derive(cel.TextView(sample), Budget(_STEPS, longest=_LONGEST))
        except OutOfBudget:
            return True
        except SelectorError:
            continue
    return False


def evaluate(key: str, expression: Selector, text: str) -> object:
    """Evaluate an expression on a text: what it gives, or a Left that says why the pod stays."""
    if len(text) > cel.MAX_TEXT:
        return Left(key, f"a value of more than {cel.MAX_TEXT} letters is not read by an expression")
    try:
        return expression.derive(cel.TextView(text), Budget(_STEPS, longest=_LONGEST))
    except OutOfBudget:
        return Left(key, "its expression costs too much on this value")
    except SelectorError as error:
        return Left(key, f"its expression cannot read {text[:40]!r}: {error.message}")


def convert(amount: Amount, expressions: Expressions) -> Amount | Refusal | Left:
    """Give an amount of a container the number that its row's expression makes of it."""
    row = amount.row
    if not row.expression:
        return amount
    made = evaluate(amount.key, expressions[row.expression], str(amount.value))
    if isinstance(made, Left):
        return made
    if type(made) is not int or not 0 <= made <= _MOST:
        return Left(amount.key, f"its expression makes {made!r} of {amount.value}, which is not an amount")
    return Amount(amount.key, row, made, amount.part)


def number_of(hint: Hint, expressions: Expressions) -> Amount | Refusal | Left:
    """Read what stands elsewhere than on a container as a number."""
    row = hint.row
    if _is_unknown(hint):
        return _unknown(hint)
    if row.expression:
        made = evaluate(hint.key, expressions[row.expression], hint.text)
        if isinstance(made, Left):
            return made
        number = made if type(made) is int else -1
    else:
        # A quantity such as 8Gi is a number only where bytes are counted.
        number, text = -1, hint.text.strip()
        if row.unit is not Unit.BYTES and len(text) <= _LETTERS and text.isascii() and text.isdecimal():
            number = int(text)
        elif row.unit is Unit.BYTES and len(text) <= _LETTERS:
            with suppress(QuantityError):
                number, part = divmod(parse(text).nano, NANO)
                number = -1 if part else number
    if number < 0 or number > _MOST:
        reason = f"{hint.text[:40]!r} is not a whole number of {row.unit}"
        return Refusal(hint.key, reason, f"write a whole number, {row.bounds}", Code.RANGE)
    if not row.takes(number):
        read = f"{hint.text[:40]} is out of range"
        return Refusal(hint.key, read, f"write a whole number of {row.unit}, {row.bounds}", Code.RANGE)
    return Amount(hint.key, row, number)


def texts_of(hint: Hint, expressions: Expressions) -> tuple[str, ...] | Left:
    """Read what stands elsewhere than on a container as names: one, or those of a list."""
    if _is_unknown(hint):
        return _unknown(hint)
    if not hint.row.expression:
        text = hint.text.strip()
        return hint.entries or ((text,) if text else ())
    expression = expressions[hint.row.expression]
    made = evaluate(hint.key, expression, hint.text)
    if isinstance(made, Left):
        return made
    entries = made if isinstance(made, list) else [made]
    texts = [entry for entry in entries if isinstance(entry, str)]
    if len(texts) < len(entries) or len(texts) > MOST_ENTRIES:
        reason = f"its expression makes no list of at most {MOST_ENTRIES} texts of {hint.text[:40]!r}"
        return Left(hint.key, reason)
    return tuple([text for text in texts if text])


def _is_unknown(hint: Hint) -> bool:
    """Whether no one value is meant. A node selector that allows several is told in words, which no label's value has room for."""
    several = hint.row.place is Position.NODE_SELECTOR and (not hint.text or " " in hint.text)
    return several or hint.text == UNREADABLE


def _unknown(hint: Hint) -> Left:
    return Left(hint.key, "its value is not known before the container starts, or differs between the nodes it allows")
