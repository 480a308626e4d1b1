"""Validates JSON against JSON Schema draft 7, with the keywords that our schemas use. An unknown keyword raises KeyError."""

import re

IGNORED_KEYWORDS = {"$schema", "title", "description", "default", "examples", "definitions", "then"}
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
    return list(Validator(schema, closed).mistakes(value, schema, ""))


class Validator:
    """Validates values. References point into the schema `root`. The method of a keyword gets a value, what the keyword demands (the rule), the
    schema with the keyword, and the path of the value.
    """

    def __init__(self, root, closed):
        self.root, self.closed = root, closed

    def mistakes(self, value, schema, path):
        for keyword, rule in schema.items():
            if keyword in CHECKS:
                if not CHECKS[keyword](value, rule):
                    yield f"{path}: {str(value)[:80]!r} does not fit {rule!r}"
            elif keyword not in IGNORED_KEYWORDS:
                yield from getattr(self, METHODS[keyword])(value, rule, schema, path)

    def reference(self, value, rule, _, path):
        target = self.root
        for part in rule.removeprefix("#/").split("/"):
            target = target[part]
        yield from self.mistakes(value, target, path)

    def members(self, value, rule, schema, path):
        if not isinstance(value, dict):
            return
        for name, member in value.items():
            if name in rule:
                yield from self.mistakes(member, rule[name], f"{path}/{name}")
            elif self.closed and schema.get("type") == "object" and "additionalProperties" not in schema:
                yield f"{path}/{name}: no schema names it"

    def others(self, value, rule, schema, path):
        if not isinstance(value, dict):
            return
        for name, member in value.items():
            if name in schema.get("properties", {}):
                continue
            if rule is False:
                yield f"{path}/{name}: is not allowed"
            else:
                yield from self.mistakes(member, rule, f"{path}/{name}")

    def required(self, value, rule, _, path):
        if isinstance(value, dict):
            yield from [f"{path}: {name} is missing" for name in rule if name not in value]

    def items(self, value, rule, _, path):
        if isinstance(value, list):
            for i, item in enumerate(value):
                yield from self.mistakes(item, rule, f"{path}/{i}")

    def names(self, value, rule, _, path):
        if isinstance(value, dict):
            for name in value:
                yield from self.mistakes(name, rule, path)

    def any(self, value, rule, _, path):
        mistakes_by_alternative = [list(self.mistakes(value, alternative, path)) for alternative in rule]
        if all(mistakes_by_alternative):
            yield min(mistakes_by_alternative, key=len)[0]

    def all(self, value, rule, _, path):
        for part in rule:
            yield from self.mistakes(value, part, path)

    def condition(self, value, rule, schema, path):
        if not list(self.mistakes(value, rule, path)):
            yield from self.mistakes(value, schema["then"], path)


def is_of_type(value, rule):
    kinds = [rule] if isinstance(rule, str) else rule
    if isinstance(value, bool):
        return "boolean" in kinds
    return any(isinstance(value, TYPES[kind]) for kind in kinds)


def is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


CHECKS = {
    "type": is_of_type,
    "enum": lambda value, rule: any(value == allowed and type(value) is type(allowed) for allowed in rule),
    "const": lambda value, rule: value == rule,
    "minimum": lambda value, rule: not is_number(value) or value >= rule,
    "maximum": lambda value, rule: not is_number(value) or value <= rule,
    "exclusiveMinimum": lambda value, rule: not is_number(value) or value > rule,
    "minLength": lambda value, rule: not isinstance(value, str) or len(value) >= rule,
    "maxLength": lambda value, rule: not isinstance(value, str) or len(value) <= rule,
    "maxItems": lambda value, rule: not isinstance(value, list) or len(value) <= rule,
    "pattern": lambda value, rule: not isinstance(value, str) or re.search(rule, value),
}
METHODS = {
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
