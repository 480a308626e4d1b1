"""The number of random cases of a test: an eighth in `make test` and by hand, all in `make test-all` and `make long`.

DRAWBRIDGE_DRAWS=all selects all. Cases are drawn from a fixed seed or by Hypothesis; cases that failed once are tests of their own.
"""

import os

ALL = os.environ.get("DRAWBRIDGE_DRAWS") == "all"


def draws(many: int) -> int:
    """Return how many of these cases this run draws."""
    return many if ALL else max(1, many // 8)
