"""A remedy is read alone, on its own line: it names what to change."""

import ast
import re
from pathlib import Path

import pytest

from dra.codes import CODES

ROOT = Path(__file__).parent.parent
ROOMS = ("allocator", "analysis", "cli", "cluster", "dra", "node", "webhook")
PRONOUN = re.compile(r"\b(it|its|they|them|their)\b")
# What a pronoun can stand for: a noun after a determiner, a name, a plural before a verb, or a value of the message.
NOUN = re.compile(
    r"\b(?:the|a|an|no|each|every|any|all|both|one|two|that|these|this|of|in|with|for) (?!it\b|its\b|they\b|them\b|their\b)[\w`']+|`[^`]+`|\b[A-Z]\w+|-f\b|--[a-z]|\{\}"
)
UNHELPFUL = re.compile(r"(correct|set|change|fix|check|write|shorten) (the|a) \w+")


# By function: which of its arguments is the remedy.
REMEDY_OF = dict.fromkeys(("Broken", "Failed", "NoAnswer", "MissingObject", "NoCluster"), 1)
REMEDY_OF |= dict.fromkeys(("InputProblem", "mistake", "stated"), 2) | dict.fromkeys(("finding_at", "make_finding"), 3)


def dangling(remedy):
    """Return the pronouns that no noun of the remedy precedes."""
    return [match[0] for match in PRONOUN.finditer(remedy) if not NOUN.search(remedy, 0, match.start())]


def text_of(node):
    """Return the text of a string expression, with {} for each value; None for other expressions."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return None


def remedies_in(tree):
    """Yield the remedies that are written in a module: arguments named `remedy`, and second arguments of errors."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        values = [keyword.value for keyword in node.keywords if keyword.arg in ("remedy", "remedies")]
        index = REMEDY_OF.get(called, len(node.args))
        values += node.args[index : index + 1]
        for value in values:
            for part in ast.walk(value):
                if (text := text_of(part)) and not (isinstance(part, ast.Constant) and "{" in text):
                    yield text


def written():
    texts = [code.remedy for code in CODES.values()]
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            texts += remedies_in(ast.parse(path.read_text(encoding="utf-8")))
    return list(dict.fromkeys(texts))


def test_each_pronoun_of_a_remedy_stands_for_a_noun_of_the_remedy():
    remedies = written()
    assert len(remedies) > 400
    assert [remedy for remedy in remedies if dangling(remedy)] == []


def test_a_remedy_says_more_than_to_correct_the_field():
    assert [remedy for remedy in written() if UNHELPFUL.fullmatch(remedy)] == []


@pytest.mark.parametrize(
    ("remedy", "pronouns"),
    [
        ("remove them", ["them"]),
        ("use its name", ["its"]),
        ("delete the pod: its controller creates another pod", []),
        ("delete {}: it holds no device", []),
    ],
)
def test_a_pronoun_without_a_noun_before_it_is_found(remedy, pronouns):
    assert dangling(remedy) == pronouns
