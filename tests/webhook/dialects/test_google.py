"""Google TPUs: a claim requests a number of chips, and the node selectors stay."""

from tests.webhook.pods import exactly, patched, pod, verdict_of

TPU = {"google.com/tpu": 4}


def test_chips_are_requested_by_count_and_node_selectors_stay():
    selectors = {"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice", "cloud.google.com/gke-tpu-topology": "2x4"}  # fmt: skip
    manifest = pod(TPU, nodeSelector=selectors)
    verdict = verdict_of(manifest)
    assert exactly(verdict) == [{"class": "tpu.google.com", "count": 4}]
    assert patched(manifest, verdict)["spec"]["nodeSelector"] == selectors
