"""The first finding of `drawbridge doctor` in an installation with one fault, and the command's time; then the fault is repaired."""

import json
import subprocess
from contextlib import ExitStack

import pytest

from e2e.actors.webhook import SYSTEM, gpu, untouched
from e2e.actors.workloads import claim, container, limits, pod, request
from e2e.ground import product
from e2e.installed.breakages import (
    MODE,
    MUTATING,
    OBJECTS,
    OF_THE_AUTHORITY,
    VALIDATING,
    ailments,
    at,
    away,
    broken,
    clean,
    deployment,
    is_named_first,
    label,
    name_of,
    named,
    well,
)
from e2e.installed.installation import PROGRAM

pytestmark = [pytest.mark.real, pytest.mark.node, pytest.mark.time_limit(480, "a dozen processes start, and some forty breakages are made and repaired")]  # fmt: skip


@pytest.fixture(scope="module")
def cluster(installation):
    """The cluster, whose installation has no finding before and after the tests."""
    well(installation.cluster)
    yield installation.cluster
    well(installation.cluster)


def test_doctor_finds_nothing_in_a_snapshot_and_lists_unread_kinds(cluster, tenants, tmp_path):
    well(cluster)
    file = tmp_path / "snapshot.json"
    product.run([PROGRAM, "snapshot", "--kubeconfig", str(cluster.kubeconfig), "--to", str(file)])
    assert product.run([PROGRAM, "doctor", "-f", str(file)]).endswith("0 findings\n")
    little = cluster.account_kubeconfig(tenants, "default")
    done = subprocess.run([PROGRAM, "doctor", "--kubeconfig", str(little), "-o", "json"], capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["findings"]) == (3, [])
    assert {"deployments.apps", "pods", "leases.coordination.k8s.io"} <= {entry["kind"] for entry in answer["unread"]}


def came_while_the_webhook_was_away(cluster, tenants):
    item = gpu("silent", tenants)
    with broken(cluster, MUTATING, None):
        cluster.create(untouched(cluster, item))
    return item, "O103", "webhook was down", [item]


def where_nothing_is_translated(cluster, tenants):
    del tenants
    item = gpu("observed", cluster.namespace("observing"))
    cluster.create(item)
    return item, "O103", "the configuration sets mode: observe", [item]


def in_a_misspelt_mode(cluster, tenants):
    del tenants
    space = named("v1", "Namespace", "misspelt")
    space["metadata"]["labels"] = {"drawbridge.dev/mode": "enforced"}
    with broken(cluster, MODE, None):
        cluster.until("the policy is off", lambda: cluster.create(space))
    return space, "D214", "'enforced'", [space]


def of_a_class_that_does_not_exist(cluster, tenants):
    del tenants
    item = claim("lost", cluster.namespace("elsewhere"), request("gpu", "none.example.com"))
    cluster.create(item)
    return named("resource.k8s.io/v1", "DeviceClass", "none.example.com"), "O107", "lost", [item]


def for_what_no_claim_can_stand(cluster, tenants):
    item = pod("unserved", tenants, container(**limits(**{"habana.ai/gaudi": 1})))
    cluster.create(item)
    return item, "O104", "habana.ai/gaudi", [item]


def a_second_installation(cluster, tenants):
    del tenants
    there = cluster.namespace("gpu-tools")
    other = clean(cluster.read(deployment("webhook")))
    other["metadata"] |= {"namespace": there}
    other["spec"] |= {"replicas": 0}
    del other["status"]
    cluster.create(other)
    return named("v1", "Namespace", there), "O001", SYSTEM, [other]


@pytest.mark.parametrize(
    "make",
    [
        came_while_the_webhook_was_away,
        where_nothing_is_translated,
        in_a_misspelt_mode,
        of_a_class_that_does_not_exist,
        for_what_no_claim_can_stand,
        a_second_installation,
    ],
)
def test_doctor_first_names_an_object_created_too_early_or_misplaced(cluster, tenants, make):
    about, what, words, made = make(cluster, tenants)
    try:
        finding = cluster.until("it is found", lambda: next(iter(ailments(cluster)), None))
        assert (finding.code, finding.object) == (what, name_of(about)), [
            f"{it.object}: {it.code}" for it in ailments(cluster)
        ]
        assert words in finding.message
    finally:
        cluster.remove(*made)
        cluster.until("it is gone", lambda: name_of(about) not in [it.object for it in ailments(cluster)])


@pytest.mark.parametrize("breakage", OBJECTS, ids=label)
def test_doctor_names_a_broken_installation_object_first(cluster, breakage):
    with broken(cluster, breakage.broken, breakage.change):
        is_named_first(cluster, breakage)


def test_a_deleted_installation_is_reported_in_full(cluster):
    """Both webhook configurations are deleted, and no Deployment has a replica."""
    workloads = [deployment(component) for component in ("controller", "webhook", "authority", "allocator")]
    with ExitStack() as stack:
        for item in (MUTATING, VALIDATING):
            stack.enter_context(broken(cluster, item, None))
        for item in workloads:
            stack.enter_context(broken(cluster, item, at("spec", "replicas", value=0)))
        findings = {(ailment.code, ailment.object) for ailment in ailments(cluster)}
    assert findings >= {("O003", name_of(MUTATING)), ("O003", name_of(VALIDATING))}
    assert findings >= {("O009", name_of(item)) for item in workloads}


@pytest.fixture(scope="module")
def unattended(cluster):
    """The cluster with a stopped authority, which would repair the faults at once."""
    with away(cluster, "authority"):
        yield cluster


@pytest.mark.parametrize("breakage", OF_THE_AUTHORITY, ids=label)
def test_doctor_names_a_stopped_authority_before_its_effects(unattended, breakage):
    with broken(unattended, breakage.broken, breakage.change):
        is_named_first(unattended, breakage, after=[("O009", name_of(deployment("authority")))])
