"""A cluster with the configurations of both webhooks."""

import pytest

from cluster.embedded.embedded import Embedded
from tests.certs.stores import webhooks


@pytest.fixture
def cluster():
    return Embedded.holding(
        [webhooks("MutatingWebhookConfiguration"), webhooks("ValidatingWebhookConfiguration", bundle="b2xk")]
    )
