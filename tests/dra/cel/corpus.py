"""The corpus: expressions of our own, by topic, in `tests/corpus/cel.txt`."""

from functools import cache
from pathlib import Path

from tests.dra.cel.devices import DEVICES
from tests.dra.cel.judge import question, theirs

FILE = Path(__file__).parents[2] / "corpus" / "cel.txt"


def expressions():
    """Return the expressions of the corpus, in order."""
    return [line for line in FILE.read_text().splitlines() if line and not line.startswith("# ")]


@cache
def answered(oracle, name):
    """Go's answer to each expression in an environment; cached, because some need seconds."""
    texts = expressions()
    replies = oracle.ask_all(question(text, name, DEVICES) for text in texts)
    return dict(zip(texts, map(theirs, replies), strict=True))
