"""The kind configuration, which cannot run here, at least says the same as the cluster that does."""

from pathlib import Path

import yaml

from e2e.ground.controlplane import ALPHA_GATES

CONFIGURATION = yaml.safe_load((Path(__file__).parents[1] / "kind/cluster.yaml").read_text())


def test_kind_turns_on_the_gates_of_the_real_cluster():
    assert CONFIGURATION["featureGates"] == ALPHA_GATES


def test_kind_serves_every_api_group_version_like_the_real_cluster():
    assert CONFIGURATION["runtimeConfig"] == {"api/all": "true"}
