"""Volcano's gpushare: all containers of a pod share one card. Rows follow volcano-sh/volcano: pkg/scheduler/api/devices/nvidia/gpushare."""

from webhook.dialects.one_card import ENFORCED, EXTENSION, read
from webhook.dialects.table import Dialect, Outcome, Role, Scope, Unit, placed, row
from webhook.dialects.vocabulary import MIB, FactorOptions, Vocabulary

DIALECT = Dialect(
    name="volcanoshare",
    title="Volcano gpushare",
    scope=Scope.POD,
    target="vgpu",
    system=True,
    schedulers=("volcano",),
    keys=(
        row(
            "volcano.sh/gpu-memory",
            "memory, for the pod as a whole on one GPU, in MiB times memoryFactor",
            Role.MEMORY,
            unit=Unit.MIB,
            outcome=Outcome.APPROXIMATED,
            because=ENFORCED,
        ),
        row("volcano.sh/gpu-number", "whole GPUs, for the pod as a whole", Role.COUNT),
        placed("volcano.sh/gpu-index", EXTENSION),
    ),
)
VOCABULARY = Vocabulary(
    table=DIALECT,
    read=lambda request: read(request.containers, request.options.memory_factor * MIB),
    options=FactorOptions,
)
