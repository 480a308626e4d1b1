"""Coverage-guided fuzzing: texts are changed at random; texts that make the code go from a line to another line for the first time are changed further.

    python -m tests.fuzz [--seconds 60] [--seed 1] [TARGET …]

A target parses a text. Every exception except the parser's own error is a failure. The fuzzer shortens each text that fails and writes it
to `tests/corpus/fuzz/TARGET/`; `tests/test_fuzz.py` tries these texts in every run. Python's own tracer measures the coverage, so nothing
needs to be installed or compiled for it.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cluster import manifests
from dra import cel, semver
from dra.budget import Budget
from dra.cel.selector import Selector
from dra.errors import CostExceeded, OutOfBudget, QuantityError, SelectorError, SemverError
from dra.quantity import parse_uncached
from tests.dra.cel.devices import VIEWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType

ROOT = Path(__file__).parents[1]
FOUND_TEXTS = ROOT / "tests" / "corpus" / "fuzz"
MAX_CHARACTERS = 2_000
# Steps for compiling and for evaluating: without a charge per step a loop could run forever.
STEPS_OF_COMPILATION, STEPS_OF_EVALUATION = 100_000, 2_000


class Target(NamedTuple):
    """The function that is fuzzed, the files whose coverage counts, the first texts, and the pieces that are inserted into texts."""

    run: Callable[[str], None]
    code: tuple[str, ...]
    first_texts: tuple[str, ...]
    pieces: tuple[str, ...]


class BrokenError(AssertionError):
    """A text breaks a guarantee without an exception."""


def _try_quantity(text: str) -> None:
    try:
        quantity = parse_uncached(text)
    except QuantityError:
        return
    parsed_again = parse_uncached(str(quantity))
    # Go prints a quantity beyond exa without a suffix, and caps a quantity with a binary suffix.
    if abs(quantity.nano) < 10**21 * 10**9 and parsed_again != quantity and not text.endswith("i"):
        raise BrokenError(f"{text!r} prints as {quantity}, which is {parsed_again}")


def _try_version(text: str) -> None:
    for parse in (semver.Version.parse, semver.Version.parse_tolerant):
        try:
            version = parse(text)
        except SemverError:
            continue
        if semver.Version.parse(str(version)) != version:
            raise BrokenError(f"{text!r} prints as {version}")


def _try_selector(text: str) -> None:
    try:
        selector = Selector(text, cel.STORED, derived=True, budget=Budget(STEPS_OF_COMPILATION))
    except (SelectorError, OutOfBudget):
        return
    for view in VIEWS:
        answers = [_answer(selector, view, budget) for budget in (Budget(STEPS_OF_EVALUATION), None)]
        if answers[0] != answers[1] and OutOfBudget not in answers and CostExceeded not in answers:
            raise BrokenError(f"{text!r} is {answers[0]} with a budget and {answers[1]} without one")


def _answer(selector: Selector, view: cel.DeviceView, budget: Budget | None) -> object:
    try:
        return selector.matches(view, budget)
    except (OutOfBudget, SelectorError) as error:
        return type(error)


def _try_manifest(text: str) -> None:
    try:
        documents = manifests.parse(text.encode(errors="surrogatepass"))
    except manifests.ManifestError as error:
        if not all(str(problem) for problem in error.problems):
            raise BrokenError("a problem without a message") from error
        return
    for document in documents:
        _ = document.line, document.duplicates
    written = manifests.dump([document.object for document in documents])
    parsed_again = [document.object for document in manifests.parse(written)]
    if parsed_again != [document.object for document in documents]:
        raise BrokenError(f"{text!r} is written as {written!r}")


def _lines(path: str) -> tuple[str, ...]:
    return tuple(line for line in (ROOT / path).read_text().splitlines() if line and not line.startswith("#"))


_PIECES_OF_SELECTORS = (
    "device.driver", 'device.attributes["gpu.example.com"]', ".model", ".?index", ".orValue(0)", "[1, 2]", "{'a': 1}", "lists.range(9)",
    ".exists(x, ", ".map(x, ", ".all(i, v, ", "cel.bind(y, ", "optional.of(", "has(", "quantity('1Gi')", ".matches('a')", "&&", "||", "?", ":", "in", "'", '"',
    "\\", "0x", "1e9", "u", "b'", "r'", "'''", "//", "`", "!", "-", "dyn(", "type(", ".format([", "%s", ".split(',')", "sets.contains(", ".sortBy(x, ",
)  # fmt: skip
_PIECES_OF_MANIFESTS = ("- ", ": ", "&a ", "*a", "<<: ", "|\n", ">-\n", "!!str ", "!!binary ", "? ", "[", "]", "{", "}", "#", "---\n", "...\n", "'", '"', "\\u0041", "\n", "  ", "\t", "%", "~", "0o7", "0x1f", "1_0", ".inf", "1e3", "kind: List\nitems:\n")  # fmt: skip

_EXAMPLE_MANIFESTS = tuple(
    path.read_text()[:MAX_CHARACTERS] for path in sorted((ROOT / "manifests" / "examples").glob("*.yaml"))
)

TARGETS: dict[str, Target] = {
    "quantity": Target(
        _try_quantity,
        ("dra/quantity.py",),
        ("1", "500m", "80Gi", "1e3", "-0.1n", "+.5Ki", "1E", "12E-3", "0.000000001", "999999999999999999999"),
        ("0", "9", ".", "e", "E", "+", "-", "n", "u", "m", "k", "M", "G", "T", "P", "i", "000000000", "99999999999999999999"),
    ),
    "semver": Target(
        _try_version,
        ("dra/semver.py",),
        ("1.2.3", "v1.2", "01.2.3", "1.0.0-rc.1+b", "1.0.0-0.a.1"),
        ("0", "9", ".", "-", "+", "v", "a", "18446744073709551616"),
    ),
    "selector": Target(
        _try_selector, ("dra/cel/",), tuple(text for text in _lines("tests/corpus/cel.txt") if len(text) < 300), _PIECES_OF_SELECTORS
    ),
    "manifest": Target(
        _try_manifest,
        ("cluster/manifests/",),
        (*_EXAMPLE_MANIFESTS, '{"a": [1, "x"]}{"b": null}', "a: &a {b: 1}\nc: {<<: *a}\n", "a: |\n  x\n"),
        _PIECES_OF_MANIFESTS,
    ),
}  # fmt: skip


def fuzz(name: str, seconds: float, seed: int) -> list[tuple[str, str]]:
    """Fuzz a target for this long; return each text that broke the target, and what was wrong."""
    target, rng = TARGETS[name], random.Random(seed)
    pool, known_transitions = list(target.first_texts), set[Any]()
    failures: dict[str, tuple[str, str]] = {}
    end = time.monotonic() + seconds
    for text in rng.sample(pool, len(pool)):
        if time.monotonic() > end - seconds / 2:
            break
        _run_traced(target, text, known_transitions)
    while time.monotonic() < end:
        text = _mutated(rng, pool, target.pieces)
        count_before = len(known_transitions)
        failure = _run_traced(target, text, known_transitions)
        if failure is not None:
            kind = failure.partition(":")[0]
            if kind not in failures:
                failures[kind] = _shortened(target, text, kind), failure
        elif len(known_transitions) > count_before:
            pool.append(text)
    return list(failures.values())


def failure_of(target: Target, text: str) -> str | None:
    """Return what is wrong if a text breaks a target, or None."""
    try:
        target.run(text)
    except Exception as error:  # noqa: BLE001 - the fuzzer looks for exceptions
        return f"{type(error).__name__}: {error}"[:300]
    return None


def _run_traced(target: Target, text: str, known_transitions: set[Any]) -> str | None:
    """Run a target on a text, and record the transitions between lines of its code; return what is wrong, or None."""
    roots = tuple(str(ROOT / part) for part in target.code)

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if event == "call" and not frame.f_code.co_filename.startswith(roots):
            return None
        previous = frame.f_lineno

        def step(frame: FrameType, event: str, _: object) -> Any:
            nonlocal previous
            if event == "line":
                known_transitions.add((frame.f_code, previous, frame.f_lineno))
                previous = frame.f_lineno
            return step

        return step

    outer = sys.gettrace()
    sys.settrace(trace)
    try:
        return failure_of(target, text)
    finally:
        sys.settrace(outer)


def _mutated(rng: random.Random, pool: list[str], pieces: tuple[str, ...]) -> str:
    text = rng.choice(pool)
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        at = rng.randrange(len(text) + 1)
        end = min(len(text), at + rng.choice((0, 1, 1, 2, 5, 20)))
        change = rng.randrange(6)
        if change == 0:
            text = text[:at] + rng.choice(pieces) + text[end:]
        elif change == 1:
            text = text[:at] + text[end:]
        elif change == 2:
            text = text[:at] + text[at:end] * rng.choice((2, 3, 30)) + text[end:]
        elif change == 3:
            other_text = rng.choice(pool)
            start = rng.randrange(len(other_text) + 1)
            text = text[:at] + other_text[start : start + rng.choice((5, 30, 200))] + text[end:]
        elif change == 4:
            text = (
                text[:at]
                + chr(rng.choice((rng.randrange(128), rng.randrange(0xD800), rng.randrange(0x10000, 0x11000))))
                + text[end:]
            )
        else:
            text = text[:at] + rng.choice(pool)[:200] + text[end:]
    return text[:MAX_CHARACTERS]


def _shortened(target: Target, text: str, kind: str) -> str:
    """Return the text without the parts that are not needed to break the target in the same way."""
    size = max(1, len(text) // 2)
    while size:
        at = 0
        while at < len(text):
            shorter = text[:at] + text[at + size :]
            if (failure_of(target, shorter) or "").startswith(kind):
                text = shorter
            else:
                at += size
        size //= 2
    return text


def main(arguments: Iterable[str]) -> int:
    """Fuzz the chosen targets in turn, and write the texts that broke a target into files."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each target is tried")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args(list(arguments))
    has_failures = False
    for name in options.targets or TARGETS:
        for text, failure in fuzz(name, options.seconds, options.seed):
            has_failures = True
            path = FOUND_TEXTS / name / hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:12]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode(errors="surrogatepass"))
            print(f"{name}: {failure}\n  {text!r}\n  kept as {path.relative_to(ROOT)}")
        print(f"{name}: seed {options.seed}, {options.seconds:.0f} s")
    return int(has_failures)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
