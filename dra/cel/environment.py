"""The environments in which expressions are compiled: the names, types and functions that an expression can use.

NEW and STORED mirror Kubernetes (k8s.io/dynamic-resource-allocation/cel/compile.go, apiserver cel/environment). NEW is
for an expression in an object that is being written: it can use what the previous minor version had, and list
attributes only if their feature gate is on. STORED is for an expression in a stored object, which can use everything
that its minor has. TEXT does not exist in Kubernetes: it is for expressions of drawbridge's configuration over one
string, `value`.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from dra.cel.device_fields import FIELDS
from dra.cel.library import lists as lib_lists
from dra.cel.library import named_formats as lib_named
from dra.cel.library import networks as lib_net
from dra.cel.library import quantities as lib_quantity
from dra.cel.library import regexes as lib_regex
from dra.cel.library import standard as lib_standard
from dra.cel.library import strings as lib_strings
from dra.cel.library import times as lib_time
from dra.cel.library import urls as lib_url
from dra.cel.signatures import Overload, merge
from dra.cel.types import ANY, DEVICE, DYN, STRING, Type, map_of
from dra.server import CURRENT, LISTS


class Env(Enum):
    """The environment an expression is compiled in."""

    STORED = "stored"
    NEW = "new"
    TEXT = "text"


STORED, NEW, TEXT = Env.STORED, Env.NEW, Env.TEXT
# The feature gates on which it depends what new expressions can use.
GATES = frozenset((LISTS, *(field.gate for field in FIELDS.values() if field.gate)))


class Environment(NamedTuple):
    variables: dict[str, Type]
    attribute: Type
    lists: bool
    fields: dict[str, Type]
    functions: dict[str, tuple[Overload, ...]]
    since_38: bool


_LIBRARIES = (
    lib_standard.FUNCTIONS, lib_url.FUNCTIONS, lib_regex.FUNCTIONS, lib_quantity.FUNCTIONS, lib_strings.FUNCTIONS, lib_time.FUNCTIONS,
    lib_net.FUNCTIONS, lib_named.FUNCTIONS, lib_lists.FUNCTIONS,
)  # fmt: skip


def last_change(minor: int) -> int:
    """Return the minor in which the environments of a server's minor last changed; 0 for the oldest."""
    return 38 if minor >= 38 else 36 if minor >= 36 else 0


@lru_cache(maxsize=8)
def environment(env: Env, gates: frozenset[str] = GATES, minor: int = CURRENT) -> Environment:
    """Build the environment of a server's minor. `gates`, the gates of `GATES` that are on, matter for NEW only."""
    enabled = gates if env is NEW else GATES if minor >= 36 else GATES - {LISTS}
    lists, since_38 = LISTS in enabled, minor >= 38
    attribute = DYN if lists else ANY
    fields = {name: field.type for name, field in FIELDS.items() if field.gate in ("", *enabled)}
    fields["attributes"] = map_of(STRING, map_of(STRING, attribute))
    includes = lib_lists.INCLUDES if lists or since_38 else ()
    variables = {"value": STRING} if env is TEXT else {"device": DEVICE}
    return Environment(variables, attribute, lists, fields, merge(*_LIBRARIES, includes), since_38)
