"""Recorded answers of the referees, which are the programs of `tests.oracles` with Kubernetes' Go code. Each referee has a file of answers.

With `make test` the answers come from the files, so that no Go is needed. `make test-all` runs the programs on more cases, and compares their
answers with the files. `make record` writes the files. The variable DRAWBRIDGE_REFEREES selects the mode: `recorded`, `live`, `compared` (like
`live`, but it is an error if too few of the recorded questions are asked again) or `record`. A file has compressed lines: the digest of a question, and all
answers that the program gave to it. A question can have several answers, because Go iterates over maps in random order.
"""

import base64
import gzip
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.oracles import PROGRAMS, SOURCES, Oracle, OracleError

FOLDER = SOURCES / "recorded"
# The answers of these programs are not recorded, because each new key of drawbridge changes their questions.
UNRECORDED = ("condition", "metadata")
RECORDED = tuple(name for name in PROGRAMS if name not in UNRECORDED)
MODES = ("recorded", "live", "compared", "record")
# How often a question with a differing answer is repeated: Go iterates a map of two entries in reverse order in one of eight cases.
REPETITIONS = 240
# The share of the recorded questions that must be asked again. The questions after a search depend on whether the search hit its deadline.
MIN_COMPARED = 0.9
# Times and identifiers in answers are not compared.
_RANDOM_TEXT = re.compile(r'(?<="shareID": ")[^"]*|(?<="timeAdded": ")[^"]*')


def mode() -> str:
    """Return the mode of this process."""
    chosen = os.environ.get("DRAWBRIDGE_REFEREES", "recorded")
    if chosen not in MODES:
        raise OracleError(f"DRAWBRIDGE_REFEREES={chosen}: expected one of {', '.join(MODES)}")
    return chosen


class Referee:
    """A referee, recorded or live. Questions and answers are JSON values; answers come in the order of the questions."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._mode = mode()
        self._answers = {} if self._mode == "record" else read(name)
        self._program = None if self._mode == "recorded" else Oracle(name)
        self._question_counts: Counter[str] = Counter()

    def cases(self, live: int, *, recorded: int) -> int:
        """Return the number of cases. The recorded cases are the first of the live cases, so that live runs compare them."""
        return live if self._mode in {"live", "compared"} else recorded

    def ask(self, **question: Any) -> dict[str, Any]:
        """Return the answer to one question."""
        return self.ask_all([question])[0]

    def ask_all(self, questions: Iterable[Any]) -> list[dict[str, Any]]:
        """Return the answers to many questions."""
        question_list = list(questions)
        digests = [_digest_of(question) for question in question_list]
        if self._program is None:
            return [self._replayed(*pair) for pair in zip(digests, question_list, strict=True)]
        answers = self._program.ask_all(question_list)
        for digest, question, answer in zip(digests, question_list, answers, strict=True):
            self._question_counts[digest] += 1
            if self._mode == "record":
                recorded_answers = self._answers.setdefault(digest, [])
                if (plain := _plain_text(answer)) not in recorded_answers:
                    recorded_answers.append(plain)
            elif digest in self._answers:
                self._compare(self._answers[digest], question, answer)
        return answers

    def close(self) -> None:
        """End the program. Write the recorded answers, or fail if too few recorded questions were repeated (MIN_COMPARED)."""
        if self._program is None:
            return
        self._program.close()
        if self._mode == "record":
            write(self.name, self._answers)
        missed = len(self._answers.keys() - self._question_counts.keys())
        if self._mode == "compared" and missed > (1 - MIN_COMPARED) * len(self._answers):
            raise OracleError(
                f"{self.name}: {missed} of {len(self._answers)} recorded answers belong to questions that are no longer asked: run `make record`"
            )

    def _replayed(self, digest: str, question: Any) -> dict[str, Any]:
        answers = self._answers.get(digest)
        if answers is None:
            text = json.dumps(question)[:2000]
            raise OracleError(f"{self.name}: no answer is recorded; run `make record`, which needs Go\nasked: {text}")
        self._question_counts[digest] += 1
        return json.loads(answers[(self._question_counts[digest] - 1) % len(answers)])

    def _compare(self, recorded_answers: Sequence[str], question: Any, answer: dict[str, Any]) -> None:
        """Fail if the answer is not recorded, and none of the answers to REPETITIONS of the question is recorded either."""
        if _is_recorded(recorded_answers, answer):
            return
        answers_without_cost = {_without_cost(recorded) for recorded in recorded_answers}
        different = {_plain_text(answer)}
        for _ in range(REPETITIONS if self._program else 0):  # one by one, because a question may take seconds
            repeated = self._program.ask_all([question])[0]
            different.add(_plain_text(repeated))
            # If the order of a map changes the cost, the cost is not compared.
            is_equal = len(different) > 1 and not answers_without_cost.isdisjoint(map(_without_cost, different))
            if is_equal or _is_recorded(recorded_answers, repeated):
                return
        text = json.dumps(question)[:2000]
        raise OracleError(
            f"{self.name} gave another answer than the recorded one\nasked: {text}\nrecorded: {recorded_answers[0]}\nnow: {_plain_text(answer)}"
        )


@contextmanager
def referee(name: str) -> Iterator[Referee]:
    """Yield a referee that is closed at the end of the block."""
    referee = Referee(name)
    try:
        yield referee
    finally:
        referee.close()


def read(name: str) -> dict[str, list[str]]:
    """Return the recorded answers by the digest of their question. They are undecoded texts, because a test needs few of them."""
    path = FOLDER / f"{name}.gz"
    if not path.exists():
        return {}
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    return {digest: answers.split("\t") for digest, _, answers in (line.partition("\t") for line in lines)}


def write(name: str, answers: dict[str, list[str]]) -> None:
    """Write the answers into the file of a referee, in the order of the questions."""
    FOLDER.mkdir(exist_ok=True)
    lines = ("\t".join((digest, *answers_to_question)) + "\n" for digest, answers_to_question in answers.items())
    (FOLDER / f"{name}.gz").write_bytes(gzip.compress("".join(lines).encode(), mtime=0))


def _digest_of(question: Any) -> str:
    text = json.dumps(question, sort_keys=True).encode()
    return base64.b64encode(hashlib.blake2b(text, digest_size=9).digest()).decode()


def _plain_text(answer: dict[str, Any]) -> str:
    """Return an answer as text, without the parts that vary. It contains no tab, because JSON escapes tabs."""
    constant = {key: value for key, value in answer.items() if not key.endswith(("Ms", "Ns"))}
    return _RANDOM_TEXT.sub("", json.dumps(constant, separators=(",", ": ")))


def _is_recorded(recorded_answers: Sequence[str], answer: dict[str, Any]) -> bool:
    """Return whether an answer is among the recorded answers. A search that ran out of time agrees with every answer."""
    if answer.get("verdict") == "timeout" or '"verdict": "timeout"' in recorded_answers[0]:
        return True
    plain = _plain_text(answer)
    return plain in recorded_answers or _without_texts(plain) in map(_without_texts, recorded_answers)


def _without_texts(answer: str) -> Any:
    """Return an answer with its refusals sorted and without their texts. The texts can have generated names, and Go chooses the order."""
    value = json.loads(answer)
    if errors := value.get("errors"):
        value["errors"] = sorted((error.get("field", ""), error.get("type", "")) for error in errors)
    return value


def _without_cost(answer: str) -> str:
    return re.sub(r'"cost": \d+', "", answer)
