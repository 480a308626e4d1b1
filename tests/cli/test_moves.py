"""The cases of clusters on the move: each is decided, and said, as its table has it."""

import pytest

from tests.corpus import move

CASES = [pytest.param(case, id=f"{kind}: {case.name}") for kind, cases in move.tables().items() for case in cases]


@pytest.mark.parametrize("case", CASES)
def test_what_becomes_of_it_is_decided_and_said(case):
    became, said = move.judge(case)
    wanted = (case.says,) if isinstance(case.says, str) else case.says
    assert became == case.becomes, said
    for text in wanted:
        assert text in said
    assert not case.never or case.never not in said


def test_no_case_stands_twice():
    for cases in move.tables().values():
        names = [case.name for case in cases]
        assert len(names) == len(set(names))
