"""The API server's own validation, as a fixture."""

import pytest

from dra.validation.fields import gates
from tests.dra.validation import corpus
from tests.referees import referee


class ApiServer:
    """Asks the validation code of kube-apiserver about many objects at once."""

    def __init__(self, oracle):
        self._oracle = oracle

    def ask(self, objects, enabled=gates.DEFAULT, **options):
        """Return an answer for each object."""
        switched = {gate: gate in enabled for gate in gates.ALL}
        # DRAPartitionableDevicesType depends on the first gate. The second gate depends on DRADeviceTaints.
        switched["DRAResourcePoolStatus"] = enabled >= gates.ALL
        switched["DRADeviceTaintRules"] = "DRADeviceTaints" in enabled
        return self._oracle.ask_all({"object": value, "gates": switched, **options} for value in objects)

    def changes(self, original, count, seed):
        """Return changed objects (`corpus.sample`); with recorded answers, every third of them."""
        return corpus.sample(original, count, seed)[:: self._oracle.cases(1, recorded=3)]

    def refuses(self, answer):
        """Return whether an answer is a refusal. Errors about admin access do not count: they depend on a namespace's labels."""
        return bool(answer.get("decode") or [e for e in answer["errors"] if "admin access" not in e["message"]])


@pytest.fixture(scope="session")
def api_server():
    with referee("validate") as oracle:
        yield ApiServer(oracle)
