"""Which registrations of device plugins are accepted."""

from node.messages import RegisterRequest
from node.plugins import refusal
from tests.loops import every


def request(**changes):
    return RegisterRequest(**{"version": "v1beta1", "endpoint": "nvidia.sock", "resource": "nvidia.com/gpu"} | changes)


PUBLIC_ENDPOINTS = ["nvidia.sock", "gdp-c3F1YXQuYWkvemVybw==-1795365625.sock", "a+b_c.sock"]
PUBLIC_RESOURCES = ["nvidia.com/gpu", "huawei.com/Ascend910", "a.b/c.d-e_f"]


def test_names_of_public_plugins_are_accepted():
    assert [refusal(request(endpoint=endpoint)) for endpoint in PUBLIC_ENDPOINTS] == [""] * 3
    assert [refusal(request(resource=resource)) for resource in PUBLIC_RESOURCES] == [""] * 3


@every(
    ("changes", "problem"),
    [
        ({"version": "v1alpha1"}, "(expected v1beta1)"),
        ({"version": ""}, "(expected v1beta1)"),
        ({"endpoint": "../kubelet/pods.sock"}, "is not a valid socket name"),
        ({"endpoint": "/etc/passwd"}, "is not a valid socket name"),
        ({"endpoint": ".."}, "is not a valid socket name"),
        ({"endpoint": ""}, "is not a valid socket name"),
        ({"endpoint": "a" * 101}, "is not a valid socket name"),
        ({"endpoint": "kubelet.sock"}, "own socket"),
        ({"resource": "cpu"}, "is not a valid resource name"),
        ({"resource": "rdma/hca_shared_devices_a"}, "is not a valid resource name"),
        ({"resource": "kubernetes.io/x"}, "reserved by Kubernetes"),
        ({"resource": "a.kubernetes.io/x"}, "reserved by Kubernetes"),
        ({"resource": 'a.b/c" || true || "'}, "is not a valid resource name"),
        ({"resource": "a.b/" + "c" * 61}, "at most 64 characters"),
    ],
)
def test_an_invalid_registration_is_refused_with_its_reason(changes, problem):
    assert problem in refusal(request(**changes))
