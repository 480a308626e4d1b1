"""Random expressions compared with cel-python and Google's C++ library. If a library has a verdict, drawbridge's is equal.

Both libraries lack much that Kubernetes adds (quantities, optional fields, IP addresses), and have a verdict for about a third of the
expressions.
"""

from collections import defaultdict

import celpy
import pytest
from cel_expr_python import cel
from celpy.adapter import json_to_cel

from tests.dra.cel.devices import GPU, VIEWS
from tests.dra.cel.generator import Generator
from tests.dra.cel.judge import drawbridge_answer
from tests.limits import draws

# Known differences: cel-python finds no field of a map literal in has(). For a duration, C++ returns the milliseconds beyond the full
# second, and Go returns the whole duration in milliseconds.
KNOWN = {"cel-python": ("has(",), "C++": ("getMilliseconds",)}


def plain(device):
    """Return the device as nested maps, the only form that these libraries accept."""
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


@pytest.mark.parametrize(("name", "peer"), [("cel-python", cel_python), ("C++", cpp)])
def test_other_libraries_give_the_same_verdicts(name, peer):
    judge, generator, compared = peer(), Generator(4), 0
    for _ in range(draws(1_000)):
        text = generator.expression()
        answer = drawbridge_answer(text, "stored", VIEWS[:1])
        if not answer or answer["verdicts"][0] == "error" or any(part in text for part in KNOWN[name]):
            continue
        try:
            verdict = judge(text)
        except Exception:  # noqa: BLE001  the library lacks a function; each library has errors of its own
            continue
        if isinstance(verdict, bool):
            compared += 1
            assert answer["verdicts"][0] == verdict, text
    assert compared > draws(1_000) // 5
