"""The number of random cases of a test: an eighth of them in `make test` and by default, all in `make test-all` and `make long`.

DRAWBRIDGE_DRAWS=all selects all. Cases are drawn from a fixed seed or by Hypothesis; cases that failed once are tests of their own.
"""

import os

ALL = os.environ.get("DRAWBRIDGE_DRAWS") == "all"


def draws(cases: int) -> int:
    """Return how many of a test's random cases this run draws."""
    return cases if ALL else max(1, cases // 8)
