"""Does once what each suite would otherwise do in its first seconds: `make test` runs this file before its suites.

Python compiles the modules that all suites import. Hypothesis collects the constants in them, and makes its table of Unicode's characters.
"""

from importlib import import_module

from hypothesis import given
from hypothesis.strategies import text

from tests.modules import PACKAGES, ROOT


def test_all_modules_can_be_imported():
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            import_module(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))


@given(text())
def test_hypothesis_draws_texts(value):
    """Hypothesis keeps in .hypothesis what it needs for this."""
    assert isinstance(value, str)
