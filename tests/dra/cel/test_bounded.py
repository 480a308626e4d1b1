"""The evaluation of any expression ends, within the budget if there is one, and no value fills the memory."""

import tracemalloc

import pytest
import re2

from dra import cel
from dra.budget import Budget
from dra.cel.library.regexes import _MEMORY_LIMITS as MEMORY_LIMITS
from dra.cel.selector import Selector
from dra.errors import CostExceeded, OutOfBudget, SelectorError, SelectorRunError
from tests.dra.cel.devices import VIEWS
from tests.dra.cel.judge import actual_cost
from tests.loops import every

VIEW = VIEWS[0]


def bind(parts, body):
    """Bind names to values. A value may use the names before it."""
    return "".join(f"cel.bind({name}, {value}, " for name, value in parts) + body + ")" * len(parts)


def nested_lists(levels, seed="1"):
    """Return nested lists. Each has ten references to the list of the level below, so a few lists have 10 ** levels elements."""
    lists = [("n0", f"[{seed}]")]
    return lists + [(f"n{level}", "[" + ",".join([f"n{level - 1}"] * 10) + "]") for level in range(1, levels + 1)]


def doubled(name, seed, times):
    """Return names with values, each twice as long as the one before it."""
    return [(f"{name}0", seed)] + [
        (f"{name}{level}", f"{name}{level - 1} + {name}{level - 1}") for level in range(1, times + 1)
    ]


MAPS = [("m0", "{1: 1}")] + [
    (f"m{level}", "{" + ",".join(f"{key}: m{level - 1}" for key in range(10)) + "}") for level in range(1, 9)
]
LISTS, TEXT = doubled("l", "[1, 2, 3, 4]", 17), doubled("s", '"xxxxxxxxxxxxxxxx"', 14)
HOSTILE = {
    "nested lists are compared": bind(nested_lists(8), "n8 == n8"),
    "nested lists are compared by !=": bind(nested_lists(8), "n8 != n8"),
    "a nested list is searched": bind(nested_lists(8), "n7 in n8"),
    "nested lists are made distinct": bind(nested_lists(8), "n8.distinct().size() > 0"),
    "nested sets": bind(nested_lists(8), "sets.contains(n8, n8)"),
    "nested lists become flat": bind(nested_lists(8), "n8.flatten(20).size() > 0"),
    "nested empty lists become flat": bind(nested_lists(9, ""), "n9.flatten(20).size() == 0"),
    "nested lists are printed": bind(nested_lists(8), '"%s".format([n8]).size() > 0'),
    "includes of nested lists": bind(nested_lists(8), "dyn(n8).includes(n7)"),
    "indexOf of nested lists": bind(nested_lists(8), "n8.indexOf(n7) > 0"),
    "nested lists in optionals": bind(nested_lists(8), "optional.of(n8) == optional.of(n8)"),
    "nested maps are compared": bind(MAPS, "m8 == m8"),
    "lists are added again and again": bind(LISTS, "lists.range(300).map(x, l17 + l17).size() > 0"),
    "texts are replaced again and again": bind(TEXT, 'lists.range(50).map(x, s7.replace("x", s7)).size() > 0'),
    "texts are split again and again": bind(TEXT, 'lists.range(50).map(x, s14.split("x")).size() > 0'),
    "all occurrences of a pattern are searched": bind(TEXT, 's14.findAll("x*y|x").size() > 0'),
    "a pattern without an automaton": bind(TEXT, 's14.matches("(x|b)*x(x|b){200}y")'),
    "loops in loops": "".join(f"[1,2,3,4,5,6,7,8,9].all(v{at}, " for at in range(9)) + "v0 > 0" + ")" * 9,
    "a long list is sorted": "lists.range(400000).sort().size() > 0",
    "long numbers": bind(TEXT, 'lists.range(9).all(x, isQuantity(s14.replace("x", "0") + "x"))'),
}  # fmt: skip
# Expressions that would fill the memory.
LARGE = [
    name
    for name in HOSTILE
    if "again and again" in name or name in ("a long list is sorted", "nested lists become flat")
]


def compile_uncached(text, budget=None):
    return Selector(text, cel.STORED, derived=False, budget=budget)


@every("name", HOSTILE)
def test_a_hostile_evaluation_ends_when_its_budget_is_spent(name):
    selector = compile_uncached(HOSTILE[name])
    with pytest.raises((OutOfBudget, CostExceeded)):
        selector.matches(VIEW, Budget(20_000))


@pytest.mark.long
@pytest.mark.parametrize("name", LARGE)
def test_a_hostile_evaluation_without_budget_ends_with_little_memory(name):
    selector = compile_uncached(HOSTILE[name])
    tracemalloc.start()
    try:
        selector.matches(VIEW)
    except (CostExceeded, SelectorRunError):
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 150 << 20


@pytest.mark.long
@pytest.mark.parametrize("text", ["lists.range(900000) == []", '"a".matches("b") || lists.range(900000).size() == 0'])
def test_a_compiled_selector_keeps_no_large_constant(text):
    tracemalloc.start()
    selector = compile_uncached(text)
    kept_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert selector
    assert kept_bytes < 1 << 20


def test_compiling_a_pattern_is_charged_to_the_budget():
    with pytest.raises(OutOfBudget):
        compile_uncached('device.driver.matches("' + r"\\pL" * 2000 + '")', Budget(100_000))


@pytest.mark.parametrize(
    ("pattern", "tries"),
    [
        ("(a{0,1000}){0,1}" * 300, 0),
        (r"\\pL" * 2_000, 0),
        ("(((a{1,10}){1,10}){1,10})" * 300, 0),
        (r"(\\pL{1,100})", 1),  # only a compilation with little memory shows how much memory the pattern needs
        ("(?s).{1000}" * 300, 0),
    ],
    ids=lambda text: str(text)[:12],
)
def test_a_call_limit_rejects_a_pattern_that_compiles_slowly(pattern, tries, monkeypatch):
    """RE2 compiles a pattern in one call, which cannot be interrupted and takes up to half a second for 5 KB."""
    memory = []
    compile_ = re2._Regexp
    monkeypatch.setattr(re2, "_Regexp", lambda text, how: memory.append(how.max_mem) or compile_(text, how))
    text = f'device.driver.matches("{pattern}")'
    budget = Budget(max_call_steps=25_000)
    with pytest.raises(OutOfBudget, match="interrupted"):
        compile_uncached(text, budget)
    assert memory == [MEMORY_LIMITS[0]] * tries
    assert budget.is_out


def test_a_call_limit_rejects_a_search_that_takes_long():
    selector = compile_uncached(bind(doubled("s", '"xxxxxxxxxxxxxxxx"', 9), "s9.matches('(x|b)*x(x|b){100}y')"))
    assert selector.matches(VIEW, Budget()) is False
    budget = Budget(max_call_steps=25_000)
    with pytest.raises(OutOfBudget):
        selector.matches(VIEW, budget)
    assert budget.spent < 25_000


def test_a_list_beyond_the_budget_is_not_built():
    """A list of a million numbers takes 40 ms to build in one call."""
    for count, budget, reason in (
        (1_000_000, Budget(), CostExceeded),
        (900_000, Budget(max_call_steps=25_000), OutOfBudget),
    ):
        selector = compile_uncached(f"lists.range({count}).size() > 0")
        with pytest.raises(reason):
            selector.matches(VIEW, budget)


def test_compiling_a_deep_expression_is_charged_to_the_budget():
    with pytest.raises(OutOfBudget):
        compile_uncached("[1].map(x, " * 150 + "x" + ")" * 150 + ".size() == 1", Budget(100_000))


@pytest.mark.parametrize(
    "text",
    [
        'device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].model == "H100"',
        'cel.bind(g, device.attributes["gpu.example.com"], g.?index.orValue(5) == 0 && g.profiles.exists(p, p == "3g.40gb"))',
        'device.attributes["gpu.example.com"].model.lowerAscii().matches("^h[0-9]+$")',
        'device.attributes["gpu.example.com"].model in ["A100", "H100"]',
    ],
)
def test_the_usual_selectors_take_few_steps(text):
    selector, budget = compile_uncached(text), Budget()
    selector.matches(VIEW, budget)
    assert budget.spent < 100


@pytest.mark.parametrize("text", ["true", "[1, 2, 3].exists(x, lists.range(40).exists(y, y == x * 10))"])
def test_an_evaluation_is_charged_its_real_cost_not_the_estimate(text):
    selector, budget = compile_uncached(text), Budget()
    assert selector.matches(VIEW) is selector.matches(VIEW, budget) is True
    assert 1 <= budget.spent <= actual_cost(text, VIEW) // 3 + 10


def test_an_error_message_does_not_show_a_huge_value():
    with pytest.raises(SelectorError) as raised:
        compile_uncached(bind(nested_lists(5), "dyn({1: 2})[dyn(n5)] == 1")).matches(VIEW)
    assert len(str(raised.value)) < 200
