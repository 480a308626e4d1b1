"""Colours of devices. The page draws each device as a square on a shelf, which is a group of nodes: all nodes, or those with one value of a label.

Every device has a colour, each colour has a name and a count, and links keep the choice.
"""

import pytest

from analysis.capacity import cards_of, devices_of_nodes
from dashboard.colours import CHOICES, attributes_of, colours_of
from tests.cli.explain.scenes import fleet, held_claim, pod
from tests.dashboard.browser.fleets import plugin_pod
from tests.dashboard.elements import Elements
from tests.dashboard.test_dashboard import dashboard_session, reading_with, source_of, text_of


def fleet_of_teams(*counts):
    """Return six nodes with eight devices each. A team, which is a namespace, holds as many devices as its count says."""
    objects, i = [*fleet(6, 8)], 0
    for team, count in enumerate(counts):
        for _ in range(count):
            obj = held_claim(f"c{i}", on=f"n{i // 8}/gpu-{i % 8}")
            obj["metadata"]["namespace"] = f"team-{team}"
            objects.append(obj)
            i += 1
    return objects


def colour_devices(by, *objects):
    """Return the nodes, the colours of their devices, and the legend, which names the colours."""
    reading = reading_with(*objects)
    nodes = tuple(devices_of_nodes((), reading))
    colours = colours_of(nodes, by, reading)
    return nodes, colours, dict(colours.legend())


def test_frequent_values_have_own_colours_and_others_share_one():
    nodes, colours, legend = colour_devices("namespace", *fleet_of_teams(1, 9, 5, 5, 4, 3, 3, 2, 2))
    counts = colours.counts(nodes)
    assert counts == {"free": 14, "k1": 9, "k2": 5, "k3": 5, "k4": 4, "k5": 3, "k6": 3, "k7": 2, "k8": 3}
    assert [legend[key] for key in ("k1", "k2", "k3", "k7", "k8")] == [
        "team-1",
        "team-2",
        "team-3",
        "team-7",
        "2 others",
    ]
    assert colours.words({"free": 14, "k1": 9, "k8": 3}) == "14 not held, 9 team-1, 3 others"


@pytest.mark.parametrize("by", CHOICES)
def test_every_device_is_counted_once_with_each_colouring(by):
    nodes, colours, legend = colour_devices(by, *fleet_of_teams(2, 1))
    counts = colours.counts(nodes)
    assert sum(counts.values()) == 48  # six nodes with eight devices each
    assert counts.keys() <= legend.keys()
    assert {colours.css_class(card) for card in cards_of(nodes)} == counts.keys()


def test_an_unknown_choice_colours_by_state():
    _, colours, legend = colour_devices("<script>", *fleet_of_teams(1))
    assert (colours.by, list(legend)) == ("state", ["free", "held"])


async def test_links_keep_the_choice_and_squares_have_the_chosen_colours():
    async with dashboard_session(source_of(*fleet_of_teams(3, 2))) as session:
        page = Elements(await text_of(session, "/?by=zone&colour=namespace"))
        assert any("colour=namespace" in target and "shelf=" in target for target in page.targets())
        shelf = await text_of(session, "/?by=&shelf=all%20nodes&colour=namespace")
        assert shelf.count('class="cell k1"') == 3 + 1  # once more in the legend
        assert shelf.count('class="cell k2"') == 2 + 1
        assert "team-0" in Elements(shelf).text
        assert "colour=" not in "".join(Elements(await text_of(session, "/")).targets())


def test_a_device_that_several_nodes_reach_counts_once():
    objects = fleet(2, 4)
    [first, second] = [obj for obj in objects if obj["kind"] == "ResourceSlice"]
    del first["spec"]["nodeName"]
    first["spec"]["allNodes"] = True
    nodes, colours, _ = colour_devices("driver", *(obj for obj in objects if obj is not second))
    assert [len(node.devices) for node in nodes] == [4, 4]
    assert colours.counts(nodes) == {"k1": 4}


def change_devices(objects, change):
    """Call `change` with the number and the fields of each device; return the objects."""
    for obj in objects:
        if obj["kind"] == "ResourceSlice":
            for i, device in enumerate(obj["spec"]["devices"]):
                change(i, device)
    return objects


def test_health_colours_devices_by_taint():
    def taint(i, device):
        if i < 3:
            device["taints"] = [{"key": f"example.com/{'xid' if i else 'hot'}", "effect": "NoExecute"}]

    nodes, colours, legend = colour_devices("health", *change_devices(fleet(2, 4), taint))
    assert colours.counts(nodes) == {"free": 2, "k1": 4, "k2": 2}
    assert (legend["free"], legend["k1"]) == ("no taint", "example.com/xid (NoExecute)")


def test_attributes_with_few_values_can_colour_devices():
    def set_attributes(i, device):
        device["attributes"] = {
            "generation": {"string": "old" if i else "new"},
            "alike": {"string": "x"},
            "serial": {"string": f"{id(device)}"},
            "example.com/ready": {"bool": i > 1},
            "lanes": {"ints": [i]},
        }

    objects = change_devices(fleet(20, 4), set_attributes)
    assert attributes_of(reading_with(*objects).stock) == ("example.com/ready", "generation")
    nodes, colours, legend = colour_devices("generation", *objects)
    assert (colours.counts(nodes), legend["k1"]) == ({"k1": 60, "k2": 20}, "old")
    _, colours, legend = colour_devices("example.com/ready", *objects)
    assert set(legend.values()) == {"no example.com/ready", "true", "false"}


def test_mechanism_colours_devices_of_claims_and_plugin_pods():
    objects = [*fleet(3, 2), held_claim("c", on="n0/gpu-0"), held_claim("d", on="n2/gpu-0")]
    objects += [plugin_pod("p", "n0", 3), plugin_pod("q", "n1", 2)]
    nodes, colours, legend = colour_devices("mechanism", *objects)
    counts = {legend[colour]: number for colour, number in colours.counts(nodes).items()}
    assert counts == {
        "not held": 4,
        "device plugin, on a node with both": 3,
        "device plugin": 2,
        "claim, on a node with both": 1,
        "claim": 1,
    }


def test_owner_colours_devices_by_the_workload_of_their_pod():
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "1", "controller": True}
    owned_pod = pod("p", "c", nodeName="n0")
    owned_pod["metadata"]["ownerReferences"] = [owner | {"controller": False, "name": "no-controller"}, owner]
    objects = [*fleet(1, 3), held_claim("c", "p", on="n0/gpu-0"), held_claim("d", "q", on="n0/gpu-1"), owned_pod, pod("q", "d", nodeName="n0")]  # fmt: skip
    nodes, colours, legend = colour_devices("owner", *objects)
    assert (colours.counts(nodes), legend["k1"]) == ({"free": 2, "k1": 1}, "Job default/train")
