"""Random expressions compared with cel-python and Google's C++ library: where one of them has a verdict, ours is equal.

Both lack much of what Kubernetes adds (quantities, optional fields, IP addresses) and answer about a third of the expressions.
"""

from collections import defaultdict

import celpy
import pytest
from cel_expr_python import cel
from celpy.adapter import json_to_cel

from tests.dra.cel.devices import GPU, VIEWS
from tests.dra.cel.generator import Generator
from tests.dra.cel.judge import ours
from tests.draws import draws

# cel-python finds no field of a map literal. C++ returns the milliseconds beyond the second, Go the whole duration in milliseconds.
KNOWN = {"cel-python": ("has(",), "C++": ("getMilliseconds",)}


def plain(device):
    """The device as nested maps, which is all that these libraries understand."""
    attributes = defaultdict(dict)
    for name, value in device["attributes"].items():
        domain, _, member = name.rpartition("/")
        attributes[domain or device["driver"]][member] = next(iter(value.values()))
    return {"driver": device["driver"], "attributes": dict(attributes), "allowMultipleAllocations": True}


def cel_python():
    environment, activation = celpy.Environment(), {"device": json_to_cel(plain(GPU))}
    return lambda text: bool(environment.program(environment.compile(text)).evaluate(activation))


def cpp():
    environment = cel.NewEnv(variables={"device": cel.Type.DYN})
    activation = environment.Activation({"device": plain(GPU)})
    return lambda text: environment.compile(text).eval(activation).value()


@pytest.mark.parametrize(("name", "peer"), [("cel-python", cel_python()), ("C++", cpp())])
def test_other_libraries_give_the_same_verdicts(name, peer):
    generator, both = Generator(4), 0
    for _ in range(draws(3_000)):
        text = generator.expression()
        known = ours(text, "stored", VIEWS[:1])
        if not known or known["verdicts"][0] == "error" or any(part in text for part in KNOWN[name]):
            continue
        try:
            verdict = peer(text)
        except Exception:  # noqa: BLE001  a function that this library lacks; each has errors of its own
            continue
        if isinstance(verdict, bool):
            both += 1
            assert known["verdicts"][0] == verdict, text
    assert both > draws(3_000) // 5
