"""The corpus of handwritten expressions, by topic, in `tests/corpus/cel.txt`."""

from functools import cache
from pathlib import Path

from tests.dra.cel.devices import DEVICES
from tests.dra.cel.judge import go_answer, question

FILE = Path(__file__).parents[2] / "corpus" / "cel.txt"


def expressions():
    """Return the expressions of the corpus, in order."""
    return [line for line in FILE.read_text().splitlines() if line and not line.startswith("# ")]


@cache
def answered(oracle, name):
    """Return Go's answer to each expression in an environment. Cached, because some expressions take seconds."""
    texts = expressions()
    replies = oracle.ask_all(question(text, name, DEVICES) for text in texts)
    return dict(zip(texts, map(go_answer, replies), strict=True))
