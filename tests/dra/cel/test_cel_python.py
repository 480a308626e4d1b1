"""A second opinion: cel-python, which shares no code with ours or with Kubernetes', evaluates expressions of the common subset like ours."""

import logging
import random
from collections import Counter

import celpy
from celpy.adapter import json_to_cel

from dra import cel
from dra.errors import SelectorError
from tests.dra.cel.devices import GPU, VIEWS

DOMAIN = 'device.attributes["gpu.example.com"]'
PLAIN_DEVICE = {
    "driver": GPU["driver"],
    "attributes": {"gpu.example.com": {name: next(iter(value.values())) for name, value in GPU["attributes"].items()}},
}
LEAVES = {
    "int": ["0", "1", "2", "7", "-3", "100", f"{DOMAIN}.index"],
    "string": ["''", "'a'", "'H100'", "'gpu.example.com'", "'héllo'", "device.driver", f"{DOMAIN}.model", f"{DOMAIN}.nope"],
    "index": ["0", "1", "2", "5"],  # cel-python counts a negative index from the end
    "bool": ["true", "false", f"'index' in {DOMAIN}", f"has({DOMAIN}.model)", f"has({DOMAIN}.nope)"],
    "ints": ["[5]", "[1]", "[3, 1, 2]", "[0, 0]"],
    "strings": ["['a']", "['H100', 'A100']", "['', 'é']"],
}  # fmt: skip
# Each form names the types of its operands.
FORMS = {
    "int": ["{int} + {int}", "{int} - {int}", "{int} * {int}", "{int} / {int}", "{int} % {int}", "-{int}", "size({string})", "size({ints})", "{ints}[{index}]", "{bool} ? {int} : {int}", "int({int})"],
    "string": ["{string} + {string}", "{bool} ? {string} : {string}", "{strings}[{index}]", "string({int})"],
    "bool": ["{int} == {int}", "{int} != {int}", "{int} < {int}", "{int} >= {int}", "{string} == {string}", "{string} != {string}", "{string} < {string}", "{string}.startsWith({string})", "{string}.endsWith({string})",  "{string}.matches('^[A-Z][0-9]+$')", "{bool} && {bool}", "{bool} || {bool}", "!{bool}", "{bool} ? {bool} : {bool}", "{int} in {ints}", "{string} in {strings}", "{ints} == {ints}", "{ints}.exists(x, x > {int})", "{ints}.all(x, x < {int})", "{ints}.exists_one(x, x == {int})", "{strings}.exists(s, s == {string})"],
    "index": ["size({string})", "size({strings})"],
    "ints": ["{ints} + {ints}", "{ints}.map(x, x * 2)", "{ints}.filter(x, x > {int})", "{bool} ? {ints} : {ints}"],
    "strings": ["{strings} + {strings}", "{strings}.map(s, s + 'b')"],
}  # fmt: skip


def draw(rng, kind, depth):
    """Draw an expression of a type in parentheses."""
    if depth == 0 or rng.random() < 0.1:
        return rng.choice(LEAVES[kind])
    form = rng.choice(FORMS[kind])
    for operand in LEAVES:
        while f"{{{operand}}}" in form:
            form = form.replace(f"{{{operand}}}", draw(rng, operand, depth - 1), 1)
    return f"({form})"


def our_verdict(expression):
    try:
        return cel.compile(expression).matches(VIEWS[0])
    except SelectorError:
        return "error"


def their_verdict(expression, environment=celpy.Environment()):  # noqa: B008  it is never changed
    try:
        program = environment.program(environment.compile(expression))
        return bool(program.evaluate({"device": json_to_cel(PLAIN_DEVICE)}))
    except celpy.CELEvalError:
        return "error"
    except IndexError:  # cel-python fails at the text of its own error
        return None


def test_random_expressions_have_the_verdicts_of_cel_python(monkeypatch):
    monkeypatch.setattr(logging.getLogger("celpy"), "disabled", True)
    rng = random.Random(9)
    expressions = [draw(rng, "bool", rng.choice([1, 2, 3])) for _ in range(400)]
    verdicts = {expression: (our_verdict(expression), their_verdict(expression)) for expression in expressions}
    differing = {expression: both for expression, both in verdicts.items() if both[1] not in (None, both[0])}
    assert differing == {}
    assert sum(theirs is not None for _, theirs in verdicts.values()) > len(verdicts) * 0.95
    assert min(Counter(ours for ours, _ in verdicts.values()).values()) > len(verdicts) / 20
