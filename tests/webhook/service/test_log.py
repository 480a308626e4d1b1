import io
import json
import logging

import msgspec
import pytest

from webhook.admission.decide import Record
from webhook.dialects.table import Action
from webhook.service import log
from webhook.translate.translate import Decision


@pytest.fixture
def stream():
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield io.BytesIO()
    root.handlers[:], root.level = before


def lines(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def record(**more):
    decision = Decision(
        object="Pod/ns/p",
        container="c",
        dialect="nvidia",
        key="nvidia.com/gpu",
        action=Action.TRANSLATED,
        detail="ü \n",
    )
    return Record(path="mutate", uid="u", outcome="translated", mode="enforce", decisions=(decision,), **more)


def test_a_decision_is_one_line_of_json_with_everything_about_it(stream):
    log.configure("info", stream).write(record(dry_run=True), 0.000123)
    (line,) = lines(stream)
    assert (line["level"], line["outcome"], line["mode"], line["dryRun"], line["us"]) == (
        "info",
        "translated",
        "enforce",
        True,
        123,
    )
    assert line["decisions"][0]["key"] == "nvidia.com/gpu"
    assert line["ts"].endswith("Z")


def test_what_is_not_worth_telling_is_told_at_debug_only(stream):
    quiet = Record(path="mutate", uid="u", outcome="untouched")
    log.configure("info", stream).write(quiet, 0.0)
    assert not stream.getvalue()
    log.configure("debug", stream).write(quiet, 0.0)
    assert lines(stream)[-1]["level"] == "debug"


def test_other_loggers_write_json_too_with_extras_and_exceptions(stream):
    log.configure("info", stream)
    try:
        int("a\nb")
    except ValueError:
        logging.getLogger("x").exception("it broke", extra={"pod": "p", "odd": {1, 2}.__class__})
    logging.getLogger("x").debug("not this")
    (line,) = lines(stream)
    assert (line["logger"], line["msg"], line["pod"]) == ("x", "it broke", "p")
    assert "ValueError" in line["exception"]


def test_without_a_stream_nothing_is_written_and_nothing_breaks():
    log.Decisions().write(record(), 0.0)


def test_no_line_is_longer_than_a_collector_takes_and_each_is_still_json(stream):
    decisions = log.configure("info", stream)
    many = record()
    decisions.write(msgspec.structs.replace(many, decisions=many.decisions * 5_000), 0.0)
    decisions.write(record(problems=("ü" * 1_000_000,)), 0.0)
    logging.getLogger("x").warning("y" * 1_000_000)
    listed, cut, other = lines(stream)
    assert len(listed["decisions"]) == log.MOST
    assert listed["problems"] == ["4968 more decisions on this object are not listed here"]
    assert cut["msg"] == other["msg"] == "a line was cut"
    assert all(len(line) < 2 * log.LONGEST + 1000 for line in stream.getvalue().splitlines())
