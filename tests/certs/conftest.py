"""A cluster with a mutating and a validating webhook configuration."""

import pytest

from cluster.embedded.embedded import Embedded
from tests.certs.stores import CONFIGURATIONS


@pytest.fixture
def cluster():
    return Embedded.holding(CONFIGURATIONS)
