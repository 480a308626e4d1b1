"""Manifests for the tests of `drawbridge check`, and a function that runs it."""

from tests.cli.running import run

VALID_CLASS = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: gpu}\nspec: {}\n"
# A claim with two mistakes: the name of its request, and an unknown field.
INVALID_CLAIM = """apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: claim
spec:
  devices:
    requests:
    - name: Big_One
      exactly: {deviceClassName: gpu, bogus: 1}
"""


def check(*arguments, stdin=None):
    return run("check", *arguments, stdin=stdin)
