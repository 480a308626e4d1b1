"""The kind configuration, which cannot run here, enables the same API as this cluster."""

from pathlib import Path

import yaml

CONFIGURATION = yaml.safe_load((Path(__file__).parents[2] / "e2e/kind/cluster.yaml").read_text())


def test_kind_serves_every_api_group_version_like_the_real_cluster():
    assert CONFIGURATION["runtimeConfig"] == {"api/all": "true"}
