"""Why a question has no answer: the errors that a command turns into an exit code, and the dashboard into a page."""

from __future__ import annotations


class NoAnswer(Exception):  # noqa: N818  not always an error of ours
    """There is no answer, for this reason, with a remedy."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class Broken(NoAnswer):
    """Invalid input. For several problems raise a ManifestError."""


class MissingObject(NoAnswer):
    """No object has this name."""


class Failed(NoAnswer):
    """The environment failed, or there is no decision."""
