"""Reads manifests from files and streams into lists of objects, and writes objects as YAML.

A file is read as by `kubectl -f` (k8s.io/apimachinery/pkg/util/yaml, k8s.io/cli-runtime/pkg/resource): it is split at lines that
begin with `---`, a text that begins with `{` is first tried as a stream of JSON objects, Lists are flattened. Whatever kubectl drops
silently is an error here, or is recorded (`Document.duplicates`).

Objects are not validated: one without a kind is passed on unchanged. All malformed documents are reported, not only the first.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from cluster.manifests import json_reader as jsontext
from cluster.manifests import yaml_reader as yamltext
from cluster.manifests.ignore import FILE as IGNORE_FILE
from cluster.manifests.ignore import IgnorePattern, is_excluded, patterns
from cluster.manifests.places import LeadsOut, UnreadFile, bounds, opened, settled, walk
from cluster.manifests.templates import FORMAT, is_of_chart, is_unrendered
from cluster.manifests.yaml_reader import DepthError, YamlError
from cluster.manifests.yaml_writer import dump as _dump

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from typing import BinaryIO

# A snapshot of thousands of nodes has tens of MiB.
MAX_BYTES: Final = 512 << 20
PART_BYTES: Final = 1 << 20
MAX_PATTERNS: Final = 1_000  # lines of an ignore file; each pattern is matched with each file
MAX_OBJECTS: Final = 200_000  # more than the pods of the largest clusters
# Lines, and members within a line; each takes 100 to 200 bytes of memory if objects are kept whole.
MAX_MEMBERS: Final = 10_000_000
# The limit if little is kept of each object: 60,000 pods as kubectl writes them have some ten million members.
MAX_MEMBERS_CUT_DOWN: Final = 50_000_000
ENDINGS: Final = (".yaml", ".yml", ".json")

# Reduces an object to the part that is kept.
Keep = Callable[[dict[str, Any]], dict[str, Any]]
# The comment that `helm template` writes before every document.
_SOURCE: Final = re.compile(rb"\s*# Source: ([^\r\n]+)")
_SEPARATOR: Final = re.compile(rb"^---([^\n]*)(?:\n|\Z)", re.MULTILINE)
# A text that begins like this is meant as JSON, so its errors are reported as those of JSON.
_JSON_LIKE: Final = re.compile(rb"""\s*\{\s*(?:"|\})""")


# Matches templates, which need not be YAML: an action `{{` outside of quotes, an action that repeats the quotes around it
# (`"{{ get "x" }}"`, as in Helm), or a directive of Terraform or Jinja.
def _template_pattern() -> re.Pattern[bytes]:
    closed, broken = [], []
    for quote in "\"'":
        action = rf"\{{\{{(?>[^{quote}\n}}]+|\}}(?!\}}))*+"
        text = rf"{quote}(?>[^{quote}\n{{]+|{action}\}}\}}|\{{(?!\{{))*+"
        closed.append(text + quote)
        broken.append(text + action + quote)
    pieces = "|".join((r"[^\"'#\n{]+", *closed, r"\{(?!\{)"))
    begins = "|".join((r"\{\{", *broken))
    # A substitution of Sphinx: a value `|name|`.
    directives = r"%\{~? *(?:if|for)\b|^[ \t]*\{%[-+~]? *[a-z]+\b|[:-][ \t]+\|[A-Za-z][\w-]*+\|[ \t]*$"
    # A placeholder that begins a value, and for which the parser fails: `@@IMAGE@@`, `%IMAGE%`, `{user}/image`.
    directives += r"|[:-][ \t]+(?:@@\w++@@|%\w++%|\{\w++\}[^ \t\r\n#,}\]])"
    return re.compile(rf"^(?>{pieces})*+(?:{begins})|{directives}".encode(), re.MULTILINE)


_TEMPLATE: Final = _template_pattern()
_UNRENDERED: Final = "this is a template that was not rendered"
_RENDER: Final = "this looks like a template: render it first (helm template, kustomize build)"
# Keys of a manifest: at the top in YAML, anywhere in JSON.
_KIND_KEY: Final = re.compile(rb"""^kind:|"kind" ?:""", re.MULTILINE)
_BODY_KEY: Final = re.compile(rb"""^(?:metadata|spec):|"(?:metadata|spec)" ?:""", re.MULTILINE)
# Folders of packages and of tools. They hold no manifests of the repository.
FOREIGN_FOLDERS: Final = frozenset((".git", ".terraform", ".venv", "node_modules"))
# At the end of a List, as kubectl writes it.
_LISTED: Final = b"\nkind: List\n"
# A value that ends before its line does, as YAML reads it: `{user}/image`, `"a" b`.
_ENDS_HERE: Final = re.compile(r"""[:-][ \t]+(?:\{[^{}]*\}|\[[^\[\]]*\]|"[^"]*"|'[^']*')[ \t]*$""")
# A key that is an expression in parentheses.
_EXPRESSION: Final = re.compile(rb"^[ -]*[\"']?\(.*\)[\"']? *:", re.MULTILINE)
# A key or an entry of a list whose value is a text on the next lines.
_BLOCK: Final = re.compile(rb"[:-][ \t]+\|[-+\d]*[ \t]*(?:#.*)?\r?$")
# A word that is a boolean in YAML 1.1 and a text in YAML 1.2.
_WORD: Final = re.compile(rb"[ \[,:-](?:on|off|yes|no|y|n)[ \t]*(?:[\r\n,#}\]]|\Z)", re.IGNORECASE)
# A mark of a merge conflict.
_CONFLICT: Final = re.compile(rb"^(?:<{7}|>{7}) ", re.MULTILINE)
# Parts of the parser's messages, and their remedies; the first part that a message contains counts.
_REMEDIES: Final = (
    ("cannot start any token", "indent with spaces, not tabs, and quote values that begin with @, ` or %"),
    ("found a tab character", "indent with spaces, not tabs"),
    ("unknown escape character", "write a backslash in double quotes twice, or use single quotes"),
    ("while scanning an alias", "quote a value that begins with *"),
    ("while scanning an anchor", "quote a value that begins with &"),
    (
        "expected comment or line break",
        "quote a value that begins with | or >; a text of several lines begins on the next line",
    ),
    ("mapping values are not allowed", "check the indentation of this line, and quote values that hold `: `"),
    ("could not find expected ':'", "check the indentation, and that every key has a colon with a space after it"),
    ("did not find expected key", "check the indentation of this line and of the one before it"),
    ("did not find expected '-' indicator", "check the indentation of this line: its list began in another column"),
    ("did not find expected ',' or", "a bracket or brace is not closed before this line"),
    ("unexpected end of stream", "a quote or bracket is never closed: is the file cut off?"),
    ("control characters are not allowed", "remove the control character, or write it as an escape in double quotes"),
)


@dataclass(frozen=True, slots=True)
class InputProblem:
    """An error of reading: the place, the problem and the remedy; `apparent_kind` is the guessed kind of a file that is not a manifest.

    `text` is the document that cannot be read, where there is one, and `first_line` the line on which it begins.
    """

    file: str
    message: str
    remedy: str = ""
    line: int = 0
    column: int = 0
    pointer: str = ""
    apparent_kind: Literal["", "template", "other"] = ""
    is_no_text: bool = False
    text: bytes = field(default=b"", repr=False, compare=False)
    first_line: int = field(default=1, repr=False, compare=False)

    def __str__(self) -> str:
        where = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        pointer = f" at {self.pointer}" if self.pointer else ""
        remedy = f" ({self.remedy})" if self.remedy else ""
        return f"{where}: {self.message}{pointer}{remedy}"


class ManifestError(Exception):
    """Some input is not a manifest. Holds every problem of all input."""

    def __init__(self, problems: Iterable[InputProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True)
class _DocumentText:
    """The text of one document, kept to find line numbers for the few objects that need them."""

    data: bytes = field(repr=False)
    first_line: int
    duplicates: tuple[tuple[str, int], ...] | None
    root: str = ""
    home: str = ""  # the file from which it was rendered
    is_kept: bool = False  # whether the items of its List are reduced already

    @property
    def source(self) -> str:
        """The file named in the renderer's comment; restricted to the current folder, because the text may be untrusted."""
        match = _SOURCE.match(self.data)
        path = match.group(1).decode(errors="replace").strip() if match else ""
        path = "" if path.startswith("/") or ".." in path else path
        if not self.home:
            return path
        # Helm's path begins with the chart's name, which can differ from the name of its folder.
        inside = path.partition("/")[2]
        return str(Path(self.home).parent / inside) if inside else self.home

    @cached_property
    def begin(self) -> tuple[int, int]:
        return yamltext.begin(self.data, self.first_line)

    @cached_property
    def positions(self) -> dict[str, tuple[int, int]]:
        return yamltext.positions(self.data, self.first_line)

    @cached_property
    def _lines(self) -> list[bytes]:
        return self.data.split(b"\n")

    def positions_in_text(self, line: int) -> dict[str, tuple[int, int]]:
        """Return the positions in the block of text (`key: |`) that begins on a line; none if no block does."""
        row = line - self.first_line
        if not _BLOCK.search(self._lines[row]):
            return {}
        lines = self._lines[row + 1 :]
        content = next((other for other in lines if other.strip()), b"")
        indent = len(content) - len(content.lstrip(b" "))
        block = takewhile(lambda other: not other.strip() or other.startswith(content[:indent]), lines)
        text = b"\n".join([other[indent:] for other in block])
        return {place: (row, column + indent) for place, (row, column) in yamltext.positions(text, line + 1).items()}

    @cached_property
    def repeated(self) -> tuple[tuple[str, int], ...]:
        """The duplicate keys. JSON is read by a faster parser, and searched for duplicates only on demand."""
        if self.duplicates is not None:
            return self.duplicates
        return tuple((name, self.first_line) for name in jsontext.duplicates(self.data))


class Overlay(NamedTuple):
    """A text that has parts of an object that is made from several: by pointers in the object, the pointers in the text."""

    document: Document
    pointers: Mapping[str, str]
    is_patch: bool = True


@dataclass(frozen=True)
class Document:
    """One object and its place. `index` counts all objects of one reading."""

    object: dict[str, Any]
    file: str
    index: int
    _text: _DocumentText = field(repr=False, compare=False)
    _inside: str = field(default="", repr=False)  # the pointer of this object in its text, for items of Lists
    # What kustomize, Flux and Argo CD change (`analysis.gitops`): the namespace, and values in a text, which are parsed.
    namespace: str = field(default="", repr=False)
    with_values: dict[str, Any] | None = field(default=None, repr=False)
    # Of an object that kustomize makes: the file that it is in, if any, and the patches.
    patches: tuple[Overlay, ...] = field(default=(), repr=False)

    @property
    def line(self) -> int:
        return self.line_of("")

    @property
    def is_placed(self) -> bool:
        """Whether kustomize, Flux or Argo CD read the object otherwise than it is written."""
        return bool(self.namespace) or self.with_values is not None

    @property
    def placed(self) -> dict[str, Any]:
        """The object as kustomize, Flux or Argo CD read it."""
        obj = self.object if self.with_values is None else self.with_values
        metadata = obj.get("metadata")
        if not self.namespace or not isinstance(metadata, dict):
            return obj
        return {**obj, "metadata": {**metadata, "namespace": self.namespace}}

    @property
    def first_line(self) -> int:
        """The line on which the document's text begins, available without parsing. For an item of a List, the line of the List."""
        return self._text.first_line

    @property
    def origin(self) -> tuple[str, int]:
        """The file and line at which the document's text begins, as in `place_of` but available without parsing."""
        if self.patches:
            return self.patches[-1].document.origin
        source = self._text.source if self.file == "-" or self._text.home else ""
        return (source, 1) if source else (self.file, self.first_line)

    @property
    def root(self) -> str:
        """The folder that the path of the file must not leave by a link (from `bounds`, or the named folder); "" if there is none."""
        return self._text.root

    @property
    def is_item(self) -> bool:
        return bool(self._inside)

    @property
    def is_json(self) -> bool:
        return self._text.data.lstrip().startswith(b"{")

    @property
    def line_count(self) -> int:
        return self._text.data.count(b"\n")

    @property
    def text(self) -> str:
        """The text of the document; for an item of a List, and if the text is not kept, the object as JSON."""
        data = b"" if self._inside or self.patches else self._text.data
        return data.decode() if data else json.dumps(self.object)

    def is_text(self, text: str) -> bool:
        """Whether the document was read from this text."""
        return self._text.data.strip() == text.encode().strip()

    def place_of(self, pointer: str) -> tuple[str, int, int]:
        """File, line and column of a pointer; for a rendered object, in the source file."""
        document, at = self.written_at(pointer)
        if document is not self:
            return document.place_of(at)
        source = self._text.source if self.file == "-" or self._text.home else ""
        return (source, 1, 1) if source else (self.file, *self.position_of(pointer))

    def written_at(self, pointer: str) -> tuple[Document, str]:
        """Return the text that has a part of the object, and the pointer in it: that of the last patch, or of the object."""
        of_part = (
            (overlay.document, overlay.pointers[pointer])
            for overlay in reversed(self.patches)
            if pointer in overlay.pointers
        )
        return next(of_part, (replace(self, patches=()), pointer) if self.patches else (self, pointer))

    def is_patched(self, pointer: str) -> bool:
        """Return whether a part of the object stands in a patch."""
        return any(overlay.is_patch and pointer in overlay.pointers for overlay in self.patches)

    def line_of(self, pointer: str) -> int:
        """Return the line of a JSON pointer into the object, or of its nearest written parent."""
        return self.position_of(pointer)[0]

    def position_of(self, pointer: str) -> tuple[int, int]:
        """Return line and column of a JSON pointer into the object, or of its nearest written parent. A text in the object may be YAML, too."""
        document, written = self.written_at(pointer)
        if document is not self:
            return document.position_of(written)
        whole_pointer = self._inside + pointer
        parent = _nearest(whole_pointer, self._text.positions) if whole_pointer else ""
        if not parent:
            return self._text.begin
        at = self._text.positions[parent]
        in_text = self._text.positions_in_text(at[0]) if parent != whole_pointer else {}
        return in_text.get(_nearest(whole_pointer.removeprefix(parent), in_text), at)

    @property
    def duplicates(self) -> tuple[tuple[str, int], ...]:
        """The duplicate keys with their lines. The later key counts, as for kubectl."""
        return () if self._inside not in ("", "/items/0") else self._text.repeated

    @property
    def has_expressions(self) -> bool:
        """Whether a key of the text is an expression in parentheses: then it is what a test of Chainsaw expects of an object."""
        data = self._text.data
        return bool(_EXPRESSION.search(data)) and _has_expression(yamltext.load(data, 1)[0])

    def read_like_kustomize(self) -> Document:
        """Return the document as kustomize reads it as a resource: unlike kubectl, it takes `on` and `yes` for texts."""
        data = self._text.data
        if self._inside or not _WORD.search(data):
            return self
        return replace(self, object=yamltext.load_like_kustomize(data))

    @property
    def run_together(self) -> int:
        """The line of a second `kind` in this object, because `---` before a second object is missing; 0 if there is none."""
        lines = [line for key, line in self._text.duplicates or () if key == "kind"]
        return lines[0] if lines and self._inside in ("", "/items/0") else 0


def _nearest(pointer: str, positions: Collection[str]) -> str:
    """Return the longest beginning of a pointer that has a position; "" if none has."""
    while pointer and pointer not in positions:
        pointer = pointer.rpartition("/")[0]
    return pointer


def read(paths: Iterable[str | Path]) -> list[Document]:
    """Read files, directories and `-` (standard input) in order; raise ManifestError with all problems."""
    documents, problems = read_leniently(paths)
    if problems:
        raise ManifestError(problems)
    return documents


def read_leniently(
    paths: Iterable[str | Path],
    *,
    exclude: Iterable[str] = (),
    outside: Callable[[str], tuple[bytes, str] | None] | None = None,
    keep: Keep | None = None,
    report: Callable[[str], None] | None = None,
) -> tuple[list[Document], list[InputProblem]]:
    """Read like `read`, but return the readable objects and the problems of the rest.

    `exclude` has patterns of files to skip below directories; `outside` returns the text of rendered input and the file it was rendered
    from. `keep` reduces each object; then documents and the items of a List are read one by one, without line numbers. `report` is
    called for each link, pipe, socket or device that is skipped.
    """
    documents: list[Document] = []
    problems: list[InputProblem] = []
    excluded = patterns(exclude)
    members = 0
    read_files: set[str] = (
        set()
    )  # the files that were read: a file that is named twice, or is below a folder that is named too, is read once
    limit = MAX_MEMBERS if keep is None else MAX_MEMBERS_CUT_DOWN
    for path in dict.fromkeys(map(str, paths)):
        try:
            built = outside(path) if outside else None
            if built is not None:
                text, home = built
                _collect(text, path, documents, problems, keep, home=home)
            for name, data, root in () if built is not None else _contents(path, excluded, report):
                absolute = os.path.normpath(Path(name).absolute())
                if absolute in read_files:
                    continue
                read_files.add(absolute)
                members += sum(map(data.count, (b"\n", b",", b"{", b"[")))
                if members > limit:
                    reason = f"is not read: with this file, the input has more than {limit:,} lines and members"
                    problems.append(InputProblem(name, reason, "name fewer files at a time"))
                    return documents, problems
                _collect(data, name, documents, problems, keep, root=root)
                if len(documents) > MAX_OBJECTS:
                    break
        except ManifestError as error:
            problems.extend(error.problems)
        if len(documents) > MAX_OBJECTS:
            last = documents.pop()
            problems.append(
                InputProblem(
                    last.file,
                    f"is read up to here: the input has more than {MAX_OBJECTS:,} objects",
                    "name fewer files at a time",
                    last.first_line,
                )
            )
            break
    return documents, problems


def value_of(text: str) -> Any:
    """Return the value of the first document in a text of YAML; None if it cannot be read."""
    try:
        return yamltext.load(text.encode())[0]
    except YamlError:
        return None


def document_of(problem: InputProblem) -> Document:
    """Return a text that is no object, such as a list of operations, as a document without an object."""
    return Document({}, problem.file, -1, _DocumentText(problem.text, problem.first_line, ()))


def parse(data: bytes | str, file: str = "-") -> list[Document]:
    documents: list[Document] = []
    problems: list[InputProblem] = []
    _collect(data.encode() if isinstance(data, str) else data, file, documents, problems)
    if problems:
        raise ManifestError(problems)
    return documents


def dump(objects: Iterable[dict[str, Any]], list_indent: str = "") -> str:
    """Write objects as one YAML text that kubectl reads back as the same objects."""
    return "---\n".join(_dump(obj, list_indent) for obj in objects)


def _contents(
    path: str, exclude: Sequence[IgnorePattern], report: Callable[[str], None] | None
) -> Iterator[tuple[str, bytes, str]]:
    """Yield the name, the bytes and the containing folder of each file that a path names."""
    if path == "-":
        yield "-", _read_bounded(sys.stdin.buffer, "-"), ""
        return
    if "\0" in path:
        raise ManifestError([InputProblem(path, "a path cannot contain a NUL character", "name a file, a folder or -")])
    problems: list[InputProblem] = []
    try:
        root = bounds(path)
        if root:
            settled(path, root)
        if not Path(path).is_dir():
            yield path, _bytes(path, root), root
            return
        root = str(Path(path).resolve(strict=True))
        ignore = Path(path) / IGNORE_FILE
        if os.path.lexists(ignore):
            lines = _bytes(str(ignore), root, PART_BYTES, regular=True).decode(errors="replace").splitlines()
            if len(lines) > MAX_PATTERNS:
                reason = f"has {len(lines):,} lines, and {MAX_PATTERNS:,} is the maximum"
                raise ManifestError([InputProblem(str(ignore), reason, "name folders instead of files")])
            exclude = [*exclude, *patterns(lines)]
        names = _below(path, root, exclude, problems, report)
    except OSError as error:
        raise ManifestError([_unreadable(path, error)]) from error
    if not names and not problems:
        remedy = f"the directory has no {', '.join(f'*{e}' for e in ENDINGS)}"
        raise ManifestError([InputProblem(path, "no manifests in this directory", remedy)])
    remaining = MAX_BYTES
    for name in names:
        try:
            data = _bytes(name, root, remaining, regular=True)
            remaining -= len(data)
        except OSError as error:
            problems.append(_unreadable(name, error))
        except ManifestError as error:
            problems.extend(error.problems)
        else:
            yield name, data, root
    if problems:
        raise ManifestError(problems)


def _bytes(path: str, root: str, limit: int = MAX_BYTES, *, regular: bool = False) -> bytes:
    with os.fdopen(opened(path, root, regular=regular), "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        return _read_bounded(file, path, size, limit)


def _read_bounded(file: BinaryIO, name: str, size: int = 0, most: int = MAX_BYTES) -> bytes:
    """Read a file up to the limit, which all files of a folder share, because reading a device would not end.

    A file of known `size` is read in one piece.
    """
    parts: list[bytes] = []
    length = 0
    ahead = size if size <= most else 0
    while part := file.read(ahead or PART_BYTES):
        ahead = 0
        parts.append(part)
        length += len(part)
        if max(length, size) > most:
            limit = f"{MAX_BYTES >> 20} MiB"
            reason = (
                f"is larger than {limit}"
                if most == MAX_BYTES
                else f"the manifests of this folder are larger than {limit}"
            )
            raise ManifestError([InputProblem(name, reason, "name a manifest, or split the file")])
    return b"".join(parts)


def _below(
    directory: str,
    root: str,
    exclude: Sequence[IgnorePattern],
    problems: list[InputProblem],
    report: Callable[[str], None] | None,
) -> list[str]:
    """List the manifests below a directory in bytewise order of their paths; an unreadable folder is a problem."""

    def note(error: OSError) -> None:
        problems.append(_unreadable(directory, error))

    paths = []
    for parent, folders, files in walk(directory, note):
        # The files of a mounted ConfigMap are links into a folder `..<time>`, which is skipped.
        relative = Path(parent).relative_to(directory)
        folders[:] = [
            name
            for name in folders
            if not name.startswith("..")
            and not _is_foreign(Path(parent) / name)
            and not is_excluded((relative / name).as_posix(), exclude, folder=True)
        ]
        if report:
            for name in folders:
                try:
                    settled(str(Path(parent) / name), root)
                except LeadsOut:
                    report(f"{Path(parent) / name}: a link that leads out of the folder is skipped")
                except OSError:
                    continue
        for name in files:
            if not name.endswith(ENDINGS) or is_excluded((relative / name).as_posix(), exclude):
                continue
            path = Path(parent) / name
            try:
                settled(str(path), root)
                mode = path.stat().st_mode
            except OSError as error:  # a link whose target does not exist, or is outside of the folder
                if report and isinstance(error, FileNotFoundError):
                    report(f"{path}: a link that leads nowhere is skipped")
                else:
                    problems.append(_unreadable(str(path), error))
                continue
            # Only files: reading a pipe that lies in a directory would wait forever.
            if stat.S_ISREG(mode):
                paths.append(str(path))
            elif report and not stat.S_ISDIR(mode):
                report(f"{path}: a pipe, socket or device is skipped")
    return sorted(paths, key=os.fsencode)


def _is_foreign(folder: Path) -> bool:
    """Whether a folder holds packages of others; Go's vendored ones are listed in `modules.txt`."""
    return folder.name in FOREIGN_FOLDERS or (folder.name == "vendor" and (folder / "modules.txt").is_file())


def _unreadable(path: str, error: OSError) -> InputProblem:
    remedy = {
        FileNotFoundError: "correct the path, or create the file",
        PermissionError: "make the file readable for this user",
        LeadsOut: "name the target of the link, or leave it out with --exclude",
        UnreadFile: "rename the file or folder, or leave it out with --exclude",
    }.get(type(error), "")
    return InputProblem(error.filename or path, f"cannot be read: {error.strerror or error}", remedy)


def _collect(
    data: bytes,
    file: str,
    documents: list[Document],
    problems: list[InputProblem],
    keep: Keep | None = None,
    *,
    root: str = "",
    home: str = "",
) -> None:
    """Add the objects of one file to the documents, and its problems to the problems."""
    has_braces, has_format = not home and b"{{" in data, not home and FORMAT.search(data) is not None
    if has_braces and is_of_chart(file):
        problems.append(InputProblem(file, _UNRENDERED, _RENDER, 1, apparent_kind="template", text=data))
        return
    listed = jsontext.items(data) if keep is not None and data.startswith(b"{") else None
    if keep is not None and listed is not None:
        # Each item is reduced before the next is read, and the text is not kept.
        nowhere = _DocumentText(b"", 1, ())
        for index, value in enumerate(listed):
            inside = f"/items/{index}"
            if not isinstance(value, dict):
                is_broken = isinstance(value, jsontext.JsonError)
                message = value.message if is_broken else "an item of a List must be an object"
                problems.append(InputProblem(file, message, "", 1, 0, inside))
                continue
            for below, item in _flatten(value, file, nowhere, problems):
                documents.append(Document(keep(item), file, len(documents), nowhere, f"{inside}{below}"))
                if len(documents) > MAX_OBJECTS:
                    return
        return
    try:
        for value, text in _texts(data, file, problems, keep, root, home=home):
            if isinstance(value, dict):
                for inside, item in _flatten(value, file, text, problems):
                    if not home and is_unrendered(item, has_braces=has_braces, has_format=has_format):
                        written = text.data or json.dumps(item).encode()
                        begin = text.first_line
                        problem = InputProblem(
                            file, _UNRENDERED, _RENDER, begin, apparent_kind="template", text=written, first_line=begin
                        )
                        problems.append(problem)
                        continue
                    # The items of the List are reduced already, those of a nested List are not.
                    cut_already = text.is_kept and inside.count("/") == 2
                    content = keep(item) if keep and not cut_already else item
                    documents.append(Document(content, file, len(documents), text, inside))
                    if len(documents) > MAX_OBJECTS:
                        return
            elif value is not None:
                kind = "a list" if isinstance(value, list) else "a single value"
                message = f"a manifest is an object with apiVersion and kind; this document is {kind}"
                begin = text.first_line
                problem = InputProblem(
                    file, message, line=begin, apparent_kind="other", text=text.data, first_line=begin
                )
                problems.append(problem)
    except ManifestError as error:  # the error concerns the whole text, and is raised before the first object
        problems.extend(error.problems)


def _texts(
    data: bytes, file: str, problems: list[InputProblem], keep: Keep | None, root: str, *, home: str = ""
) -> Iterator[tuple[Any, _DocumentText]]:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        remedy = "save the file as UTF-8, which kubectl reads"
        raise ManifestError([InputProblem(file, "this is UTF-16", remedy, 1, apparent_kind=_apparent_kind(data))])
    data = data.removeprefix(b"\xef\xbb\xbf")  # the byte order mark
    wrong, message, remedy = data.find(b"\0"), "a NUL character is not allowed", "is the file a program or an archive?"
    try:
        if wrong < 0 and not data.isascii():  # most texts are ASCII; this check makes no decoded copy of a large one
            data.decode()
    except UnicodeDecodeError as error:
        wrong, remedy = error.start, "save the file as UTF-8"
        message = f"byte 0x{data[wrong]:02x} is not UTF-8"
    if wrong >= 0:
        line, column = data.count(b"\n", 0, wrong) + 1, wrong - data.rfind(b"\n", 0, wrong)
        apparent_kind = _apparent_kind(data)
        problem = InputProblem(file, message, remedy, line, column, apparent_kind=apparent_kind, is_no_text=True)
        raise ManifestError([problem])
    if data.lstrip().startswith(b"{"):
        objects = jsontext.stream(data, MAX_OBJECTS)
        if not isinstance(objects, jsontext.JsonError):
            for value, text, line in objects:
                yield value, _DocumentText(text, line, None, root, home=home)
            return
        if _JSON_LIKE.match(data) and not _is_yaml(data, file):
            position = (objects.line, objects.column)
            problem = InputProblem(
                file, objects.message, jsontext.REMEDY, *position, apparent_kind=_apparent_kind(data), text=data
            )
            problems.append(problem)
            return
    for chunk, first_line in _chunks(data, file, problems):
        try:
            if keep:
                yield _load_kept(chunk, first_line, keep)
                continue
            value, duplicates = yamltext.load(chunk, first_line)
        except YamlError as error:
            remedy = next((remedy for problem, remedy in _REMEDIES if problem in error.message), "")
            if _ends_before(chunk, error.line - first_line, error.column):
                remedy = "quote the whole value: as it is, it ends at its closing bracket or quote"
            if _CONFLICT.search(chunk):
                remedy = "there are marks of a merge conflict: settle the conflict, and remove the lines with <<<<<<<, ======= and >>>>>>>"
            if b"{{" in chunk:
                remedy = _RENDER
            apparent_kind = _apparent_kind(chunk)
            position = (error.line, error.column)
            problems.append(
                InputProblem(
                    file,
                    error.message,
                    remedy,
                    *position,
                    apparent_kind=apparent_kind,
                    text=chunk,
                    first_line=first_line,
                )
            )
        else:
            yield value, _DocumentText(chunk, first_line, duplicates, root, home=home)


def _ends_before(chunk: bytes, line: int, column: int) -> bool:
    """Return whether a value in brackets or quotes ends before a place of a text; lines count from 0, columns from 1."""
    lines = chunk.split(b"\n", line + 1)[line : line + 1]  # YAML may see further line breaks
    return any(_ENDS_HERE.search(line[:500].decode(errors="replace")[: column - 1]) for line in lines)


def _apparent_kind(data: bytes) -> Literal["", "template", "other"]:
    """Guess the kind of an unreadable text from its beginning: a manifest has apiVersion, or kind beside metadata or spec."""
    data = data[:PART_BYTES]
    if _TEMPLATE.search(data):
        return "template"
    plain = data.replace(b"\0", b"")
    has_kind = _KIND_KEY.search(plain) and _BODY_KEY.search(plain)
    return "" if b"apiVersion" in plain or has_kind else "other"


def _load_kept(chunk: bytes, first_line: int, keep: Keep) -> tuple[Any, _DocumentText]:
    """Read a document without keeping its text; each item of a List as kubectl writes it is reduced before the next is read."""

    def cut_down(item: Any) -> Any:
        # A List among the items is flattened first.
        single = isinstance(item, dict) and not str(item.get("kind")).endswith("List")
        return keep(item) if single else item

    if _LISTED in chunk:
        value, _ = yamltext.load(chunk, first_line, cut_down)
        if isinstance(value, dict) and value.get("kind") == "List":
            return value, _DocumentText(b"", first_line, (), is_kept=True)
    value, duplicates = yamltext.load(chunk, first_line)
    is_object = isinstance(value, dict) and bool(value.keys() & {"apiVersion", "kind"})
    if not is_object or _EXPRESSION.search(chunk) or FORMAT.search(chunk):
        return value, _DocumentText(chunk, first_line, duplicates)  # no Kubernetes object: the report needs its text
    source = _SOURCE.match(chunk)
    return value, _DocumentText(source.group() if source else b"", first_line, duplicates)


def _has_expression(value: Any) -> bool:
    if isinstance(value, dict):
        return any(key.startswith("(") or _has_expression(member) for key, member in value.items())
    return isinstance(value, list) and any(map(_has_expression, value))


def _is_yaml(data: bytes, file: str) -> bool:
    """Whether a text that is not JSON is YAML, or is nested too deep to be read as YAML. JSON is nearly a subset of YAML."""
    problems: list[InputProblem] = []
    try:
        for chunk, first_line in _chunks(data, file, problems):
            yamltext.load(chunk, first_line)
    except DepthError:
        return True  # the YAML parser reports the place
    except YamlError:
        return False
    return not problems


def _chunks(data: bytes, file: str, problems: list[InputProblem]) -> Iterator[tuple[bytes, int]]:
    """Split a text at its separator lines, as kubectl does before it parses YAML."""
    start, line = 0, 1
    for match in _SEPARATOR.finditer(data):
        begin, end = match.span()
        rest = match.group(1).strip()
        separator = line + data.count(b"\n", start, begin)
        if rest and not rest.startswith(b"#"):
            message = "there is text after the document separator"
            remedy = "kubectl takes only a comment after `---`: begin the document on the next line"
            problems.append(InputProblem(file, message, remedy, separator, 4, apparent_kind=_apparent_kind(data)))
        if begin > start:
            yield data[start:begin], line
        start, line = end, separator + 1
    last = data[start:]
    if not last:
        return
    # kubectl adds a missing line break at the end of the file, which a block scalar there keeps.
    if not last.endswith(b"\n"):
        last += b"\n"
    yield last, line


def _flatten(
    value: dict[str, Any], file: str, text: _DocumentText, problems: list[InputProblem]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the object, or the items of a List of any kind; items inherit kind and version from a typed List."""
    kind = value.get("kind")
    items = value.get("items")
    if not isinstance(kind, str) or not kind.endswith("List") or not isinstance(items, list):
        yield "", value
        return
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            message = f"an item of a {kind} must be an object"
            problems.append(InputProblem(file, message, "", text.first_line, 0, f"/items/{index}"))
            continue
        member = item
        if kind != "List" and not item.get("kind"):
            member = {"apiVersion": value.get("apiVersion"), "kind": kind.removesuffix("List"), **item}
        for inside, inner in _flatten(member, file, text, problems):
            yield f"/items/{index}{inside}", inner
