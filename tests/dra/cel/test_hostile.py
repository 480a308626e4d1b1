"""Hostile expressions end in an error at any depth of Python's stack."""

import sys
import threading
import tracemalloc
from contextlib import suppress

import pytest

from dra import cel
from dra.cel.selector import _with_more_stack
from dra.errors import SelectorError, SelectorSyntaxError
from tests.dra.cel.devices import VIEWS
from tests.limits import PATIENCE
from tests.loops import every

REJECTED = {
    "parentheses": "(" * 3000 + "true" + ")" * 3000,
    "lists": "[" * 3000 + "]" * 3000,
    "maps": '{"a":' * 1500 + "1" + "}" * 1500,
    "indexes": "a[" * 2000 + "1" + "]" * 2000,
    "not": "!(" * 2000 + "true" + ")" * 2000,
    "ternaries": "true ? " * 1 + "true ? true : " * 700 + "true : true",
    "selections": "device" + ".a" * 2000,
    "additions": " + ".join(["1"] * 2500) + " > 0",
    "calls": "size(" * 1500 + "[]" + ")" * 1500,
    "macros": "[1].map(x, " * 300 + "x" + ")" * 300 + " == []",
    "doubling": "optional.of(1)" + ".optMap(x, x)" * 300 + ".hasValue()",
    "long": "true" + " " * (10 * 1024),
    "long in bytes": '"' + "ä" * 6000 + '" == ""',
    "garbage": "\x00\x01" * 3000,
    "open text": '"' * 9999,
    "backslashes": '"' + "\\" * 9999,
    "many errors": "! " * 5000,
    "numbers": "1" * 9999,
    "surrogate": '"\ud800" == ""',
}


@every("name", REJECTED)
def test_a_deep_long_or_broken_expression_is_rejected(name):
    with pytest.raises(SelectorError):
        cel.compile(REJECTED[name])


def test_a_long_flat_expression_is_accepted():
    terms = " || ".join(f'device.driver == "driver-{i}"' for i in range(250))
    assert not cel.compile(terms).matches(VIEWS[0])


@pytest.mark.parametrize("depth", [10, 25, 36])
def test_reasonable_nesting_is_accepted(depth):
    assert cel.compile("(" * depth + "true" + ")" * depth).matches(VIEWS[0])
    assert cel.compile("[1].exists(x, " * depth + "x == 1" + ")" * depth).matches(VIEWS[0])


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*$", "(.*)*(.*)*(.*)*x", "(a{1,100}){1,100}", "a{1000}{1000}"])
def test_no_pattern_takes_forever(pattern):
    try:
        cel.compile(f'"{"a" * 1000}!".matches("{pattern}")').matches(VIEWS[0])
    except SelectorError:
        pass  # RE2 refuses the largest patterns, as Go does


def test_a_range_too_large_for_any_memory_is_an_error():
    with pytest.raises(SelectorError):
        cel.compile("lists.range(9000000000000000000).size() == 0").matches(VIEWS[0])


@pytest.mark.long
def test_a_cached_compile_error_keeps_no_objects_of_its_caller():
    def compile_invalid_expression() -> None:
        _held = bytearray(100_000)
        with suppress(SelectorSyntaxError):
            cel.compile("1 +")

    compile_invalid_expression()
    tracemalloc.start()
    bytes_before, _ = tracemalloc.get_traced_memory()
    for _ in range(100):
        compile_invalid_expression()
    bytes_after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert bytes_after - bytes_before < 50_000


DEEP = {
    "brackets": ("(", "true", ")", 249),
    "not": ("!(", "true", ")", 248),
    "exists": ("[1].exists(x, ", "x == 1", ")", 240),
    "ternaries": ("false ? false : ", "true", "", 240),
    "bind": ("cel.bind(x, 1, ", "true", ")", 240),
    "calls": ("dyn(", "true", ")", 248),
}


@pytest.mark.parametrize("name", DEEP)
def test_accepted_nesting_is_evaluated_at_any_stack_depth(name):
    opening, middle, closing, depth = DEEP[name]
    text = opening * depth + middle + closing * depth

    def evaluate_at_depth(levels, text):
        return evaluate_at_depth(levels - 1, text) if levels else cel.compile(text).matches(VIEWS[0])

    limit = sys.getrecursionlimit()
    for levels in (0, 400, 800):
        assert evaluate_at_depth(levels, text + " " * levels)  # a different text, so that it is compiled at this depth
    assert sys.getrecursionlimit() == limit


def test_two_threads_with_deep_stacks_restore_the_recursion_limit():
    """The thread that started first ends first."""
    usual = sys.getrecursionlimit()
    has_begun, may_end = threading.Event(), threading.Event()

    def wait_for_end():
        has_begun.set()
        assert may_end.wait(PATIENCE)

    other_thread = threading.Thread(target=_with_more_stack, args=(wait_for_end,))

    def begin_other():
        other_thread.start()
        assert has_begun.wait(PATIENCE)

    _with_more_stack(begin_other)
    limit_between = sys.getrecursionlimit()
    may_end.set()
    other_thread.join(PATIENCE)
    assert limit_between > usual
    assert sys.getrecursionlimit() == usual
