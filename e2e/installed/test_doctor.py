"""The first finding of `drawbridge doctor` in an installation with one fault, and the command's time; then the fault is repaired."""

import json
import subprocess
from contextlib import ExitStack

import pytest

from e2e.actors.fleet import NVIDIA
from e2e.actors.webhook import SYSTEM, gpu, untouched
from e2e.actors.workloads import claim, container, limits, pod, request
from e2e.ground import product
from e2e.installed.breakages import (
    BREAKAGES,
    MODE,
    MUTATING,
    REPAIRED_BY_THE_AUTHORITY,
    VALIDATING,
    broken,
    check_named_first,
    clean,
    deployment,
    findings_of_doctor,
    label,
    name_of,
    reference,
    scaled_to_zero,
    set_at,
    until_healthy,
)
from e2e.installed.installation import PROGRAM, until_pods_are_translated

pytestmark = [pytest.mark.real, pytest.mark.node, pytest.mark.timeout(480)]  # fmt: skip


@pytest.fixture(scope="module")
def cluster(installation):
    """The cluster, whose installation has no finding before and after the tests."""
    until_healthy(installation.cluster)
    yield installation.cluster
    until_healthy(installation.cluster)


def test_doctor_finds_nothing_in_a_snapshot_and_lists_unread_kinds(cluster, tenants, tmp_path):
    until_healthy(cluster)
    file = tmp_path / "snapshot.json"
    product.run([PROGRAM, "snapshot", "--kubeconfig", str(cluster.kubeconfig), "--to", str(file)])
    assert product.run([PROGRAM, "doctor", "-f", str(file)]).startswith("0 findings\n")
    limited_kubeconfig = cluster.account_kubeconfig(tenants, "default")
    result = subprocess.run([PROGRAM, "doctor", "--kubeconfig", str(limited_kubeconfig), "-o", "json"], capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
    answer = json.loads(result.stdout)
    assert (result.returncode, answer["findings"]) == (3, [])
    assert {"deployments.apps", "pods", "leases.coordination.k8s.io"} <= {entry["kind"] for entry in answer["unread"]}


def recreate(cluster, item):
    """Delete a pod, create it as it is now written, and wait until it has run."""
    cluster.remove(item)
    cluster.until("the pod is gone", lambda: cluster.read(item) is None)
    cluster.create(item)
    cluster.wait_phase(item["metadata"]["namespace"], item["metadata"]["name"], "Succeeded")


# Each creates a fault. It returns the object and the code of the finding, words of the message and of the remedy, what does the remedy, and the
# objects to delete.


def a_pod_created_without_the_webhook(cluster, tenants):
    item = gpu("silent", tenants)
    with broken(cluster, MUTATING, None):
        cluster.create(untouched(cluster, item))
    remedy = "delete the pod and create it again"
    return item, "O103", "webhook was down", remedy, lambda: recreate(cluster, item), [item]


def a_pod_where_nothing_is_translated(cluster, tenants):
    del tenants
    item = gpu("observed", cluster.namespace("observing"))
    cluster.create(item)

    def enforce():
        cluster.patch("/api/v1/namespaces/observing", {"metadata": {"labels": {"drawbridge.dev/mode": "enforce"}}})
        until_pods_are_translated(cluster, "observing")
        recreate(cluster, item)

    return item, "O103", "observe", "set drawbridge.dev/mode=enforce on its namespace; then", enforce, [item]


def a_namespace_with_a_misspelt_mode(cluster, tenants):
    del tenants
    space = reference("v1", "Namespace", "misspelt")
    space["metadata"]["labels"] = {"drawbridge.dev/mode": "enforced"}
    with broken(cluster, MODE, None):
        cluster.until("the policy is off", lambda: cluster.create(space))

    def correct():
        cluster.patch(cluster.path_of(space), {"metadata": {"labels": {"drawbridge.dev/mode": "enforce"}}})

    return space, "D214", "'enforced'", "write off, observe, warn or enforce", correct, [space]


def a_claim_of_a_missing_class(cluster, tenants):
    del tenants
    item = claim("lost", cluster.namespace("elsewhere"), request("gpu", "none.example.com"))
    cluster.create(item)

    def correct_the_name():
        cluster.remove(item)
        item["spec"]["devices"]["requests"] = [request("gpu", NVIDIA)]
        cluster.create(item)

    class_ = reference("resource.k8s.io/v1", "DeviceClass", "none.example.com")
    return class_, "O107", "lost", "or correct the name of the class", correct_the_name, [item]


def a_pod_with_a_resource_that_no_claim_replaces(cluster, tenants):
    item = pod("unserved", tenants, container(**limits(**{"habana.ai/gaudi": 1})))
    cluster.create(item)

    def correct_the_name():
        item["spec"]["containers"] = gpu("unserved", tenants)["spec"]["containers"]
        recreate(cluster, item)

    return item, "O104", "habana.ai/gaudi", "correct the name", correct_the_name, [item]


def a_second_installation(cluster, tenants):
    del tenants
    namespace = cluster.namespace("gpu-tools")
    other = clean(cluster.read(deployment("webhook")))
    other["metadata"] |= {"namespace": namespace}
    other["spec"] |= {"replicas": 0}
    del other["status"]
    cluster.create(other)

    def uninstall():
        product.run([PROGRAM, "uninstall", "--namespace", namespace, "--yes", "--kubeconfig", str(cluster.kubeconfig)])

    remedy = f"`drawbridge uninstall --namespace {namespace}`"
    return reference("v1", "Namespace", namespace), "O001", SYSTEM, remedy, uninstall, [other]


@pytest.mark.parametrize(
    "create_fault",
    [
        a_pod_created_without_the_webhook,
        a_pod_where_nothing_is_translated,
        a_namespace_with_a_misspelt_mode,
        a_claim_of_a_missing_class,
        a_pod_with_a_resource_that_no_claim_replaces,
        a_second_installation,
    ],
)
def test_doctor_first_names_an_object_created_too_early_or_misplaced(cluster, tenants, create_fault):
    about, code, words, remedy, mend, objects = create_fault(cluster, tenants)
    try:
        finding = cluster.until("doctor has a finding", lambda: next(iter(findings_of_doctor(cluster)), None))
        assert (finding.code, finding.object) == (code, name_of(about)), [
            f"{each.object}: {each.code}" for each in findings_of_doctor(cluster)
        ]
        assert (words in finding.message, remedy in finding.remedy) == (True, True), finding
        mend()
        cluster.until(
            f"doctor has no finding about {name_of(about)}",
            lambda: name_of(about) not in [each.object for each in findings_of_doctor(cluster)],
        )
    finally:
        cluster.remove(*objects)


@pytest.mark.parametrize("breakage", BREAKAGES, ids=label)
def test_doctor_names_a_broken_installation_object_first(cluster, breakage):
    with broken(cluster, breakage.broken, breakage.change):
        check_named_first(cluster, breakage)


def test_a_deleted_installation_is_reported_in_full(cluster):
    """Both webhook configurations are deleted, and no Deployment has a replica."""
    workloads = [deployment(component) for component in ("controller", "webhook", "authority", "allocator")]
    with ExitStack() as stack:
        for item in (MUTATING, VALIDATING):
            stack.enter_context(broken(cluster, item, None))
        for item in workloads:
            stack.enter_context(broken(cluster, item, set_at("spec", "replicas", value=0)))
        findings = {(ailment.code, ailment.object) for ailment in findings_of_doctor(cluster)}
    assert findings >= {("O003", name_of(MUTATING)), ("O003", name_of(VALIDATING))}
    assert findings >= {("O009", name_of(item)) for item in workloads}


@pytest.fixture(scope="module")
def cluster_without_authority(cluster):
    """The cluster with a stopped authority, which would repair the faults at once."""
    with scaled_to_zero(cluster, "authority"):
        yield cluster


@pytest.mark.parametrize("breakage", REPAIRED_BY_THE_AUTHORITY, ids=label)
def test_doctor_names_a_stopped_authority_before_its_effects(cluster_without_authority, breakage):
    with broken(cluster_without_authority, breakage.broken, breakage.change):
        check_named_first(cluster_without_authority, breakage, after=[("O009", name_of(deployment("authority")))])
