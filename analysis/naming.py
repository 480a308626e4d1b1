"""Finds the object that a user names, by its full name or by an unambiguous part of it; if no object matches, suggests similar names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.errors import MissingObject
from dra.texts import list_first
from dra.validation import shape

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dra.stock import Stock

_NAMED = 5
_NEAR = 200  # the most names to compare; of more names, only those with the same beginning or end are compared


def find(kind: str, given_name: str, namespace: str, keys: Iterable[str]) -> str:
    """Return the namespace/name among `keys` that a name stands for. Raises MissingObject."""
    wanted_namespace, slash, name = given_name.rpartition("/")
    if not slash:
        wanted_namespace = namespace
    all_keys = list(keys)
    namesakes = [key for key in all_keys if key.partition("/")[2] == name]
    fitting = [key for key in all_keys if key == f"{wanted_namespace}/{name}"] if wanted_namespace else namesakes
    if fitting:
        return _single(kind, given_name, fitting, "name one with -n NAMESPACE")
    # Suggest a similar name in this namespace; else the same name in another namespace; else a similar name there.
    in_namespace = [key for key in all_keys if not wanted_namespace or key.startswith(f"{wanted_namespace}/")]
    suggestion = ""
    for candidates in (in_namespace, sorted(namesakes, reverse=True), all_keys):
        names = {key.partition("/")[2]: key for key in candidates}
        suggestion = suggestion or names.get(nearest(name, list(names)), "")
    where = f" in namespace {wanted_namespace}" if wanted_namespace else ""
    raise MissingObject(f"there is no {kind} {name!r}{where}", advice(suggestion, in_namespace or all_keys))


def find_device(given_name: str, stock: Stock) -> str:
    """Return the driver/pool/device that a name stands for. The last parts are enough if only one device has them."""
    names = list(device_names(stock))
    if given_name in names:
        return given_name
    fitting = [name for name in names if name.endswith(f"/{given_name}")]
    if fitting:
        return _single("device", given_name, fitting, "write it as driver/pool/device")
    similar = nearest(given_name, names)
    if not similar:  # compare only the last parts of each name, as many as the user wrote
        parts = given_name.count("/") + 1
        ends: dict[str, str] = {}
        for name in names:
            ends.setdefault("/".join(name.split("/")[-parts:]), name)
        similar = ends.get(nearest(given_name, list(ends)), "")
    raise MissingObject(f"there is no device {given_name!r}", advice(similar, names))


def device_names(stock: Stock) -> dict[str, tuple[str, str, str]]:
    """Return all devices by driver/pool/device: the published ones, and unpublished ones that a claim holds."""
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


def _single(kind: str, given_name: str, fitting: Sequence[str], remedy: str) -> str:
    if len(fitting) > 1:
        raise MissingObject(
            f"{len(fitting)} {kind}s are called {given_name!r}: {list_first(sorted(fitting), _NAMED)}", remedy
        )
    return fitting[0]


def advice(suggestion: str, names: Sequence[str]) -> str:
    """Return a suggestion: the most similar name, or the existing names."""
    return f"did you mean {suggestion}?" if suggestion else f"there are: {list_first(sorted(names), _NAMED) or 'none'}"


def nearest(name: str, names: list[str]) -> str:
    """Return the most similar of many names. If there are too many, only those with the same beginning or end are compared."""

    def likeness(other: str) -> int:
        return other.startswith(name[:2]) + other.endswith(name[-3:])

    if len(names) > _NEAR:
        names = sorted(filter(likeness, names), key=likeness, reverse=True)[:_NEAR]
    return shape.nearest_name(name, names)


def refuse_unknown_node(name: str, stock: Stock) -> None:
    """Raise MissingObject for a node that does not exist."""
    if name not in stock.nodes:
        names = list(stock.nodes)
        raise MissingObject(f"there is no node {name!r}", advice(nearest(name, names), names))
