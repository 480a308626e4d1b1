"""The toleration of claims that the bridge serves: a taint of that key keeps other schedulers from its devices."""

from __future__ import annotations

from typing import Final

from dra.objects import DeviceToleration

PASS: Final = DeviceToleration(key="drawbridge.dev/fence", operator="Exists", effect="NoSchedule")
