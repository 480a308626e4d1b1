"""`drawbridge migrate accept` without a kubelet: its arguments, and a node that a cluster does not have."""

import asyncio

import pytest

from analysis.migration import accept_pods
from cluster.embedded import Embedded
from cluster.kubernetes import Kubernetes
from cluster.resources import NAMESPACES
from tests.cli.running import empty_directory, run, run_json

__all__ = ["empty_directory"]


@pytest.mark.usefixtures("empty_directory")
@pytest.mark.parametrize(
    "arguments",
    [
        ["accept"],
        ["accept", "n0", "-o", "yaml"],
        ["accept", "n0", "--check", "plan.yaml"],
        ["plan", "--image", "busybox"],
        ["plan", ".", "."],
        ["plan", "absent"],
    ],
)
def test_arguments_of_the_wrong_step_are_refused(arguments):
    assert run("migrate", *arguments).exit_code == 2


def namespaces(cluster):
    return {namespace.metadata.name for namespace in asyncio.run(cluster.list(NAMESPACES)).items}


def test_an_unknown_node_fails_and_the_namespace_is_deleted(monkeypatch):
    cluster = Embedded()
    monkeypatch.setattr(Kubernetes, "connect", lambda **_: cluster)
    # Objects of a person that have the label, and the namespace of a run that was killed.
    for name in ("production", "drawbridge-accept-1a2b3c"):
        asyncio.run(cluster.create(NAMESPACES.raw, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {accept_pods.LABEL: ""}}}))  # fmt: skip
    before = namespaces(cluster) - {"drawbridge-accept-1a2b3c"}
    code, answer = run_json("migrate", "accept", "n0")
    assert (code, answer["passed"]) == (1, False)
    assert [check["check"] for check in answer["checks"]] == ["devices"]
    assert namespaces(cluster) == before
