"""Gives the text of a YAML document another value, and leaves every line without a change byte for byte.

So comments, order, quotes and indentation are preserved. Each change edits the text at the positions of its nodes; the result is
parsed again and must have the wanted value. If it has not (anchors, tags, a mapping that begins beside a dash), the edit is
refused as a whole.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import yaml

from cluster.manifests.yaml_reader import YamlError, load
from cluster.manifests.yaml_writer import dump
from dra.pointer import member, split

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Most files that people write indent lists below their key; kubectl's output does not.
_LIST_INDENT: Final = "  "
# Names, paths, addresses and versions.
_PLAIN: Final = re.compile(r"(?:(?:\.{0,2}/)*[A-Za-z]|\d+\.\d+\.\d)(?:[-\w./+]|:(?=[-\w./]))*", re.ASCII)
_ANCHOR: Final = re.compile(r"&\S+[ \t]+")
_Span = tuple[yaml.Node | None, yaml.Node]  # a member's key (None in a list), and its value


class _Change(NamedTuple):
    """A value to write at a JSON pointer (`-`: behind the last item), to insert before an item, or to remove there."""

    path: str
    value: Any = None
    is_removal: bool = False
    is_insertion: bool = False


class _LenientLoader(yaml.SafeLoader):
    """Takes an anchor that is defined twice, as YAML does; slower than the loader in C."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if not isinstance(event, yaml.AliasEvent):
            self.anchors.pop(getattr(event, "anchor", None), None)
        return super().compose_node(parent, index)


class CannotEdit(Exception):  # noqa: N818  what has happened
    """The text cannot be edited so that it has the wanted value."""

    line = 0  # of the document, if known


def edit(text: str, wanted: object) -> str:
    """Edit the text of one document so that it has the value `wanted`; raise CannotEdit if this is not possible."""
    after = text
    list_indent: str | None = None
    changes: list[_Change] = []
    removals: list[_Change] = []
    for change in _changes(_load(text), wanted, ""):
        (removals if change.is_removal else changes).append(change)
    # Removals are last, because a mapping that is empty in between would become `{}`; and in reverse, so that indices stay valid.
    for change in [*changes, *reversed(removals)]:
        if not change.path:
            raise CannotEdit("the text is no mapping and no list")
        *parents, last = split(change.path)
        try:
            document = _compose(after)
            if "*" in text and _is_done(after, change):
                continue
            list_indent = list_indent if list_indent is not None else _list_indent(document) or ""
            parent = _find(document, parents)
            if change.is_removal:
                after = _remove(after, parent, last)
            elif change.is_insertion:
                after = _insert_before(after, parent, last, change.value)
            elif last == "-" and isinstance(parent, yaml.SequenceNode):
                if _is_flow(parent):
                    after = _add_flow(after, parent, _inline(change.value))
                else:
                    after = _insert(after, parent, dump([change.value], list_indent), parent.start_mark.column)
            elif _member(parent, last) is None:
                after = _add(after, parent, last, change.value, list_indent)
            else:
                after = _replace(after, parent, last, change.value, list_indent)
        except (yaml.YAMLError, ValueError, IndexError) as error:
            raise CannotEdit(str(error).partition("\n")[0]) from error
    if _load(after) != wanted:
        raise CannotEdit("the edited text would differ from the translation")
    return after


def _load(text: str) -> Any:
    try:
        return load(text.encode())[0]
    except YamlError as error:
        raise CannotEdit(error.message) from error


def _is_done(text: str, change: _Change) -> bool:
    """Return whether the change of an anchor has made a change of its alias, too."""
    *parents, last = split(change.path)
    value = load(text.encode())[0]
    for name in parents:
        value = value[int(name)] if isinstance(value, list) else value[name]
    members = dict(enumerate(value)) if isinstance(value, list) else value
    key = int(last) if isinstance(value, list) and last.isdecimal() else last
    return key not in members if change.is_removal else bool(members.get(key) == change.value)


def _changes(before: Any, after: Any, path: str) -> Iterator[_Change]:
    """Yield the changes of members and items, so that the lines of equal members are kept."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name, value in after.items():
            if name not in before:
                yield _Change(member(path, name), value)
            elif before[name] != value:
                yield from _changes(before[name], value, member(path, name))
        for name in [name for name in before if name not in after]:
            yield _Change(member(path, name), is_removal=True)
    elif isinstance(before, list) and isinstance(after, list) and (inserted := _inserted(before, after)):
        yield from (_Change(f"{path}/{number}", value, is_insertion=True) for number, value in inserted)
    elif isinstance(before, list) and isinstance(after, list) and len(before) <= len(after):
        for number, (old, new) in enumerate(zip(before, after, strict=False)):
            if old != new:
                yield from _changes(old, new, f"{path}/{number}")
        for value in after[len(before) :]:
            yield _Change(f"{path}/-", value)
    elif isinstance(before, list) and isinstance(after, list) and after:
        removed = _removed(before, after)
        if not removed:
            removed = list(range(len(after), len(before)))
            for number, new in enumerate(after):
                if before[number] != new:
                    yield from _changes(before[number], new, f"{path}/{number}")
        for number in removed:
            yield _Change(f"{path}/{number}", is_removal=True)
    else:
        yield _Change(path, after)


def _removed(before: list[Any], after: list[Any]) -> list[int]:
    """Return the positions of the items whose removal makes the list equal to `after`; none if other changes are needed."""
    removed, rest = [], list(after)
    for number, item in enumerate(before):
        if rest and item == rest[0]:
            del rest[0]
        else:
            removed.append(number)
    return [] if rest else removed


def _inserted(before: list[Any], after: list[Any]) -> list[tuple[int, Any]]:
    """Return new scalars and their positions if each is inserted before an item of a list; none if other changes are needed."""
    inserted = [(number, value) for number, value in enumerate(after) if value not in before]
    is_last = bool(inserted) and inserted[-1][0] == len(after) - 1
    are_scalars = not any(isinstance(value, dict | list) for _, value in inserted)
    return inserted if [value for value in after if value in before] == before and are_scalars and not is_last else []


def _compose(text: str) -> yaml.Node:
    try:
        node = yaml.compose(text, Loader=_LOADER)
    except yaml.composer.ComposerError:
        node = yaml.compose(text, Loader=_LenientLoader)
    if node is None:
        raise CannotEdit("there is nothing in the text")
    return node


def _list_indent(node: yaml.Node) -> str | None:
    """Return the indentation of the first list in a block of a mapping, relative to its key; None without such a list."""
    for key, value in () if isinstance(node, yaml.ScalarNode) or _is_flow(node) else _siblings(node):
        if key is not None and isinstance(value, yaml.SequenceNode) and not _is_flow(value):
            return _LIST_INDENT if value.start_mark.column > key.start_mark.column else ""
        indent = _list_indent(value)
        if indent is not None:
            return indent
    return None


def _find(node: yaml.Node, names: Iterable[str]) -> yaml.Node:
    for name in names:
        span = _member(node, name)
        if span is None:
            raise CannotEdit(f"there is no {name} in the text")
        node = span[1]
    return node


def _member(node: yaml.Node, name: str) -> _Span | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == name:
                return key, value
        return None
    if isinstance(node, yaml.SequenceNode) and int(name) < len(node.value):
        return None, node.value[int(name)]
    return None


def _siblings(node: yaml.Node) -> list[_Span]:
    if isinstance(node, yaml.MappingNode):
        return list(node.value)
    if isinstance(node, yaml.SequenceNode):
        return [(None, item) for item in node.value]
    raise CannotEdit("the value has no members that could be changed")


def _is_flow(node: yaml.Node) -> bool:
    return bool(getattr(node, "flow_style", False))


# Ends of nodes. libyaml ends a block at the next token, after comments; the text of a node ends with its last scalar.


def _end(node: yaml.Node) -> int:
    children = [] if isinstance(node, yaml.ScalarNode) or _is_flow(node) else _siblings(node)
    if children:
        key, value = children[-1]
        # An alias is on the line of its key; its node is the one with the anchor.
        if key is not None and value.start_mark.index < key.start_mark.index:
            return int(key.end_mark.index)
        return _end(value)
    return int(node.end_mark.index)


def _end_of_line(text: str, position: int) -> int:
    """The end of the line in which a node ends; a block scalar ends at the beginning of the next line."""
    if position and text[position - 1] == "\n":
        return position
    newline = text.find("\n", position)
    return len(text) if newline < 0 else newline + 1


def _line_start(text: str, position: int) -> int:
    return text.rfind("\n", 0, position) + 1


def _begins_line(text: str, position: int) -> bool:
    return not text[_line_start(text, position) : position].strip()


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


# Removing


def _remove(text: str, parent: yaml.Node, name: str) -> str:
    siblings = _siblings(parent)
    span = _member(parent, name)
    if span is None:
        raise CannotEdit(f"there is no {name} in the text")
    index = siblings.index(span)
    key, value = span
    start = _start(span)
    if _is_flow(parent):
        end = int(value.end_mark.index)
        if index + 1 < len(siblings):
            end = _start(siblings[index + 1])
        elif index:
            start = siblings[index - 1][1].end_mark.index
        return text[:start] + text[end:]
    if len(siblings) == 1:
        # The block is empty now: it becomes {} or [], on the line of its key.
        block_start = parent.start_mark.index
        if not _begins_line(text, block_start):
            raise CannotEdit("the last member is on the line of a list's dash")
        before = text[: _line_start(text, block_start)].rstrip()
        if not before.endswith(":"):
            raise CannotEdit("what holds the last member does not end its line with a colon")
        empty = " {}" if isinstance(parent, yaml.MappingNode) else " []"
        return before + empty + _newline(text) + text[_end_of_line(text, _end(value)) :]
    if key is None and text[_line_start(text, start) : start].strip() == "-":
        start = _line_start(text, start)
    if not _begins_line(text, start):
        raise CannotEdit(f"{name} is on the line of a list's dash")
    return text[: _line_start(text, start)] + text[_end_of_line(text, _end(value)) :]


def _start(span: _Span) -> int:
    key, value = span
    return int((key or value).start_mark.index)


# Adding


def _add(text: str, parent: yaml.Node, name: str, value: Any, list_indent: str) -> str:
    if not isinstance(parent, yaml.MappingNode):
        raise CannotEdit("a member cannot be added to a value that is not a mapping")
    if _is_flow(parent):
        return _add_flow(text, parent, f"{_scalar(name)}: {_inline(value)}")
    first, _ = parent.value[0]
    return _insert(text, parent, dump({name: value}, list_indent), first.start_mark.column)


def _add_flow(text: str, parent: yaml.Node, member_text: str) -> str:
    before = parent.end_mark.index - 1
    siblings = _siblings(parent)
    if siblings:
        last = siblings[-1][1].end_mark.index
        return f"{text[:last]}, {member_text}{text[last:]}"
    return text[:before].rstrip(" ") + member_text + text[before:]


def _insert(text: str, parent: yaml.Node, block: str, column: int) -> str:
    """Insert lines after the last line of a block, with the block's indentation."""
    position = _end_of_line(text, _end(parent))
    newline = _newline(text)
    head = text[:position] if text[:position].endswith("\n") else text[:position] + newline
    lines = [f"{' ' * column}{line}{newline}" for line in block.splitlines()]
    return head + "".join(lines) + text[position:]


def _insert_before(text: str, parent: yaml.Node, name: str, value: Any) -> str:
    """Insert a scalar before an item of a list; comments above the item stay with the item."""
    start = int(parent.value[int(name)].start_mark.index)
    if _is_flow(parent):
        return f"{text[:start]}{_inline(value)}, {text[start:]}"
    line = _line_start(text, start)
    if text[line:start].strip() != "-":
        raise CannotEdit("an item of the list is not on a line of its own")
    return f"{text[:start]}{dump(value).rstrip()}{_newline(text)}{text[line:]}"


def _replace(text: str, parent: yaml.Node, name: str, value: Any, list_indent: str) -> str:
    span = _member(parent, name)
    assert span is not None
    old = span[1]
    plain = isinstance(old, yaml.ScalarNode)
    style = getattr(old, "style", "")
    if plain and style == "|" and isinstance(value, str):
        # Replaces the lines of a block scalar with the same indentation; the line with its indicator is kept.
        start = _end_of_line(text, old.start_mark.index)
        end = _end_of_line(text, old.end_mark.index)
        first = next((line for line in text[start:end].splitlines() if line.strip()), "")
        indent = first[: len(first) - len(first.lstrip())]
        lines = [f"{indent}{line}" if line else "" for line in value.split("\n")]
        newline = _newline(text)
        block = newline.join(lines).rstrip("\r\n ")
        return text[:start] + block + newline + text[end:]
    if plain and style in ("|", ">"):
        raise CannotEdit(f"{name} is a block scalar")
    is_absent = old.start_mark.index == old.end_mark.index and bool(value) and isinstance(value, dict | list)
    if (plain and not is_absent) or _is_flow(old):
        start = old.start_mark.index
        if anchor := _ANCHOR.match(text, start):  # its aliases follow
            start = anchor.end()
        return text[:start] + _inline(value) + text[old.end_mark.index :]
    # A block is replaced in two steps: it is removed, and the new block is inserted at the end of the mapping.
    if len(_siblings(parent)) == 1:
        raise CannotEdit(f"{name} is the only member of its mapping")
    without = _remove(text, parent, name)
    path = _path_to(_compose(text), parent.start_mark.index)
    return _add(without, _find(_compose(without), path), name, value, list_indent)


def _path_to(node: yaml.Node, start: int) -> list[str]:
    """The path to the collection that begins at a position."""
    waiting: list[tuple[yaml.Node, list[str]]] = [(node, [])]
    while waiting:
        below, path = waiting.pop()
        if isinstance(below, yaml.ScalarNode):
            continue
        if below.start_mark.index == start:
            return path
        for number, (key, value) in enumerate(_siblings(below)):
            step = str(number) if key is None else str(key.value)
            waiting.append((value, [*path, step]))
    raise CannotEdit("the place of the edit was not found again")


def _scalar(value: str) -> str:
    """A string as a YAML scalar that is read back as the same string."""
    if _PLAIN.fullmatch(value) and load(value.encode())[0] == value:
        return value
    return json.dumps(value)


def _inline(value: Any) -> str:
    """A value on one line, as JSON."""
    if isinstance(value, str):
        return _scalar(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    if isinstance(value, dict):
        members = [f"{_scalar(name)}: {_inline(member)}" for name, member in value.items()]
        return f"{{{', '.join(members)}}}"
    return json.dumps(value)
