"""Pods and workloads whose device requests do not work."""

import json

import pytest

from cluster import manifests
from dra.objects import PodSpec
from dra.validation import misnamed_kind, review
from dra.validation.fields import pod_schema, shape
from tests.dra.validation import openapi
from tests.dra.validation.manifests import claim, codes, codes_and_paths, join, messages, request
from tests.loops import every

SPEC = """containers: [{name: c, image: x, resources: {claims: [{name: gpu}]}}], resourceClaims: [{name: gpu, resourceClaimName: c}]"""


def pod(spec=SPEC):
    return f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{{spec}}}\n"


def deployment(replicas, spec=SPEC):
    return f"apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d}}\nspec: {{replicas: {replicas}, template: {{spec: {{{spec}}}}}}}\n"


def cron_job(spec):
    return f"apiVersion: batch/v1\nkind: CronJob\nmetadata: {{name: j}}\nspec: {{jobTemplate: {{spec: {{template: {{spec: {{{spec}}}}}}}}}}}\n"


def load(text):
    return [document.object for document in manifests.parse(text)]


def test_a_pod_with_its_claim_has_no_findings():
    assert not codes(join(pod(), claim(request())))


@pytest.mark.parametrize("spec", ["", "containers: []"])
@pytest.mark.parametrize(("wrap", "path"), [(pod, "/spec"), (cron_job, "/spec/jobTemplate/spec/template/spec")])
def test_a_pod_needs_a_container(spec, wrap, path):
    assert ("D101", f"{path}/containers") in codes_and_paths(wrap(spec))


def test_a_pod_claim_must_have_exactly_one_source():
    assert codes_and_paths(pod("containers: [], resourceClaims: [{name: gpu}]")) >= {("D201", "/spec/resourceClaims/0")}
    with_two_sources = (
        "containers: [], resourceClaims: [{name: gpu, resourceClaimName: a, resourceClaimTemplateName: b}]"
    )
    assert codes_and_paths(pod(with_two_sources)) >= {("D203", "/spec/resourceClaims/0")}


def test_an_unknown_claim_of_a_container_gets_a_suggestion():
    text = pod(SPEC.replace("claims: [{name: gpu}]", "claims: [{name: gpus}]"))
    assert ("D202", "/spec/containers/0/resources/claims/0/name") in codes_and_paths(text)
    assert any("did you mean gpu?" in message for message in messages(text))


def test_a_container_that_names_a_missing_request_is_reported():
    text = pod(SPEC.replace("{name: gpu}]}}", "{name: gpu, request: s}]}}"))
    assert codes_and_paths(join(text, claim(request()))) == {("D205", "/spec/containers/0/resources/claims/0/request")}
    assert not codes(join(text.replace("request: s", "request: r"), claim(request())))


def test_a_missing_claim_is_reported_only_beside_other_claims():
    assert not codes(pod())
    assert codes_and_paths(join(pod(), claim(request(), name="other"))) == {
        ("D206", "/spec/resourceClaims/0/resourceClaimName")
    }


def test_a_claim_missing_here_is_named_with_its_namespace():
    elsewhere = claim(request()).replace("{name: c}", "{name: c, namespace: team}")
    assert any("namespace team" in message for message in messages(join(pod(), elsewhere)))


def test_a_claim_that_no_container_uses_is_mentioned():
    assert codes(pod("containers: [{name: c, image: x}], resourceClaims: [{name: gpu, resourceClaimName: c}]")) == {
        "D204"
    }


MISSPELT = [
    ("containers: [{name: c, image: x, resource: {limits: {nvidia.com/gpu: 1}}}]", "/containers/0/resource", "did you mean resources?"),
    ("containers: [], nodeSelectr: {a: b}", "/nodeSelectr", "did you mean nodeSelector?"),
    ("contaners: [{name: c}]", "/contaners", "did you mean containers?"),
    ("containers: [], Tolerations: []", "/Tolerations", "did you mean tolerations?"),
    ("containers: [], toleration: [{key: a}]", "/toleration", "did you mean tolerations?"),
    ("containers: [{name: c, limits: {nvidia.com/gpu: 1}}]", "/containers/0/limits", ""),
    ("containers: [{name: c, image: x, nodeSelector: {a: b}}]", "/containers/0/nodeSelector", "it is a field of the pod's spec"),
    ("containers: [], image: x", "/image", "it is a field of a container"),
    ("initContainers: [{name: c, imag: x}]", "/initContainers/0/imag", "did you mean image?"),
    ("containers: [{name: c, resources: {limit: {nvidia.com/gpu: 1}}}]", "/containers/0/resources/limit", "did you mean limits?"),
    ("containers: [{name: c, env: [{name: a, vaule: b}]}]", "/containers/0/env/0/vaule", "did you mean value?"),
    ("containers: [{name: c, securityContext: {priviledged: true}}]", "/containers/0/securityContext/priviledged", "did you mean privileged?"),
    ("affinity: {nodeAffinity: {requiredDuringScheduling: {}}}", "/affinity/nodeAffinity/requiredDuringScheduling", ""),
    ("affinity: {nodeAfinity: {}}", "/affinity/nodeAfinity", "did you mean nodeAffinity?"),
    ("topologySpreadConstraints: [{topologykey: a}]", "/topologySpreadConstraints/0/topologykey", "did you mean topologyKey?"),
    ("volumes: [{name: a, configmap: {name: b}}]", "/volumes/0/configmap", "did you mean configMap?"),
    ("containers: [{name: c, newerThanOurTable: 1}]", "/containers/0/newerThanOurTable", ""),
]  # fmt: skip


@every(("spec", "path", "hint"), MISSPELT)
@every("wrap", [pod, lambda spec: deployment(1, spec), cron_job])
def test_an_unknown_pod_field_is_an_error_with_a_suggestion(spec, path, hint, wrap):
    text = wrap(spec)
    pointer_to_spec = {
        "Pod": "/spec",
        "Deployment": "/spec/template/spec",
        "CronJob": "/spec/jobTemplate/spec/template/spec",
    }
    [value] = load(text)
    [finding] = [candidate for candidate in review([value])[0] if candidate.code == "D002"]
    assert (finding.path, finding.severity) == (pointer_to_spec[value["kind"]] + path, "error")
    assert hint in finding.remedy


MISTYPED = [
    ("containers: [{name: c, image: y}]", "/containers/0/image", "expected a text, got true"),  # YAML reads y as true
    ("containers: [{name: c, command: sh -c true}]", "/containers/0/command", "expected a list"),
    ("containers: [{name: c, args: [1]}]", "/containers/0/args/0", "expected a text"),
    ("containers: [{name: c, resources: none}]", "/containers/0/resources", "expected an object"),
    ("containers: [{name: c, ports: [{containerPort: '80'}]}]", "/containers/0/ports/0/containerPort", "expected a whole number"),
    ("containers: [{name: c, livenessProbe: {httpGet: {port: true}}}]", "/containers/0/livenessProbe/httpGet/port", "got true"),
    ("containers: {name: c}", "/containers", "expected a list"),
    ("nodeSelector: [a]", "/nodeSelector", "expected a mapping"),
    ("hostNetwork: 'true'", "/hostNetwork", "expected true or false"),
    ("priority: 99999999999", "/priority", "is not from"),
    ("volumes: [{name: a, emptyDir: {sizeLimit: [1]}}]", "/volumes/0/emptyDir/sizeLimit", "expected an amount"),
    ("affinity: none", "/affinity", "expected an object"),
]  # fmt: skip


@every(("spec", "path", "words"), MISTYPED)
def test_a_pod_value_of_the_wrong_type_is_an_error(spec, path, words):
    [value] = load(deployment(1, spec))
    [finding] = [candidate for candidate in review([value])[0] if candidate.code == "D001"]
    assert (finding.path, finding.severity) == (f"/spec/template/spec{path}", "error")
    assert words in finding.message


WORKLOADS = [
    ("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {templte: {spec: {containers: []}}}", "/spec/templte"),
    ("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspce: {}", "/spce"),
    ("apiVersion: v1\nkind: Pod\nmetadata: {name: d}\nspce: {}", "/spce"),
    ("apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: d}\nspec: {volumeClaimTemplate: []}", "/spec/volumeClaimTemplate"),
    ("apiVersion: batch/v1\nkind: Job\nmetadata: {name: d}\nspec: {paralellism: 2}", "/spec/paralellism"),
    ("apiVersion: batch/v1\nkind: Job\nmetadata: {name: d}\nspec: {template: {spec: {}, specs: {}}}", "/spec/template/specs"),
    ("apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: d}\nspec: {template: {containers: []}}", "/spec/template/containers"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "path"), WORKLOADS)
def test_an_unknown_field_of_a_workload_is_a_warning(text, path):
    assert [finding.path for of_object in review(load(text)) for finding in of_object if finding.code == "D002"] == [
        path
    ]


def test_a_list_instead_of_a_spec_is_an_error():
    assert codes_and_paths("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: [1]") == {
        ("D001", "/spec")
    }


@pytest.mark.real
def test_the_table_of_fields_is_that_of_the_api_server(control_plane):
    document = json.loads(control_plane.kubectl("get", "--raw", "/openapi/v2").stdout)
    assert openapi.fields_of(document) == pod_schema.read_table()


@pytest.mark.real
def test_unknown_fields_and_wrong_types_are_those_of_strict_validation(control_plane):
    for spec, path, words in (*MISSPELT, *MISTYPED):
        text = pod(spec)
        result = control_plane.kubectl(
            "create", "--dry-run=server", "--validate=strict", "-f", "-", input=text, check=False
        )
        assert result.returncode, text
        if (spec, path, words) in MISSPELT:
            assert "unknown field" in result.stderr, (text, result.stderr)
            assert path.rpartition("/")[2] in result.stderr, (text, result.stderr)


def test_keys_of_patches_and_expressions_are_no_unknown_fields():
    text = pod("containers: [{$patch: delete, name: c}], $setElementOrder/containers: [], (length(containers)): 1")
    assert not codes(text)
    assert not codes(text.replace("{name: p}", """{name: p, "(contains(keys(labels), 'a'))": false}"""))
    assert not codes(pod("""containers: {"(name == 'c')": {image: x}}, priority: ($priority)"""))


def test_a_wrong_type_in_an_unread_field_hides_no_finding():
    text = pod(f"{SPEC.replace('resourceClaimName: c', '')}, hostNetwork: 'no'")
    assert {code for code, _ in codes_and_paths(text)} == {"D001", "D201"}


@pytest.mark.parametrize(("replicas", "expected"), [(1, set()), (2, {"D207"})])
def test_many_pods_on_one_claim_are_mentioned(replicas, expected):
    assert codes(deployment(replicas)) == expected


def test_paths_lead_into_the_template_of_a_workload():
    text = deployment(1, "containers: [], resourceClaims: [{name: gpu}]")
    assert ("D201", "/spec/template/spec/resourceClaims/0") in codes_and_paths(text)
    job = "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: j}\nspec: {jobTemplate: {spec: {template: {spec: {containers: [], resourceClaims: [{}]}}}}}"
    assert ("D101", "/spec/jobTemplate/spec/template/spec/resourceClaims/0/name") in codes_and_paths(job)


def test_a_pod_that_bypasses_the_scheduler_gets_no_devices():
    assert codes(pod(SPEC + ", nodeName: node-1")) == {"D208"}


def test_the_form_of_pod_claims_before_131_is_explained():
    text = pod("containers: [], resourceClaims: [{name: gpu, source: {resourceClaimName: c}}]")
    assert {"D002", "D201"} <= codes(text)
    assert any("next to the name" in message for message in messages(text))


def _compare(code_shape, table_shape, path):
    """Yield the paths at which the shape of a wire type accepts less than the shape of the table."""
    if isinstance(code_shape, shape.Fields):
        assert not code_shape.demanded
        for name, member in code_shape.fields.items():
            yield from _compare(member, table_shape.fields[name], f"{path}/{name}")
    elif isinstance(code_shape, shape.ListOf):
        yield from _compare(code_shape.items, table_shape.items, f"{path}/0")
    elif isinstance(code_shape, shape.MapOf):
        yield from _compare(code_shape.values, table_shape.values, f"{path}/x")
    elif type(code_shape) is shape.JsonShape:
        return  # this shape accepts anything
    elif (
        type(code_shape) is not type(table_shape)
        or (type(code_shape) is shape.Integer and table_shape._range[-1] > code_shape._range[-1])
        or (
            type(code_shape) is shape.Scalar
            and (code_shape.name, code_shape.types) != (table_shape.name, table_shape.types)
        )
    ):
        yield path


def test_both_field_tables_reject_the_same_pod_values():
    """If the table has no finding, `pod_problems` does not check the types of the spec again."""
    assert list(_compare(shape.shape_of(PodSpec), pod_schema._shapes()["PodSpec"], "/spec")) == []


def test_wrong_types_are_found_in_the_pod_fields_read():
    text = pod("containers: [{name: c, image: x, env: [{name: A, value: 1}], resources: {limits: {cpu: [1]}}}]")
    assert codes_and_paths(text) == {
        ("D001", "/spec/containers/0/env/0/value"),
        ("D001", "/spec/containers/0/resources/limits/cpu"),
    }


AMOUNTS = [
    ("limits: {nvidia.com/gpu: 2}", []),
    ("limits: {nvidia.com/gpu: 2}, requests: {nvidia.com/gpu: '2'}", []),
    ("limits: {cpu: 500m, memory: 1536Mi}, requests: {cpu: 100m}", []),
    ("limits: {nvidia.com/gpumem: 3Gi, nvidia.com/gpu: 2e0}", []),
    ("limits: {nvidia.com/gpu: null}", []),
    ("limits: {nvidia.com/gpu: 2}, requests: {nvidia.com/gpu: 1}", ["requests/nvidia.com~1gpu"]),
    ("requests: {nvidia.com/gpu: 1}", ["requests/nvidia.com~1gpu"]),
    ("limits: {nvidia.com/gpu: 0.5}", ["limits/nvidia.com~1gpu"]),
    ("limits: {nvidia.com/gpu: 1500m}", ["limits/nvidia.com~1gpu"]),
    ("limits: {nvidia.com/gpu: -1}", ["limits/nvidia.com~1gpu"]),
    ("limits: {nvidia.com/gpu: -1500m}", ["limits/nvidia.com~1gpu"]),
    ("limits: {nvidia.com/gpu: ' 1 '}", []),
    ("limits: {nvidia.com/gpu: 9223372036854775807}", []),  # in thousandths it overflows an int64
    ("limits: {nvidia.com/gpu: '9e19'}", []),
    ("limits: {nvidia.com/gpu: 10000000000000000000}", ["limits/nvidia.com~1gpu"]),
    (f"limits: {{nvidia.com/gpu: '{'9' * 310}'}}", []),
    (f"limits: {{nvidia.com/gpu: '{'1' * 310}'}}", ["limits/nvidia.com~1gpu"]),
]


@every(("resources", "paths"), AMOUNTS)
def test_amounts_of_extended_resources_are_whole_and_not_overcommitted(resources, paths):
    for kind in ("containers", "initContainers"):
        containers = f"{kind}: [{{name: c, image: x, resources: {{{resources}}}}}]"
        reported = {("R001", f"/spec/{kind}/0/resources/{path}") for path in paths}
        assert codes_and_paths(pod(containers)) - {("D101", "/spec/containers")} == reported


NAMES = [
    ("limits: {gpu: 1}", ["limits/gpu"]),
    ("limits: {gpus: 1, cpu: 1}, requests: {gpus: 1}", ["limits/gpus", "requests/gpus"]),
    ("limits: {requests.nvidia.com/gpu: 1}", ["limits/requests.nvidia.com~1gpu"]),
    ("limits: {NVIDIA.com/gpu: 1}", ["limits/NVIDIA.com~1gpu"]),
    ("limits: {nvidia.соm/gpu: 1}", ["limits/nvidia.соm~1gpu"]),
    ("limits: {nvidia.com/gpu.: 1}", ["limits/nvidia.com~1gpu."]),
    ("limits: {'nvidia.com/gpu ': 1}", ["limits/nvidia.com~1gpu "]),
    ("limits: {nvidia.com/gpu/x: 1}", ["limits/nvidia.com~1gpu~1x"]),
    ("limits: {cpu: 1, memory: 1Gi, ephemeral-storage: 1Gi, hugepages-2Mi: 2Mi}", []),
    ("limits: {node.kubernetes.io/gpu: 1}", []),
]


@pytest.mark.parametrize(("resources", "paths"), NAMES)
def test_invalid_resource_names_are_reported(resources, paths):
    containers = f"containers: [{{name: c, image: x, resources: {{{resources}}}}}]"
    assert codes_and_paths(pod(containers)) == {("D213", f"/spec/containers/0/resources/{path}") for path in paths}


@pytest.mark.real
def test_extended_resource_amounts_are_validated_as_by_the_server(control_plane):
    pod_level = ("containers: [{name: c, image: x}], resources: {limits: {cpu: 1, nvidia.com/gpu: 1}}", ["whole"])
    pods = [
        (f"containers: [{{name: c, image: x, resources: {{{text}}}}}]", paths) for text, paths in (*AMOUNTS, *NAMES)
    ]
    for text, paths in (*pods, pod_level):
        result = control_plane.kubectl("create", "--dry-run=server", "-f", "-", input=pod(text), check=False)
        assert bool(result.returncode) == bool(paths), (text, result.stderr)
        assert bool(codes_and_paths(pod(text))) == bool(paths)


EPHEMERAL = "ephemeralContainers: [{name: e, image: x, terminationMessagePolicy: File, imagePullPolicy: Always}]"


def test_ephemeral_containers_are_added_to_existing_pods():
    text = f"containers: [{{name: c, image: x}}], {EPHEMERAL}"
    assert codes_and_paths(pod(text)) == {("D210", "/spec/ephemeralContainers")}
    assert codes_and_paths(pod(text).replace("{name: p}", "{name: p, uid: u}")) == set(), (
        "a pod of a cluster is judged as a new pod"
    )
    assert codes_and_paths(pod("containers: [{name: c, image: x}], ephemeralContainers: []")) == set()
    template = deployment(1).replace("{spec: {containers", f"{{spec: {{{EPHEMERAL}, containers")
    assert codes_and_paths(template) == {("D210", "/spec/template/spec/ephemeralContainers")}


@pytest.mark.real
def test_ephemeral_containers_are_refused_at_creation(control_plane):
    text = pod(f"containers: [{{name: c, image: x}}], {EPHEMERAL}")
    result = control_plane.kubectl("create", "--dry-run=server", "-f", "-", input=text, check=False)
    assert result.returncode
    assert "spec.ephemeralContainers" in result.stderr
    empty = pod("containers: [{name: c, image: x}], ephemeralContainers: []")
    control_plane.kubectl("create", "--dry-run=server", "-f", "-", input=empty)


def test_an_extended_resource_at_pod_level_is_reported():
    text = pod("containers: [{name: c, image: x}], resources: {limits: {cpu: 1, nvidia.com/gpu: 1}}")
    assert codes_and_paths(text) == {("R001", "/spec/resources/limits/nvidia.com~1gpu")}


def test_objects_and_fields_unrelated_to_dra_are_not_judged():
    assert not codes("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\nbogus: 1")
    assert codes("metadata: {name: c}") == {"D008"}


def test_an_object_without_a_kind_is_reported_unless_foreign():
    assert codes("apiVersion: v1\nmetadata: {name: c}\nbaseDomain: example.com\nplatform: {none: {}}") == set()
    assert codes("apiVersion: v1\nmetadata: {name: c}") == {"D008"}
    assert codes("apiVersion: v1\nKind: Pod\nmetadata: {name: c}") == {"D008"}
    assert codes("apiVersion: v1\nmetadata: {name: c}\nspec: {a: 1}") == {"D008"}
    misspelt = {"apiversion": "v1", "kind": "Pod", "metadata": {"name": "c"}}
    assert [finding.remedy for finding in review([misspelt])[0]] == ["write apiVersion for apiversion"]
    assert not codes("apiVersion: example.com/v1\nkind: Deployment\nmetadata: {name: d}\nbogus: 1\nspec: [1]")


@pytest.mark.parametrize(
    "text",
    [
        "kind: pipeline\nmetadata: {name: c}\nspec: {steps: []}",
        "kind: Dataset\nmetadata: {name: c}",
        "apiVersion: 1\nkind: rules\nmetadata: {name: c}",
        "apiVersion: v3\nmetadata: {name: c}\nspec: {}",
    ],
)
def test_a_file_of_another_program_lacks_no_kind_and_no_version(text):
    assert not codes(text)


@pytest.mark.parametrize(
    "text", ["kind: Deployment\nmetadata: {name: c}\nspec: {}", "kind: ConfigMap\nmetadata: {name: c}\ndata: {}"]
)
def test_a_kind_of_kubernetes_without_a_version_is_reported(text):
    assert "D008" in codes(text)


def test_labels_and_annotations_must_be_texts_in_the_template_too():
    text = deployment(1).replace(
        "{spec: {containers", "{metadata: {annotations: {a: true}, labels: {b: 1}}, spec: {containers"
    )
    path = "/spec/template/metadata"
    assert codes_and_paths(text) == {("D001", f"{path}/annotations/a"), ("D001", f"{path}/labels/b")}
    assert any("quote it" in message for message in messages(text))
    assert codes(pod().replace("{name: p}", "{name: P_1}")) == {"D102"}


def test_a_pod_without_a_name_is_reported():
    assert codes(pod().replace("metadata: {name: p}\n", "")) == {"D101"}


@pytest.mark.parametrize(
    ("version", "kind", "meant"),
    [("v1", "pod", "Pod"), ("v1", "pods", "Pod"), ("apps/v1", "deployment", "Deployment"), ("batch/v1", "Cronjob", "CronJob")],
)  # fmt: skip
def test_a_misspelt_kind_is_reported(version, kind, meant):
    text = f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: p}}"
    assert codes_and_paths(text) == {("D004", "/kind")}
    assert any(f"it is called {meant}" in message for message in messages(text))
    assert not codes(text.replace(version, "example.com/v1"))


@pytest.mark.parametrize(
    ("version", "kind", "hint"),
    [
        ("v1", "Deployment", "write apiVersion: apps/v1"),
        ("apps/v1", "job", "write apiVersion: batch/v1 and kind: Job"),
        ("extensions/v1beta1", "DaemonSet", "write apiVersion: apps/v1"),
    ],
)
def test_a_kind_in_the_wrong_version_is_reported(version, kind, hint):
    problem = misnamed_kind({"apiVersion": version, "kind": kind})
    assert (problem.code, problem.path, problem.remedy) == ("D004", "/apiVersion", hint)
    assert codes_and_paths(f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: p}}") == {("D004", "/apiVersion")}
    assert misnamed_kind({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": kind}) is None
