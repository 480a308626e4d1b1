"""`drawbridge quota`: the use of DeviceQuotas, the claims that use them, and quotas that limit nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.report import Report
from cli import options
from cli.answers import write
from cli.command import declare
from cli.exits import Exit
from dra.texts import count_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.quota_use import QuotaReport
    from cli.files import InputFiles

_HOLDERS = 1000  # the most holders that are listed for one line of a quota


@declare("quota", examples=("drawbridge quota -f dump.yaml -o wide", "drawbridge quota -n team-a"))
@options.files(help="Quotas, claims, pods and slices, or a dump, instead of a live cluster. May be repeated.")
@options.cluster_access()
@options.namespaced("Only quotas of this namespace.")
@options.output("text", "wide", "json", "markdown", default="text")
def command(*, files: InputFiles, kubeconfig: str, context: str, namespace: str, output: str) -> Exit:
    """Show for each line of each DeviceQuota the amounts in use, of pods that wait for devices, and left.

    Without -f the command reads the live cluster; it writes nothing. `-o wide` lists the pods and claims that use a quota. With -n, rights
    in that namespace suffice.
    """
    from analysis.loading import KINDS, Needs
    from analysis.quota_use import necessary, report, tables
    from cli.loading import read_dump, read_live
    from dra.wire import builtins

    if files:
        reading = read_dump(files)
    else:
        reading = necessary(
            read_live(kubeconfig, context, Needs(KINDS, "docs/configuration.md#quotas"), namespace=namespace), namespace
        )
    reports = [quota for quota in report(reading) if not namespace or quota.quota.startswith(f"{namespace}/")]
    parts = [*tables(reports, _HOLDERS if output != "text" else None)]
    write(
        output,
        lambda: Report("Quotas", parts, _summary(reports)),
        lambda: {"quotas": builtins(reports)},
        unread=reading.unread,
    )
    return Exit.FINE


def _summary(reports: Sequence[QuotaReport]) -> str:
    if not reports:
        return "no DeviceQuota, so devices are not limited"
    lines = [line for quota in reports for line in quota.lines]
    used_up = sum(line.remaining == "0" or line.remaining.startswith("-") for line in lines)
    return f"{count_of(len(reports), 'DeviceQuota')}: {used_up} of {count_of(len(lines), 'line')} used up"
