"""The program, the configuration and the objects for the tests of `drawbridge demo` and `drawbridge standalone`."""

import sys
from pathlib import Path

from cli.commands.demo import EXAMPLES

DRAWBRIDGE = str(Path(sys.executable).with_name("drawbridge"))
CONFIGURATION = str(EXAMPLES / "configuration.yaml")
POD_WITH_TEMPLATE = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: mine}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: own}
spec:
  resourceClaims: [{name: gpu, resourceClaimTemplateName: mine}]
  containers: [{name: c, image: x, resources: {claims: [{name: gpu}]}}]
"""
OBJECT_OF_UNKNOWN_KIND = "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: t}\n"
