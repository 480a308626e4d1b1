"""A hook of mkdocs (`make site`): adds the README as first page, and rewrites links between pages and to other files."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
SOURCE = f"{URLS['Repository']}/blob/main/"
LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
INDEX = "README.md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the README as a page."""
    from mkdocs.structure.files import File

    text = (ROOT / "README.md").read_text(encoding="utf-8").replace("](docs/", "](")
    files.append(File.generated(config, INDEX, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Replace a link text that is the file name of a page by the title of the page, and point links to other files to the repository."""
    is_readme = page.file.src_uri == INDEX

    def rewritten(link: re.Match[str]) -> str:
        label, path, anchor = link[1], link[2], link[3] or ""
        candidates = [folder / path for folder in ((ROOT / "docs", ROOT) if is_readme else (ROOT / "docs",))]
        target = next((candidate.resolve() for candidate in candidates if candidate.exists()), None)
        if target is None:
            return link[0]
        if label == target.name and target.suffix == ".md":
            label = target.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        if target == ROOT / "README.md":
            path = INDEX
        elif not target.is_relative_to(ROOT / "docs") or target.is_dir():
            path = f"{SOURCE}{target.relative_to(ROOT)}"
        return f"[{label}]({path}{anchor})"

    return LINK.sub(rewritten, double_indentation(markdown))


def double_indentation(markdown: str) -> str:
    """Double the indentation of lines outside code: mkdocs recognises a nested list by four spaces, and the pages use two."""
    in_code = False
    lines = markdown.split("\n")
    for number, line in enumerate(lines):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code:
            lines[number] = line[: len(line) - len(line.lstrip(" "))] + line
    return "\n".join(lines)
