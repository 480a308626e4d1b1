"""Random expressions with every function: drawbridge accepts the expressions that Go accepts, with Go's verdicts and costs."""

import pytest

from tests.dra.cel.devices import DEVICES, VIEWS
from tests.dra.cel.generator import FUNCTIONS, NOT_CALLED, Generator
from tests.dra.cel.judge import actual_cost, differences, drawbridge_answer

pytestmark = pytest.mark.oracle


def compare(oracle, count, seed, environments):
    generator = Generator(seed)
    expressions = [generator.expression() for _ in range(count)]
    differing = differences(oracle, expressions, environments, DEVICES, VIEWS)
    assert not differing, f"{len(differing)} of {count} differ (seed {seed}):\n" + "\n".join(differing[:10])
    return generator, expressions


def test_random_expressions_evaluate_as_in_go(cel_oracle):
    count = cel_oracle.cases(3_000, recorded=1_000)
    generator, expressions = compare(cel_oracle, count, 1, ["stored"])
    assert set(FUNCTIONS) - NOT_CALLED <= generator.used
    answers = [drawbridge_answer(expression, "stored", VIEWS[:1]) for expression in expressions]
    verdicts = [answer["verdicts"][0] for answer in answers if answer]
    assert min(map(verdicts.count, (True, False, "error"))) > count / 10


def test_random_expressions_are_accepted_where_go_accepts_them(cel_oracle):
    compare(cel_oracle, cel_oracle.cases(700, recorded=150), 2, ["new", "lists"])


def test_random_expressions_cost_what_go_counts(cel_oracle):
    generator = Generator(3)
    expressions = [generator.expression() for _ in range(cel_oracle.cases(2_000, recorded=400))]
    answers = cel_oracle.ask_all({"expr": expression, "devices": DEVICES[:1]} for expression in expressions)
    costs = [(expression, _cost(answer)) for expression, answer in zip(expressions, answers, strict=True)]
    differing = [
        (expression, cost)
        for expression, cost in costs
        if cost is not None and actual_cost(expression, VIEWS[0]) != cost
    ]
    # If a loop over a map ends early, its cost depends on the order, which is random in Go.
    differing = [(expression, cost) for expression, cost in differing if not _by_chance(cel_oracle, expression)]
    assert not differing
    assert sum(cost is not None for _, cost in costs) > len(costs) * 0.75


def _cost(answer):
    """Return the cost that Go counted; None if the evaluation was not completed."""
    for outcome in answer.get("outcomes") or []:
        error = outcome.get("error", "")
        if "cost limit" not in error and "internal error" not in error:
            return outcome["cost"]
    return None


def _by_chance(oracle, expression):
    answers = oracle.ask_all([{"expr": expression, "devices": DEVICES[:1]}] * 30)
    return actual_cost(expression, VIEWS[0]) in map(_cost, answers)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 110))
def test_fifty_thousand_random_expressions_evaluate_as_in_go(cel_oracle, seed):
    compare(cel_oracle, 5_000, seed, ["stored"])
