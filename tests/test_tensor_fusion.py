"""docs/comparison.md: each behaviour of Tensor Fusion's allocator has a test that exists, or the reason why it is missing."""

import re
from pathlib import Path

from docs.tensor_fusion import BEHAVIOURS

ROOT = Path(__file__).parent.parent
BEHAVIOUR_COUNT = 43  # in internal/gpuallocator of Tensor Fusion


def test_no_behaviour_is_left_out_or_counted_twice():
    assert len({behaviour.name for behaviour in BEHAVIOURS}) == len(BEHAVIOURS) == BEHAVIOUR_COUNT


def test_each_behaviour_has_an_existing_test_or_a_reason():
    without_test = []
    for behaviour in BEHAVIOURS:
        path, _, test = behaviour.test.partition("::")
        source = (ROOT / path).read_text(encoding="utf-8") if path else ""
        if not re.search(rf"^(?:async )?def {test}\(", source, re.MULTILINE) or not test:
            without_test.append(behaviour)
    assert [behaviour.name for behaviour in without_test if behaviour.ours or not behaviour.lacks] == []
    assert all(behaviour.ours for behaviour in BEHAVIOURS if behaviour.test)


def test_the_page_counts_what_is_whole():
    states = [behaviour.state for behaviour in BEHAVIOURS]
    page = " ".join((ROOT / "docs" / "comparison.md").read_text(encoding="utf-8").split())
    whole, part, missing = (states.count(state) for state in ("yes", "in part", "no"))
    assert f"drawbridge has {whole}, {part} more in part, and {missing} not" in page
