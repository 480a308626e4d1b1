"""The lexer and the parser (github.com/google/cel-go/parser).

The grammar is CEL's with the optional syntax (`a.?b`, `a[?b]`, `{?k: v}`). As in Go, macros are expanded while parsing
(`dra.cel.macros`), and each rule of the grammar can be nested at most 250 times. The height of the tree is limited as
well.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from dra.cel.macros import expand
from dra.cel.tree import Expr, call, height_of, literal, too_deep
from dra.cel.values import Uint
from dra.errors import SelectorSyntaxError

MAX_LENGTH = 10 * 1024
MAX_RULE_DEPTH = 250

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

_RESERVED = re.compile(
    "as|break|const|continue|else|false|for|function|if|import|in|let|loop|package|namespace|null|return|true|var|void|while"
).fullmatch
_KEYWORDS = frozenset(("true", "false", "null", "in"))


class Token(NamedTuple):
    """A token of an expression: its kind, its text and its offset."""

    kind: str
    text: str
    position: int


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
    text = token.text.replace("\r\n", "\n").replace("\r", "\n")
    is_bytes = text[0] in "bB"
    text = text[is_bytes:]
    raw = text[0] in "rR"
    text = text[raw:]
    quotes = 3 if len(text) >= 6 and text[:3] in ('"""', "'''") else 1
    text = text[quotes:-quotes]
    if raw or "\\" not in text:
        return text.encode() if is_bytes else text
    if not is_bytes:
        return _ESCAPE.sub(lambda match: _unescape(match, token.position), text)
    parts: list[bytes] = []
    end = 0
    for match in _ESCAPE.finditer(text):
        parts.append(text[end : match.start()].encode())
        end = match.end()
        if match[2] or match[3]:
            raise SelectorSyntaxError("bytes cannot have unicode escapes", token.position)
        if match[1] or match[4]:
            parts.append(bytes([int(match[1], 16) if match[1] else int(match[4], 8)]))
        else:
            parts.append(_unescape(match, token.position).encode())
    return b"".join([*parts, text[end:].encode()])


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


# ---- Parser --------------------------------------------------------------------------------------------------------

_BINARY = {
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!=", "in"), 3),
    "+": 4, "-": 4, "*": 5, "/": 5, "%": 5, "&&": 2, "||": 1,
}  # fmt: skip
_OPERATOR = {op: f"_{op}_" for op in _BINARY} | {"in": "@in"}


def parse(text: str) -> Expr:
    """Parse a text into a tree with all macros expanded."""
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


class _Parser:
    """Parses brackets and `?:` by recursive descent, and binary operators with a stack of operators."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._next = 0
        self.token = self._tokens[0]
        self._depth = 0  # the nesting of brackets and right-hand sides of `?:`
        # The depth of Go's visitor below each node that it counts (operators, selections, calls on a target).
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
            raise too_deep(node.position)
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
        """Parse an expression of any kind; the lowest precedence is `?:`."""
        self._depth += 1
        if self._depth > MAX_RULE_DEPTH:
            raise too_deep(self.token.position)
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
            operands.append(self._count_height(call(token.position, name, left, right), left, right))
            return
        # `a && b && c` becomes one node with three arguments. A chain in brackets stays a node of its own.
        parts: tuple[Expr, ...] = left, right
        if left.kind == "call" and left.name == name and left.value == "chain":
            parts = *left.args, right
        node = Expr("call", token.position, name=name, args=parts, value="chain")
        operands.append(self._transparent(node, parts))

    def _unary(self) -> Expr:
        token = self.token
        if token.kind not in ("!", "-"):
            return self._member(self._primary())
        count = 0
        while self.token.kind == token.kind:
            count += 1
            self._advance()
        if token.kind == "-" and count == 1 and self.token.kind in ("int", "float"):
            # A single minus sign belongs to the number: -9223372036854775808 is an int, and 9223372036854775808 is not.
            return self._member(literal(token.position, _number(self._advance(), "-")))
        operand = self._member(self._primary())
        if count % 2 == 0:
            return operand
        return self._transparent(call(token.position, "!_" if token.kind == "!" else "-_", operand), (operand,))

    def _member(self, node: Expr) -> Expr:
        while self.token.kind in (".", "["):
            sign, operand = self._advance(), node
            optional = self._accept("?")
            if sign.kind == "[":
                index = self.expression()
                self._expect("]")
                node = call(sign.position, "_[?_]" if optional else "_[_]", operand, index)
                self._count_height(node, operand, index)
                continue
            field = self._advance()
            if field.kind not in ("ident", "quoted"):
                raise SelectorSyntaxError(f"expected a field name, found {field.text!r}", field.position)
            name = field.text if field.kind == "ident" else field.text[1:-1]
            args: tuple[Expr, ...] = ()
            if optional:
                node = call(sign.position, "_?._", operand, literal(field.position, name))
            elif self.token.kind == "(" and field.kind == "ident":
                parenthesis = self._advance()
                args = self._arguments(")")
                node = self._make_call(parenthesis.position, name, operand, args)
            else:
                node = Expr("select", sign.position, name=name, args=(operand,))
            self._count_height(node, operand, *args)
        if node.value == "chain" and node.kind == "call":
            node.value = None  # a chain in brackets does not grow
        return node

    def _make_call(self, position: int, name: str, target: Expr | None, args: tuple[Expr, ...]) -> Expr:
        expanded = expand(position, name, target, args)
        if expanded is not None:
            return expanded
        return call(position, name, *args) if target is None else call(position, name, target, *args, member=True)

    def _arguments(self, end: str) -> tuple[Expr, ...]:
        args: list[Expr] = []
        if self._accept(end):
            return ()
        while True:
            args.append(self.expression())
            if not self._accept(","):
                self._expect(end)
                return tuple(args)

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
            return self._collection(token, "list", "]")
        if kind == "{":
            return self._collection(token, "map", "}")
        leading = ""
        if token.kind == ".":
            leading, token = ".", self._advance()
        if token.kind != "ident":
            raise SelectorSyntaxError(f"unexpected {token.text!r}", token.position)
        if _RESERVED(token.text):
            raise SelectorSyntaxError(f"reserved identifier: {token.text}", token.position)
        if self.token.kind == "(":
            parenthesis = self._advance()
            args = self._arguments(")")
            return self._transparent(self._make_call(parenthesis.position, leading + token.text, None, args), args)
        return Expr("ident", token.position, name=leading + token.text)

    def _collection(self, token: Token, kind: str, end: str) -> Expr:
        args: list[Expr] = []
        optional: set[int] = set()
        while not self._accept(end):
            if self._accept("?"):
                optional.add(len(args))
            args.append(self.expression())
            if kind == "map":
                self._expect(":")
                args.append(self.expression())
            if not self._accept(","):
                self._expect(end)
                break
        node = Expr(kind, token.position, args=tuple(args), optional=frozenset(optional))
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
    except ValueError:  # more digits than Python parses
        number = 2**65
    if unsigned:
        if number >= 2**64:
            raise SelectorSyntaxError("invalid uint literal", token.position)
        return Uint(number)
    if not -(2**63) <= number < 2**63:
        raise SelectorSyntaxError("invalid int literal", token.position)
    return number
