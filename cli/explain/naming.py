"""Finding what somebody names: by its whole name, or by as much of it as names one thing. What is near is said where nothing is. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.validation import shape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.stock import Stock

_NAMED = 5
_NEAR = 200  # names that are compared: those that begin or end alike


class NotThere(Exception):  # noqa: N818  an answer to who asks
    """There is nothing of that name, or more than one thing."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


def find(kind: str, wanted: str, namespace: str, keys: Iterable[str]) -> str:
    """Find the namespace/name that a name stands for among those there are."""
    place, slash, name = wanted.rpartition("/")
    if not slash:
        place = namespace
    all_keys = list(keys)
    fitting = [key for key in all_keys if key == f"{place}/{name}" or (not place and key.partition("/")[2] == name)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise _ambiguous(kind, wanted, fitting, "say which with -n NAMESPACE")
    where = f" in namespace {place}" if place else ""
    raise NotThere(f"there is no {kind} {name!r}{where}", _advise(name, place, all_keys))


def find_device(wanted: str, stock: Stock) -> str:
    """Find the driver/pool/device that a name stands for; its end is enough where that names one device."""
    names = device_names(stock)
    if wanted in names:
        return wanted
    ending = f"/{wanted}"
    fitting = [name for name in names if name.endswith(ending)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise _ambiguous("device", wanted, fitting, "write it as driver/pool/device")
    near = _nearest(wanted, list(names)) or _nearest_ending(wanted, names)
    meant = f"did you mean {near}?" if near else _some(list(names))
    raise NotThere(f"there is no device {wanted!r}", meant)


def device_names(stock: Stock) -> dict[str, tuple[str, str, str]]:
    """All devices by driver/pool/device: those that are published, and those that somebody holds all the same."""
    names: dict[str, tuple[str, str, str]] = {}
    for pool in stock.pages_of:
        for page in stock.newest_pages(pool):
            for device in page.devices:
                parts = (*pool, device.name)
                names["/".join(parts)] = parts
    for pool, holders in stock.held.items():
        for results in holders.values():
            for result in results:
                parts = (*pool, result.device)
                names.setdefault("/".join(parts), parts)
    return names


def _ambiguous(kind: str, wanted: str, fitting: list[str], remedy: str) -> NotThere:
    listed = ", ".join(sorted(fitting)[:_NAMED])
    more = f" and {len(fitting) - _NAMED} more" if len(fitting) > _NAMED else ""
    return NotThere(f"{len(fitting)} {kind}s are called {wanted!r}: {listed}{more}", remedy)


def _advise(name: str, place: str, keys: list[str]) -> str:
    """Say what was probably meant: the same name elsewhere, or one like it, here first."""
    elsewhere = sorted(key for key in keys if _short(key) == name)
    if elsewhere:
        return f"did you mean {elsewhere[0]}?"
    here = [key for key in keys if not place or key.startswith(f"{place}/")]
    for some in (here, keys):
        by_name = {_short(key): key for key in some}
        near = _nearest(name, list(by_name))
        if near:
            return f"did you mean {by_name[near]}?"
    return _some(here or keys)


def _short(key: str) -> str:
    return key.partition("/")[2]


def _some(names: list[str]) -> str:
    listed = ", ".join(sorted(names)[:_NAMED]) or "none"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"there are: {listed}{more}"


def _nearest(name: str, names: list[str]) -> str:
    """Find the nearest of many names: of more than can be compared those that begin or end as it does."""
    few = names if len(names) <= _NEAR else _alike(name, names)
    return shape.nearest(name, few)


def _alike(name: str, names: list[str]) -> list[str]:
    def likeness(one: str) -> int:
        return one.startswith(name[:2]) + one.endswith(name[-3:])

    alike = [one for one in names if likeness(one)]
    alike.sort(key=likeness, reverse=True)
    return alike[:_NEAR]


def _nearest_ending(wanted: str, names: dict[str, tuple[str, str, str]]) -> str:
    """Compare with the ends of names that have as many parts as were written."""
    parts = wanted.count("/") + 1
    ends: dict[str, str] = {}
    for name in names:
        every = name.split("/")
        last = every[-parts:]
        end = "/".join(last)
        ends.setdefault(end, name)
    near = _nearest(wanted, list(ends))
    return ends.get(near, "")
