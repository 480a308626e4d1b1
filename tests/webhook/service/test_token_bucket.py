"""The budget of cheap callers: a little for each, little for all together."""

import pytest

from webhook.service.deciding.limits import SHARE, TokenBucket


def test_spent_tokens_return_slowly_and_never_exceed_the_initial_amount():
    purse = TokenBucket(0.05)
    assert purse.left(100.0) == 0.05
    purse.spend(0.04)
    assert purse.left(100.0) == pytest.approx(0.01)
    assert purse.left(100.1) == pytest.approx(0.01 + 0.1 * SHARE)
    assert purse.left(1e6) == 0.05


def test_a_token_bucket_owes_nothing_and_gains_nothing_by_a_quick_caller():
    purse = TokenBucket(0.05)
    purse.left(0.0)
    purse.spend(1.0)
    assert purse.left(0.0) == 0.0
    purse.spend(-1.0)
    assert purse.left(0.0) == 0.0
