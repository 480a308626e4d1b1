"""The corpus: expressions of our own, by topic, in `tests/corpus/cel.txt`, and what Go said about them in `cel.jsonl`.

`python -m tests.dra.cel.corpus` asks Go again and writes the answers.
"""

import json
from pathlib import Path

from tests.dra.cel.devices import DEVICES
from tests.dra.cel.judge import ENVIRONMENTS, question, theirs
from tests.oracles import Oracle

HERE = Path(__file__).parents[2] / "corpus"
RECORD = HERE / "cel.jsonl"


def expressions():
    """The expressions, in order."""
    lines = (HERE / "cel.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("# ")]


def recorded():
    """Go's recorded answers by expression: what `theirs` gives, for each environment."""
    rows = map(json.loads, RECORD.read_text().splitlines())
    return {row["expr"]: row["answers"] for row in rows}


def asked(oracle):
    """Go's answers of today in the same form."""
    texts = expressions()
    answers = {text: {} for text in texts}
    for name in ENVIRONMENTS:
        replies = oracle.ask_all(question(text, name, DEVICES) for text in texts)
        for text, reply in zip(texts, replies, strict=True):
            answers[text][name] = theirs(reply)
    return answers


if __name__ == "__main__":
    referee = Oracle("cel")
    RECORD.write_text(
        "".join(json.dumps({"expr": text, "answers": each}) + "\n" for text, each in asked(referee).items())
    )
    referee.close()
