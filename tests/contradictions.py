"""Compares the answers of all commands about one object (`tests/agreement.py`), and lists contradictions."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tests.agreement import SILENT, Answer, Key


class Contradiction(NamedTuple):
    """Two different answers to one question, and the key that they are about."""

    kind: str  # the question, and both answers with the names of their commands
    key: str = ""


def requests_of(keys: Mapping[Key, str]) -> Mapping[Key, str]:
    """Return the keys of requests. Selectors and annotations that a translation leaves in the object are left out: not every command lists them."""
    return {
        (container, key): outcome
        for (container, key), outcome in keys.items()
        if container or key.startswith("/") or outcome not in ("left", "unknown")
    } or keys


def contradictions(answers: Mapping[str, Answer]) -> set[Contradiction]:
    """Compare each answer with the answer of translate. Whether the pods fit is also compared with the answer of simulate."""
    differing: set[Contradiction] = set()
    for name, answer in answers.items():
        differing.update(map(Contradiction, _differences(name, answer, answers["translate"], answers["simulate"])))
        if answer.keys is not None and answer.refused is answers["translate"].refused:
            differing.update(_key_differences(name, answer, answers["translate"]))
    return differing


# Codes of pods that wait for a node.
CODES_OF_WAITING_PODS = {"D212", "D221", "D222"}


def _differences(name: str, answer: Answer, translate_answer: Answer, simulate_answer: Answer) -> Iterator[str]:
    if answer.fits and (waiting_codes := translate_answer.codes & CODES_OF_WAITING_PODS):
        yield f"fits: {name} True, translate {min(waiting_codes)}"
    if answer.fits is not None and simulate_answer.fits not in (None, answer.fits):
        yield f"fits: {name} {answer.fits}, simulate {simulate_answer.fits}"
    if name == "explained_pods" and answer.moved is not None and translate_answer.moved not in (None, answer.moved):
        yield f"moved: pods of explain {sorted(answer.moved)}, translate {sorted(translate_answer.moved or ())}"
    if answer.refused is None or (name == "webhook" and "the API server refuses it" in translate_answer.said):
        return
    if answer.refused is not translate_answer.refused:
        # translate judges only requests for devices, and reports no mistake in an object without a request.
        if translate_answer.outcome != SILENT or any(code[0] == "R" for code in answer.codes):
            yield f"refused: {name} {answer.refused}, translate {translate_answer.refused}"
        return  # the other differences follow from this one
    # demo prints only claims, so it has "translated" for these outcomes.
    is_shown_as_translated = name == "demo" and translate_answer.outcome in ("approximated", "partly")
    if answer.outcome not in (None, "translated" if is_shown_as_translated else translate_answer.outcome):
        yield f"outcome: {name} {answer.outcome}, translate {translate_answer.outcome}"
    if answer.keys and translate_answer.mode not in ("enforce", answer.mode):
        yield f"mode: {name} {answer.mode}, translate {translate_answer.mode}"
    if answer.moved is not None and translate_answer.moved not in (None, answer.moved) and name == "webhook":
        yield f"moved: webhook {sorted(answer.moved)}, translate {sorted(translate_answer.moved or ())}"
    # check also has codes of mistakes without a key, and of all mistakes of a refused object. simulate has codes of refusals only. demo has
    # only the codes of the first component that refuses the pod.
    added, lost = answer.codes - translate_answer.codes, translate_answer.codes - answer.codes
    if name == "demo":
        lost = frozenset()
    if name in ("simulate", "dashboard", "webhook"):
        lost = {code for code in lost - translate_answer.withheld if code[0] == "R" and translate_answer.refused}
    if answer.keys is not None or name in ("check", "sarif", "simulate", "dashboard", "webhook", "demo"):
        yield from (f"codes: {name} without {code}" for code in lost)
        if name in ("check", "sarif"):
            added = {code for code in added if code[0] == "R" and not translate_answer.refused}
        yield from (f"codes: {name} adds {code}" for code in added)


def _key_differences(name: str, answer: Answer, translate_answer: Answer) -> Iterator[Contradiction]:
    answer_keys, translate_keys = requests_of(answer.keys or {}), requests_of(translate_answer.keys or {})
    question = "key of a refused object" if translate_answer.refused else "key"
    for key in {*answer_keys, *translate_keys}:
        outcome, translate_outcome = answer_keys.get(key, "not named"), translate_keys.get(key, "not named")
        if outcome != translate_outcome:
            yield Contradiction(f"{question}: {name} {outcome}, translate {translate_outcome}", ":".join(key))
