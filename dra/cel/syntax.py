"""Text to tree: the lexer, the parser and the nodes of the tree (github.com/google/cel-go/parser).

The grammar is CEL's with the optional syntax (`a.?b`, `a[?b]`, `{?k: v}`). Macros are expanded while parsing, by
`dra.cel.macros`, as there. Nesting is bounded the way Go bounds it (250 of any one rule), and by `MAX_HEIGHT` levels of tree,
which `dra.cel.selector` finds room for on Python's stack.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from dra.cel.values import Uint
from dra.errors import SelectorSyntaxError

if TYPE_CHECKING:
    from dra.cel.types import Type

MAX_LENGTH = 10 * 1024
MAX_RULE_DEPTH = 250
MAX_HEIGHT = 800
MAX_NODES = 20_000  # macros copy their target, so that a chain of them doubles at each step

Literal = bool | int | float | str | bytes | None


class Expr:
    """One node of the tree. `type` and `overloads` are filled in by the checker.

    `kind` decides what the other fields hold:

    - ``literal``: `value`
    - ``ident``: `name`
    - ``select``: `args[0]` is the operand, `name` the field; ``has`` is the same as a presence test
    - ``call``: `name` the function, `args` the arguments, with the target first if `member`
    - ``list``: `args`, and `optional` holds the positions marked with a question mark
    - ``map``: `args` alternates keys and values, `optional` holds the positions of marked keys
    - ``fold``: a comprehension, see `Fold`
    """

    __slots__ = ("args", "fold", "kind", "member", "name", "optional", "overloads", "position", "type", "value")

    type: Type
    overloads: tuple[str, ...]

    def __init__(self, kind: str, position: int, *, name: str = "", args: tuple[Expr, ...] = ()) -> None:
        self.kind = kind
        self.position = position
        self.name = name
        self.args = args
        self.value: Literal = None
        self.member = False
        self.optional: frozenset[int] = frozenset()
        self.fold: Fold | None = None


class Fold:
    """A comprehension: `accu = init; for var in range: if not condition: break; accu = step; result`."""

    __slots__ = ("accu", "condition", "init", "macro", "range", "result", "step", "var", "var2")

    def __init__(  # noqa: PLR0917 - the parts of a comprehension, in the order CEL names them
        self,
        macro: str,
        range_: Expr,
        var: str,
        var2: str,
        accu: str,
        init: Expr,
        condition: Expr,
        step: Expr,
        result: Expr,
    ) -> None:
        # Where it comes from: all, exists, exists_one, list, map or bind.
        self.macro = macro
        self.range = range_
        self.var = var
        self.var2 = var2
        self.accu = accu
        self.init = init
        self.condition = condition
        self.step = step
        self.result = result


def literal(position: int, value: Literal) -> Expr:
    """Make a constant."""
    node = Expr("literal", position)
    node.value = value
    return node


def call(position: int, name: str, *args: Expr, member: bool = False) -> Expr:
    """Make a call; with `member` the first argument is the target."""
    node = Expr("call", position, name=name, args=args)
    node.member = member
    return node


def make_fold(position: int, fold: Fold) -> Expr:
    """Make a comprehension."""
    node = Expr("fold", position)
    node.fold = fold
    return node


def children(node: Expr) -> tuple[Expr, ...]:
    """Return the direct parts of a node, in the order Go evaluates costs."""
    fold = node.fold
    if fold is None:
        return node.args
    return (fold.range, fold.init, fold.condition, fold.step, fold.result)


# ---- Lexer ---------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""
    (?P<space>[\t\ \r\n\f]+|//[^\n]*)
  | (?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
  | (?P<uint>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])
  | (?P<int>0x[0-9a-fA-F]+|[0-9]+)
  | (?P<string>[bB]?(?:[rR](?:\"\"\".*?\"\"\"|'''.*?'''|"[^"\n\r]*"|'[^'\n\r]*')
      |\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''|"(?:\\.|[^\\"\n\r])*"|'(?:\\.|[^\\'\n\r])*'))
  | (?P<ident>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<quoted>`[A-Za-z0-9_.\-/ ]+`)
  | (?P<op>&&|\|\||[<>=!]=|[-+*/%!<>?:.,()\[\]{}])
    """,
    re.VERBOSE | re.DOTALL,
).match

_RESERVED = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "package",
        "namespace",
        "null",
        "return",
        "true",
        "var",
        "void",
        "while",
    ]
)
_KEYWORDS = frozenset(("true", "false", "null", "in"))


class Token:
    __slots__ = ("kind", "position", "text")

    def __init__(self, kind: str, text: str, position: int) -> None:
        self.kind = kind
        self.text = text
        self.position = position


def _tokens(text: str) -> list[Token]:
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN(text, position)
        if match is None:
            raise SelectorSyntaxError(f"no token can start with {text[position]!r}", position)
        kind = match.lastgroup
        assert kind is not None
        if kind != "space":
            word = match[0]
            tokens.append(Token(word if kind == "op" or word in _KEYWORDS else kind, word, position))
        position = match.end()
    tokens.append(Token("end", "the end", position))
    return tokens


_ESCAPE = re.compile(r"\\(?:[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)
_SIMPLE_ESCAPES = dict(zip("abfnrtv\\'\"`?", "\a\b\f\n\r\t\v\\'\"`?", strict=True))


def _unquote(token: Token) -> str | bytes:
    text = token.text.replace("\r\n", "\n")
    text = text.replace("\r", "\n")
    is_bytes = text[0] in "bB"
    if is_bytes:
        text = text[1:]
    raw = text[0] in "rR"
    if raw:
        text = text[1:]
    quotes = 1
    if len(text) >= 6 and text[:3] in ('"""', "'''"):
        quotes = 3
    text = text[quotes:-quotes]
    if is_bytes:
        if raw:
            return text.encode()
        parts = _unescape_to_bytes(text, token.position)
        return b"".join(parts)
    if raw or "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: _unescape(match, token.position), text)


def _unescape(match: re.Match[str], position: int) -> str:
    digits = match[1] or match[2] or match[3]
    if digits or match[4]:
        code = int(digits, 16) if digits else int(match[4], 8)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise SelectorSyntaxError("invalid unicode code point", position)
        return chr(code)
    simple = _SIMPLE_ESCAPES.get(match[5])
    if simple is None:
        raise SelectorSyntaxError(f"no escape sequence starts with \\{match[5]}", position)
    return simple


def _unescape_to_bytes(text: str, position: int) -> list[bytes]:
    parts: list[bytes] = []
    end = 0
    for match in _ESCAPE.finditer(text):
        before = text[end : match.start()]
        parts.append(before.encode())
        end = match.end()
        if match[2] or match[3]:
            raise SelectorSyntaxError("bytes know no unicode escapes", position)
        if match[1]:
            byte = bytes([int(match[1], 16)])
        elif match[4]:
            byte = bytes([int(match[4], 8)])
        else:
            byte = _unescape(match, position).encode()
        parts.append(byte)
    rest = text[end:]
    parts.append(rest.encode())
    return parts


# ---- Parser --------------------------------------------------------------------------------------------------------

_BINARY = {
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!=", "in"), 3),
    "+": 4, "-": 4, "*": 5, "/": 5, "%": 5, "&&": 2, "||": 1,
}  # fmt: skip
_OPERATOR = {op: f"_{op}_" for op in _BINARY} | {"in": "@in"}


def parse(text: str) -> Expr:
    """Turn a text into a tree with all macros expanded."""
    try:
        length = len(text.encode())
    except UnicodeEncodeError as error:
        raise SelectorSyntaxError("the expression is not valid Unicode", error.start) from None
    if length > MAX_LENGTH:
        raise SelectorSyntaxError(f"the expression is longer than {MAX_LENGTH} bytes")
    parser = _Parser(text)
    node = parser.expression()
    token = parser.token
    if token.kind != "end":
        raise SelectorSyntaxError(f"unexpected {token.text!r}", token.position)
    height_of(node)
    return node


def _too_deep(position: int) -> SelectorSyntaxError:
    return SelectorSyntaxError("the expression is nested too deeply: expression recursion limit exceeded", position)


def height_of(root: Expr) -> int:
    """Count the levels of a tree; refuse one that is too large or too high for the passes that follow."""
    count = 0
    level = [root]
    for height in range(1, MAX_HEIGHT + 1):
        level = [child for node in level for child in children(node)]
        count += len(level)
        if count > MAX_NODES:
            raise SelectorSyntaxError("the expression becomes too large when its macros are expanded", root.position)
        if not level:
            return height
    raise _too_deep(root.position)


class _Parser:
    """A recursive descent for brackets, an operator stack for everything flat."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._next = 0
        self.token = self._tokens[0]
        self._depth = 0  # of brackets and right-hand sides of `?:`
        # How deep Go's visitor would be below each node it counts (operators, selections, calls on a target).
        self._heights: dict[int, int] = {}
        self._nodes: list[Expr] = []  # keeps the ids in _heights alive

    def _advance(self) -> Token:
        token = self.token
        self._next += 1
        self.token = self._tokens[min(self._next, len(self._tokens) - 1)]
        return token

    def _accept(self, kind: str) -> Token | None:
        return self._advance() if self.token.kind == kind else None

    def _expect(self, kind: str) -> Token:
        if self.token.kind != kind:
            raise SelectorSyntaxError(f"expected {kind!r}, found {self.token.text!r}", self.token.position)
        return self._advance()

    def _count_height(self, node: Expr, *parts: Expr) -> Expr:
        height = 1 + max(self._heights.get(id(part), 0) for part in parts)
        if height > MAX_RULE_DEPTH:
            raise _too_deep(node.position)
        self._heights[id(node)] = height
        self._nodes.append(node)
        return node

    def _transparent(self, node: Expr, parts: tuple[Expr, ...]) -> Expr:
        height = max((self._heights.get(id(part), 0) for part in parts), default=0)
        if height:
            self._heights[id(node)] = height
            self._nodes.append(node)
        return node

    def expression(self) -> Expr:
        """A ternary, or what is below it."""
        self._depth += 1
        if self._depth > MAX_RULE_DEPTH:
            raise _too_deep(self.token.position)
        node = self._operators()
        question = self._accept("?")
        if question:
            yes = self._operators()
            self._expect(":")
            no = self.expression()
            node = self._count_height(call(question.position, "_?_:_", node, yes, no), node, yes, no)
        self._depth -= 1
        return node

    def _operators(self) -> Expr:
        operands = [self._unary()]
        pending: list[Token] = []
        while (rank := _BINARY.get(self.token.kind)) is not None:
            while pending and _BINARY[pending[-1].kind] >= rank:
                self._reduce(operands, pending)
            pending.append(self._advance())
            operands.append(self._unary())
        while pending:
            self._reduce(operands, pending)
        return operands[0]

    def _reduce(self, operands: list[Expr], pending: list[Token]) -> None:
        token = pending.pop()
        right = operands.pop()
        left = operands.pop()
        name = _OPERATOR[token.kind]
        if token.kind not in ("&&", "||"):
            node = call(token.position, name, left, right)
            counted = self._count_height(node, left, right)
            operands.append(counted)
            return
        # One node for a whole chain, however long: a chain in brackets stays a node of its own.
        parts: tuple[Expr, ...] = left, right
        if left.kind == "call" and left.name == name and left.value == "chain":
            parts = *left.args, right
        node = call(token.position, name, *parts)
        node.value = "chain"
        chain = self._transparent(node, parts)
        operands.append(chain)

    def _unary(self) -> Expr:
        token = self.token
        if token.kind not in ("!", "-"):
            return self._member(self._primary())
        count = 0
        while self.token.kind == token.kind:
            count += 1
            self._advance()
        if token.kind == "-" and count == 1 and self.token.kind in ("int", "float"):
            # A single sign belongs to the number: -9223372036854775808 is an int, 9223372036854775808 is none.
            return self._member(literal(token.position, _number(self._advance(), "-")))
        operand = self._member(self._primary())
        if count % 2 == 0:
            return operand
        return self._transparent(call(token.position, "!_" if token.kind == "!" else "-_", operand), (operand,))

    def _member(self, node: Expr) -> Expr:
        while True:
            token = self.token
            if token.kind == ".":
                node = self._selection(node)
            elif token.kind == "[":
                self._advance()
                optional = self._accept("?")
                index = self.expression()
                self._expect("]")
                name = "_[?_]" if optional else "_[_]"
                node = self._count_height(call(token.position, name, node, index), node, index)
            else:
                self._untag(node)
                return node

    def _selection(self, operand: Expr) -> Expr:
        dot = self._advance()
        optional = self._accept("?")
        field = self._advance()
        if field.kind not in ("ident", "quoted"):
            raise SelectorSyntaxError(f"expected a field name, found {field.text!r}", field.position)
        name = field.text
        if field.kind == "quoted":
            name = name[1:-1]
        if optional:
            key = literal(field.position, name)
            node = call(dot.position, "_?._", operand, key)
            return self._count_height(node, operand)
        if self.token.kind == "(" and field.kind == "ident":
            parenthesis = self._advance()
            args = self._arguments(")")
            node = self._make_call(parenthesis.position, name, operand, args)
            return self._count_height(node, operand, *args)
        node = Expr("select", dot.position, name=name, args=(operand,))
        return self._count_height(node, operand)

    def _make_call(self, position: int, name: str, target: Expr | None, args: tuple[Expr, ...]) -> Expr:
        from dra.cel.macros import expand  # both need Expr; the parser is the one that is imported first

        expanded = expand(position, name, target, args)
        if expanded is not None:
            return expanded
        if target is None:
            return call(position, name, *args)
        operands = (target, *args)
        return call(position, name, *operands, member=True)

    def _arguments(self, end: str) -> tuple[Expr, ...]:
        args: list[Expr] = []
        if self._accept(end):
            return ()
        while True:
            args.append(self.expression())
            if not self._accept(","):
                self._expect(end)
                return tuple(args)

    @staticmethod
    def _untag(node: Expr) -> None:
        """A chain of && or || that was put in brackets does not grow any more."""
        if node.value == "chain" and node.kind == "call":
            node.value = None

    def _primary(self) -> Expr:
        token = self._advance()
        kind = token.kind
        if kind in ("int", "uint", "float"):
            return literal(token.position, _number(token, ""))
        if kind == "string":
            return literal(token.position, _unquote(token))
        if kind in ("true", "false"):
            return literal(token.position, kind == "true")
        if kind == "null":
            return literal(token.position, None)
        if kind == "(":
            node = self.expression()
            self._expect(")")
            return node
        if kind == "[":
            return self._list(token)
        if kind == "{":
            return self._map(token)
        return self._name(token)

    def _name(self, token: Token) -> Expr:
        leading = ""
        if token.kind == ".":
            leading, token = ".", self._advance()
        if token.kind != "ident":
            raise SelectorSyntaxError(f"unexpected {token.text!r}", token.position)
        if token.text in _RESERVED:
            raise SelectorSyntaxError(f"reserved identifier: {token.text}", token.position)
        if self.token.kind == "(":
            parenthesis = self._advance()
            args = self._arguments(")")
            return self._transparent(self._make_call(parenthesis.position, leading + token.text, None, args), args)
        return Expr("ident", token.position, name=leading + token.text)

    def _list(self, token: Token) -> Expr:
        args: list[Expr] = []
        optional: set[int] = set()
        while not self._accept("]"):
            if self._accept("?"):
                optional.add(len(args))
            args.append(self.expression())
            if not self._accept(","):
                self._expect("]")
                break
        node = Expr("list", token.position, args=tuple(args))
        node.optional = frozenset(optional)
        return self._transparent(node, node.args)

    def _map(self, token: Token) -> Expr:
        args: list[Expr] = []
        optional: set[int] = set()
        while not self._accept("}"):
            if self._accept("?"):
                optional.add(len(args))
            args.append(self.expression())
            self._expect(":")
            args.append(self.expression())
            if not self._accept(","):
                self._expect("}")
                break
        node = Expr("map", token.position, args=tuple(args))
        node.optional = frozenset(optional)
        return self._transparent(node, node.args)


def _number(token: Token, sign: str) -> Any:
    text = token.text
    if token.kind == "float":
        value = float(sign + text)
        if value in (float("inf"), float("-inf")):
            raise SelectorSyntaxError("invalid double literal", token.position)
        return value
    unsigned = token.kind == "uint"
    text = text[:-1] if unsigned else text
    try:
        number = int(sign + text, 16 if text.startswith("0x") else 10)
    except ValueError:  # more digits than Python reads
        number = 2**65
    if unsigned:
        if number >= 2**64:
            raise SelectorSyntaxError("invalid uint literal", token.position)
        return Uint(number)
    if not -(2**63) <= number < 2**63:
        raise SelectorSyntaxError("invalid int literal", token.position)
    return number
