"""The role of a place does not depend on what stands around the object: a known object has it in a Template, a List, a wrapper, and in values."""

import pytest

from analysis.migration.charts import DRIVER_CHARTS, EXPORTERS
from tests.corpus.move import roles
from tests.loops import every
from webhook.reading import PlaceRole, place_in
from webhook.reading.roles import _FORMS, _KINDS
from webhook.reading.suppliers import OTHER_CHARTS, PLUGINS

# By name: the pointer to the object, and an object with the object inside.
SETTINGS = {
    "a List": ("/items/0", lambda obj: roles.obj("v1", "List", items=[obj])),
    "a Template": ("/objects/0", lambda obj: roles.obj("template.openshift.io/v1", "Template", objects=[obj])),
    "an AppWrapper": ("/spec/components/0/template", lambda obj: roles.obj("workload.codeflare.dev/v1beta2", "AppWrapper", {"components": [{"template": obj}]})),
    "an unknown kind": ("/spec/rawTemplate", lambda obj: roles.obj("lab.example/v1", "Holder", {"rawTemplate": obj})),
    "values": ("/spec/values/extraObjects/0", lambda obj: roles.release("app", {"extraObjects": [obj]})),
    "values of a plugin": ("/spec/values/extraObjects/0", lambda obj: roles.release("nvidia-device-plugin", {"extraObjects": [obj]})),
    "a limit": ("/spec/hard/obj", lambda obj: roles.obj("lab.example/v1", "Holder", {"hard": {"obj": obj}})),
}  # fmt: skip
PLACES = [
    ("v1", "Pod", "/spec/containers/0/resources/limits", PlaceRole.CONSUMES),
    ("ray.io/v1", "RayCluster", "/spec/headGroupSpec/template/spec/containers/0", PlaceRole.CONSUMES),
    ("lab.example/v1", "Thing", "/spec/gpu", PlaceRole.UNKNOWN),
    ("lab.example/v1", "Thing", "/spec/resourceQuota/hard", PlaceRole.LIMITS),
    ("lab.example/v1", "Thing", "/spec/nodes/0/allocatable", PlaceRole.DESCRIBES),
    ("lab.example/v1", "Thing", "/spec/sharing/timeSlicing/resources/0", PlaceRole.SUPPLIES),
    ("chainsaw.kyverno.io/v1alpha1", "Test", "/spec/steps/0/try/0/assert/resource/spec", PlaceRole.REPEATS),
    ("chainsaw.kyverno.io/v1alpha1", "Test", "/spec/steps/0/try/0/apply/resource/spec", PlaceRole.UNKNOWN),
    ("workload.codeflare.dev/v1beta1", "AppWrapper", "/spec/custompodresources", PlaceRole.REPEATS),
    ("workload.codeflare.dev/v1beta2", "AppWrapper", "/spec/custompodresources", PlaceRole.CONSUMES),
    ("karpenter.sh/v1alpha5", "Provisioner", "/spec/limits", PlaceRole.LIMITS),
    ("karpenter.sh/v1", "Provisioner", "/spec/limits", PlaceRole.UNKNOWN),
]


@every(("version", "kind", "pointer", "role"), PLACES)
def test_a_place_has_its_role_in_every_setting(version, kind, pointer, role):
    obj = roles.obj(version, kind)
    assert place_in(obj, pointer).role is role
    for above, setting in SETTINGS.values():
        assert place_in(setting(obj), above + pointer).role is role


@every(("full_kind", "place"), _KINDS.items())
def test_each_kind_of_the_table_keeps_its_role_in_every_setting_and_below_every_form(full_kind, place):
    group, kind = full_kind
    version = place.versions[0] if place.versions else "v1"
    obj = roles.obj(f"{group}/{version}" if group else version, kind)
    assert not place.role.may_request
    assert place.why
    for above, setting in SETTINGS.values():
        for form in ("any", *_FORMS):
            assert place_in(setting(obj), f"{above}/spec/{form}/limits") == place


@pytest.mark.parametrize(
    "names", [PLUGINS, OTHER_CHARTS, DRIVER_CHARTS, EXPORTERS], ids=["plugins", "others", "drivers", "exporters"]
)
def test_a_release_of_each_supplying_chart_requests_nothing(names):
    assert names
    for name in names:
        for made in (roles.release(name, {}), roles.application(name, {})):
            assert place_in(made, "/spec/values/resources/limits").role is PlaceRole.SUPPLIES


def test_a_release_with_a_chart_that_is_not_known_may_request():
    sources = {"sources": [{"chart": "dcgm-exporter"}, {"chart": "llm"}]}
    for made in (roles.release("llm", {}), roles.obj("argoproj.io/v1alpha1", "Application", sources)):
        assert place_in(made, "/spec/values/gpu").role is PlaceRole.UNKNOWN
