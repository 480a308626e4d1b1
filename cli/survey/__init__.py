"""`drawbridge survey`: who asks for devices in a cluster or a dump of one, what becomes of it, and what is in the way."""

from __future__ import annotations

from cli.survey.command import FORMS
from cli.survey.command import command as survey
from cli.survey.gathered import Gathered, Trimmer, Unread, owner_of, who
from cli.survey.overview import Overview, Scope, overview
from cli.survey.reading import TELLING, Visit, gather
from cli.survey.verdicts import Foreteller, Outlook
from cli.survey.world import state_of

__all__ = [
    "FORMS",
    "TELLING",
    "Foreteller",
    "Gathered",
    "Outlook",
    "Overview",
    "Scope",
    "Trimmer",
    "Unread",
    "Visit",
    "gather",
    "overview",
    "owner_of",
    "state_of",
    "survey",
    "who",
]
