"""Rebellions: whole NPUs. ATOM and REBEL are families of products; `rebellions.ai/npu` requests either."""

import pytest

from tests.webhook.pods import exactly, pod, selected, verdict_of

NPU, ATOM, REBEL = "rebellions.ai/npu", "rebellions.ai/ATOM", "rebellions.ai/REBEL"


@pytest.mark.parametrize(
    ("key", "products"), [(NPU, ["RBLN-CA22", "RBLN-CR03"]), (ATOM, ["RBLN-CA22"]), (REBEL, ["RBLN-CR03"])]
)
def test_a_key_requests_the_products_of_its_family(key, products):
    verdict = verdict_of(pod({key: 4}))
    (request,) = exactly(verdict)
    assert (request["class"], request["count"]) == ("npu.rebellions.ai", 4)
    assert [product for product in ("RBLN-CA22", "RBLN-CR03") if selected(verdict, productName=product)] == products
