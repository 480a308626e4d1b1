"""If HAMi-DRA, with which the benchmark compares drawbridge, is not available, the benchmark says why and uses recorded figures."""

import shutil
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from bench.webhook import admission, hami, throughput


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DRAWBRIDGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HAMI_DRA_SOURCE", str(tmp_path))  # a folder without a Go program
    return tmp_path


def test_without_go_the_error_says_so(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(hami.MissingError, match="Go is not installed"):
        hami.program()


def test_a_missing_source_folder_is_named(monkeypatch, empty_cache):
    monkeypatch.setattr(shutil, "which", lambda name: f"/{name}")
    monkeypatch.setenv("HAMI_DRA_SOURCE", str(empty_cache / "elsewhere"))
    with pytest.raises(hami.MissingError, match="elsewhere"):
        hami.program()


def test_a_cached_program_is_not_built_again(empty_cache):
    cached_program = empty_cache / "cache" / "bin" / f"hami-dra-{hami.COMMIT}" / "webhook"
    cached_program.parent.mkdir(parents=True)
    cached_program.write_text("a program")
    assert hami.program() == cached_program


def test_without_hami_dra_the_recorded_figures_are_compared(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    loads_to_measure = {}
    with ExitStack() as stack:
        note = admission.with_hami(loads_to_measure, stack)
    assert loads_to_measure == {}
    assert note == "recorded, because Go is not installed"
    loads = {load_name: admission.Load(1000.0, 1.0, 2.0, 100.0) for load_name in (admission.FLOOR, *admission.PEERS)}
    gpu_row = admission.row(admission.SAME_REQUEST, loads[admission.SAME_REQUEST], loads, "8 connections", note)
    assert (gpu_row.peer, gpu_row.theirs) == (f"HAMi-DRA, {note}", 1e6 / admission.HAMI_GPU)
    recorded_costs = {cost.what: cost.theirs for cost in admission.costs(loads, note)}
    plain_pod = f"CPU of a thousand reviews: {admission.PLAIN}"
    assert recorded_costs.pop(plain_pod) is None
    assert set(recorded_costs.values()) == {admission.HAMI_CPU}
    assert len(recorded_costs) == len(admission.PEERS) - 1


def test_a_program_that_has_ended_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(hami.time, "sleep", lambda _: pytest.fail("an ended program was waited for"))
    ended_process = SimpleNamespace(poll=lambda: 3)
    with pytest.raises(hami.MissingError, match="ended with 3"):
        hami.wait_until_listening(1, ended_process)


def test_ways_to_create_pods_are_measured_without_hami_dra_too(monkeypatch, capsys):
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


def test_the_registration_has_pods_the_url_and_the_bundle():
    [webhook] = hami.registration("https://127.0.0.1:1", b"a bundle")["webhooks"]
    assert webhook["clientConfig"] == {"url": "https://127.0.0.1:1/mutate", "caBundle": "YSBidW5kbGU="}
    assert webhook["rules"][0]["resources"] == ["pods"]
