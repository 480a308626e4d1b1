"""CEL selectors on one device, beside Kubernetes' evaluator, cel-python and cel-expr-python."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from bench.row import Row, median_seconds
from dra import cel
from dra.cel.selector import Selector
from dra.errors import SelectorError
from tests.dra.cel.devices import GPU, VIEWS
from tests.oracles import Oracle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GO = "k8s.io/dynamic-resource-allocation/cel"
TARGET = "< 1 µs"
DRIVER = 'device.driver == "gpu.example.com"'
MODEL = f'{DRIVER} && device.attributes["gpu.example.com"].model == "H100"'
RANGE = (
    'device.attributes["gpu.example.com"].index >= 0 && device.attributes["gpu.example.com"].model in ["A100", "H100"]'
)
# Every library can evaluate the first three; the others need Kubernetes' types.
COMMON = {"driver": DRIVER, "driver and attribute": MODEL, "range and list": RANGE}
SELECTORS = {
    **COMMON,
    "quantity": 'device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0',
    "semver": 'device.attributes["gpu.example.com"].driverVersion.isGreaterThan(semver("550.0.0"))',
    "regex": 'device.attributes["gpu.example.com"].model.lowerAscii().matches("^h[0-9]+$")',
    "bind, optional, exists": 'cel.bind(g, device.attributes["gpu.example.com"], g.?index.orValue(5) == 0 && g.profiles.exists(p, p == "3g.40gb"))',
}
TYPICAL = (*COMMON, "quantity", "semver")
HOSTILE = {
    "3,000 parentheses": "(" * 3000 + "true" + ")" * 3000,
    "250 doubling macros": "optional.of(1)" + ".optMap(x, x)" * 250 + ".hasValue()",
    "10 KiB of terms": " || ".join(f'device.driver == "driver-{i}"' for i in range(310)),
    "catastrophic regex": f'"{"a" * 4000}!".matches("(a+)+(a|a)*(.*)*$")',
    "exploding comprehension": "".join(f"[1,2,3,4,5,6,7,8,9,10].all(v{i}, " for i in range(9)) + "v0 > 0" + ")" * 9,
}


def rows() -> Iterator[Row]:
    """Measure evaluation, compilation, a fleet, and what hostile input costs."""
    oracle = Oracle("cel")
    try:
        for name, text in SELECTORS.items():
            yield _evaluation(name, text, GO, _in_go(oracle, text)["evalNs"] / 1000)
        for library, evaluate in (("cel-python", _in_cel_python), ("cel-expr-python", _in_cel_expr_python)):
            for name, text in COMMON.items():
                yield _evaluation(name, text, library, evaluate(text))
        for name in ("driver and attribute", "bind, optional, exists"):
            yield _compilation(name, SELECTORS[name], oracle)
    finally:
        oracle.close()
    yield _fleet()
    for name, text in HOSTILE.items():
        yield Row(
            what=f"hostile, best of 3: {name}",
            unit="ms",
            ours=min(_hostile(text) for _ in range(3)) * 1000,
            target="< 100 ms",
        )


def _microseconds(work: Callable[[], object], *, runs: int = 9, times: int = 5_000) -> float:
    def repeat() -> None:
        for _ in range(times):
            work()

    return median_seconds(repeat, runs=runs) / times * 1e6


def _evaluation(name: str, text: str, peer: str, theirs: float) -> Row:
    selector, view = cel.compile(text), VIEWS[0]
    ours = _microseconds(lambda: selector.matches(view))
    target = TARGET if name in TYPICAL else ""
    return Row(what=f"one device: {name}", unit="µs", ours=ours, peer=peer, theirs=theirs, target=target)


def _in_go(oracle: Oracle, text: str) -> dict[str, Any]:
    return oracle.ask(expr=text, devices=[GPU], repeat=50_000)


def _compilation(name: str, text: str, oracle: Oracle) -> Row:
    def build() -> Selector:
        return Selector(text, cel.STORED, derived=False)

    theirs = min(oracle.ask(expr=text)["compileNs"] for _ in range(50)) / 1000
    return Row(what=f"compile: {name}", unit="µs", ours=_microseconds(build, times=100), peer=GO, theirs=theirs)


def _plain_device() -> dict[str, Any]:
    """Return the device as nested maps for the other libraries."""
    attributes = {"gpu.example.com": {name: next(iter(value.values())) for name, value in GPU["attributes"].items()}}
    return {"driver": GPU["driver"], "attributes": attributes}


def _in_cel_python(text: str) -> float:
    import celpy
    from celpy.adapter import json_to_cel

    environment = celpy.Environment()
    program = environment.program(environment.compile(text))
    activation = {"device": json_to_cel(_plain_device())}
    assert bool(program.evaluate(activation))
    return _microseconds(lambda: program.evaluate(activation), times=200)


def _in_cel_expr_python(text: str) -> float:
    from cel_expr_python import cel as peer

    environment = peer.NewEnv(variables={"device": peer.Type.DYN})
    program = environment.compile(text)
    activation = environment.Activation({"device": _plain_device()})
    assert program.eval(activation).value() is True
    return _microseconds(lambda: program.eval(activation))


def _fleet() -> Row:
    selector, views = cel.compile(MODEL), VIEWS[:1] * 8_000
    seconds = median_seconds(lambda: [selector.matches(view) for view in views])
    return Row(what="8,000 devices, one selector", unit="ms", ours=seconds * 1000, note="every device evaluated")


def _hostile(text: str) -> float:
    started = time.perf_counter()
    try:
        Selector(text, cel.STORED, derived=False).matches(VIEWS[0])
    except SelectorError:
        pass
    return time.perf_counter() - started
