"""The record of a translation on the pod: later reviews, second applications of a manifest, and damaged records. A dialect is the table of one system's keys."""

import copy
import json

import pytest

from tests.webhook.pods import (
    HAMI,
    SIGNING_KEY,
    WHOLE_GPUS,
    patched,
    pod,
    refused,
    replay_update,
    untouched,
    verdict_of,
)
from tests.webhook.translate.samples import GPU, annotations
from webhook.claims import template
from webhook.names import DECISION, DEVICES, ORIGINAL, TEMPLATES, VERSION
from webhook.translate.record import digest

# The record


def test_the_record_contains_removed_keys_and_decisions():
    manifest = pod({"nvidia.com/gpumem": 3000, "cpu": 1}, scheduler="hami-scheduler")
    patched_pod = patched(manifest, verdict_of(manifest))
    record = json.loads(annotations(patched_pod)[ORIGINAL])
    assert record.pop("digest") == digest(annotations(patched_pod)[DECISION], annotations(patched_pod)[DEVICES])
    assert record == {
        "containers": {"c0": {"nvidia.com/gpumem": 3000}},
        "schedulerName": "hami-scheduler",
        "scheduledBy": "default-scheduler",
    }
    decision = json.loads(annotations(patched_pod)[DECISION])
    assert decision["version"] == VERSION
    assert {entry["key"] for entry in decision["decisions"]} == {"nvidia.com/gpumem", "schedulerName"}
    assert json.loads(annotations(patched_pod)[DEVICES]) == {
        "c0": [{"class": HAMI, "count": 1, "key": "nvidia.com/gpumem"}]
    }
    assert patched_pod["spec"]["containers"][0]["resources"]["limits"] == {"cpu": 1}


def test_a_key_that_another_webhook_puts_back_is_removed_again():
    manifest = pod({"nvidia.com/gpu": "2"})
    patched_pod = patched(manifest, verdict_of(manifest, **WHOLE_GPUS))
    first_result = copy.deepcopy(patched_pod)
    patched_pod["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": 2}
    second_verdict = verdict_of(patched_pod, **WHOLE_GPUS)
    assert patched(patched_pod, second_verdict) == first_result
    assert second_verdict.templates == {}


def test_a_key_restored_with_another_number_is_refused():
    manifest = pod({"nvidia.com/gpu": 2})
    patched_pod = patched(manifest, verdict_of(manifest, **WHOLE_GPUS))
    patched_pod["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": 3}
    verdict = verdict_of(patched_pod, **WHOLE_GPUS)
    assert refused(verdict)
    assert "another webhook" in str(verdict.refusals[0])


def test_a_later_key_of_another_dialect_is_translated_too():
    manifest = pod({"nvidia.com/gpumem": 3000})
    patched_pod = patched(manifest, verdict_of(manifest))
    patched_pod["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/mig-1g.5gb": 1}
    verdict = verdict_of(patched_pod)
    second_pod = patched(patched_pod, verdict)
    names = [claim["name"] for claim in second_pod["spec"]["containers"][0]["resources"]["claims"]]
    assert names == ["drawbridge-c0-gpu", "drawbridge-c0-mig"]
    assert json.loads(annotations(second_pod)[ORIGINAL])["containers"]["c0"] == {
        "nvidia.com/gpumem": 3000,
        "nvidia.com/mig-1g.5gb": 1,
    }
    assert (
        len(template.verify(annotations(second_pod)[TEMPLATES], template.identify_raw(second_pod, "n"), SIGNING_KEY))
        == 2
    )
    assert not verdict_of(second_pod).changed


def test_a_late_key_of_the_same_dialect_is_left_unchanged():
    manifest = pod({"nvidia.com/gpu": 1, "nvidia.com/gpucores": 100})
    patched_pod = patched(manifest, verdict_of(manifest))
    patched_pod["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpumem": 1000}
    assert untouched(verdict_of(patched_pod))


@pytest.mark.parametrize("damaged", ["{", "[]", '{"containers":3}', ""])
def test_a_damaged_record_is_ignored(damaged):
    assert verdict_of(pod(GPU, annotations={ORIGINAL: damaged}), **WHOLE_GPUS).changed


# Updates


def test_an_update_with_a_changed_number_is_not_undone():
    manifest = pod({"nvidia.com/gpu": 1})
    stored = patched(manifest, verdict_of(manifest, **WHOLE_GPUS))
    applied = copy.deepcopy(stored)
    applied["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": 2}
    assert replay_update(applied, stored).operations == ()
