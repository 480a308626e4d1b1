"""Git trees: what kustomize, Flux and Argo CD make of the objects in files."""

from analysis.gitops.argo_values import parsed, with_values
from analysis.gitops.kustomizations import FOLDERS, NAMES, PATCHES, files_of, is_kustomization
from analysis.gitops.made import Release, made_objects, releases
from analysis.gitops.mistakes import claims_in_values, mistakes
from analysis.gitops.patches import Patched
from analysis.gitops.sources import FLUX, dependencies, place_of, sources_of
from analysis.gitops.tree import Tree
from analysis.gitops.values_files import ValuesFile
from analysis.gitops.variables import filled, variables_of

__all__ = [
    "FLUX",
    "FOLDERS",
    "NAMES",
    "PATCHES",
    "Patched",
    "Release",
    "Tree",
    "ValuesFile",
    "claims_in_values",
    "dependencies",
    "files_of",
    "filled",
    "is_kustomization",
    "made_objects",
    "mistakes",
    "parsed",
    "place_of",
    "releases",
    "sources_of",
    "variables_of",
    "with_values",
]
