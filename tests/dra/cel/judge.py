"""Evaluate an expression with our code and with Go, and put both answers in one form."""

from dra import cel
from dra.cel.environment import Env, environment
from dra.cel.evaluation.account import SPENT, open_frame
from dra.cel.evaluation.compiler import Compiler
from dra.cel.syntax import parse
from dra.cel.typecheck import check
from dra.cel.values import Fatal
from dra.errors import CostExceeded, SelectorError, SelectorRunError
from dra.server import LISTS, NEWEST, server_of

# Environments: stored objects; new objects with the gates of the newest minor; new objects with list attributes switched on.
ENVIRONMENTS = {
    "stored": {"env": "stored"},
    "new": {"env": "new"},
    "lists": {"env": "new", "listAttributes": True},
}
OVER_BUDGET = "over budget"


def question(expression, environment_, devices):
    return {"expr": expression, "devices": devices, **ENVIRONMENTS[environment_]}


def theirs(answer):
    """Go's answer: None if it does not compile, else the worst-case cost and a verdict for each device."""
    if "compileError" in answer:
        return None
    return {"maxCost": answer["maxCost"], "verdicts": [_verdict(outcome) for outcome in answer["outcomes"]]}


def _verdict(outcome):
    if "error" in outcome:
        return OVER_BUDGET if "cost limit exceeded" in outcome["error"] else "error"
    return outcome["result"]


def compiled(expression, environment_):
    options = ENVIRONMENTS[environment_]
    return cel.compile(
        expression,
        Env(options["env"]),
        gates=server_of(NEWEST, {LISTS: options.get("listAttributes", False)}).gates,
    )


def ours(expression, environment_, views):
    """Our answer in the same form."""
    try:
        selector = compiled(expression, environment_)
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
    """Return the differences between Go's answers and ours, as text."""
    pairs = [(expression, name) for expression in expressions for name in environments]
    answers = oracle.ask_all(question(expression, name, devices) for expression, name in pairs)
    differing = []
    for (expression, name), answer in zip(pairs, answers, strict=True):
        expected, got = theirs(answer), ours(expression, name, views)
        if expected != got and not _by_chance(oracle, question(expression, name, devices), got):
            errors = answer.get("compileError") or [outcome.get("error") for outcome in answer["outcomes"]]
            differing.append(
                f"[{name}] {expression}\n  Go:   {expected} {errors}\n  ours: {got} {_why(expression, name, views)}"
            )
    return differing


def _by_chance(oracle, question, got):
    """Return whether Go, which iterates over maps in random order, sometimes gives our answer too."""
    return any(theirs(answer) == got for answer in oracle.ask_all([question] * 30))


def _why(expression, name, views):
    try:
        selector = compiled(expression, name)
        for view in views:
            selector.matches(view)
    except SelectorError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def spent(expression, view):
    """Return the actual cost of an evaluation, by our count."""
    names = environment(cel.STORED)
    root = parse(expression)
    check(root, names)
    compiler = Compiler(names)
    closure = compiler.closure(root)
    frame = open_frame(view.slots, compiler.variables)
    try:
        closure(frame)
    except (SelectorError, Fatal):
        pass  # the cost up to the error counts
    return frame[SPENT]
