"""Validates JSON against JSON Schema draft 7, with the keywords that our schemas use. An unknown keyword raises KeyError."""

import re

NOTES = {"$schema", "title", "description", "default", "examples", "definitions", "then"}
TYPES = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def wrong(value, schema, *, closed=False):
    """Return what is wrong with a value, each with the path in the value; `closed` also rejects members that no schema names."""
    return list(Judge(schema, closed).wrong(value, schema, ""))


class Judge:
    """Validates values. References point into the schema `root`. The method of a keyword gets a value, what the keyword demands (the rule), the
    schema with the keyword, and the path of the value.
    """

    def __init__(self, root, closed):
        self.root, self.closed = root, closed

    def wrong(self, value, schema, at):
        for word, rule in schema.items():
            if word in TESTS:
                if not TESTS[word](value, rule):
                    yield f"{at}: {str(value)[:80]!r} does not fit {rule!r}"
            elif word not in NOTES:
                yield from getattr(self, WORDS[word])(value, rule, schema, at)

    def reference(self, value, rule, _, at):
        target = self.root
        for part in rule.removeprefix("#/").split("/"):
            target = target[part]
        yield from self.wrong(value, target, at)

    def members(self, value, rule, schema, at):
        if not isinstance(value, dict):
            return
        for name, member in value.items():
            if name in rule:
                yield from self.wrong(member, rule[name], f"{at}/{name}")
            elif self.closed and schema.get("type") == "object" and "additionalProperties" not in schema:
                yield f"{at}/{name}: no schema names it"

    def others(self, value, rule, schema, at):
        if not isinstance(value, dict):
            return
        for name, member in value.items():
            if name in schema.get("properties", {}):
                continue
            if rule is False:
                yield f"{at}/{name}: is not allowed"
            else:
                yield from self.wrong(member, rule, f"{at}/{name}")

    def required(self, value, rule, _, at):
        if isinstance(value, dict):
            yield from [f"{at}: {name} is missing" for name in rule if name not in value]

    def items(self, value, rule, _, at):
        if isinstance(value, list):
            for i, item in enumerate(value):
                yield from self.wrong(item, rule, f"{at}/{i}")

    def names(self, value, rule, _, at):
        if isinstance(value, dict):
            for name in value:
                yield from self.wrong(name, rule, at)

    def any(self, value, rule, _, at):
        mistakes = [list(self.wrong(value, alternative, at)) for alternative in rule]
        if all(mistakes):
            yield min(mistakes, key=len)[0]

    def all(self, value, rule, _, at):
        for part in rule:
            yield from self.wrong(value, part, at)

    def condition(self, value, rule, schema, at):
        if not list(self.wrong(value, rule, at)):
            yield from self.wrong(value, schema["then"], at)


def is_of_type(value, rule):
    kinds = [rule] if isinstance(rule, str) else rule
    if isinstance(value, bool):
        return "boolean" in kinds
    return any(isinstance(value, TYPES[kind]) for kind in kinds)


def is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


TESTS = {
    "type": is_of_type,
    "enum": lambda value, rule: any(value == allowed and type(value) is type(allowed) for allowed in rule),
    "const": lambda value, rule: value == rule,
    "minimum": lambda value, rule: not is_number(value) or value >= rule,
    "maximum": lambda value, rule: not is_number(value) or value <= rule,
    "pattern": lambda value, rule: not isinstance(value, str) or re.search(rule, value),
}
WORDS = {
    "$ref": "reference",
    "properties": "members",
    "additionalProperties": "others",
    "required": "required",
    "items": "items",
    "propertyNames": "names",
    "anyOf": "any",
    "allOf": "all",
    "if": "condition",
}
