"""The configuration in force for a command, or an error with every mistake in it.

All commands read the file by the same function of `webhook.service`, so all accept and refuse the same files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from analysis.errors import Broken
from dra.codes import INSTALL
from dra.raw import Object, inside, items, text
from webhook import names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cluster.manifests import Document, InputProblem
    from dra.finding import Finding
    from dra.server import Server
    from webhook.state import Configuration, Features, State

KIND: Final = "DrawbridgeConfiguration"
CONFIG_KEY: Final = "drawbridge.yaml"  # in the data of the installed ConfigMap
# The kinds that decide which configuration is installed.
_DECIDING: Final = frozenset(("ConfigMap", "Deployment", "MutatingWebhookConfiguration"))
_DEFAULTS: Final = "defaults"


def in_mode(state: State, mode: str | None) -> State:
    """Return the state with one mode for all namespaces, if a mode is given."""
    if not mode:
        return state
    from webhook.state import Mode, with_mode

    return with_mode(state, Mode(mode))


class ConfigurationSource(msgspec.Struct, frozen=True):
    """Where the configuration in force is from (`defaults`, a file, or a ConfigMap), and its mode, or that of `--mode`."""

    source: str
    mode: str


class ConfigurationInForce(NamedTuple):
    """The configuration that a command uses, and where it comes from: a file with a line, or a ConfigMap."""

    configuration: Configuration
    source: str = _DEFAULTS
    problem: str = ""  # why the installed configuration is not known
    mistakes: tuple[Finding, ...] = ()  # in the installed ConfigMap

    @property
    def is_default(self) -> bool:
        """Whether no object that was read configures drawbridge."""
        return self.source == _DEFAULTS

    def described(self, mode: str | None = None) -> ConfigurationSource:
        """Return the source and the mode for JSON output; `mode` is that of `--mode`."""
        return ConfigurationSource(self.source, mode or self.configuration.file.mode)

    def sentence(self, mode: str | None = None) -> str:
        """Name the source and the mode for people."""
        by_option = " (--mode)" if mode else ""
        return f"configuration: {self.source}, mode {self.described(mode).mode}{by_option}"


def defaults() -> ConfigurationInForce:
    """Return the configuration that applies if no object configures drawbridge."""
    from webhook.state import Configuration

    return ConfigurationInForce(Configuration())


def configuration_in_force(
    given: ConfigurationInForce | None,
    documents: Sequence[Document] = (),
    inventory: Sequence[Document] = (),
    *,
    judged: bool = False,
) -> ConfigurationInForce:
    """Return the configuration that applies to the input. Every command that reads objects uses this function.

    That is `given` (of `--config`); else the last DrawbridgeConfiguration; else the ConfigMap of an installation; else the defaults. An
    invalid configuration is an error. With `judged`, an invalid configuration among the documents is skipped instead, because the command
    reports its mistakes as findings.
    """
    if given is not None:
        return given
    from cluster.manifests import ManifestError
    from webhook.service import configuration_in
    from webhook.state import read_configuration

    in_force = default = defaults()
    candidates = [(document, False) for document in inventory] + [(document, judged) for document in documents]
    for document, lenient in candidates:
        if document.object.get("kind") != KIND:
            continue
        configuration = read_configuration(document.object)[0] if lenient else configuration_in(document)[0]
        if configuration is not None:
            file, line, _ = document.place_of("")
            in_force = ConfigurationInForce(configuration, f"{file}:{line}")
    if in_force is not default:
        return in_force
    installed = installed_config_maps(document.object for document, _ in candidates)
    if len(installed) > 1:
        listed = " and ".join(map(_name, installed))
        return default._replace(
            problem=f"several installed configurations were read: {listed} (save one to a file, and name that file with --config)"
        )
    for document, lenient in candidates:
        if not any(document.object is obj for obj in installed):
            continue
        configuration, findings = read_config_map(document.object)
        if configuration is not None:
            return ConfigurationInForce(configuration, _name(document.object))
        if not lenient:
            raise ManifestError([_problem(document, finding) for finding in findings])
        problem = f"{_name(document.object)} is not valid: {findings[0].message}"
        return default._replace(problem=problem, mistakes=tuple(findings))
    return default


def _problem(document: Document, finding: Finding) -> InputProblem:
    from cluster.manifests import InputProblem

    file, line, column = document.place_of(finding.path)
    return InputProblem(file, f"{_name(document.object)}: {finding.message}", finding.remedy, line, column)


def installed_config_maps(objects: Iterable[Object]) -> list[Object]:
    """Return the ConfigMaps of installations among these objects, without a tenant's ConfigMap of the same name.

    The cluster-scoped webhook configuration names the namespace of an installation. If it was not read, the namespaces of the webhook's
    Deployments count.
    """
    config_maps: dict[str, Object] = {}
    deployed: set[str] = set()
    registered: set[str] | None = None
    for obj in objects:
        kind = text(obj.get("kind"))
        if kind not in _DECIDING:
            continue
        metadata = inside(obj, "metadata")
        name, namespace = metadata.get("name"), text(metadata.get("namespace")) or "default"
        if kind == "ConfigMap" and name == names.NAME:
            config_maps[namespace] = obj
        elif kind == "Deployment" and name == f"{names.NAME}-webhook":
            deployed.add(namespace)
        elif kind == "MutatingWebhookConfiguration" and name == names.NAME:
            services = [inside(hook, "clientConfig", "service") for hook in items(obj, "webhooks")]
            registered = (registered or set()) | {text(service.get("namespace")) for service in services}
    namespaces = config_maps.keys() & (deployed if registered is None else registered)
    return [config_maps[namespace] for namespace in sorted(namespaces)]


def is_config_map(obj: Object) -> bool:
    """Return whether an object has the name and the key of an installed configuration."""
    has_name = obj.get("kind") == "ConfigMap" and inside(obj, "metadata").get("name") == names.NAME
    return has_name and CONFIG_KEY in inside(obj, "data")


def read_config_map(obj: Object) -> tuple[Configuration | None, list[Finding]]:
    """Read the configuration in a ConfigMap; return it, or None, and a finding for each mistake, with the line in the text."""
    from cluster.manifests import ManifestError
    from dra.finding import finding_at
    from dra.validation import findings, name
    from webhook.service import configuration_in, only_document

    content = inside(obj, "data").get(CONFIG_KEY)
    pointer = f"/data/{CONFIG_KEY}"
    if not isinstance(content, str):
        problem = f"its data has no {CONFIG_KEY}, so no replica can start"
        remedy = f"run `{INSTALL}`, with the values and the configuration of the installation"
        return None, findings([finding_at("C001", "/data", problem, remedy)], name(obj))
    try:
        document = only_document(CONFIG_KEY, content.encode())
        configuration, doubts = configuration_in(document)
    except ManifestError as error:
        mistakes = [
            finding_at(
                "C001",
                pointer,
                f"{CONFIG_KEY}:{f' line {problem.line}:' if problem.line else ''} {problem.message}",
                problem.remedy,
            )
            for problem in error.problems
        ]
        return None, findings(mistakes, name(obj))
    return configuration, [
        replace(
            doubt,
            object=name(obj),
            path=pointer,
            message=f"{CONFIG_KEY}: line {document.line_of(doubt.path)}: {doubt.message}",
        )
        for doubt in doubts
    ]


def _name(config_map: Object) -> str:
    metadata = inside(config_map, "metadata")
    return f"ConfigMap {metadata.get('namespace') or 'default'}/{metadata.get('name')}"


def server_named(kubernetes: str, feature_gates: str) -> Server | None:
    """Read `--kubernetes` and `--feature-gates`; None if neither is given."""
    from dra.errors import ServerError
    from dra.server import read_server

    if not kubernetes and not feature_gates:
        return None
    try:
        return read_server(kubernetes, feature_gates)
    except ServerError as error:
        option = "--feature-gates" if feature_gates else "--kubernetes"
        raise Broken(f"{option}: {error}", error.remedy) from error


def features_of(server: Server | None, configuration: Configuration | None = None) -> Features:
    """Return the API features of the given server, else of the one the configuration declares, else of the newest."""
    from webhook.state import Features

    if server is not None:
        return Features.from_server(server)
    newest = Features()
    if configuration is None:
        return newest
    declared = configuration.file.kubernetes.declared()
    if not (declared.minor or declared.gates):
        return newest
    minor = declared.minor or newest.minor
    return Features.combine(minor, {}, declared)
