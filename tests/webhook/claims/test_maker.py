"""The maker of claims stops at the end of its budget. A result that it has cached costs nothing."""

import pytest

from dra.budget import Budget
from dra.errors import OutOfBudget
from tests.webhook.admission.reviews import CLASS, NODE, SLICE
from webhook.claims.maker import ClaimMaker
from webhook.dialects import Demand
from webhook.state.configuration import Configuration
from webhook.state.inventory import Inventory

MAKER = ClaimMaker(Configuration(), Inventory.gather([CLASS], [SLICE], [NODE]))


@pytest.mark.parametrize("field", ["models", "not_models", "uuids", "not_uuids"])
def test_selectors_of_long_lists_exceed_a_small_budget_unless_cached(field):
    long_demand = Demand(target="gpu", **{field: tuple(f"{field}{i}" for i in range(100))})
    with pytest.raises(OutOfBudget):
        MAKER.make(long_demand, Budget(max_call_steps=4_000))
    first_result = MAKER.make(long_demand, Budget())
    assert f"{field}99" in str(first_result.claims.specs)
    assert MAKER.make(long_demand, Budget(max_call_steps=4_000)) is first_result
