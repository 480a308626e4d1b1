"""The rules of a DeviceCompatibility: compatibleOnlyWith, and the proposed meaning of compatibility groups.

Upstream has neither, so the answers are compared with a brute-force search.
"""

import random

import pytest

from allocator import SearchOptions, SearchVerdict, allocate
from allocator.search.supply import ProofLimits
from allocator.search.walk import Cuts
from dra.objects.claim import DeviceClass, ResourceClaim
from dra.stock.stock import Stock
from dra.wire import convert
from tests.allocator.brute import Brute
from tests.dra.samples import DRIVER, compatibility, holding, node, slice_

ATTRIBUTES = f'device.attributes["{DRIVER}"]'
EXPRESSIONS = [
    "",
    f'{ATTRIBUTES}.mode == "mig"',
    f'{ATTRIBUTES}.mode != "full"',
    f'{ATTRIBUTES}.gpu != "0"',
    f'{ATTRIBUTES}.gpu == "0" || {ATTRIBUTES}.mode == "mps"',
    f'{ATTRIBUTES}.missing == "x"',
    "false",
]
CLASSES = [
    convert(
        {
            "metadata": {"name": mode},
            "spec": {"selectors": [{"cel": {"expression": f'{ATTRIBUTES}.mode == "{mode}"'}}]},
        },
        DeviceClass,
    )
    for mode in ("full", "mig", "mps")
] + [convert({"metadata": {"name": "any"}, "spec": {}}, DeviceClass)]


def random_fleet(rng):
    gpus = rng.choice((1, 2))
    devices = []
    for gpu in range(gpus):
        for mode, count, amount in (("full", 1, "4"), ("mig", 2, "2"), ("mps", 2, "1")):
            for number in range(rng.randrange(count + 1)):
                groups = (
                    {"compatibilityGroups": rng.sample(["a", "b"], rng.choice((1, 2)))} if rng.random() < 0.4 else {}
                )
                consumes = [{"counterSet": f"set{gpu}", "counters": {"m": {"value": amount}}, **groups}]
                device = {
                    "name": f"{mode}-{gpu}-{number}",
                    "attributes": {"mode": {"string": mode}, "gpu": {"string": str(gpu)}},
                }
                devices.append({**device, **({"consumesCounters": consumes} if rng.random() < 0.8 else {})})
    rng.shuffle(devices)
    slices = [
        slice_("a", *devices, count=2),
        slice_("c", count=2, counters={f"set{gpu}": {"m": rng.choice(("4", "6"))} for gpu in range(gpus)}),
    ]
    rules = [
        compatibility(
            f"r{number}",
            rng.choice(EXPRESSIONS),
            rng.choice(["", f'{ATTRIBUTES}.mode == "{rng.choice(["full", "mig", "mps"])}"']),
            scope=rng.choice(("pool", "counterSet")),
            groups=rng.choice(("upstream", "proposal")),
        )
        for number in range(rng.choice((0, 1, 1, 2)))
    ]
    holders = [holding("held", rng.choice(devices)["name"])] if devices and rng.random() < 0.4 else []
    return Stock.of(slices=slices, nodes=[node()], classes=CLASSES, compatibilities=rules, claims=holders)


def random_claims(rng):
    return [
        convert(
            {
                "metadata": {"name": f"c{number}", "uid": f"c{number}"},
                "spec": {
                    "devices": {
                        "requests": [
                            {
                                "name": f"r{n}",
                                "exactly": {
                                    "deviceClassName": rng.choice(("full", "mig", "mps", "any", "any")),
                                    "allocationMode": "ExactCount",
                                    "count": rng.choice((1, 1, 2)),
                                },
                            }
                            for n in range(rng.choice((1, 2)))
                        ]
                    }
                },
            },
            ResourceClaim,
        )
        for number in range(rng.choice((1, 1, 2)))
    ]


def devices_of(answer):
    if not answer.feasible:
        return None
    return [result.device for allocation in answer.allocations for result in allocation.allocation.devices.results]


def test_the_search_finds_the_devices_of_the_brute_force_search():
    feasible = 0
    for seed in range(250):
        rng = random.Random(seed)
        stock, claims = random_fleet(rng), random_claims(rng)
        expected = Brute(stock, "n0", claims).first()
        for cuts in (Cuts(), Cuts(patience=0, limits=rng.choice((ProofLimits(), ProofLimits(3, 3, 10, 2))))):
            answer = allocate(stock, "n0", claims, options=SearchOptions(cuts=cuts))
            assert answer.verdict in (SearchVerdict.FEASIBLE, SearchVerdict.INFEASIBLE)
            assert devices_of(answer) == expected, seed
        feasible += expected is not None
    assert feasible > 60


def four_mode_stock(*rules, holders=()):
    """Return a fleet with the GPU of the proposal: 152 multiprocessors in a counter set, for devices of four modes."""
    amounts = {"exclusive": "152", "fraction-0": "76", "fraction-1": "76", "mps-0": "38", "mps-1": "38", "mig-0": "57"}
    groups = {"exclusive": [], "fraction": ["shared"], "mps": ["shared"], "mig": ["mig"]}
    devices = [
        {
            "name": name,
            "attributes": {"mode": {"string": name.split("-")[0]}, "gpu": {"string": "0"}},
            "consumesCounters": [
                {
                    "counterSet": "multiprocessors",
                    "counters": {"sm": {"value": amount}},
                    "compatibilityGroups": groups[name.split("-")[0]],
                }
            ],
        }
        for name, amount in amounts.items()
    ]
    slices = [slice_("a", *devices, count=2), slice_("c", count=2, counters={"multiprocessors": {"sm": "152"}})]
    return Stock.of(slices=slices, nodes=[node()], classes=CLASSES, compatibilities=rules, claims=holders)


def can_serve(stock, mode):
    body = {
        "deviceClassName": "any",
        "allocationMode": "ExactCount",
        "count": 1,
        "selectors": [{"cel": {"expression": f'{ATTRIBUTES}.mode == "{mode}"'}}],
    }
    spec = {"devices": {"requests": [{"name": "r", "exactly": body}]}}
    return allocate(
        stock, "n0", [convert({"metadata": {"name": "c", "uid": "c"}, "spec": spec}, ResourceClaim)]
    ).feasible


@pytest.mark.parametrize(
    ("used_device", "mode", "can_be_used"),
    [
        ("fraction-0", "fraction", True),
        ("fraction-0", "mps", True),
        ("mps-0", "mps", True),
        ("mps-0", "mig", False),
        ("mig-0", "mps", False),
        ("mig-0", "exclusive", False),
        ("exclusive", "mps", False),
    ],
)
def test_modes_share_a_gpu_only_as_proposed(used_device, mode, can_be_used):
    assert can_serve(four_mode_stock(holders=[holding("h", used_device)]), mode) is can_be_used


def test_a_device_without_groups_is_exclusive_only_upstream():
    device_without_groups = {
        "name": "loner",
        "attributes": {"mode": {"string": "loner"}},
        "consumesCounters": [{"counterSet": "s", "counters": {"m": {"value": "1"}}}],
    }
    device_with_group = {
        "name": "other",
        "attributes": {"mode": {"string": "other"}},
        "consumesCounters": [{"counterSet": "s", "counters": {"m": {"value": "1"}}, "compatibilityGroups": ["g"]}],
    }
    slices = [
        slice_("a", device_without_groups, device_with_group, count=2),
        slice_("c", count=2, counters={"s": {"m": "4"}}),
    ]
    for groups, can_be_used_together in (("upstream", False), ("proposal", True)):
        stock = Stock.of(
            slices=slices,
            nodes=[node()],
            classes=CLASSES,
            compatibilities=[compatibility(groups=groups)],
            claims=[holding("h", "other")],
        )
        assert can_serve(stock, "loner") is can_be_used_together


def test_a_rule_holds_whichever_device_was_allocated_first():
    rule = compatibility("alone", "false", f'{ATTRIBUTES}.mode == "mig"')
    assert not can_serve(four_mode_stock(rule, holders=[holding("h", "mig-0")]), "mps")
    assert not can_serve(four_mode_stock(rule, holders=[holding("h", "mps-0")]), "mig")
    assert can_serve(four_mode_stock(rule, holders=[holding("h", "mps-0")]), "mps")
