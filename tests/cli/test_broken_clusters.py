"""Clusters in which several things are broken: doctor names each once, nothing else, and what mends it makes the pod run."""

import random

import pytest

from tests.cli.broken_clusters import (
    FAULTS,
    NEEDS_A_CHANGE,
    OF_THE_INSTALLATION,
    WAITS,
    cluster_with,
    healthy_fleet,
    mend,
)
from tests.cli.running import manifest, run_json

CLUSTERS = 8
EVERY = FAULTS | OF_THE_INSTALLATION


def findings_of(folder, cluster):
    """Return what doctor finds in a dump of these objects: the finding of each code and object."""
    _, answer = run_json("doctor", "-f", manifest(folder / "dump.yaml", *cluster))
    keys = [(finding["code"], finding["object"]) for finding in answer["findings"]]
    assert len(keys) == len(set(keys)), "a finding is reported twice"
    return dict(zip(keys, answer["findings"], strict=True))


def effects_of(fault):
    """Return the findings about the pod that waits because of a fault that has a finding of its own."""
    return {(code, f"Pod/{fault.pod}") for code in (WAITS, NEEDS_A_CHANGE)} - fault.findings


def nodes_of(folder, cluster):
    """Return the node that `simulate` chooses for each pod."""
    _, answer = run_json("simulate", "-f", manifest(folder / "dump.yaml", *cluster))
    return {outcome["pod"]: outcome.get("node") for outcome in answer["pods"]}


def test_nothing_is_wrong_with_the_healthy_fleet(tmp_path):
    assert findings_of(tmp_path, healthy_fleet()) == {}


@pytest.mark.whole
@pytest.mark.parametrize("kind", EVERY)
def test_a_fault_is_named_and_its_remedy_works(kind, tmp_path):
    fault = EVERY[kind]("fault")
    cluster = cluster_with({"fault": fault})
    findings = findings_of(tmp_path, cluster)
    assert findings.keys() - effects_of(fault) == fault.findings
    assert all(finding["remedy"] for finding in findings.values())
    said = " ".join(finding["message"] for finding in findings.values())
    assert all(words in said for words in fault.words), said
    assert any(fault.remedy in finding["remedy"] for finding in findings.values())
    mended = mend(cluster, fault)
    # The pod has waited for long, and is placed at the scheduler's next attempt.
    assert findings_of(tmp_path, mended).keys() <= {(WAITS, f"Pod/{fault.pod}")}
    if fault.pod:
        assert nodes_of(tmp_path, mended)[fault.pod]


@pytest.mark.parametrize("number", range(CLUSTERS))
def test_each_of_several_faults_is_named_once(number, tmp_path):
    """Each fault is in one of the clusters, beside other faults."""
    kinds = random.Random(1).sample(sorted(FAULTS), len(FAULTS))[number::CLUSTERS]
    kinds.append(sorted(OF_THE_INSTALLATION)[number % len(OF_THE_INSTALLATION)])
    faults = {f"fault-{at}": EVERY[kind](f"fault-{at}") for at, kind in enumerate(kinds)}
    findings = findings_of(tmp_path, cluster_with(faults))
    effects = {effect for fault in faults.values() for effect in effects_of(fault)}
    assert findings.keys() - effects == {finding for fault in faults.values() for finding in fault.findings}
    for fault in faults.values():
        said = " ".join(findings[key]["message"] for key in fault.findings)
        assert all(words in said for words in fault.words), said
        assert all(findings[key]["remedy"] for key in fault.findings)


@pytest.mark.whole
def test_explain_and_simulate_say_what_doctor_says(tmp_path):
    """All faults at once. A pod that can never start gets no node, and each pod has one reason."""
    faults = {f"fault-{number}": make(f"fault-{number}") for number, make in enumerate(FAULTS.values())}
    cluster = cluster_with(faults)
    nodes = nodes_of(tmp_path, cluster)
    about_pods = [
        finding for finding in findings_of(tmp_path, cluster).values() if finding["object"].startswith("Pod/")
    ]
    assert len(about_pods) > len(FAULTS) / 2
    for finding in about_pods:
        pod = finding["object"].removeprefix("Pod/")
        _, story = run_json("explain", "pod", pod, "-f", tmp_path / "dump.yaml")
        assert story["pod"]["state"]["reasons"][0]["text"] in finding["message"], pod
        if finding["code"] in ("D212", "O115"):
            assert nodes[pod] is None, pod
