"""Compares the answers of all commands about one object (`tests/agreement.py`), and lists contradictions."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tests.agreement import SILENT, Answer, Key


class Contradiction(NamedTuple):
    """Two different answers to one question, and the key that they are about."""

    kind: str
    key: str = ""


def requests_of(keys: Mapping[Key, str]) -> Mapping[Key, str]:
    """Return the keys of requests. Selectors and annotations that a translation leaves in the object are left out: not every command lists them."""
    return {
        place: outcome
        for place, outcome in keys.items()
        if place[0] or place[1].startswith("/") or outcome not in ("left", "unknown")
    } or keys


def contradictions(answers: Mapping[str, Answer]) -> set[Contradiction]:
    """Compare each answer with the answer of translate. Whether the pods fit is also compared with the answer of simulate."""
    differing: set[Contradiction] = set()
    for name, answer in answers.items():
        differing.update(map(Contradiction, _differences(name, answer, answers["translate"], answers["simulate"])))
        if answer.keys is not None and answer.refused is answers["translate"].refused:
            differing.update(_keys(name, answer, answers["translate"]))
    return differing


# Codes of pods that wait for a node.
WAITING = {"D212", "D221", "D222"}


def _differences(name: str, answer: Answer, right: Answer, simulated: Answer) -> Iterator[str]:
    if answer.fits and (waits := right.codes & WAITING):
        yield f"fits: {name} True, translate {min(waits)}"
    if answer.fits is not None and simulated.fits not in (None, answer.fits):
        yield f"fits: {name} {answer.fits}, simulate {simulated.fits}"
    if answer.refused is None or (name == "webhook" and "the API server refuses it" in right.said):
        return
    if answer.refused is not right.refused:
        # translate judges only requests for devices, and reports no mistake in an object without a request.
        if right.outcome != SILENT or any(code[0] == "R" for code in answer.codes):
            yield f"refused: {name} {answer.refused}, translate {right.refused}"
        return  # the other differences follow from this one
    # demo prints only claims, so it has "translated" for these outcomes.
    moves = name == "demo" and right.outcome in ("approximated", "partly")
    if answer.outcome not in (None, "translated" if moves else right.outcome):
        yield f"outcome: {name} {answer.outcome}, translate {right.outcome}"
    if answer.keys and right.mode not in ("enforce", answer.mode):
        yield f"mode: {name} {answer.mode}, translate {right.mode}"
    if answer.moved is not None and right.moved not in (None, answer.moved) and name == "webhook":
        yield f"moved: webhook {sorted(answer.moved)}, translate {sorted(right.moved or ())}"
    # check also has codes of mistakes without a key, and of all mistakes of a refused object. simulate has codes of refusals only. demo has
    # only the codes of the first component that refuses the pod.
    added, lost = answer.codes - right.codes, right.codes - answer.codes
    if name == "demo":
        lost = frozenset()
    if name in ("simulate", "dashboard", "webhook"):
        lost = {code for code in lost - right.withheld if code[0] == "R" and right.refused}
    if answer.keys is not None or name in ("check", "sarif", "simulate", "dashboard", "webhook", "demo"):
        yield from (f"codes: {name} without {code}" for code in lost)
        if name in ("check", "sarif"):
            added = {code for code in added if code[0] == "R" and not right.refused}
        yield from (f"codes: {name} adds {code}" for code in added)


def _keys(name: str, answer: Answer, right: Answer) -> Iterator[Contradiction]:
    given, wanted = requests_of(answer.keys or {}), requests_of(right.keys or {})
    question = "key of a refused object" if right.refused else "key"
    for place in {*given, *wanted}:
        given_outcome, wanted_outcome = given.get(place, "not named"), wanted.get(place, "not named")
        if given_outcome != wanted_outcome:
            yield Contradiction(f"{question}: {name} {given_outcome}, translate {wanted_outcome}", ":".join(place))
