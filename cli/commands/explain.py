"""`drawbridge explain`: the state of a pod, workload, claim or device with its reasons; and the meaning of a code.

It reads a live cluster, or with `-f` a dump or manifests, and gives the same answers as the webhook and the allocator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from analysis.configuration import server_named
from analysis.errors import Broken
from cli import formats, loop, options
from cli.answers import write
from cli.command import declare
from cli.configuration import given_configuration, report_configuration
from cli.exits import Exit

if TYPE_CHECKING:
    from analysis.explain import PodStory, WorkloadStory
    from analysis.loading import Reading
    from cli.files import InputFiles


@declare("explain", examples=("drawbridge explain pod/notebook -f dump.yaml", "drawbridge explain R023"))
@click.argument("arguments", nargs=-1, metavar="pod|claim|device|WORKLOAD NAME | CODE...")
@options.files(
    positional=False,
    help=options.INSTEAD_OF_CLUSTER,
)
@options.cluster_access()
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    default="",
    help="The namespace of the object; not needed if its name is unique.",
)
@options.inventory()
@options.config()
@options.server()
@options.output("text", "json", "markdown", default="text")
@click.pass_context
def command(
    ctx: click.Context,
    *,
    arguments: tuple[str, ...],
    files: InputFiles,
    kubeconfig: str,
    context: str,
    namespace: str,
    config: str,
    kubernetes: str,
    feature_gates: str,
    output: str,
) -> Exit:
    """Explain a pod, workload, claim or device, or the meaning of codes; `all` lists every code.

    For a pod: its requests, their translation, the state of its claims, what blocks the claims, and the component that acts next. For a
    workload (deployment/NAME, job/NAME, any kind that owns pods): the same for its pods. For a device: the claims that hold it, since when,
    how much of it is left, and the devices that can be in use beside it. Without -f the command reads the live cluster; it writes nothing.
    It assumes the server of --kubernetes and --feature-gates, else the cluster's version with every feature gate on. Codes: R (refusals of
    the webhook), D (`drawbridge check`), O (`drawbridge doctor`), S (`drawbridge survey`), C (the configuration). Exit code 1: no object has this name.
    """
    from analysis import explain

    if not arguments:
        if output != "text":
            raise Broken("nothing to explain is given", "name a pod, a workload, a claim, a device or a code")
        click.echo(ctx.get_help())
        return Exit.FINE
    subject = explain.subject_of(arguments)
    if subject is None and files and len(arguments) == 1 and not explain.CODE.fullmatch(arguments[0]):
        subject = explain.Subject("pod", "pod", arguments[0])
    if subject is None:
        if files or kubeconfig or context or namespace or kubernetes or feature_gates:
            if not explain.CODE.fullmatch(arguments[0]):
                raise Broken(
                    f"{arguments[0]!r} is neither a kind nor a code",
                    f"use `drawbridge explain KIND/NAME`, such as pod/{arguments[0]}",
                )
            raise Broken(
                "codes exclude options for a cluster or files",
                "use `drawbridge explain KIND/NAME`, or leave these options out",
            )
        codes = formats.choose_codes(" ".join(arguments), explain.WORDS)
        write(
            output,
            lambda: formats.report_of_codes(codes),
            lambda: {"codes": formats.facts_of_codes(codes)},
        )
        return Exit.FINE
    kind, kind_name, name = subject
    prefix, slash, _ = name.partition("/")
    if kind != "device" and namespace and slash and prefix != namespace:
        raise Broken(f"{name!r} contradicts -n {namespace}", "leave one of them out")
    if files or kubernetes:
        server_named(kubernetes, feature_gates)  # fails before the cluster is read
    given = given_configuration(config)

    from analysis.loading import OUTLOOK_KINDS, Needs, assumed_server, for_server
    from analysis.refused_pods import FAILED_CREATE
    from cli.loading import read_as_installed, read_live
    from dra.wire import builtins

    if files:
        reading = read_as_installed(files, given)
    else:
        last = name.rpartition("/")[2]
        workload = kind == "workload"  # the names of its pods begin with the workload's name
        needs = Needs(
            (*(explain.kinds_of(kind_name) if workload else ()), *OUTLOOK_KINDS),
            stored=lambda pod: pod.metadata.name.startswith(last) if workload else pod.metadata.name == last,
            events=(f"reason={FAILED_CREATE}",)
            if workload
            else (f"involvedObject.kind=Pod,involvedObject.name={last}",) * (kind == "pod"),
        )
        reading = read_live(kubeconfig, context, needs, given=given, namespace=namespace)
    report_configuration(reading.in_force)
    reading = for_server(reading, kubernetes, feature_gates, reading.configuration)
    story = explain.story_of(subject, namespace, reading)
    if isinstance(story, explain.PodStory | explain.WorkloadStory):
        story = _with_causes(story, reading, kubeconfig, context)
    server = assumed_server(reading)
    write(
        output,
        lambda: explain.report(story, server),
        lambda: {
            kind if not isinstance(story, explain.PodStory) else "pod": builtins(story),
            "configuration": reading.in_force.described(),
            "server": builtins(server),
        },
        unread=reading.unread,
    )
    return Exit.FINE


def _with_causes(
    story: PodStory | WorkloadStory, reading: Reading, kubeconfig: str, context: str
) -> PodStory | WorkloadStory:
    """For pods that wait for a component of drawbridge in a live cluster, add what `doctor` finds about the component."""
    from analysis import explain
    from analysis.broken_parts import waits_for_component
    from analysis.doctor import survey_parts

    pods = [story] if isinstance(story, explain.PodStory) else [pod.first for pod in story.pods]
    if not (reading.is_live and any(waits_for_component(pod.state.reasons[0]) for pod in pods)):
        return story
    findings = loop.visit(
        kubeconfig, context, lambda cluster: survey_parts(cluster, reading), "docs/commands.md#drawbridge-explain"
    )
    if isinstance(story, explain.PodStory):
        return explain.with_cause(story, findings)
    groups = [replace(pod, first=explain.with_cause(pod.first, findings)) for pod in story.pods]
    return replace(story, pods=tuple(groups))
