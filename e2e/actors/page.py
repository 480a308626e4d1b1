"""Runs the kubectl commands in the section "What kubectl prints" of docs/translation.md, and compares what kubectl prints with the page."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "translation.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```\n\$ kubectl (.*)\n((?:.*\n)*?)```")
TEAM = "team-a"  # the namespace on the page
NODES = re.compile(r"none of the \d+ nodes can|the only node cannot")  # these numbers depend on the cluster


def section(title):
    """The commands under a title, and the output of each on the page."""
    _, heading, rest = TEXT.partition(f"\n#### {title}\n")
    assert heading, f"docs/translation.md has no section {title!r}"
    return BLOCK.findall(re.split(r"\n##+ ", rest, maxsplit=1)[0])


def follow(cluster, namespace, title):
    """Run the commands of the page in a namespace. Dry runs are repeated until the output matches; other commands have to match at once."""
    blocks = section(title)
    assert blocks, f"section {title!r} of docs/translation.md has no kubectl commands"
    for line, shown in blocks:
        command = [word.replace(TEAM, namespace) for word in shlex.split(line)]
        expected = NODES.sub("none of the N nodes can", shown)
        output = []

        def matches(command=command, expected=expected, output=output):
            result = cluster.kubectl(*command, check=False)
            printed = f"{result.stderr}{result.stdout}".replace(namespace, TEAM)
            output[:] = [NODES.sub("none of the N nodes can", printed)]
            return output == [expected]

        if "--dry-run=server" not in command:
            assert matches(), f"kubectl {line} printed {output}, and the page has {expected!r}"
            continue
        try:
            cluster.until(f"kubectl {line} prints what the page shows", matches)
        except AssertionError as error:
            raise AssertionError(f"kubectl {line} printed {output}, and the page has {expected!r}") from error
