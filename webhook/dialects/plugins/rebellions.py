"""Rebellions' device plugin: whole NPUs, by family or whichever.

Its DRA driver publishes the product, whose name begins with the family. Keys follow RBLN-SW/k8s-device-plugin; the target
RBLN-SW/rbln-k8s-dra-driver, whose class may serve `rebellions.ai/npu` by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.dialects.table import Dialect, Role, row
from webhook.dialects.vocabulary import Answer, Demand, Keyed, Note, Options, Vocabulary, several

if TYPE_CHECKING:
    from webhook.dialects.vocabulary import Words

# Key: how the names of its products begin.
_FAMILIES = {"rebellions.ai/ATOM": "RBLN-CA", "rebellions.ai/REBEL": "RBLN-CR"}

DIALECT = Dialect(
    name="rebellions",
    title="Rebellions device plugin",
    target="rbln",
    apart=True,
    keys=(
        row("rebellions.ai/npu", "NPUs of any family", Role.COUNT),
        *(row(name, f"NPUs whose product begins with {product}", Role.COUNT) for name, product in _FAMILIES.items()),
    ),
)


def read(words: Words[Options]) -> Answer:
    """Read one container: so many whole NPUs of each family."""
    demands = []
    notes = []
    for amount in words.said[0].amounts:
        key, count = amount.key, amount.value
        if not count:
            continue
        product = _FAMILIES.get(key)
        demand = Demand(target="rbln", count=count, models=(product,) if product else ())
        demands.append(Keyed(key, demand))
        which = f" of product {product}*" if product else ""
        notes.append(Note(key, amount.row.action, f"{several(count, 'whole device')}{which}"))
    return Answer(demands=tuple(demands), notes=tuple(notes))


VOCABULARY = Vocabulary(table=DIALECT, read=read, options=Options)
