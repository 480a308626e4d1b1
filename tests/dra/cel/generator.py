"""Random expressions made from the table of signatures. Every function occurs, mostly with arguments of the right types."""

import random

from dra.cel import types as t
from dra.cel.environment import STORED, environment

FUNCTIONS = environment(STORED).functions
SCALARS = [t.BOOL, t.INT, t.UINT, t.DOUBLE, t.STRING, t.BYTES, t.TIMESTAMP, t.DURATION]
VALUES = [*SCALARS, t.QUANTITY, t.SEMVER, t.IP, t.CIDR, t.URL, t.FORMAT, t.NULL]
BINARY = {f"_{op}_": op for op in ("+", "-", "*", "/", "%", "<", "<=", ">", ">=", "==", "!=", "&&", "||")} | {
    "@in": "in"
}
DOMAINS = ["gpu.example.com", "nic.example.com", "no.such.domain", "resource.kubernetes.io"]
NAMES = {
    t.STRING: ["model", "uuid", "pcieRoot", "address"], t.INT: ["index", "speed"], t.BOOL: ["mig", "ecc", "rdma"], t.SEMVER: ["driverVersion"],
    t.list_of(t.STRING): ["profiles"], t.list_of(t.INT): ["numa"], t.list_of(t.BOOL): ["flags"], t.list_of(t.SEMVER): ["firmwares"],
}  # fmt: skip
TEXTS = ["", "a", "H100", "héllo", "1.2.3", "10.0.0.1", "10.0.0.0/8", "https://a.example/x?b=1", "5Gi", "^[a-z]+$", "%s", "%d", "my-name", "a,b,c", "(", "42", "2026-01-01T00:00:00Z", "1h"]  # fmt: skip
LITERALS = {
    t.BOOL: ["true", "false"],
    t.INT: ["0", "1", "-1", "2", "7", "9223372036854775807", "-9223372036854775808", "100"],
    t.UINT: ["0u", "1u", "3u", "18446744073709551615u"],
    t.DOUBLE: ["0.0", "1.5", "-2.0", "1e10", "3.0"],
    t.BYTES: ["b''", "b'abc'", r"b'\xff'"],
    t.TIMESTAMP: ["timestamp('2026-01-01T00:00:00Z')", "timestamp(0)"],
    t.DURATION: ["duration('1h')", "duration('-5s')", "duration('0')"],
    t.QUANTITY: ["quantity('1Gi')", "quantity('1.5')", "quantity('0')", "quantity('100Ti')"],
    t.SEMVER: ["semver('1.2.3')", "semver('2.0.0-rc.1')", "semver('v1', true)"],
    t.IP: ["ip('10.0.0.1')", "ip('::1')"],
    t.CIDR: ["cidr('10.0.0.0/8')", "cidr('2001:db8::/32')"],
    t.URL: ["url('https://a.example:80/x?b=1')", "url('/x')"],
    t.FORMAT: ["format.dns1123Label()", "format.uuid()", "format.named('date').value()"],
    t.NULL: ["null"],
}
# Functions that are not called by name: operators and macros, which other methods of the generator write, and dyn().
NOT_CALLED = {
    "transformMapEntry",
    "cel.@mapInsert",
    "@sortByAssociatedKeys",
    "@not_strictly_false",
    "_?._",
    "_[?_]",
    "_[_]",
    "_?_:_",
    "dyn",
}


def unify(pattern, result_type, bound):
    """Bind the type parameters of an overload's result so that it becomes `result_type`; return whether that is possible."""
    if pattern.kind == "param":
        return bound.setdefault(pattern, result_type) == result_type
    if (
        pattern.kind != result_type.kind
        or pattern.name != result_type.name
        or len(pattern.params) != len(result_type.params)
    ):
        return False
    return all(unify(p, w, bound) for p, w in zip(pattern.params, result_type.params, strict=True))


def instantiate(type_, bound):
    if type_.kind == "param":
        return bound[type_]
    return t.Type(type_.kind, type_.name, tuple(instantiate(param, bound) for param in type_.params))


class Generator:
    """Draws expressions. `used` has the functions that were drawn, and `scope` the variables that an expression can use, with their types."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.used = set()
        self.scope = []
        self.variable_count = 0

    def expression(self):
        """Draw an expression, usually of type bool."""
        self.scope = []
        return self.draw(t.BOOL, self.rng.choice([2, 3, 3, 4, 4, 5]))

    def type(self, depth=1):
        if depth and self.rng.random() < 0.3:
            make = self.rng.choice(["list", "list", "map", "optional"])
            if make == "list":
                return t.list_of(self.type(depth - 1))
            if make == "map":
                return t.map_of(self.rng.choice([t.STRING, t.STRING, t.INT, t.BOOL]), self.type(depth - 1))
            return t.optional_of(self.type(depth - 1))
        return self.rng.choice(SCALARS if self.rng.random() < 0.75 else VALUES)

    def draw(self, result_type, depth):
        """Draw an expression of a type, rarely of another type."""
        rng = self.rng
        if rng.random() < 0.012:
            result_type = self.type()  # usually a wrong type, which the type checker must report
        if result_type.kind in ("dyn", "any", "param"):
            inner = self.draw(self.type(), depth)
            return inner if rng.random() < 0.5 else f"dyn({inner})"
        if depth <= 0 or rng.random() < 0.15:
            return self.leaf(result_type)
        makers = [self.call] * 6 + [self.ternary, self.bind, self.element, self.unwrapped, self.leaf_of, self.device]
        if result_type == t.BOOL:
            makers += [self.logic] * 3 + [self.quantifier] * 3 + [self.probe] * 4 + [self.has, self.member]
        if result_type.kind == "list":
            makers += [self.mapped] * 3
        if result_type.kind == "map":
            makers += [self.transformed] * 2
        if result_type.kind == "opaque" and result_type.name == "optional_type":
            makers += [self.optional] * 3
        return rng.choice(makers)(result_type, depth - 1)

    def leaf_of(self, result_type, _):
        return self.leaf(result_type)

    def leaf(self, result_type):
        variables = [name for name, type_ in self.scope if type_ == result_type]
        if variables and self.rng.random() < 0.6:
            return self.rng.choice(variables)
        if result_type == t.STRING:
            return quoted(self.rng.choice(TEXTS)) if self.rng.random() < 0.8 else "device.driver"
        if result_type in LITERALS:
            return self.rng.choice(LITERALS[result_type])
        if result_type.kind == "list":
            return f"[{', '.join(self.draw(result_type.params[0], 0) for _ in range(self.rng.randrange(4)))}]"
        if result_type.kind == "map":
            entries = (
                f"{self.draw(result_type.params[0], 0)}: {self.draw(result_type.params[1], 0)}"
                for _ in range(self.rng.randrange(3))
            )
            return f"{{{', '.join(entries)}}}"
        if result_type.name == "optional_type":
            return self.rng.choice([f"optional.of({self.draw(result_type.params[0], 0)})", "optional.none()"])
        if result_type.kind == "type":
            return self.rng.choice(["int", "string", "bool", "list", "type(1)"])
        return "null"

    def device(self, result_type, _):
        """Draw a field of the device, of the wanted type if there is one."""
        rng = self.rng
        if result_type == t.QUANTITY:
            return f'device.capacity["{rng.choice(DOMAINS)}"].{rng.choice(["memory", "cores", "bandwidth", "lanes"])}'
        if result_type == t.BOOL and rng.random() < 0.3:
            return "device.allowMultipleAllocations"
        names = NAMES.get(result_type) or rng.choice(list(NAMES.values()))
        domain = rng.choice(["gpu.example.com", "gpu.example.com", *DOMAINS])
        return f'device.attributes["{domain}"].{rng.choice([*names, "nope"] if rng.random() < 0.1 else names)}'

    def call(self, result_type, depth):
        rng = self.rng
        for _ in range(30):
            name = rng.choice(list(FUNCTIONS))
            if name in NOT_CALLED:
                continue
            overload = rng.choice(FUNCTIONS[name])
            bound = {}
            if not unify(overload.result, result_type, bound):
                continue
            for param in overload.params:
                bound.setdefault(param, self.type(0))
            self.used.add(name)
            args = [self.draw(instantiate(arg, bound), depth - rng.randrange(2)) for arg in overload.args]
            return self.call_text(name, overload.method, args)
        return self.leaf(result_type)

    def probe(self, _, depth):
        """Draw two calls of a random function, and a comparison of their results."""
        rng = self.rng
        name = rng.choice([name for name in FUNCTIONS if name not in NOT_CALLED])
        overload = rng.choice(FUNCTIONS[name])
        bound = {param: self.type(0) for param in overload.params}
        self.used.add(name)
        calls = []
        for _ in range(2):
            args = [self.draw(instantiate(arg, bound), depth - rng.randrange(3)) for arg in overload.args]
            if rng.random() < 0.15 and args:
                position = rng.randrange(len(args))
                args[position] = f"dyn({args[position]})"
            calls.append(self.call_text(name, overload.method, args))
        return rng.choice(
            [f"({calls[0]} == {calls[1]})", f"({calls[0]} != {calls[1]})", f"(type({calls[0]}) == type({calls[1]}))"]
        )

    def call_text(self, name, method, args):
        if name in BINARY:
            return f"({args[0]} {BINARY[name]} {args[1]})"
        if name in ("!_", "-_"):
            return f"{name[0]}({args[0]})"
        if method:
            return (
                f"({args[0]}).{name}({', '.join(args[1:])})"
                if args[0][:1] in "-!"
                else f"{args[0]}.{name}({', '.join(args[1:])})"
            )
        return f"{name}({', '.join(args)})"

    def logic(self, _, depth):
        op = self.rng.choice([" && ", " || "])
        return f"({op.join(self.draw(t.BOOL, depth) for _ in range(self.rng.choice([2, 2, 3, 4])))})"

    def ternary(self, result_type, depth):
        return f"({self.draw(t.BOOL, depth)} ? {self.draw(result_type, depth)} : {self.draw(result_type, depth)})"

    def name(self):
        self.variable_count += 1
        return f"v{self.variable_count}" if self.rng.random() < 0.9 else self.rng.choice(["x", "y"])

    def scoped(self, names, make):
        self.scope += names
        text = make()
        del self.scope[-len(names) :]
        return text

    def bind(self, result_type, depth):
        type_, name = self.type(), self.name()
        value = self.draw(type_, depth)
        return f"cel.bind({name}, {value}, {self.scoped([(name, type_)], lambda: self.draw(result_type, depth))})"

    def element(self, result_type, depth):
        rng = self.rng
        if rng.random() < 0.5:
            return f"[{', '.join(self.draw(result_type, depth - 1) for _ in range(rng.choice([1, 2, 3])))}][{self.draw(t.INT, 0)}]"
        key = rng.choice(["a", "b"])
        selection = rng.choice([f".{key}", f"['{key}']"])
        return f"{{'a': {self.draw(result_type, depth - 1)}}}{selection}"

    def unwrapped(self, result_type, depth):
        optional = self.draw(t.optional_of(result_type), depth)
        return (
            f"{optional}.orValue({self.draw(result_type, depth)})" if self.rng.random() < 0.7 else f"{optional}.value()"
        )

    def optional(self, result_type, depth):
        rng, inner = self.rng, result_type.params[0]
        choice = rng.randrange(5)
        if choice == 0:
            return f"{{'a': {self.draw(inner, depth)}}}{rng.choice(['.?a', '.?b', '[?' + quoted('a') + ']'])}"
        if choice == 1:
            return f"[{self.draw(inner, depth)}][?{self.draw(t.INT, 0)}]"
        if choice == 2:
            type_, name = self.type(0), self.name()
            source = self.draw(t.optional_of(type_), depth - 1)
            if rng.random() < 0.5:
                return f"{source}.optMap({name}, {self.scoped([(name, type_)], lambda: self.draw(inner, depth))})"
            return f"{source}.optFlatMap({name}, {self.scoped([(name, type_)], lambda: self.draw(result_type, depth))})"
        if choice == 3:
            return f"{self.draw(result_type, depth - 1)}.or({self.draw(result_type, depth - 1)})"
        names = NAMES.get(inner)
        if names:
            return f'device.attributes["{rng.choice(DOMAINS)}"].?{rng.choice(names)}'
        return f"optional.ofNonZeroValue({self.draw(inner, depth)})"

    def has(self, _, depth):
        rng = self.rng
        if rng.random() < 0.5:
            return f'has(device.attributes["{rng.choice(DOMAINS)}"].{rng.choice(["model", "index", "nope"])})'
        return f"has({self.draw(t.map_of(t.STRING, self.type(0)), depth)}.a)"

    def member(self, _, depth):
        type_ = self.type(0)
        return f"({self.draw(type_, depth)} in {self.draw(t.list_of(type_), depth)})"

    def ranged(self, depth, *, two):
        """Draw a list or map to iterate over, and one or two variables for its elements, with their types."""
        rng = self.rng
        if rng.random() < 0.2:
            source, key, value = (
                f'device.attributes["{rng.choice(DOMAINS)}"].{rng.choice(["profiles", "numa"])}',
                t.INT,
                t.DYN,
            )
            single = t.DYN
        elif rng.random() < 0.25:
            value = self.type(0)
            source, key, single = self.draw(t.map_of(t.STRING, value), depth), t.STRING, t.STRING
        else:
            value = self.type(0)
            source, key, single = self.draw(t.list_of(value), depth), t.INT, value
        first_name, second_name = self.name(), self.name()
        return (source, [(first_name, key), (second_name, value)]) if two else (source, [(first_name, single)])

    def quantifier(self, _, depth):
        two = self.rng.random() < 0.3
        source, names = self.ranged(depth, two=two)
        macro = self.rng.choice(["all", "exists", "exists_one"] + ["existsOne"] * two)
        body = self.scoped(names, lambda: self.draw(t.BOOL, depth))
        return f"{source}.{macro}({', '.join(name for name, _ in names)}, {body})"

    def mapped(self, result_type, depth):
        rng, element = self.rng, result_type.params[0]
        choice = rng.randrange(4)
        if choice == 0:
            name = self.name()
            source = self.draw(result_type, depth)
            return f"{source}.filter({name}, {self.scoped([(name, element)], lambda: self.draw(t.BOOL, depth))})"
        if choice == 1:
            name = self.name()
            source = self.draw(result_type, depth)
            return f"{source}.sortBy({name}, {self.scoped([(name, element)], lambda: self.draw(rng.choice(SCALARS), depth))})"
        two = choice == 2
        source, names = self.ranged(depth, two=two)
        keep = f"{self.scoped(names, lambda: self.draw(t.BOOL, depth - 1))}, " if rng.random() < 0.3 else ""
        body = self.scoped(names, lambda: self.draw(element, depth))
        return f"{source}.{'transformList' if two else 'map'}({', '.join(name for name, _ in names)}, {keep}{body})"

    def transformed(self, result_type, depth):
        source, names = self.ranged(depth, two=True)
        listed = ", ".join(name for name, _ in names)
        if self.rng.random() < 0.5:
            entry = self.scoped(
                names,
                lambda: f"{{{self.draw(result_type.params[0], depth - 1)}: {self.draw(result_type.params[1], depth)}}}",
            )
            return f"{source}.transformMapEntry({listed}, {entry})"
        return f"{source}.transformMap({listed}, {self.scoped(names, lambda: self.draw(result_type.params[1], depth))})"


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
