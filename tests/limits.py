"""How long tests wait, and how many random cases they draw. pyproject.toml has the time limit of a test."""

from hypothesis import settings

# Seconds that a test waits for something that should happen at once: enough on a machine with ten other busy processes.
PATIENCE = 60.0


def draws(cases: int) -> int:
    """Return how many of a test's random cases this run draws: all, or a twentieth of them (the profiles in conftest.py)."""
    return max(1, cases * settings.default.max_examples // settings.get_profile("all").max_examples)
