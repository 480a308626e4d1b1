"""`drawbridge resize`: whether a workload would fit with other amounts, what quotas allow, and what to apply."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from analysis.errors import Broken
from analysis.report import Report, Rows, Screen
from cli import options
from cli.answers import write
from cli.command import declare
from cli.configuration import given_configuration, report_configuration
from cli.exits import Exit
from dra.texts import count_of

if TYPE_CHECKING:
    from analysis.resized import Resized
    from cli.files import InputFiles


@declare(
    "resize",
    examples=(
        "drawbridge resize pod/notebook nvidia.com/gpu=2 -f dump.yaml",
        "drawbridge resize deployment/training nvidia.com/gpu=4 -f deploy/ --inventory fleet.yaml",
    ),
)
@click.argument("workload", metavar="KIND/NAME")
@click.argument("amounts", nargs=-1, required=True, metavar="KEY=AMOUNT...")
@options.files(positional=False, help="A dump of a cluster instead of a live cluster. May be repeated.")
@options.cluster_access()
@options.namespaced("The namespace of the workload; not needed if its name is unique.")
@options.inventory()
@options.config()
@options.output("text", "json", "markdown", default="text")
def command(
    *,
    workload: str,
    amounts: tuple[str, ...],
    files: InputFiles,
    kubeconfig: str,
    context: str,
    namespace: str,
    config: str,
    output: str,
) -> Exit:
    """Show whether the pods of a workload would fit with other amounts, and what quotas allow.

    Allocations are immutable, so other amounts need new pods. KEY is an extended resource of the workload's containers, an amount in its
    annotations that the webhook translates, or a capacity in its claim templates. Each request for KEY gets AMOUNT. The answer has the
    placement of the new pods once the old pods have ended; for a Deployment also whether one new pod fits beside the old pods. It has the
    quota lines that count the new pods, and a diff to apply. The command writes nothing. Exit code 1: a pod does not fit, or a quota
    refuses it.
    """
    from analysis import explain
    from analysis.loading import OUTLOOK_KINDS, Needs
    from analysis.resized import POD, find_target, resize
    from cli.loading import read_as_installed, read_live
    from dra.wire import builtins

    new_amounts = dict(_read(amount) for amount in amounts)
    kind_name, slash, name = workload.partition("/")
    kind_name = kind_name.partition(".")[0].lower()
    if not (slash and name):
        raise Broken(f"{workload!r} is not KIND/NAME", "write the workload as for kubectl, such as deployment/serve")
    given = given_configuration(config)
    if files:
        reading = read_as_installed(files, given)
    else:
        last = name.rpartition("/")[2]
        needs = Needs(
            (*explain.kinds_of(kind_name), *OUTLOOK_KINDS),
            stored=lambda pod: kind_name in POD and pod.metadata.name == last,
        )
        reading = read_live(kubeconfig, context, needs, given=given, namespace=namespace)
    report_configuration(reading.in_force)
    target = find_target(kind_name, name, namespace, reading)
    resized = resize(target.object, new_amounts, target.pods, reading)
    write(
        output,
        lambda: _report(resized),
        lambda: {
            "configuration": reading.in_force.described(),
            "fits": resized.fits,
            "pods": builtins(resized.pods),
            "surgePod": builtins(resized.surge),
            "quotas": [line.facts() for quota in resized.quotas for line in quota.lines],
            "objects": [change.after for change in resized.changes],
        },
        unread=reading.unread,
    )
    return Exit.FINE if resized.fits else Exit.REFUSED


def _read(text: str) -> tuple[str, str]:
    from dra.errors import QuantityError
    from dra.quantity import Quantity

    key, sign, amount = text.rpartition("=")
    if not (sign and key):
        raise Broken(f"{text!r} is not KEY=AMOUNT", "such as nvidia.com/gpumem=6000 or memory=6Gi")
    try:
        Quantity.parse(amount)
    except QuantityError as error:
        raise Broken(f"{text!r}: {error}", "an amount is a quantity, such as 16Gi") from None
    return key, amount


def _report(resized: Resized) -> Report:
    from analysis.simulated import devices_of

    placed = sum(pod.node is not None for pod in resized.pods)
    rows = [
        (pod.pod, f"{pod.node} ({', '.join(devices_of(pod))})" if pod.node else str(pod.reason)) for pod in resized.pods
    ]
    surge_text = ""
    if resized.surge is not None:
        if resized.surge.node:
            surge_text = (
                f"one more pod fits alongside the running pods, on {resized.surge.node}, so a rolling update can begin"
            )
        else:
            remedy = ": set maxSurge: 0, or strategy Recreate" if resized.fits else ""
            surge_text = f"no further pod fits alongside the running pods ({resized.surge.reason.text}){remedy}"
    lines = [line for quota in resized.quotas for line in quota.lines]
    quotas = [f"{'beyond' if line.exceeded else 'within'} {line}" for line in lines]
    diff = [line for change in resized.changes for line in change.diff()]
    pods = count_of(len(resized.pods), "pod")
    fits = f"{placed} of {pods} would fit once the running pods have ended"
    return Report("Resized", (fits, Rows(("Pod", "Node, or why not"), rows), surge_text, Screen(quotas), Screen(diff)))
