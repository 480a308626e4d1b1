"""Aliyun's gpushare, and ACK: all containers of a pod share one card. Rows follow AliyunContainerService/gpushare-scheduler-extender: pkg/utils."""

from __future__ import annotations

from typing import Literal

from webhook.dialects.one_card import ENFORCED, EXTENSION, read
from webhook.dialects.table import Dialect, Outcome, Position, Role, Scope, Unit, node_label, placed, row, untranslated
from webhook.dialects.vocabulary import MIB, DialectOptions, Vocabulary

DIALECT = Dialect(
    name="aliyun",
    title="Aliyun gpushare and ACK",
    scope=Scope.POD,
    target="vgpu",
    system=True,
    keys=(
        row(
            "aliyun.com/gpu-mem",
            "memory, for the pod as a whole on one GPU, in GiB (`memoryUnit`)",
            Role.MEMORY,
            unit=Unit.GIB,
            outcome=Outcome.APPROXIMATED,
            because=ENFORCED,
        ),
        row("aliyun.com/gpu-core.percentage", "compute of that GPU in percent, in steps of 5", Role.CORES, most=100),
        row("aliyun.com/gpu", "whole GPUs, near each other on topology nodes", Role.COUNT),
        untranslated(
            "aliyun.com/gpu-count",
            "a capacity of nodes; its use on pods is not documented",
            "what it requests is not documented",
            role=Role.POLICY,
        ),
        *(
            untranslated(
                f"alibabacloud.com/gpu-{part}.percentage",
                "a share of a GPU on GPU-HPN nodes (ACS)",
                "such nodes are Alibaba Cloud's own, and publish no devices",
                role=Role.POLICY,
                unit=Unit.PERCENT,
            )
            for part in ("core", "memory")
        ),
        *(
            node_label(name, "how the node allocates its GPUs")
            for name in ("ack.node.gpu.schedule", "ack.node.gpu.placement")
        ),
        placed("scheduler.framework.gpushare.allocation", EXTENSION),
        placed("gpushare.alibabacloud.com/core-percentage", EXTENSION, Position.LABEL),
        *(placed(f"ALIYUN_COM_GPU_MEM_{part}", EXTENSION) for part in ("IDX", "POD", "DEV", "ASSIGNED", "ASSUME_TIME")),
        *(placed(f"ALIYUN_COM_GPU_MEM_{part}", EXTENSION, Position.ENV) for part in ("CONTAINER", "DEV", "IDX")),
    ),
)


class AliyunOptions(DialectOptions, frozen=True, kw_only=True):
    """How Aliyun's device plugin is set up."""

    memory_unit: Literal["GiB", "MiB"] = "GiB"  # The plugin's flag `memory-unit`.


VOCABULARY = Vocabulary(
    table=DIALECT,
    read=lambda request: read(request.containers, MIB << 10 if request.options.memory_unit == "GiB" else MIB),
    options=AliyunOptions,
)
