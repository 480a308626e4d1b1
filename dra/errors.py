"""Every error that `dra` raises for broken input. The refusal of a valid request is a value, never an exception."""


class DraError(Exception):
    """The base of all errors about devices, claims, selectors and quantities."""


class QuantityError(DraError, ValueError):
    """A text is not a Kubernetes quantity."""


class SemverError(DraError, ValueError):
    """A text is not a semantic version 2.0.0."""


class SelectorError(DraError):
    """A CEL expression cannot be used.

    `position` is the offset in characters at which the problem is, if it is known.
    """

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.position = position

    def __str__(self) -> str:
        return self.message


class SelectorSyntaxError(SelectorError):
    """The text is not CEL."""


class SelectorTypeError(SelectorError):
    """The expression does not type-check: the API server would reject it at admission."""


class SelectorRunError(SelectorError):
    """The expression failed on a particular device.

    The failure ends the scheduling attempt; it never means "no match".
    """


class NoSuchKey(SelectorRunError):  # noqa: N818 - as in Kubernetes' message
    """The expression reads an attribute or a map key that does not exist; `key` is its name."""

    def __init__(self, key: str) -> None:
        super().__init__(f"no such key: {key}")
        self.key = key


class CostExceeded(SelectorError):  # noqa: N818 - the name under which Kubernetes' users know it
    """The evaluation of an expression exceeded Kubernetes' cost limit, or a limit of drawbridge on work and sizes."""


class NodeSelectorError(DraError):
    """Kubernetes cannot parse a node selector.

    Any allocation that reads the slice fails; this never means "no match".
    """


class CapacityError(DraError):
    """A capacity request cannot be computed, or an amount is negative. The scheduling attempt fails."""


class OutOfBudget(DraError):  # noqa: N818 - an outcome: the input need not be wrong
    """The work exceeded its budget (`dra.budget`) and was ended without a result."""


class ServerError(DraError):
    """A Kubernetes version or feature gate does not exist, or the API server does not start with it."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy
