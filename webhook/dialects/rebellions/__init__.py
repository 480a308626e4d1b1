"""Rebellions' device plugin: whole NPUs, of one family or of any.

Its DRA driver publishes the product, whose name begins with a prefix for the family. Keys follow RBLN-SW/k8s-device-plugin; the target
follows RBLN-SW/rbln-k8s-dra-driver, whose class may serve `rebellions.ai/npu` by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.dialects.table import Dialect, Role, row
from webhook.dialects.targets import NUMA_NODE, PCIE_ROOT, Target
from webhook.dialects.vocabulary import Demand, DialectOptions, Vocabulary, count_of, read_each

if TYPE_CHECKING:
    from webhook.dialects.vocabulary import Amount, DialectRequest, KeyAnswer

# By key: the prefix of the product names of its devices.
_FAMILIES = {"rebellions.ai/ATOM": "RBLN-CA", "rebellions.ai/REBEL": "RBLN-CR"}

DIALECT = Dialect(
    name="rebellions",
    title="Rebellions device plugin",
    target="rbln",
    independent=True,
    keys=(
        row("rebellions.ai/npu", "NPUs of any family", Role.COUNT),
        *(row(name, f"NPUs whose product begins with {product}", Role.COUNT) for name, product in _FAMILIES.items()),
    ),
)


def ask(amount: Amount, _: DialectRequest[DialectOptions]) -> KeyAnswer:
    product = _FAMILIES.get(amount.key)
    demand = Demand(target="rbln", count=amount.value, models=(product,) if product else ())
    which = f" of product {product}*" if product else ""
    return demand, amount.row.outcome, f"{count_of(amount.value, 'whole device')}{which}"


VOCABULARY = Vocabulary(
    table=DIALECT,
    targets=(
        Target(
            name="rbln",
            title="Rebellions NPU",
            driver="npu.rebellions.ai",
            classes=("npu.rebellions.ai",),
            unique="npu.rebellions.ai/uuid",
            product="npu.rebellions.ai/productName",
            attributes=(PCIE_ROOT, NUMA_NODE, "npu.rebellions.ai/productName"),
            request="npu",
        ),
    ),
    read=lambda request: read_each(request, ask),
    options=DialectOptions,
)
