"""Evaluates an expression with drawbridge and with Go, and converts both answers to one form."""

from dra import cel
from dra.cel.environment import Env, environment
from dra.cel.evaluation.account import SPENT, open_frame
from dra.cel.evaluation.compiler import Compiler
from dra.cel.syntax import parse
from dra.cel.typecheck import check_types
from dra.cel.values import Fatal
from dra.errors import CostExceeded, SelectorError, SelectorRunError
from dra.server import CURRENT, LISTS, server_of

# Expressions of stored objects; of new objects, with the default gates of the newest minor; of new objects, with list attributes.
ENVIRONMENTS = {
    "stored": {"env": "stored"},
    "new": {"env": "new"},
    "lists": {"env": "new", "listAttributes": True},
}
OVER_BUDGET = "over budget"


def question(expression, environment_, devices):
    return {"expr": expression, "devices": devices, **ENVIRONMENTS[environment_]}


def go_answer(answer):
    """Convert Go's answer: None if the expression does not compile, else its worst-case cost and a verdict for each device."""
    if "compileError" in answer:
        return None
    return {"maxCost": answer["maxCost"], "verdicts": [_verdict(outcome) for outcome in answer["outcomes"]]}


def _verdict(outcome):
    if "error" in outcome:
        return OVER_BUDGET if "cost limit exceeded" in outcome["error"] else "error"
    return outcome["result"]


def compile_in(expression, environment_, minor=CURRENT):
    options = ENVIRONMENTS[environment_]
    return cel.compile(
        expression,
        Env(options["env"]),
        gates=server_of(CURRENT, {LISTS: options.get("listAttributes", False)}).gates,
        minor=minor,
    )


def drawbridge_answer(expression, environment_, views, minor=CURRENT):
    """Return drawbridge's answer in the form of `go_answer`."""
    try:
        selector = compile_in(expression, environment_, minor)
    except SelectorError:
        return None
    return {"maxCost": selector.max_cost, "verdicts": [_matches(selector, view) for view in views]}


def _matches(selector, view):
    try:
        return selector.matches(view)
    except CostExceeded:
        return OVER_BUDGET
    except SelectorRunError:
        return "error"


def differences(oracle, expressions, environments, devices, views):
    """Return a text for each expression for which the answers of Go and drawbridge differ."""
    pairs = [(expression, name) for expression in expressions for name in environments]
    answers = oracle.ask_all(question(expression, name, devices) for expression, name in pairs)
    differing = []
    for (expression, name), answer in zip(pairs, answers, strict=True):
        expected, answer_of_drawbridge = go_answer(answer), drawbridge_answer(expression, name, views)
        if expected != answer_of_drawbridge and not _by_chance(
            oracle, question(expression, name, devices), answer_of_drawbridge
        ):
            errors = answer.get("compileError") or [outcome.get("error") for outcome in answer["outcomes"]]
            differing.append(
                f"[{name}] {expression}\n  Go:   {expected} {errors}\n  ours: {answer_of_drawbridge} {_first_error(expression, name, views)}"
            )
    return differing


def _by_chance(oracle, question, our_verdicts):
    """Return whether Go sometimes gives drawbridge's answer, because it iterates over maps in random order."""
    return any(go_answer(answer) == our_verdicts for answer in oracle.ask_all([question] * 30))


def _first_error(expression, name, views):
    try:
        selector = compile_in(expression, name)
        for view in views:
            selector.matches(view)
    except SelectorError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def actual_cost(expression, view):
    """Return the actual cost of an evaluation as drawbridge counts it."""
    names = environment(cel.STORED)
    root = parse(expression)
    check_types(root, names)
    compiler = Compiler(names)
    closure = compiler.closure(root)
    frame = open_frame(view.slots, compiler.variables)
    try:
        closure(frame)
    except (SelectorError, Fatal):
        pass  # the cost up to the error counts
    return frame[SPENT]
