"""The benchmark that creates pods through a real API server: its ways of creating pods and its output, tested without a server."""

import pytest

from bench.webhook import throughput
from bench.webhook.throughput import SERVER, Allocations, Run


def runs(*rates):
    """Return a run for each rate; everything else is equal."""
    return [Run(rate, {SERVER: 1000 / rate, "etcd": 1.0}, Allocations(100.0, 10.0), 0.1) for rate in rates]


def test_a_ratio_is_the_median_over_all_rounds():
    """When the machine slows down, all ways of creating pods slow down alike within a round."""
    ours, theirs = runs(100, 40, 10), runs(200, 50, 20)
    assert throughput.ratio_of(lambda run: run.rate, ours, theirs) == 0.5
    [row] = [row for row in throughput.compare("legacy", ours, "by-hand", theirs, "") if row.unit == "/s"]
    assert (row.ours, row.theirs) == (40, 50)
    assert row.note.startswith("0.50x theirs, median of 3 rounds")


def test_every_measured_way_and_pair_is_reported(monkeypatch, capsys):
    measured_runs = {"by-hand": runs(200, 100), "floor": runs(180, 90), "legacy": runs(150, 75)}
    monkeypatch.setattr(throughput, "measure_alternately", lambda *_: measured_runs)
    throughput.main(2, list(measured_runs))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines if " beside " in line] == [
        "legacy beside by-hand",
        "floor beside by-hand",
        "legacy beside floor",
    ]
    line_of_pair = next(line for line in lines if line.startswith("legacy beside by-hand"))
    assert "pods a second 0.75x" in line_of_pair
    assert {line.split()[0] for line in lines} == measured_runs.keys()
    assert any("(API server 6.67 13.33; rates 150 75;" in line for line in lines)


@pytest.mark.parametrize("name", throughput.WAYS)
def test_pods_have_legacy_keys_only_where_a_webhook_translates_them(name):
    way = throughput.WAYS[name]
    uses_legacy_key = any("nvidia.com/gpu" in str(item) for item in way.items)
    assert uses_legacy_key == (bool(way.webhook) and way.claims)
