"""Where the `drawbridge` command begins: a table of commands, each imported only when it is called.

`--help` must answer in a blink and `translate` must never pay for a web server, so a command is named here by the
module that holds it, and its one-line help stands here too.
"""

from __future__ import annotations

from importlib import import_module

import click
from click.shell_completion import CompletionItem

# name: (module, one line of help). The module's `command` is the click command.
COMMANDS = {
    "survey": ("cli.survey.command", "Say who asks for devices in a cluster or a dump, and what becomes of each."),
    "snapshot": ("cli.snapshot.command", "Write what a cluster has that decides about devices into one file."),
    "translate": ("cli.commands.translate", "Rewrite pods that ask the old way into pods with ResourceClaims."),
    "check": ("cli.commands.check", "Find what the API server, the fleet or a driver would refuse."),
    "allocate": ("cli.commands.allocate", "Say which devices claims get on a node, or why not."),
    "simulate": ("cli.commands.simulate", "Schedule the pending pods of a snapshot, or replay a workload."),
    "matrix": ("cli.matrix.command", "Say which devices of a pool can be in use together."),
    "quota": ("cli.commands.quota", "Say what quotas leave, who has what of them, and which keys limit nothing."),
    "explain": ("cli.explain.command", "Say why a pod, a claim or a device is as it is, or what a code means."),
    "demo": ("cli.commands.demo", "Push real-world legacy pods through the webhook, on the embedded store."),
    "standalone": ("cli.commands.standalone", "Run webhook, controllers and allocator on loopback, without a cluster."),
    "webhook": ("cli.commands.webhook", "Run the admission webhook and its templates controller (in a cluster)."),
    "allocator": (
        "cli.commands.allocator",
        "Decide for schedulers which devices pods get, and write it (in a cluster).",
    ),
    "driver": ("cli.node.driver", "Publish and prepare the devices of a node, as its DRA driver (on a node)."),
    "node-agent": (
        "cli.node.agent",
        "Find what does not fit on a node, and mark what device plugins hold (on a node).",
    ),
    "doctor": ("cli.commands.doctor", "Find what is not as it should be in a cluster, and put it right if you say so."),
    "dialects": ("cli.commands.dialects", "List every legacy key that is understood, and what becomes of it."),
    "schema": ("cli.schemas.command", "Print the JSON schema of the configuration, or of what a command answers."),
    "completion": ("cli.help.completion", "Print a script that completes drawbridge in bash, zsh or fish."),
    "man": ("cli.help.manual", "Print the manual page, made of these helps."),
    "manifests": ("cli.commands.manifests", "Print what `kubectl apply` needs to install drawbridge."),
}


class Lazy(click.Group):
    """A group whose commands are imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[cmd_name][0]).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is named first; of a misspelt one say which was meant."""
        name = args[0]
        if name not in COMMANDS:
            from difflib import get_close_matches

            near = get_close_matches(name, COMMANDS, n=1)
            meant = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"No such command {name!r}.{meant}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command from the table: who presses a key does not wait for twelve modules."""
        named = [(name, line) for name, (_, line) in COMMANDS.items() if name.startswith(incomplete)]
        items = [CompletionItem(name, help=line) for name, line in named]
        return items + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="drawbridge", prog_name="drawbridge")
def main() -> None:
    """Take pods written for device plugins across to Dynamic Resource Allocation.

    Start with `drawbridge translate -f pod.yaml` and `drawbridge check -f manifests/`: neither needs a cluster.
    `drawbridge demo` shows the whole way in a few seconds.
    """


if (
    __name__ == "__main__"
):  # `python -I -m cli.main`, where nothing may be imported from the folder that we are in, or from PYTHONPATH
    from cli import begin

    begin("drawbridge")
