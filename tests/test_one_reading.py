"""Patterns about keys are in one module, `webhook/unknown/words.py`, so that all commands find the same requests."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# A pattern with one of these names is about keys: vendors, kinds of devices, and the members that have amounts.
_ABOUT_KEYS = re.compile(r"(?i:gpu|npu|nvidia|amd\.|/dev/|accelerator|rdma)|\b(?:limits|requests)\b")
_PATTERN = re.compile(r"re\.(?:compile|search|match|fullmatch|findall|finditer|sub|split)\(\s*(?:[A-Za-z_]\w*,\s*)?(?:r|rf|fr|f)?(\"\"\".*?\"\"\"|\"[^\n]*?\"|'[^\n]*?')", re.DOTALL)  # fmt: skip
# Other patterns: where they are, and what they read.
_OTHERS = {
    "webhook/dialects/kai/__init__.py": "an annotation of one system",
    "webhook/dialects/nvidia/gfd.py": "labels of nodes",
    "analysis/migration/lenses.py": "the places of charts, which are edited",
    "analysis/redaction.py": "names of variables whose numbers stay readable",
    "cli/in_place.py": "lines of texts, which are edited",
    "webhook/translate/known_keys.py": "keys of the configuration in a text, which is edited",
}


def patterns_about_keys(source):
    return [pattern for pattern in _PATTERN.findall(source) if _ABOUT_KEYS.search(pattern)]


def test_no_other_module_has_patterns_about_keys():
    files = [path for folder in ("analysis", "cli", "webhook") for path in (ROOT / folder).rglob("*.py")]
    with_patterns = {path.relative_to(ROOT).as_posix() for path in files if patterns_about_keys(path.read_text(encoding="utf-8"))}  # fmt: skip
    assert with_patterns - _OTHERS.keys() == {"webhook/unknown/words.py"}


@pytest.mark.parametrize(
    "source",
    ['_KEY = re.compile(r"nvidia\\.com/.*")', "re.search(r'/dev/dri', text)", 'X = re.compile(\n    rf"{A}(?:gpu)s?"\n)', 're.sub(r"/limits/", "", path)'],
)  # fmt: skip
def test_a_pattern_about_keys_is_found(source):
    assert patterns_about_keys(source)
    assert not patterns_about_keys('re.compile(r"[a-z]+")')
