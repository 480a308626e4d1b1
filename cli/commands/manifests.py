"""`drawbridge manifests`: the objects of an installation for `kubectl apply`, or a Helm chart of them.

The objects come from the folder `manifests/` (`cli.installation`), except for the webhook configurations, whose rules follow from the
configured dialects (`webhook.registration`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from analysis.errors import Broken
from cli import options
from cli.command import declare
from cli.exits import Exit
from cli.output import print_lines, warn
from dra.codes import APPLY
from webhook.names import VERSION

if TYPE_CHECKING:
    from cli.installation_values import Values


@declare(
    "manifests",
    examples=(
        f"drawbridge manifests --image registry.example.com/drawbridge:{VERSION} | {APPLY}",
        f"drawbridge manifests --only webhooks --config drawbridge.yaml | {APPLY}",
    ),
)
@options.option(
    "--only", "Print only the webhook configurations, or all other objects.", type=click.Choice(["webhooks", "rest"])
)
@options.option("--image", "The image of drawbridge; replaces the value `image`.", metavar="REF")
@options.option("--namespace", "The namespace to install in; replaces the value `namespace`.", metavar="NAME")
@options.option("--values", "A file of values, as for the chart (docs/install.md).", metavar="FILE")
@options.config("A file with the DrawbridgeConfiguration to install.")
@options.option("--chart", "Write a Helm chart for --config to this folder instead.", metavar="DIR")
def command(*, only: str | None, image: str, namespace: str, values: str, config: str, chart: str) -> Exit:
    """Print the manifests that install drawbridge, or write a Helm chart of them.

    `drawbridge uninstall` removes an installation.
    """
    from cli import installation
    from cli.installation_values import read_values
    from cluster import manifests
    from webhook.registration import configurations

    if chart and (only or image or namespace or values):
        raise Broken("--chart excludes all options but --config", "give the values to helm, with -f FILE")
    read = read_values(values, image, namespace)
    text, configuration = installation.configuration_of(config, read.configuration)
    if chart:
        installation.write_chart(Path(chart), text, configuration)
        install = f"helm install drawbridge {chart} -n drawbridge-system --create-namespace"
        print_lines([f"{chart}: chart written. To install it:", f"{install} --set image=REGISTRY/drawbridge:TAG"])
        return Exit.FINE
    objects: list[dict[str, Any]] = []
    if only != "webhooks":
        _refuse_incomplete(read)
        objects += installation.installed_objects(read, text, configuration)
        if read.bridge.enabled and not installation.is_fenced(configuration):
            warn(
                "other schedulers can allocate the bridge's devices at the same time: "
                "set bridge.drivers and bridge.fence: true in the configuration (docs/bridge.md)"
            )
    if only != "rest":
        objects += configurations(configuration.dialects, installation.registration(read, configuration))
    click.echo(manifests.dump(objects), nl=False)
    return Exit.FINE


def _refuse_incomplete(values: Values) -> None:
    """Refuse values that need other values."""
    bridge = values.bridge
    if not values.image:
        raise Broken("no image is given, and none is published", "build one, and give --image REGISTRY/drawbridge:TAG")
    if bridge.enabled and not bridge.scheduler_image:
        raise Broken(
            "bridge.schedulerImage: the bridge needs the image of a scheduler",
            "build our scheduler, and set bridge.schedulerImage to REGISTRY/drawbridge-scheduler:TAG (docs/bridge.md)",
        )
    if bridge.reservations and not (bridge.enabled and values.node_agent):
        raise Broken("bridge.reservations needs the bridge and the audit agents", "set level: node")
