"""What DeviceQuotas leave of a cluster or of files, and what of manifests they would turn back."""

from __future__ import annotations

from cli.quota.foretelling import Foretold, foretell, reviewed
from cli.quota.reporting import report

__all__ = ["Foretold", "foretell", "report", "reviewed"]
