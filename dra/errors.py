"""Every error that `dra` raises for broken input; a refusal is never an exception but a value."""


class DraError(Exception):
    """The base of all errors about the field itself: devices, claims, selectors, quantities."""


class QuantityError(DraError, ValueError):
    """A text is not a Kubernetes quantity."""


class SemverError(DraError, ValueError):
    """A text is not a semantic version 2.0.0."""


class SelectorError(DraError):
    """A CEL expression cannot be used; `position` is the offset in characters where that shows, if it shows at one."""

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.position = position

    def __str__(self) -> str:
        return self.message


class SelectorSyntaxError(SelectorError):
    """The text is not CEL."""


class SelectorTypeError(SelectorError):
    """The expression does not fit the types of the environment: it would be rejected at admission."""


class SelectorRunError(SelectorError):
    """The expression failed on a particular device, which is fatal for scheduling and never means "no match"."""


class NoSuchKey(SelectorRunError):  # noqa: N818 - as Kubernetes' message has it
    """The expression reads an attribute or a key that is not there; `key` is its name, as the message shows it."""

    def __init__(self, key: str) -> None:
        super().__init__(f"no such key: {key}")
        self.key = key


class CostExceeded(SelectorError):  # noqa: N818 - the name under which Kubernetes' users know it
    """The expression may cost, or did cost, more than Kubernetes allows."""


class NodeSelectorError(DraError):
    """A node selector that Kubernetes cannot parse: fatal for an allocation that looks at the slice, never a plain "no match"."""


class CapacityError(DraError):
    """A capacity request that cannot be counted, or an amount below zero: fatal for a scheduling attempt."""


class OutOfBudget(DraError):  # noqa: N818 - it is an outcome, and says nothing about whatever was being looked at
    """The work was given up (`dra.budget`): undecided, which is neither yes nor no."""


class ServerError(DraError):
    """A version or a feature gate that no server has, or with which none would start; `remedy` is what to write instead."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy
