"""What the author of a pod reads in a warning or a refusal: what only an administrator can do says so."""

import re

from docs import messages
from webhook.dialects import VOCABULARIES

READ_BY_AUTHORS = (
    "webhook/dialects",
    "webhook/translate",
    "webhook/claims",
    "webhook/admission",
    "webhook/refusals.py",
    "webhook/state/features.py",
)
OF_ADMINISTRATORS = ("unknown_kinds.py",)  # of quotas and queues, which they write
OF_CONFIGURATION = re.compile(r"\bdeclare\b|\bmap the\b|\binstall\b")


def test_messages_about_administrator_tasks_mention_the_administrator():
    said = [
        text
        for path, found in messages.collected()
        if str(path).startswith(READ_BY_AUTHORS) and path.name not in OF_ADMINISTRATORS
        for text in found
    ]
    said += [row.because for one in VOCABULARIES for row in one.table.keys]
    told = [text for text in said if OF_CONFIGURATION.search(text)]
    assert len(told) > 8
    assert [text for text in told if "administrator" not in text] == []
