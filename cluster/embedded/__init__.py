"""The embedded cluster: the behaviour of an API server over a store in this process."""

from cluster.embedded.embedded import Embedded
from cluster.embedded.label_selectors import labels_test

__all__ = ["Embedded", "labels_test"]
