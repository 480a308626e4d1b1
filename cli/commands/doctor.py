"""`drawbridge doctor`: what is wrong in a cluster, with a remedy each; `--repair` asks and puts right what can be put right.

It reads a live cluster, or with `-f` a dump of one. A repair holds only while its object is as it was seen.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from cli import contract as inputs
from cli.configuration import configuration_of
from cli.contract import Broken, Exit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.doctor import Ill, Seen
    from cluster.protocol import Cluster
    from webhook.state import Configuration

Outcome = dict[str, Any]
# Kinds that are read besides those of the fleet.
_ALSO = [
    ("v1", "Event"),
    ("coordination.k8s.io/v1", "Lease"),
    ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"),
]


@inputs.command("doctor", empty={"findings": []})
@inputs.files(required=False, help="A dump of a cluster, instead of a live one: it is only read. May be repeated.")
@click.option("--repair", is_flag=True, help="Put right what can be put right, and ask before each.")
@click.option("--yes", is_flag=True, help="With --repair: do not ask.")
@click.option(
    "--config",
    metavar="FILE",
    default="",
    help="The DrawbridgeConfiguration, which says what is to be fenced and which names the gate reads.",
)
@inputs.reached()
@inputs.output("text", "json", default="text")
def command(
    *, files: tuple[str, ...], repair: bool, yes: bool, config: str, kubeconfig: str, context: str, output: str
) -> Exit:
    """Find claims, pods, templates and leases that are not as they should be."""
    if repair and files:
        raise Broken("files are only read", "leave --repair out, or -f")
    if repair and not yes and (output == "json" or not sys.stdin.isatty()):
        raise Broken("nobody could be asked", "say --yes, or run it on a terminal with -o text")
    configuration = configuration_of(config, files) if config else None
    bridge = configuration.file.bridge if configuration is not None else None
    fenced = bridge.drivers if bridge is not None and bridge.fence else ()
    if files:
        outcomes = _examine(_read_dump(files, fenced, configuration))
    else:
        outcomes = _visit(kubeconfig, context, fenced, configuration, repair=repair, ask=not yes)
    if output == "json":
        inputs.write_json({"findings": outcomes})
    else:
        inputs.tell(_lines(outcomes))
    return Exit.FINE if all(one["repaired"] for one in outcomes) else Exit.REFUSED


def _read_dump(files: Sequence[str], fenced: tuple[str, ...], configuration: Configuration | None) -> Seen:
    """Read a dump. One without any pod says nothing about which pods there are."""
    from cli.devices import Given, read_objects, warn_of_passed_over
    from cli.doctor import Seen, find_sides, find_unasked, find_worn, with_identity
    from cluster.objects import Event, Lease, MutatingWebhookConfiguration
    from dra.objects import Pod, ResourceClaim, ResourceClaimTemplate
    from dra.wire import convert

    documents = inputs.read(files)
    warn_of_passed_over(documents, also=_ALSO)
    given = Given([with_identity(one) for one in read_objects(documents).objects])
    kind = MutatingWebhookConfiguration
    registered = [convert(one.object, kind) for one in documents if one.object.get("kind") == kind.__name__]
    pods = tuple(given.of(Pod))
    if not pods:
        click.echo("warning: no pods were read, so nothing is said about claims that pods have left", err=True)
    stock = given.stock()
    return Seen(
        stock,
        datetime.now(UTC),
        tuple(given.of(ResourceClaim)),
        pods or None,
        tuple(given.of(ResourceClaimTemplate)),
        tuple(convert(one.object, Lease) for one in documents if one.object.get("kind") == "Lease"),
        fenced,
        find_unasked(registered, configuration),
        find_sides(stock, configuration),
        tuple(convert(one.object, Event) for one in documents if one.object.get("kind") == "Event"),
        find_worn(one.object for one in documents if one.object.get("kind") == "Node"),
    )


def _examine(seen: Seen) -> list[Outcome]:
    from cli.doctor import diagnose

    return [_outcome(ill) for ill in diagnose(seen)]


def _visit(
    kubeconfig: str,
    context: str,
    fenced: tuple[str, ...],
    configuration: Configuration | None,
    *,
    repair: bool,
    ask: bool,
) -> list[Outcome]:
    """Look at a live cluster, and put right what may be."""
    from cli import loop
    from cli.doctor import diagnose, survey

    async def look(cluster: Cluster) -> list[Outcome]:
        ills = diagnose(await survey(cluster, datetime.now(UTC), fenced, configuration))
        return [await _treat(cluster, ill, ask=ask) if repair else _outcome(ill) for ill in ills]

    return loop.visit(kubeconfig, context, look, "docs/operating.md")


async def _treat(cluster: Any, ill: Ill, *, ask: bool) -> Outcome:
    from cli.doctor import describe, put_right
    from cluster.errors import ClusterError

    outcome = _outcome(ill)
    if ill.repair is None:
        return outcome
    if ask and not click.confirm(f"{ill.object}: {ill.message}. Shall I {describe(ill.repair)}?"):
        return outcome
    try:
        problem = await put_right(cluster, ill.repair)
    except ClusterError as error:  # the rest may be in one's rights
        problem = str(error)
    return outcome | {"repaired": not problem, "problem": problem}


def _outcome(ill: Ill) -> Outcome:
    from cli.doctor import describe

    return {
        "what": ill.what,
        "object": ill.object,
        "message": ill.message,
        "remedy": ill.remedy,
        "repair": describe(ill.repair) if ill.repair is not None else "",
        "repaired": False,
        "problem": "",
    }


def _lines(outcomes: Sequence[Outcome]) -> list[str]:
    lines: list[str] = []
    for one in outcomes:
        lines.append(f"{one['object']}: {one['what']}: {one['message']}")
        if one["repaired"]:
            lines.append(f"  done: {one['repair']}")
            continue
        lines.append(f"  {one['remedy']}")
        if one["repair"]:
            lines.append(f"  --repair would {one['repair']}")
        if one["problem"]:
            lines.append(f"  not done: {one['problem']}")
    done = sum(one["repaired"] for one in outcomes)
    repaired = f", {done} put right" if done else ""
    lines.append(f"{inputs.count_of(len(outcomes), 'finding')}{repaired}")
    return lines
