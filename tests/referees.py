"""What the referees of `tests.oracles` answered, one file each, so that Kubernetes' word is kept where there is no Go.

`make test` answers from the files. `make test-all` asks the programs, for more cases, and compares what is in the files; `make record`
writes them. DRAWBRIDGE_REFEREES says which: `recorded`, `live`, `compared` (live, and all that is recorded has to be asked) or `record`.
A file is compressed lines of JSON: the digest of a question, then each answer that it got, because Go goes through maps in random order.
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
# What these are asked is written by drawbridge itself, and changes with each of its keys.
UNRECORDED = ("condition", "metadata")
RECORDED = tuple(name for name in PROGRAMS if name not in UNRECORDED)
MODES = ("recorded", "live", "compared", "record")
# How often a question is asked again whose answer may be chance: Go begins a map of two entries with the second once in eight times.
AGAIN = 240
# A search that ended by its deadline once and found something at another time is asked other questions after it.
LEAST_COMPARED = 0.9
# Clocks and identifiers are no part of an answer.
_BY_CHANCE = re.compile(r'(?<="shareID": ")[^"]*|(?<="timeAdded": ")[^"]*')


def mode() -> str:
    """Return what answers in this process: the files or the programs."""
    chosen = os.environ.get("DRAWBRIDGE_REFEREES", "recorded")
    if chosen not in MODES:
        raise OracleError(f"DRAWBRIDGE_REFEREES={chosen}: it is one of {', '.join(MODES)}")
    return chosen


class Referee:
    """A referee, recorded or live. Questions and answers are JSON values; answers come in the order of the questions."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._mode = mode()
        self._answers = {} if self._mode == "record" else read(name)
        self._program = None if self._mode == "recorded" else Oracle(name)
        self._asked: Counter[str] = Counter()

    def cases(self, live: int, *, recorded: int) -> int:
        """How many cases there are: the recorded ones are the first of the live ones, so that these compare them."""
        return live if self._mode in {"live", "compared"} else recorded

    def ask(self, **question: Any) -> dict[str, Any]:
        """Ask one question."""
        return self.ask_all([question])[0]

    def ask_all(self, questions: Iterable[Any]) -> list[dict[str, Any]]:
        """Ask many questions."""
        asked = list(questions)
        digests = [_digest(question) for question in asked]
        if self._program is None:
            return [self._replayed(*pair) for pair in zip(digests, asked, strict=True)]
        answers = self._program.ask_all(asked)
        for digest, question, answer in zip(digests, asked, answers, strict=True):
            self._asked[digest] += 1
            if self._mode == "record":
                known = self._answers.setdefault(digest, [])
                if (plain := _plain(answer)) not in known:
                    known.append(plain)
            elif digest in self._answers:
                self._compare(self._answers[digest], question, answer)
        return answers

    def close(self) -> None:
        """End the program; write what was recorded, or fail if what is recorded was not asked again."""
        if self._program is None:
            return
        self._program.close()
        if self._mode == "record":
            write(self.name, self._answers)
        missed = len(self._answers.keys() - self._asked.keys())
        if self._mode == "compared" and missed > (1 - LEAST_COMPARED) * len(self._answers):
            raise OracleError(
                f"{self.name}: {missed} of {len(self._answers)} recorded answers are to no question: run `make record`"
            )

    def _replayed(self, digest: str, question: Any) -> dict[str, Any]:
        answers = self._answers.get(digest)
        if answers is None:
            text = json.dumps(question)[:2000]
            raise OracleError(f"{self.name}: no answer is recorded; run `make record`, which needs Go\nasked: {text}")
        self._asked[digest] += 1
        return json.loads(answers[(self._asked[digest] - 1) % len(answers)])

    def _compare(self, known: Sequence[str], question: Any, answer: dict[str, Any]) -> None:
        """Fail if an answer is not the recorded one, and that is not by chance."""
        if _agree(known, answer):
            return
        again = self._program.ask_all([question] * AGAIN) if self._program else []
        # What is found early in a map costs less: where the costs differ from time to time, they are not compared.
        uncosted = [_uncosted(one) for one in known] if len({_plain(one) for one in again}) > 1 else []
        if any(_agree(known, one) or _uncosted(_plain(one)) in uncosted for one in again):
            return
        text = json.dumps(question)[:2000]
        raise OracleError(
            f"{self.name} answers otherwise than recorded\nasked: {text}\nrecorded: {known[0]}\nnow: {_plain(answer)}"
        )


@contextmanager
def referee(name: str) -> Iterator[Referee]:
    """Have a referee for as long as this lasts."""
    one = Referee(name)
    try:
        yield one
    finally:
        one.close()


def read(name: str) -> dict[str, list[str]]:
    """Read the answers by digest; each is still text, because a test asks for few of them."""
    path = FOLDER / f"{name}.gz"
    if not path.exists():
        return {}
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    return {digest: answers.split("\t") for digest, _, answers in (line.partition("\t") for line in lines)}


def write(name: str, answers: dict[str, list[str]]) -> None:
    """Write the answers, in the order of the questions."""
    FOLDER.mkdir(exist_ok=True)
    lines = ("\t".join((digest, *several)) + "\n" for digest, several in answers.items())
    (FOLDER / f"{name}.gz").write_bytes(gzip.compress("".join(lines).encode(), mtime=0))


def _digest(question: Any) -> str:
    text = json.dumps(question, sort_keys=True).encode()
    return base64.b64encode(hashlib.blake2b(text, digest_size=9).digest()).decode()


def _plain(answer: dict[str, Any]) -> str:
    """An answer as text, without what differs from time to time. JSON has no tabulator."""
    lasting = {key: value for key, value in answer.items() if not key.endswith(("Ms", "Ns"))}
    return _BY_CHANCE.sub("", json.dumps(lasting, separators=(",", ": ")))


def _agree(known: Sequence[str], answer: dict[str, Any]) -> bool:
    """Whether an answer is among the known ones; a search that ran out of time says nothing."""
    if answer.get("verdict") == "timeout" or '"verdict": "timeout"' in known[0]:
        return True
    plain = _plain(answer)
    return plain in known or _without_words(plain) in map(_without_words, known)


def _without_words(answer: str) -> Any:
    """An answer without the words and the order of refusals: names that the API server generates are in them, and maps have no order."""
    value = json.loads(answer)
    if errors := value.get("errors"):
        value["errors"] = sorted((error.get("field", ""), error.get("type", "")) for error in errors)
    return value


def _uncosted(answer: str) -> str:
    return re.sub(r'"cost": \d+', "", answer)
