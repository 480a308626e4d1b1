"""Random expressions from the signature table: every function occurs, mostly with arguments of the right types."""

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
CREATORS = {
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


def unify(pattern, wanted, bound):
    """Bind the parameters of a result type so that it becomes the wanted type."""
    if pattern.kind == "param":
        return bound.setdefault(pattern, wanted) == wanted
    if pattern.kind != wanted.kind or pattern.name != wanted.name or len(pattern.params) != len(wanted.params):
        return False
    return all(unify(p, w, bound) for p, w in zip(pattern.params, wanted.params, strict=True))


def filled(type_, bound):
    if type_.kind == "param":
        return bound[type_]
    return t.Type(type_.kind, type_.name, tuple(filled(param, bound) for param in type_.params))


class Generator:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.used = set()
        self.scope = []
        self.fresh = 0

    def expression(self):
        """Draw an expression, usually of type bool."""
        self.scope = []
        return self.of(t.BOOL, self.rng.choice([2, 3, 3, 4, 4, 5]))

    def type(self, depth=1):
        if depth and self.rng.random() < 0.3:
            make = self.rng.choice(["list", "list", "map", "optional"])
            if make == "list":
                return t.list_of(self.type(depth - 1))
            if make == "map":
                return t.map_of(self.rng.choice([t.STRING, t.STRING, t.INT, t.BOOL]), self.type(depth - 1))
            return t.optional_of(self.type(depth - 1))
        return self.rng.choice(SCALARS if self.rng.random() < 0.75 else VALUES)

    def of(self, wanted, depth):
        """Draw an expression of a type, rarely of another type."""
        rng = self.rng
        if rng.random() < 0.012:
            wanted = self.type()  # not the requested type: the checker must report it
        if wanted.kind in ("dyn", "any", "param"):
            inner = self.of(self.type(), depth)
            return inner if rng.random() < 0.5 else f"dyn({inner})"
        if depth <= 0 or rng.random() < 0.15:
            return self.leaf(wanted)
        makers = [self.call] * 6 + [self.ternary, self.bind, self.element, self.unwrapped, self.leaf_of, self.device]
        if wanted == t.BOOL:
            makers += [self.logic] * 3 + [self.quantifier] * 3 + [self.probe] * 4 + [self.has, self.member]
        if wanted.kind == "list":
            makers += [self.mapped] * 3
        if wanted.kind == "map":
            makers += [self.transformed] * 2
        if wanted.kind == "opaque" and wanted.name == "optional_type":
            makers += [self.optional] * 3
        return rng.choice(makers)(wanted, depth - 1)

    def leaf_of(self, wanted, _):
        return self.leaf(wanted)

    def leaf(self, wanted):
        known = [name for name, type_ in self.scope if type_ == wanted]
        if known and self.rng.random() < 0.6:
            return self.rng.choice(known)
        if wanted == t.STRING:
            return repr_text(self.rng.choice(TEXTS)) if self.rng.random() < 0.8 else "device.driver"
        if wanted in LITERALS:
            return self.rng.choice(LITERALS[wanted])
        if wanted.kind == "list":
            return f"[{', '.join(self.of(wanted.params[0], 0) for _ in range(self.rng.randrange(4)))}]"
        if wanted.kind == "map":
            entries = (
                f"{self.of(wanted.params[0], 0)}: {self.of(wanted.params[1], 0)}" for _ in range(self.rng.randrange(3))
            )
            return f"{{{', '.join(entries)}}}"
        if wanted.name == "optional_type":
            return self.rng.choice([f"optional.of({self.of(wanted.params[0], 0)})", "optional.none()"])
        if wanted.kind == "type":
            return self.rng.choice(["int", "string", "bool", "list", "type(1)"])
        return "null"

    def device(self, wanted, _):
        """Draw a field of the device, of the wanted type if there is one."""
        rng = self.rng
        if wanted == t.QUANTITY:
            return f'device.capacity["{rng.choice(DOMAINS)}"].{rng.choice(["memory", "cores", "bandwidth", "lanes"])}'
        if wanted == t.BOOL and rng.random() < 0.3:
            return "device.allowMultipleAllocations"
        names = NAMES.get(wanted) or rng.choice(list(NAMES.values()))
        domain = rng.choice(["gpu.example.com", "gpu.example.com", *DOMAINS])
        return f'device.attributes["{domain}"].{rng.choice([*names, "nope"] if rng.random() < 0.1 else names)}'

    def call(self, wanted, depth):
        rng = self.rng
        for _ in range(30):
            name = rng.choice(list(FUNCTIONS))
            if name in CREATORS:
                continue
            overload = rng.choice(FUNCTIONS[name])
            bound = {}
            if not unify(overload.result, wanted, bound):
                continue
            for param in overload.params:
                bound.setdefault(param, self.type(0))
            self.used.add(name)
            args = [self.of(filled(arg, bound), depth - rng.randrange(2)) for arg in overload.args]
            return self.written(name, overload.method, args)
        return self.leaf(wanted)

    def probe(self, _, depth):
        """A call of a random function, whose result is compared with the result of a second call."""
        rng = self.rng
        name = rng.choice([name for name in FUNCTIONS if name not in CREATORS])
        overload = rng.choice(FUNCTIONS[name])
        bound = {param: self.type(0) for param in overload.params}
        self.used.add(name)
        calls = []
        for _ in range(2):
            args = [self.of(filled(arg, bound), depth - rng.randrange(3)) for arg in overload.args]
            if rng.random() < 0.15 and args:
                position = rng.randrange(len(args))
                args[position] = f"dyn({args[position]})"
            calls.append(self.written(name, overload.method, args))
        return rng.choice(
            [f"({calls[0]} == {calls[1]})", f"({calls[0]} != {calls[1]})", f"(type({calls[0]}) == type({calls[1]}))"]
        )

    def written(self, name, method, args):
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
        return f"({op.join(self.of(t.BOOL, depth) for _ in range(self.rng.choice([2, 2, 3, 4])))})"

    def ternary(self, wanted, depth):
        return f"({self.of(t.BOOL, depth)} ? {self.of(wanted, depth)} : {self.of(wanted, depth)})"

    def name(self):
        self.fresh += 1
        return f"v{self.fresh}" if self.rng.random() < 0.9 else self.rng.choice(["x", "y"])

    def scoped(self, names, make):
        self.scope += names
        made = make()
        del self.scope[-len(names) :]
        return made

    def bind(self, wanted, depth):
        type_, name = self.type(), self.name()
        value = self.of(type_, depth)
        return f"cel.bind({name}, {value}, {self.scoped([(name, type_)], lambda: self.of(wanted, depth))})"

    def element(self, wanted, depth):
        rng = self.rng
        if rng.random() < 0.5:
            return (
                f"[{', '.join(self.of(wanted, depth - 1) for _ in range(rng.choice([1, 2, 3])))}][{self.of(t.INT, 0)}]"
            )
        key = rng.choice(["a", "b"])
        selection = rng.choice([f".{key}", f"['{key}']"])
        return f"{{'a': {self.of(wanted, depth - 1)}}}{selection}"

    def unwrapped(self, wanted, depth):
        optional = self.of(t.optional_of(wanted), depth)
        return f"{optional}.orValue({self.of(wanted, depth)})" if self.rng.random() < 0.7 else f"{optional}.value()"

    def optional(self, wanted, depth):
        rng, inner = self.rng, wanted.params[0]
        choice = rng.randrange(5)
        if choice == 0:
            return f"{{'a': {self.of(inner, depth)}}}{rng.choice(['.?a', '.?b', '[?' + repr_text('a') + ']'])}"
        if choice == 1:
            return f"[{self.of(inner, depth)}][?{self.of(t.INT, 0)}]"
        if choice == 2:
            type_, name = self.type(0), self.name()
            source = self.of(t.optional_of(type_), depth - 1)
            if rng.random() < 0.5:
                return f"{source}.optMap({name}, {self.scoped([(name, type_)], lambda: self.of(inner, depth))})"
            return f"{source}.optFlatMap({name}, {self.scoped([(name, type_)], lambda: self.of(wanted, depth))})"
        if choice == 3:
            return f"{self.of(wanted, depth - 1)}.or({self.of(wanted, depth - 1)})"
        names = NAMES.get(inner)
        if names:
            return f'device.attributes["{rng.choice(DOMAINS)}"].?{rng.choice(names)}'
        return f"optional.ofNonZeroValue({self.of(inner, depth)})"

    def has(self, _, depth):
        rng = self.rng
        if rng.random() < 0.5:
            return f'has(device.attributes["{rng.choice(DOMAINS)}"].{rng.choice(["model", "index", "nope"])})'
        return f"has({self.of(t.map_of(t.STRING, self.type(0)), depth)}.a)"

    def member(self, _, depth):
        type_ = self.type(0)
        return f"({self.of(type_, depth)} in {self.of(t.list_of(type_), depth)})"

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
            source, key, single = self.of(t.map_of(t.STRING, value), depth), t.STRING, t.STRING
        else:
            value = self.type(0)
            source, key, single = self.of(t.list_of(value), depth), t.INT, value
        first, second = self.name(), self.name()
        return (source, [(first, key), (second, value)]) if two else (source, [(first, single)])

    def quantifier(self, _, depth):
        two = self.rng.random() < 0.3
        source, names = self.ranged(depth, two=two)
        macro = self.rng.choice(["all", "exists", "exists_one"] + ["existsOne"] * two)
        body = self.scoped(names, lambda: self.of(t.BOOL, depth))
        return f"{source}.{macro}({', '.join(name for name, _ in names)}, {body})"

    def mapped(self, wanted, depth):
        rng, element = self.rng, wanted.params[0]
        choice = rng.randrange(4)
        if choice == 0:
            name = self.name()
            source = self.of(wanted, depth)
            return f"{source}.filter({name}, {self.scoped([(name, element)], lambda: self.of(t.BOOL, depth))})"
        if choice == 1:
            name = self.name()
            source = self.of(wanted, depth)
            return f"{source}.sortBy({name}, {self.scoped([(name, element)], lambda: self.of(rng.choice(SCALARS), depth))})"
        two = choice == 2
        source, names = self.ranged(depth, two=two)
        keep = f"{self.scoped(names, lambda: self.of(t.BOOL, depth - 1))}, " if rng.random() < 0.3 else ""
        body = self.scoped(names, lambda: self.of(element, depth))
        return f"{source}.{'transformList' if two else 'map'}({', '.join(name for name, _ in names)}, {keep}{body})"

    def transformed(self, wanted, depth):
        source, names = self.ranged(depth, two=True)
        listed = ", ".join(name for name, _ in names)
        if self.rng.random() < 0.5:
            entry = self.scoped(
                names, lambda: f"{{{self.of(wanted.params[0], depth - 1)}: {self.of(wanted.params[1], depth)}}}"
            )
            return f"{source}.transformMapEntry({listed}, {entry})"
        return f"{source}.transformMap({listed}, {self.scoped(names, lambda: self.of(wanted.params[1], depth))})"


def repr_text(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
