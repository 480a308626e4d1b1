"""If the compared program is not available, the benchmark reports why and uses the recorded numbers."""

import shutil
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from bench.webhook import admission, hami, throughput


@pytest.fixture(autouse=True)
def nothing_built(tmp_path, monkeypatch):
    monkeypatch.setenv("DRAWBRIDGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HAMI_DRA_SOURCE", str(tmp_path))  # no Go program is there
    return tmp_path


def test_a_machine_without_go_says_so(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(hami.MissingError, match="Go is not installed"):
        hami.program()


def test_a_source_that_is_not_there_says_so(monkeypatch, nothing_built):
    monkeypatch.setattr(shutil, "which", lambda name: f"/{name}")
    monkeypatch.setenv("HAMI_DRA_SOURCE", str(nothing_built / "elsewhere"))
    with pytest.raises(hami.MissingError, match="elsewhere"):
        hami.program()


def test_a_cached_program_is_not_built_again(nothing_built):
    made = nothing_built / "cache" / "bin" / f"hami-dra-{hami.COMMIT}" / "webhook"
    made.parent.mkdir(parents=True)
    made.write_text("a program")
    assert hami.program() == made


def test_without_the_program_the_recorded_figures_are_the_yardstick(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    work = {}
    with ExitStack() as stack:
        note = admission.with_hami(work, stack)
    assert work == {}
    assert note == "recorded, because Go is not installed"
    loads = {what: admission.Load(1000.0, 1.0, 2.0, 100.0) for what in (admission.FLOOR, *admission.PEERS)}
    line = admission.row(admission.SAME_REQUEST, loads[admission.SAME_REQUEST], loads, "8 connections", note)
    assert (line.peer, line.theirs) == (f"HAMi-DRA, {note}", 1e6 / admission.HAMI_GPU)
    theirs = {row.what: row.theirs for row in admission.costs(loads, note)}
    plain = f"CPU of a thousand reviews: {admission.PLAIN}"
    assert theirs.pop(plain) is None
    assert set(theirs.values()) == {admission.HAMI_CPU}
    assert len(theirs) == len(admission.PEERS) - 1


def test_a_program_that_ends_at_once_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(hami.time, "sleep", lambda _: pytest.fail("it was waited for"))
    ended = SimpleNamespace(poll=lambda: 3)
    with pytest.raises(hami.MissingError, match="ended with 3"):
        hami.wait_until_listening(1, ended)


def test_pods_through_an_api_server_are_measured_without_it_too(monkeypatch, capsys):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert throughput.buildable_ways(throughput.WAYS) == [
        "plain",
        "by-hand",
        "named",
        "plain-ours",
        "legacy",
        "floor",
    ]
    assert capsys.readouterr().out == "   HAMi-DRA is left out: Go is not installed\n"
    assert {name for pair in throughput.PAIRS for name in pair[:2]} == throughput.WAYS.keys()


def test_it_is_called_for_pods_and_trusted_by_its_bundle():
    [webhook] = hami.registration("https://127.0.0.1:1", b"a bundle")["webhooks"]
    assert webhook["clientConfig"] == {"url": "https://127.0.0.1:1/mutate", "caBundle": "YSBidW5kbGU="}
    assert webhook["rules"][0]["resources"] == ["pods"]
