"""The rules of a DeviceCompatibility: compatibleOnlyWith, and the proposed meaning of compatibility groups.

Upstream has neither, so the answers are compared with a brute-force search.
"""

import random

import pytest

from allocator import SearchOptions, SearchVerdict, allocate
from allocator.search.supply import ProofLimits
from allocator.search.walk import Cuts
from dra.stock.stock import Stock
from tests.allocator.brute import Brute
from tests.dra.samples import DRIVER, compatibility, consuming, holding, node, slice_
from tests.objects import claim, device_class, exactly, typed

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
    *(typed(device_class(mode, f'{ATTRIBUTES}.mode == "{mode}"')) for mode in ("full", "mig", "mps")),
    typed(device_class("any")),
]


def random_device(rng, mode, gpu, number, amount):
    groups = rng.sample(["a", "b"], rng.choice((1, 2))) if rng.random() < 0.4 else ()
    sets = {f"set{gpu}": {"m": amount}} if rng.random() < 0.8 else {}
    return device_of(mode, gpu, consuming(f"{mode}-{gpu}-{number}", groups, **sets))


def device_of(mode, gpu, device):
    """Add the attributes of a mode and a GPU to a device."""
    return device | {"attributes": {"mode": {"string": mode}, "gpu": {"string": str(gpu)}}}


def random_fleet(rng):
    gpus = rng.choice((1, 2))
    devices = [
        random_device(rng, mode, gpu, number, amount)
        for gpu in range(gpus)
        for mode, count, amount in (("full", 1, "4"), ("mig", 2, "2"), ("mps", 2, "1"))
        for number in range(rng.randrange(count + 1))
    ]
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
    return [random_claim(rng, f"c{number}") for number in range(rng.choice((1, 1, 2)))]


def random_claim(rng, name):
    classes = ("full", "mig", "mps", "any", "any")
    numbers = range(rng.choice((1, 2)))
    requests = [exactly(rng.choice(classes), name=f"r{n}", count=rng.choice((1, 1, 2))) for n in numbers]
    return typed(claim(name, *requests, uid=name))


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
    modes = {name: name.split("-")[0] for name in amounts}
    devices = [
        device_of(modes[name], 0, consuming(name, groups[modes[name]], multiprocessors={"sm": amount}))
        for name, amount in amounts.items()
    ]
    slices = [slice_("a", *devices, count=2), slice_("c", count=2, counters={"multiprocessors": {"sm": "152"}})]
    return Stock.of(slices=slices, nodes=[node()], classes=CLASSES, compatibilities=rules, claims=holders)


def can_serve(stock, mode):
    request = exactly("any", selector=f'{ATTRIBUTES}.mode == "{mode}"')
    return allocate(stock, "n0", [typed(claim("c", request, uid="c"))]).feasible


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
    loner = device_of("loner", 0, consuming("loner", s={"m": "1"}))
    other = device_of("other", 0, consuming("other", ["g"], s={"m": "1"}))
    slices = [slice_("a", loner, other, count=2), slice_("c", count=2, counters={"s": {"m": "4"}})]
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
