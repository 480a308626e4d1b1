"""A Helm chart of our manifests: the objects are those that `drawbridge manifests` prints, the templates only change them."""

from cli.chart.chart import IMAGE, PLACE, SCHEDULER_IMAGE, fill

__all__ = ["IMAGE", "PLACE", "SCHEDULER_IMAGE", "fill"]
