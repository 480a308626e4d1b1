import io
import json
import logging
import os
import select
import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from webhook.admission.review import Record
from webhook.dialects.table import Outcome
from webhook.service import log
from webhook.translate.translate import Decision


@pytest.fixture
def stream():
    root = logging.getLogger()
    earlier_settings = root.handlers[:], root.level
    yield io.BytesIO()
    root.handlers[:], root.level = earlier_settings


def lines(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def record(**fields):
    decision = Decision("Pod/ns/p", "c", "nvidia", "nvidia.com/gpu", Outcome.TRANSLATED, "ü \n")
    return Record(path="mutate", uid="u", outcome="translated", mode="enforce", decisions=(decision,), **fields)


def test_a_decision_is_logged_as_one_line_of_json(stream):
    log.configure("info", stream).write(record(dry_run=True), 0.000123)
    (line,) = lines(stream)
    expected = {"level": "info", "outcome": "translated", "mode": "enforce", "dryRun": True, "us": 123}
    assert expected.items() <= line.items()
    assert line["decisions"][0]["key"] == "nvidia.com/gpu"
    assert line["ts"].endswith("Z")


def test_an_untouched_review_is_logged_at_debug_level_only(stream):
    untouched = Record(path="mutate", uid="u", outcome="untouched")
    log.configure("info", stream).write(untouched, 0.0)
    assert not stream.getvalue()
    log.configure("debug", stream).write(untouched, 0.0)
    assert lines(stream)[-1]["level"] == "debug"


def test_other_loggers_write_json_too_with_extras_and_exceptions(stream):
    log.configure("info", stream)
    try:
        int("a\nb")
    except ValueError:
        logging.getLogger("x").exception("it broke", extra={"pod": "p", "odd": set})
    logging.getLogger("x").debug("not this")
    (line,) = lines(stream)
    assert (line["logger"], line["msg"], line["pod"]) == ("x", "it broke", "p")
    assert "ValueError" in line["exception"]


def test_control_and_invisible_characters_are_escaped_in_the_log(stream):
    unprintable = "ü 模 \x1b[2J\x7f\x9b2J\x85\u202e\u2028\u200b"
    decisions = log.configure("info", stream)
    decisions.write(record(problems=(unprintable, unprintable * 3000)), 0.0)
    logging.getLogger("drawbridge.test").warning("%s", unprintable, extra={"pod": unprintable})
    text = stream.getvalue().decode()
    assert [character for character in text if not character.isprintable() and character != "\n"] == []
    _, last = lines(stream)
    assert (last["msg"], last["pod"]) == (unprintable, unprintable)
    assert "ü 模" in text


def test_without_a_stream_nothing_is_written_and_nothing_breaks():
    log.Decisions().write(record(), 0.0)


def test_long_log_lines_are_cut_and_stay_valid_json(stream):
    decisions = log.configure("info", stream)
    long_record = record()
    decisions.write(msgspec.structs.replace(long_record, decisions=long_record.decisions * 5_000), 0.0)
    decisions.write(record(problems=("ü" * 1_000_000,)), 0.0)
    logging.getLogger("x").warning("y" * 1_000_000)
    listed, cut_record, cut_message = lines(stream)
    assert len(listed["decisions"]) == log.MAX_DECISIONS
    assert listed["problems"] == ["4968 more decisions on this object are not listed here"]
    assert cut_record["msg"] == cut_message["msg"] == "a line was cut"
    assert all(len(line) < 2 * log.LONGEST + 1000 for line in stream.getvalue().splitlines())


@pytest.fixture
def pipe(stream):
    """Yield both ends of a pipe that only the test reads."""
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb", 0) as reader, os.fdopen(write_end, "wb") as writer:
        yield reader, writer


def read(reader):
    """Return the content of a pipe."""
    os.set_blocking(reader.fileno(), False)
    parts = []
    while part := reader.read(1 << 16):
        parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("letters", [1, 9_000])
def test_a_stalled_log_collector_blocks_nothing_and_losses_are_counted(pipe, letters):
    """A blocking write to a full pipe would stop the whole webhook."""
    reader, writer = pipe
    decisions = log.configure("info", writer)
    count = 2 * (1 << 20) // letters if letters > 1 else 5_000  # more than any pipe holds
    for _ in range(count):
        decisions.write(record(problems=("x" * letters,)), 0.0)
    logging.getLogger("a.b").warning("a line of another logger")
    *complete_lines, torn_line = read(reader).split(b"\n")
    assert complete_lines
    assert all(json.loads(line)["uid"] == "u" for line in complete_lines)
    assert bool(torn_line) is (letters > select.PIPE_BUF), (
        "a line that one write can hold was torn, or a longer line was not"
    )
    decisions.write(record(), 0.0)
    later_output = read(reader)
    assert later_output.startswith(b"\n") is bool(torn_line), "the torn line does not end before the next line"
    lost, last = later_output.strip().split(b"\n")
    assert json.loads(lost)["lines"] == count + 1 - len(complete_lines)
    assert json.loads(last)["uid"] == "u"
    decisions.write(record(), 0.0)
    assert json.loads(read(reader))["uid"] == "u", "the number of lost lines is logged twice"


def test_log_lines_of_any_length_arrive_whole_through_a_pipe(pipe):
    reader, writer = pipe
    decisions = log.configure("info", writer)
    for length in (1, 4_000, 5_000, 15_000):
        decisions.write(record(problems=("x" * length,)), 0.0)
        assert json.loads(read(reader))["problems"] == ["x" * length]


def test_a_closed_log_pipe_fails_no_review(pipe):
    reader, writer = pipe
    decisions = log.configure("info", writer)
    reader.close()
    decisions.write(record(), 0.0)
    logging.getLogger("a.b").warning("a line of another logger")


def test_concurrent_log_writes_raise_nothing_and_keep_lines_whole(pipe):
    """A thread of a watch may log while the event loop logs a decision. An exception would fail the review."""
    reader, writer = pipe
    decisions = log.configure("info", writer)
    threads, lines_per_thread, length = 4, 25, 5_000  # each line needs several writes; the pipe has room for all lines
    received = []

    def write():
        for _ in range(lines_per_thread):
            decisions.write(record(problems=("x" * length,)), 0.0)

    def collect():
        while part := reader.read(1 << 16):
            received.append(part)

    collector = threading.Thread(target=collect)
    collector.start()
    with ThreadPoolExecutor(threads) as pool:
        writers = [pool.submit(write) for _ in range(threads)]
    writer.close()
    collector.join(30)
    for writing in writers:
        writing.result()
    logged = [json.loads(line) for line in b"".join(received).splitlines() if line]
    lost = sum(line.get("lines", 0) for line in logged)
    assert len([line for line in logged if line.get("uid") == "u"]) + lost == threads * lines_per_thread
