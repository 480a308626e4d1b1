"""Refusals list the values that exist, and suggest a correction of a misspelt value."""

import pytest

from tests.webhook.admission.test_verdict import GPU, MEM, STATE, pod_in_n
from webhook.admission import decide_object

MISSPELT_PRODUCT = {"nvidia.com/use-gputype": "A10O"}


def refusal(item) -> str:
    (text,) = decide_object(item, STATE).refusals
    return str(text)


def test_a_refused_fraction_names_the_keys_for_shares():
    text = refusal(pod_in_n({GPU: 0.5}))
    assert "request a part of a device with nvidia.com/gpumem (MiB) or nvidia.com/gpucores (percent)" in text
    assert "0.5 is not a whole number (ask for a whole number)" in refusal(pod_in_n({"nvidia.com/gpumem": "0.5"}))


@pytest.mark.parametrize(
    ("requested", "suggestion"),
    [
        (pod_in_n({GPU: 1, MEM: 1000}, annotations=MISSPELT_PRODUCT), "did you mean A100?"),
        (pod_in_n({"nvidia.com/mig-1g.6gb": 1}), "request one of these values"),
        (pod_in_n({"nvidia.com/mig-7g.141gb": 1}), "request one of these values"),
    ],
)
def test_an_unknown_product_or_profile_is_refused_with_a_suggestion(requested, suggestion):
    text = refusal(requested)
    assert f"({suggestion}) [R022]" in text
    assert "published values of" in text


def test_an_invalid_quantity_is_reported_once():
    text = refusal(pod_in_n({GPU: 1}, requests={GPU: "one"}))
    assert text.count("is not a quantity") == 1
    assert "its request: 'one'" in text


@pytest.mark.parametrize(
    "text",
    [
        "$GPUS",
        "${GPUS}",
        "{{ .Values.gpus }}",
        "<gpus>",
        "__GPUS__",
        "PLACEHOLDER_GPUS",
        "n{}",
        "...",
        "YOUR_GPUS",
        "FILLED BY THE OPERATOR",
        "Filled by Configuration",
        "($gpus)",
    ],
)
def test_a_placeholder_amount_is_reported_as_a_placeholder(text):
    verdict = decide_object(pod_in_n({GPU: text}), STATE)
    [decision] = verdict.decisions
    assert (verdict.refusals, decision.outcome, decision.code) == ((), "unknown", "D011")
    assert "this looks like a placeholder: fill it in first" in verdict.warnings[0]
    assert "placeholder" not in refusal(pod_in_n({GPU: "one"}))
