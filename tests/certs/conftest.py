"""A cluster with a mutating and a validating webhook configuration."""

import pytest

from cluster.embedded.embedded import Embedded
from tests.certs.stores import webhook_configuration


@pytest.fixture
def cluster():
    return Embedded.holding(
        [
            webhook_configuration("MutatingWebhookConfiguration"),
            webhook_configuration("ValidatingWebhookConfiguration", bundle="b2xk"),
        ]
    )
