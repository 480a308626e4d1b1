"""Writes docs/kinds.md from the table of kinds that translation itself uses."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from webhook.translate.workload_kind import KINDS, RENDERED, WorkloadKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HEAD = """# Kinds of other projects

For administrators who move objects of an operator: which kinds drawbridge knows, where each was looked up, whether its
definition (CRD) keeps `resourceClaims` of a pod template and `claims` of a container, which controller reads the old keys, and what
becomes of the object. `make generate` writes this page from `webhook/translate/workload_kind.py`. `--all-kinds` reads
any other kind; without it, the keys there are named ([translation.md](translation.md)).

An object that stays keeps its keys. Its operator makes pods with them, and the webhook translates these: `translate`
says **left to the webhook** of its keys, with the reason, and counts it apart.

## The definition decides

Where the CustomResourceDefinition of a kind is among the files or in `--inventory`
(`kubectl get crd NAME -o yaml`), its schema decides in place of this page: `translate` computes what the API server
would keep of the translated object, by its own version and by the stored one. A template whose claims would be dropped
stays.

- A field that the schema lacks is dropped in silence for controllers, Helm and Argo CD; `kubectl apply` refuses it.
- `source` beside `name` in `resourceClaims` is the form of Kubernetes before 1.31: such a schema drops
  `resourceClaimTemplateName`, and the API server refuses the pods. It counts as not kept, on this page too.
- `preserveUnknownFields: true` keeps everything, `x-kubernetes-preserve-unknown-fields` what is below it.
- Two definitions of one kind: a template stays if one of them drops its claims.
- Where a webhook converts between versions, only the version of the object counts.
- A definition without a schema, or one with more than 100,000 parts or 100 levels, says nothing: this page decides.

"""


def page() -> str:
    """Write the whole page."""
    rendered = "## Values of what is rendered elsewhere\n\nTheir keys are named, and not checked: translate what is rendered.\n\n"
    return HEAD + "## Kinds with pods\n\n" + _listed(KINDS) + "\n" + rendered + _listed(RENDERED)


def _listed(kinds: Mapping[tuple[str, str], WorkloadKind]) -> str:
    lines: list[str] = []
    rows = sorted(kinds.items(), key=lambda one: (one[0][0], one[1].published.version, one[1].reads, one[1].drops))
    for (group, known), both in groupby(rows, key=lambda one: (one[0][0], one[1])):
        names = ", ".join(kind for (_, kind), _ in both)
        lines.append(f"- **{names}** ({group}): {_fate(known)}")
        lines += [f"  - {text}" for text in _facts(known)]
    return "\n".join(lines) + "\n"


def _fate(known: WorkloadKind) -> str:
    if known in RENDERED.values():
        return known.reads
    if known.reads:
        return f"stays; the keys are read by {known.reads}"
    if known.drops:
        return f"stays in {', '.join(known.drops)}, unless its definition is there and keeps claims"
    return "rewritten"


def _facts(known: WorkloadKind) -> Iterator[str]:
    published = known.published
    since = f" since {published.since}" if published.since else ""
    yield f"{published.version} ({published.source}): {published.keeps}{since}"
    if known.note:
        yield known.note
    if known.scheduler:
        yield f"its pods get scheduler {known.scheduler} unless it names another"
