"""Which differences between the objects of a chart before and after a move are not those of the plan."""

import pytest

from analysis.gitops import Release
from analysis.migration.rendering import ChangedRelease, loses_a_key, unplanned_changes

KEY, OTHER = "example.com/gpu", "example.com/nic"
CLAIM = {"name": "gpu", "resourceClaimTemplateName": "app"}
CLAIMS = {"claims": [{"name": "gpu"}]}


def changed(*keys, kept=()):
    release = Release("HelmRelease", "app", "ai", "app", {})
    return ChangedRelease(
        release, "app.yaml", "HelmRelease/ai/app", {}, {"any": [CLAIM]}, frozenset(keys or [KEY]), frozenset(kept), ""
    )


def limits(**amounts):
    return {"limits": {KEY.replace("gpu", name): amount for name, amount in amounts.items()}}


def pod(app, *, side=None, **spec):
    """Return the objects of a chart: a Deployment with these resources of its containers."""
    containers = [{"name": "app", "resources": app}, {"name": "side", "resources": side or {}}]
    return {
        "Deployment/ai/app": {"kind": "Deployment", "spec": {"template": {"spec": {"containers": containers, **spec}}}}
    }


BEFORE = pod(limits(gpu=1))
AFTER = pod(CLAIMS, resourceClaims=[CLAIM])
TEMPLATE = {"ResourceClaimTemplate/ai/made": {"kind": "ResourceClaimTemplate", "metadata": {"name": "made"}}}


@pytest.mark.parametrize(
    ("before", "after", "release"),
    [
        (BEFORE, AFTER, changed()),
        (pod(limits(gpu=1) | {"requests": {KEY: 1}}), AFTER, changed()),
        (
            pod({"limits": {KEY: 1, "memory": "1Gi"}}),
            pod(CLAIMS | {"limits": {"memory": "1Gi"}}, resourceClaims=[CLAIM]),
            changed(),
        ),
        (BEFORE, pod({"limits": {}} | CLAIMS, resourceClaims=[CLAIM]), changed()),
        (
            BEFORE,
            pod(CLAIMS, resourceClaims=[CLAIM | {"resourceClaimTemplateName": "made"}]) | TEMPLATE,
            changed("gpu"),
        ),
        (
            pod(limits(gpu=1), side=limits(gpu=1)),
            pod(CLAIMS, side=limits(gpu=1), resourceClaims=[CLAIM]),
            changed(KEY, kept=[KEY]),
        ),
    ],
    ids=[
        "limits",
        "requests",
        "memory stays",
        "empty limits",
        "the chart's switch and template",
        "a container keeps its key",
    ],
)
def test_a_claim_in_place_of_a_key_is_planned(before, after, release):
    assert unplanned_changes(release, before, after) == []
    assert loses_a_key(release, before, after)


@pytest.mark.parametrize(
    ("after", "mistake"),
    [
        (BEFORE, "container app still requests example.com/gpu"),
        (pod({}), "container app requests no example.com/gpu any more"),
        (pod(CLAIMS), "container app names claim gpu, which its pod does not have"),
        (pod(CLAIMS, side=CLAIMS, resourceClaims=[CLAIM]), "container side names claim gpu, and requests what it did"),
        (pod(CLAIMS, resourceClaims=[CLAIM, CLAIM | {"name": "b"}]), "the pod gets claim b, which no container names"),
        (pod(CLAIMS, resourceClaims=[CLAIM | {"resourceClaimTemplateName": "x"}]), "claim gpu of the pod is from x"),
        (pod(CLAIMS, resourceClaims=[CLAIM], hostPID=True), "/spec/template/spec/hostPID changes"),
        (pod(CLAIMS | limits(nic=1), resourceClaims=[CLAIM]), "/limits/example.com~1nic changes"),
        (AFTER | {"Service/ai/app": {"kind": "Service"}}, "Service/ai/app is added"),
        ({}, "Deployment/ai/app is removed"),
    ],
)  # fmt: skip
def test_any_other_change_is_not_planned(after, mistake):
    [change] = unplanned_changes(changed(), BEFORE, after)
    assert mistake in change


def test_a_key_and_a_claim_that_the_plan_does_not_move_stay():
    before = pod(limits(gpu=1, nic=1) | {"claims": [{"name": "old"}]}, resourceClaims=[CLAIM | {"name": "old"}])
    changes = unplanned_changes(changed(), before, AFTER)
    place = "Deployment/ai/app: /spec/template/spec"
    assert changes == [
        f"{place}/containers/0/resources/claims changes",
        f"{place}/containers/0/resources/limits/example.com~1nic changes",
        f"{place}/resourceClaims changes",
    ]


def test_the_amount_of_a_key_that_stays_does_not_change():
    [change] = unplanned_changes(changed(KEY, kept=[KEY]), BEFORE, pod(limits(gpu=2)))
    assert change.endswith("/resources/limits/example.com~1gpu changes")


def test_a_field_that_differs_each_time_is_ignored():
    def password(text):
        return {"Secret/ai/app": {"kind": "Secret", "data": {"password": text}}}

    before, after, again = BEFORE | password("a"), AFTER | password("b"), BEFORE | password("c")
    assert unplanned_changes(changed(), before, after, again) == []
    assert len(unplanned_changes(changed(), before, after)) == 1
    assert len(unplanned_changes(changed(), before, BEFORE | password("b"), again)) == 1


def test_the_number_of_gpus_that_ray_reads_from_a_key_may_be_written():
    def cluster(objects, **parameters):
        return {"RayCluster/ai/ray": {"spec": {"rayStartParams": parameters, **objects["Deployment/ai/app"]["spec"]}}}

    assert unplanned_changes(changed(), cluster(BEFORE), cluster(AFTER, **{"num-gpus": "1"})) == []
    assert len(unplanned_changes(changed(), cluster(BEFORE), cluster(AFTER, block="true"))) == 1
    before, after = cluster(BEFORE, **{"num-gpus": "1"}), cluster(AFTER, **{"num-gpus": "2"})
    assert len(unplanned_changes(changed(), before, after)) == 1


def test_a_chart_without_a_request_loses_no_key():
    assert not loses_a_key(changed(), AFTER, AFTER)
