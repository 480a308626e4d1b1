"""How many random cases a test draws: an eighth in `make test` and by hand, all in `make test-all` and `make long`.

The switch is DRAWBRIDGE_DRAWS=all. What is drawn follows from a fixed seed or from Hypothesis; cases found once are tests of their own.
"""

import os

ALL = os.environ.get("DRAWBRIDGE_DRAWS") == "all"


def draws(many: int) -> int:
    """How many of so many cases are drawn in this run."""
    return many if ALL else max(1, many // 8)
