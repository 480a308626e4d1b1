"""Finding what a user names: by its whole name, or by as much of it as names one thing; near names are offered where nothing is found. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.texts import list_first
from dra.validation import shape
from rendering.exits import MissingObject

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dra.stock import Stock

_NAMED = 5
_NEAR = 200  # names that are compared: those with the same beginning or end


def find(kind: str, wanted: str, namespace: str, keys: Iterable[str]) -> str:
    """Find the namespace/name that a name stands for among those there are."""
    wanted_namespace, slash, name = wanted.rpartition("/")
    if not slash:
        wanted_namespace = namespace
    all_keys = list(keys)
    same = [key for key in all_keys if key.partition("/")[2] == name]
    fitting = [key for key in all_keys if key == f"{wanted_namespace}/{name}"] if wanted_namespace else same
    if fitting:
        return _single(kind, wanted, fitting, "say which with -n NAMESPACE")
    # The same name elsewhere, or a near one, in the namespace first.
    in_namespace = [key for key in all_keys if not wanted_namespace or key.startswith(f"{wanted_namespace}/")]
    meant = min(same, default="")
    for some in (in_namespace, all_keys):
        names = {key.partition("/")[2]: key for key in some}
        meant = meant or names.get(nearest(name, list(names)), "")
    where = f" in namespace {wanted_namespace}" if wanted_namespace else ""
    raise MissingObject(f"there is no {kind} {name!r}{where}", advice(meant, in_namespace or all_keys))


def find_device(wanted: str, stock: Stock) -> str:
    """Find the driver/pool/device that a name stands for; its end is enough where that names one device."""
    names = list(device_names(stock))
    if wanted in names:
        return wanted
    fitting = [name for name in names if name.endswith(f"/{wanted}")]
    if fitting:
        return _single("device", wanted, fitting, "write it as driver/pool/device")
    similar = nearest(wanted, names)
    if not similar:  # compare with as many parts from the end as were written
        parts = wanted.count("/") + 1
        ends: dict[str, str] = {}
        for name in names:
            ends.setdefault("/".join(name.split("/")[-parts:]), name)
        similar = ends.get(nearest(wanted, list(ends)), "")
    raise MissingObject(f"there is no device {wanted!r}", advice(similar, names))


def device_names(stock: Stock) -> dict[str, tuple[str, str, str]]:
    """All devices by driver/pool/device: those that are published, and those that a claim holds all the same."""
    names: dict[str, tuple[str, str, str]] = {}
    for pool in stock.pages_of:
        for page in stock.newest_pages(pool):
            for device in page.devices:
                parts = (*pool, device.name)
                names["/".join(parts)] = parts
    for pool, holders in stock.results.items():
        for results in holders.values():
            for result in results:
                parts = (*pool, result.device)
                names.setdefault("/".join(parts), parts)
    return names


def _single(kind: str, wanted: str, fitting: Sequence[str], remedy: str) -> str:
    if len(fitting) > 1:
        raise MissingObject(
            f"{len(fitting)} {kind}s are called {wanted!r}: {list_first(sorted(fitting), _NAMED)}", remedy
        )
    return fitting[0]


def advice(meant: str, names: Sequence[str]) -> str:
    """What else could be meant: the nearest name, or the names that there are."""
    return f"did you mean {meant}?" if meant else f"there are: {list_first(sorted(names), _NAMED) or 'none'}"


def nearest(name: str, names: list[str]) -> str:
    """Find the nearest of many names: of more than can be compared those that begin or end as it does."""

    def likeness(other: str) -> int:
        return other.startswith(name[:2]) + other.endswith(name[-3:])

    if len(names) > _NEAR:
        names = sorted(filter(likeness, names), key=likeness, reverse=True)[:_NEAR]
    return shape.nearest(name, names)


def refuse_unknown_node(name: str, stock: Stock) -> None:
    """Raise MissingObject for a node that there is not."""
    if name not in stock.nodes:
        names = list(stock.nodes)
        raise MissingObject(f"there is no node {name!r}", advice(nearest(name, names), names))
