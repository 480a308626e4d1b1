"""Counts what makes the code heavy: `make counts`. Run it before and after a change to see its cost.

Private functions are those of a module or class whose name begins with one underscore; one is used once if its module names it
once beside the definition. A chain is the longest way along imports between modules of one room.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

from docs.map import ROOMS

ROOT = Path(__file__).parent.parent
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
LAYOUT = {tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT, tokenize.ENDMARKER}
# Words of the project's own, for which Kubernetes has a word or a plain one exists.
WORDS = [
    "gate",
    "fence",
    "door",
    "gist",
    "alike",
    "bell",
    "house",
    "guest",
    "purse",
    "upkeep",
    "nobody",
    "somebody",
    "whoever",
    "pressing",
]


def main() -> None:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    files = [path for room in ROOMS for path in sorted((root / room).rglob("*.py"))]
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in files}
    lines = {path: path.read_text(encoding="utf-8").count("\n") for path in files}
    print(f"product Python: {sum(lines.values()):,} lines in {len(files)} files")
    for room in ROOMS:
        own = {path: count for path, count in lines.items() if path.is_relative_to(root / room)}
        if own:
            found, _, once = private({path: trees[path] for path in own})
            print(
                f"  {room:<10} {sum(own.values()):>7,} lines, longest chain of imports {chain(root, own):>2}, "
                f"{once} of {found} functions private and used once ({100 * once / found:.0f} %)"
            )
    for other in ("tests", "e2e", "bench"):
        print(f"{other}: {sum(p.read_text().count(chr(10)) for p in (root / other).rglob('*.py')):,} lines")
    print(f"Go: {sum(p.read_text().count(chr(10)) for p in (root / 'bridge').rglob('*.go')):,} lines in bridge/")
    of_functions(trees)
    of_names(trees)
    of_words(root, files)
    of_docs(root)
    of_messages(root)


def private(trees: dict[Path, ast.Module]) -> tuple[int, int, int]:
    """Count functions, those that are private, and those of them that are used exactly once."""
    found = hidden = once = 0
    for tree in trees.values():
        nodes = list(ast.walk(tree))
        used = Counter(one.id for one in nodes if isinstance(one, ast.Name))
        used.update(one.attr for one in nodes if isinstance(one, ast.Attribute))
        names = [one.name for one in nodes if isinstance(one, FUNCTIONS)]
        own = [name for name in names if re.match(r"_[a-z]", name)]
        found, hidden, once = found + len(names), hidden + len(own), once + sum(used[name] == 1 for name in own)
    return found, hidden, once


def of_functions(trees: dict[Path, ast.Module]) -> None:
    lengths: list[int] = []
    tokens = comprehensions = lines = 0
    for path, tree in trees.items():
        source = path.read_text(encoding="utf-8")
        lines += source.count("\n")
        comprehensions += sum(isinstance(node, COMPREHENSIONS) for node in ast.walk(tree))
        by_line = tokens_by_line(source)
        for node in ast.walk(tree):
            if isinstance(node, FUNCTIONS):
                counted = [by_line[line] for line in range(node.lineno, (node.end_lineno or 0) + 1) if by_line[line]]
                lengths.append(len(counted))
                tokens += sum(counted)
    found, hidden, once = private(trees)
    lengths.sort()
    print(
        f"functions: {found:,}; lines of code median {lengths[found // 2]}, p95 {lengths[int(found * 0.95)]}, most {lengths[-1]}"
    )
    print(f"private functions: {hidden:,}; used exactly once: {once:,} ({100 * once / found:.0f} % of all functions)")
    print(
        f"tokens a line in functions: {tokens / sum(lengths):.2f}; comprehensions per 1,000 lines: {1000 * comprehensions / lines:.0f}"
    )


def of_names(trees: dict[Path, ast.Module]) -> None:
    classes, functions = Counter(), Counter()
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name.lstrip("_")] += 1
            elif isinstance(node, FUNCTIONS):
                functions[node.name] += 1
    twice = sorted(name for name, count in classes.items() if count > 1)
    print(f"class names that stand more than once: {len(twice)}")
    print(
        "  functions named "
        + ", ".join(f"{name} {functions[name]}" for name in ("read", "run", "look", "best", "serve"))
    )


def of_words(root: Path, files: list[Path]) -> None:
    texts = [*files, *(root / "docs").glob("*.md"), root / "README.md"]
    found = Counter(re.findall(r"[a-z]+", " ".join(path.read_text(encoding="utf-8").lower() for path in texts)))
    print("words: " + ", ".join(f"{word} {found[word] + found[word + 's']}" for word in WORDS))


def of_docs(root: Path) -> None:
    """Count the words of the pages that people write and of those that are generated, and lines over 120 characters."""
    pages = {path: path.read_text(encoding="utf-8") for path in [*(root / "docs").glob("*.md"), *root.glob("*.md")]}
    words = {path.name: len(text.split()) for path, text in pages.items()}
    made = {
        name: words.pop(name, 0)
        for name in ("kinds.md", "messages.md", "vocabularies.md", "findings.md", "metrics.md", "CHANGELOG.md")
    }
    long = sum(len(line) > 120 for path, text in pages.items() if path.name in words for line in text.splitlines())
    print(f"words of {len(words)} pages: {sum(words.values()):,}; lines over 120 characters: {long}")
    print("  longest: " + ", ".join(f"{name} {words[name]:,}" for name in sorted(words, key=words.__getitem__)[:-6:-1]))
    print("  generated, and the changelog: " + ", ".join(f"{name} {count:,}" for name, count in made.items()))


def of_messages(root: Path) -> None:
    """Count messages, and those of more than 25 words."""
    sys.path.insert(0, str(ROOT))
    from docs import messages

    said = [one for _, found in messages.collected(root) for one in found]
    print(f"messages: {len(said):,}; of more than 25 words: {sum(len(one.split()) > 25 for one in said)}")


def tokens_by_line(source: str) -> Counter[int]:
    """Tokens of each line, without comments and docstrings; a string is one token, whatever is in its braces."""
    counts: Counter[int] = Counter()
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if depth == 0 and token.type not in LAYOUT:
            counts[token.start[0]] += 1
        depth += token.type == getattr(tokenize, "FSTRING_START", None)
        depth -= token.type == getattr(tokenize, "FSTRING_END", None)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Module)) and ast.get_docstring(node) is not None:
            for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1):
                del counts[line]
    return counts


def chain(root: Path, files: dict[Path, int]) -> int:
    """Count the modules on the longest way along imports inside a room; those for type checkers load nothing."""
    names = {".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path for path in files}
    uses: dict[str, set[str]] = defaultdict(set)
    for name, path in names.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in runtime_nodes(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    uses[name].add(full if full in names else node.module)

    @cache
    def depth(name: str) -> int:
        return 1 + max((depth(other) for other in uses[name] if other in names and other != name), default=0)

    try:
        return max(map(depth, names))
    except RecursionError:
        return -1


def runtime_nodes(tree: ast.Module) -> list[ast.AST]:
    """Statements of a module that run when it is imported."""
    return [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]


if __name__ == "__main__":
    main()
