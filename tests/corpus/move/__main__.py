"""Count the cases: `python -m tests.corpus.move [-v]`."""

import sys
from collections import Counter

from tests.corpus.move import grade, judge, tables

total: Counter[str] = Counter()
for kind, cases in tables().items():
    counts = Counter(map(grade, cases))
    total += counts
    sys.stdout.write(f"{kind}: {len(cases)} cases, {dict(sorted(counts.items()))}\n")
    for case in cases:
        if "-v" in sys.argv and grade(case) != "right":
            outcome, messages = judge(case)
            sys.stdout.write(f"  {case.name}: wanted {case.becomes} {case.says!r}, became {outcome}\n    {messages}\n")
sys.stdout.write(f"all: {total.total()} cases, {dict(sorted(total.items()))}\n")
