"""`drawbridge explain`: the state of a pod, workload, claim or device with its reasons; and the meaning of a code.

It reads a live cluster, or with `-f` a dump or manifests, and repeats the answers of the webhook and the allocator.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from msgspec.structs import replace

from analysis import loop
from analysis.configuration import given_configuration, server_named
from cli import contract as inputs
from cli.contract import Broken, Exit
from rendering.formats import explain_codes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.explain import PodStory
    from analysis.loading import Scene

_KINDS = {
    "pod": ("pod", "pods", "po"),
    "claim": ("claim", "claims", "resourceclaim", "resourceclaims"),
    "device": ("device", "devices"),
}
# A code, or all of them.
_CODE = re.compile(r"[A-Za-z]\d+|all")
_KIND_OF = {alias: kind for kind, aliases in _KINDS.items() for alias in aliases}


@inputs.command(
    "explain", empty={"codes": []}, examples=("drawbridge explain pod/notebook -f dump.yaml", "drawbridge explain R023")
)
@click.argument("arguments", nargs=-1, metavar="pod|claim|device|WORKLOAD NAME | CODE...")
@inputs.files(
    required=False,
    positional=False,
    help="A dump of a cluster, or manifests, instead of a live cluster. May be repeated.",
)
@inputs.reached()
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    default="",
    help="The namespace of the object; not needed if its name is unique.",
)
@inputs.config()
@inputs.server()
@inputs.output("text", "json", "markdown", "html", default="text")
@click.pass_context
def command(
    ctx: click.Context,
    *,
    arguments: tuple[str, ...],
    files: tuple[str, ...],
    kubeconfig: str,
    context: str,
    namespace: str,
    config: str,
    kubernetes: str,
    feature_gates: str,
    output: str,
) -> Exit:
    """Explain a pod, workload, claim or device, or the meaning of codes; `all` lists every code.

    For a pod: its requests, their translation, the state of its claims, what blocks them, and the component that acts next. For a
    workload (deployment/NAME, job/NAME, any kind that owns pods): the same for its pods. For a device: the claims that hold it, since when,
    and what could be added. Without -f the live cluster is read; nothing is written. The answer is for the server of --kubernetes and
    --feature-gates, else for the cluster's version with every feature gate on. Codes: R (refused by the webhook), D (`drawbridge check`),
    C (the configuration). Exit code 1: no object has this name.
    """
    from analysis import explain

    if not arguments:
        if output != "text":
            raise Broken("nothing to explain is given", "name a pod, a workload, a claim, a device or a code")
        click.echo(ctx.get_help())
        return Exit.FINE
    subject = _subject_of(arguments)
    if subject is None:
        if files or kubeconfig or context or namespace or kubernetes or feature_gates:
            if not _CODE.fullmatch(arguments[0]):
                raise Broken(
                    f"{arguments[0]!r} is neither a kind nor a code",
                    f"use `drawbridge explain KIND/NAME`, such as pod/{arguments[0]}",
                )
            raise Broken(
                "codes exclude options for a cluster or files",
                "use `drawbridge explain KIND/NAME`, or leave these options out",
            )
        return explain_codes(" ".join(arguments), output, also=(*_KINDS, *explain.KIND_OF))
    kind, kind_name, name = subject
    inputs.refuse_files_and_cluster(files, kubeconfig, context)
    place, slash, _ = name.partition("/")
    if kind != "device" and namespace and slash and place != namespace:
        raise Broken(f"{name!r} contradicts -n {namespace}", "leave one of them out")
    if files or kubernetes:
        server_named(kubernetes, feature_gates)  # fails before the cluster is read
    given = given_configuration(config, files)

    from analysis.loading import KINDS, for_server, read_dump, server_meant, visit
    from analysis.naming import NotThere, find, find_device
    from dra.objects import DeviceTaintRule
    from dra.wire import builtins, convert
    from webhook.claims import taint_rule

    if files:
        scene = read_dump(files, given)
    else:
        last = name.rpartition("/")[2]
        workload = kind == "workload"  # the names of its pods begin with its own
        kinds = (*explain.kinds_of(kind_name), *KINDS) if workload else KINDS
        scene = visit(
            kubeconfig,
            context,
            namespace=namespace,
            keep=lambda pod: pod.metadata.name.startswith(last) if workload else pod.metadata.name == last,
            kinds=kinds,
            given=given,
        )
    scene.in_force.report()
    configuration = scene.configuration
    scene = for_server(scene, kubernetes, feature_gates, configuration)
    bridge = configuration.file.bridge
    if files and bridge is not None and bridge.fence:  # files are judged as if the configuration were installed
        rules = [convert(taint_rule(driver), DeviceTaintRule) for driver in bridge.drivers]
        scene = replace(scene, stock=scene.stock.with_all(rules))
    story: Any
    try:
        match kind:
            case "pod":
                story = explain.pod_story(find(kind, name, namespace, scene.pods), scene, configuration)
                [story] = _with_causes([story], scene, kubeconfig, context)
                lines = explain.screen_of_pod(story)
            case "claim":
                claim = find(kind, name, namespace, scene.stock.claims)
                story = explain.lone_claim_story(claim, scene, configuration)
                lines = explain.screen_of_claim(story)
            case "workload":
                story = explain.workload_story(kind_name, name, namespace, scene, configuration)
                first = _with_causes([one.first for one in story.pods], scene, kubeconfig, context)
                groups = [replace(one, first=pod) for one, pod in zip(story.pods, first, strict=True)]
                story = replace(story, pods=tuple(groups))
                lines = explain.screen_of_workload(story)
            case _:
                story = explain.device_story(find_device(name, scene.stock), scene)
                lines = explain.screen_of_device(story)
    except NotThere as error:
        inputs.complain(f"error: {error.message} ({error.remedy})")
        if output == "json":
            inputs.write_json({"codes": [], "errors": [{"message": error.message, "remedy": error.remedy}]})
        return Exit.REFUSED
    server = server_meant(scene)
    if output == "json":
        document = {
            kind: builtins(story),
            "configuration": scene.in_force.described(),
            "server": builtins(server),
            "unread": builtins(list(scene.unread)),
        }
        inputs.write_json(document)
    elif output in ("markdown", "html"):
        inputs.write_report(explain.report(story, server, scene.unread))
    else:
        inputs.print_lines(chain(lines, explain.screen_of_server(server), explain.screen_of_unread(scene.unread)))
    return Exit.FINE


class _Subject(NamedTuple):
    """What is to be explained: pod, claim, device or workload; the word for it that was given; and its name."""

    kind: str
    kind_name: str
    name: str


def _subject_of(arguments: tuple[str, ...]) -> _Subject | None:
    """Read what is to be explained; None for codes."""
    from analysis import explain
    from dra.validation import shape

    kind_name, slash, rest = arguments[0].partition("/")
    if slash:  # pod/NAME, as kubectl has it
        arguments = (kind_name.partition(".")[0].lower(), rest, *arguments[1:])
    kind_name, *names = arguments
    if kind_name in ("no", "node", "nodes") and names:
        raise Broken("explain has no kind node", f"use `drawbridge nodes {names[0]}`")
    kind = _KIND_OF.get(kind_name) or ("workload" if slash or kind_name in explain.KIND_OF else "")
    if not kind and (len(names) != 1 or _CODE.fullmatch(kind_name)):
        return None
    if not kind:
        if similar := shape.nearest(kind_name, [*_KIND_OF, *explain.KIND_OF]):
            raise Broken(
                f"explain has no kind {kind_name!r}", f"did you mean `drawbridge explain {similar} {names[0]}`?"
            )
        kind = "workload"  # of another project
    if len(names) != 1:
        raise Broken(f"`explain {kind_name}` takes one name", f"use `drawbridge explain {kind_name} NAME`")
    return _Subject(kind, kind_name, names[0])


def _with_causes(stories: Sequence[PodStory], scene: Scene, kubeconfig: str, context: str) -> Sequence[PodStory]:
    """For pods that wait for a component of drawbridge in a live cluster, add what `doctor` finds about the component."""
    from analysis import explain
    from analysis.doctor import survey_parts

    if not (scene.is_live and any(map(explain.keeper_of, stories))):
        return stories
    now = datetime.now(UTC)
    found = loop.visit(kubeconfig, context, lambda cluster: survey_parts(cluster, now), "docs/explain.md")
    return [explain.with_cause(one, found) for one in stories]
