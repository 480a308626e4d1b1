"""Every error that `dra` raises for broken input. A refusal is a value, never an exception."""


class DraError(Exception):
    """The base of all errors about devices, claims, selectors and quantities."""


class QuantityError(DraError, ValueError):
    """A text is not a Kubernetes quantity."""


class SemverError(DraError, ValueError):
    """A text is not a semantic version 2.0.0."""


class SelectorError(DraError):
    """A CEL expression cannot be used; `position` is the offset of the problem in characters, if it has one."""

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
    """The expression failed on a particular device. That fails the scheduling attempt; it never means "no match"."""


class NoSuchKey(SelectorRunError):  # noqa: N818 - as in Kubernetes' message
    """The expression reads an attribute or a map key that does not exist; `key` is its name."""

    def __init__(self, key: str) -> None:
        super().__init__(f"no such key: {key}")
        self.key = key


class CostExceeded(SelectorError):  # noqa: N818 - the name under which Kubernetes' users know it
    """The evaluation of an expression exceeded Kubernetes' cost limit, or a limit of drawbridge on work and sizes."""


class NodeSelectorError(DraError):
    """A node selector that Kubernetes cannot parse. It fails any allocation that reads the slice; it never means "no match"."""


class CapacityError(DraError):
    """A capacity request that cannot be computed, or a negative amount. It fails the scheduling attempt."""


class OutOfBudget(DraError):  # noqa: N818 - an outcome: the input need not be wrong
    """The work was given up (`dra.budget`); the question is undecided."""


class ServerError(DraError):
    """A Kubernetes version or feature gate that does not exist, or that the API server does not start with."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy
