"""The programs of the real cluster, built from the pinned modules of e2e/binaries and from bridge/ into the cache.

`python -m e2e.build` builds all of them, `python -m e2e.build helm` builds one; `program("kubelet")` builds what is missing and
returns the path.
A program is linked into a temporary file, which is renamed afterwards. So a killed build leaves nothing that could be
mistaken for a program. Two builds at once wait for each other.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path

from e2e.ground.cache import cache, locked, say

BINARIES = Path(__file__).parent / "binaries"
BRIDGE = Path(__file__).parent.parent / "bridge"
# The versions of Kubernetes that e2e/binaries pins, by minor. Only of CURRENT, the newest release, more than control plane and kubelet is built.
KUBERNETES_VERSIONS = {
    minor: version
    for pins in sorted(BINARIES.glob("kubernetes*/go.mod"))
    for version, minor in re.findall(r"^require k8s\.io/kubernetes (v(1\.\d+)\.\S+)", pins.read_text(), re.MULTILINE)
}
CURRENT = max(minor for minor, version in KUBERNETES_VERSIONS.items() if "-" not in version)
NEWEST = max(KUBERNETES_VERSIONS)
# The last version with the packages of k8s.io/apiextensions-api, which the module proxy does not serve.
EXTENSIONS = "k8s.io/apiextensions-apiserver@v0.38.0-alpha.2"
SAY_EVERY = 30.0
BOUND_LAZILY = ("-ldflags", "-s -w -extldflags=-Wl,-z,lazy")


def kubernetes_flags(minor: str) -> tuple[str, ...]:
    """Return linker flags with the version. Without them clients and nodes report v0.0.0, and features that depend on a version fail."""
    variables = {"gitVersion": KUBERNETES_VERSIONS[minor], "gitMajor": "1", "gitMinor": minor.partition(".")[2]}
    return "-ldflags", " ".join(
        ["-s -w", *(f"-X k8s.io/component-base/version.{key}={value}" for key, value in variables.items())]
    )


@dataclass(frozen=True, eq=False)
class Module:
    """One go.mod and the programs that are built with it. `home` is its folder if the folder also has Go code of ours, or another go.mod."""

    name: str
    programs: dict[str, str]
    flags: tuple[str, ...] = ()
    home: Path | None = None
    cgo: bool = False
    mod_file: str = "go.mod"

    @property
    def source(self) -> Path:
        return self.home or BINARIES / self.name

    def sources(self) -> list[Path]:
        """Return our own Go files, from which the module's programs are built."""
        return sorted(self.home.rglob("*.go")) if self.home else []


MODULES = (
    Module(
        "kubernetes",
        {
            "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
            "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
            "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
            "kubectl": "k8s.io/kubernetes/cmd/kubectl",
            "kubelet": "k8s.io/kubernetes/cmd/kubelet",
            "dra-test-driver": "k8s.io/kubernetes/test/e2e/dra/test-driver",
            "sample-device-plugin": "k8s.io/kubernetes/test/images/sample-device-plugin",
        },
        kubernetes_flags(CURRENT),
    ),
    Module("etcd", {"etcd": "go.etcd.io/etcd/server/v3"}),
    Module(
        "containerd",
        {
            "containerd": "github.com/containerd/containerd/v2/cmd/containerd",
            "containerd-shim-runc-v2": "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
            "ctr": "github.com/containerd/containerd/v2/cmd/ctr",
        },
        ("-tags", "no_btrfs,no_devmapper,no_zfs"),
    ),
    # What Services need, from the same modules as Kubernetes, so that little is compiled again.
    Module(
        "network",
        {"kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy", "coredns": "drawbridge.dev/e2e/binaries/network"},
        kubernetes_flags(CURRENT),
        home=BINARIES / "network",
    ),
    Module("helm", {"helm": "helm.sh/helm/v3/cmd/helm"}),
    # Vendors' unmodified drivers.
    Module(
        "drivers",
        {
            "dra-example-kubeletplugin": "sigs.k8s.io/dra-example-driver/cmd/dra-example-kubeletplugin",
            "dracpu": "github.com/kubernetes-sigs/dra-driver-cpu/cmd/dracpu",
            "dranet": "sigs.k8s.io/dranet/cmd/dranet",
        },
    ),
    # NVIDIA's own driver and device plugin. NVML is a C library that they open when they start: its symbols must be bound lazily.
    Module(
        "nvidia",
        {
            "gpu-kubelet-plugin": "sigs.k8s.io/dra-driver-nvidia-gpu/cmd/gpu-kubelet-plugin",
            "nvidia-cdi-hook": "github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-cdi-hook",
        },
        BOUND_LAZILY,
        home=BINARIES / "nvidia",
        cgo=True,
    ),
    # The device plugin does not compile with the NVML binding that NVIDIA's driver needs.
    Module(
        "nvidia-device-plugin",
        {"nvidia-device-plugin": "github.com/NVIDIA/k8s-device-plugin/cmd/nvidia-device-plugin"},
        BOUND_LAZILY,
        cgo=True,
    ),
    # The reader of our metrics, without service discovery for clouds.
    Module(
        "prometheus",
        {"prometheus": "github.com/prometheus/prometheus/cmd/prometheus"},
        ("-tags", "remove_all_sd,enable_kubernetes_sd"),
    ),
    # It exports metrics of pods and does not know claims. Its go.mod has the packages of Kubernetes 1.34, for which it was written.
    Module("kube-state-metrics", {"kube-state-metrics": "k8s.io/kube-state-metrics/v2"}),
    # An autoscaler, with a provider that creates Node objects and starts no machine.
    Module("karpenter", {"karpenter": "sigs.k8s.io/karpenter/kwok"}),
    # The same modules and flags as kube-scheduler, so that its packages are not compiled again.
    Module(
        "bridge",
        {"drawbridge-scheduler": "drawbridge.dev/bridge"},
        kubernetes_flags(CURRENT),
        home=BRIDGE,
    ),
)
CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
# The programs of `make cluster`, without and with a node. Tests without a node need helm and our scheduler, too.
CLUSTER = (*CONTROL_PLANE, "etcd", "kubectl")
NODE = ("kubelet", "containerd", "containerd-shim-runc-v2", "ctr", "kube-proxy", "coredns", "dra-test-driver", "drawbridge-scheduler")  # fmt: skip
# Control planes and kubelets of other minors, with the minor in the program's name, and our scheduler for unreleased minors.
OTHERS = (
    *(
        Module(
            f"kubernetes-{minor}",
            {f"{name}-{minor}": f"k8s.io/kubernetes/cmd/{name}" for name in (*CONTROL_PLANE, "kubelet")},
            kubernetes_flags(minor),
            home=BINARIES / f"kubernetes-{minor}" if minor > CURRENT else None,
        )
        for minor in KUBERNETES_VERSIONS
        if minor != CURRENT
    ),
    *(
        Module(
            f"bridge-{minor}",
            {f"drawbridge-scheduler-{minor}": "drawbridge.dev/bridge"},
            (*kubernetes_flags(minor), f"-modfile=v{minor}.mod", f"-tags=minor{minor.partition('.')[2]}"),
            home=BRIDGE,
            mod_file=f"v{minor}.mod",
        )
        for minor in KUBERNETES_VERSIONS
        if minor > CURRENT
    ),
)
HOME = {name: module for module in (*MODULES, *OTHERS) for name in module.programs}
# The programs of the newest minor.
ALL = [name for module in MODULES for name in module.programs]


class BuildError(RuntimeError):
    """A program is not available; the message says which, and why."""


def program(name: str, minor: str = CURRENT) -> Path:
    """Return the path of a program of a minor, or of CURRENT if the minor has no such program; build it if it is missing."""
    if f"{name}-{minor}" in HOME:
        name = f"{name}-{minor}"
    module = HOME[name]
    path = folder(module) / name
    if not path.exists():
        with locked(f"build-{module.name}") as lock:
            if not path.exists():
                link(module, name, path, lock)
    return path


def source_of(name: str, dependency: str = "") -> Path:
    """Return the source folder of a program's Go module, where a driver also has its chart; or that of a module that it depends on."""
    module, package = HOME[name], HOME[name].programs[name]
    command = ["go", "mod", "download", "-json", dependency or package.partition("/cmd/")[0]]
    done = subprocess.run(
        command, cwd=module.source, env=environment(module), check=True, capture_output=True, text=True, timeout=300
    )
    return Path(json.loads(done.stdout)["Dir"])


def everything(*minors: str, node: bool = True) -> dict[str, Path]:
    """Build missing programs, and control planes of the named other minors. `node=False` builds only what tests without a node need."""
    names = ALL if node else [*CLUSTER, "helm", "drawbridge-scheduler"]
    others = [
        (name, minor)
        for minor in minors
        for name in (*CONTROL_PLANE, "drawbridge-scheduler")
        if f"{name}-{minor}" in HOME
    ]
    return {name: program(name) for name in names} | {f"{name}-{minor}": program(name, minor) for name, minor in others}


def missing(names: Iterable[str]) -> list[str]:
    """Return which of these programs would have to be built."""
    return [name for name in names if not (folder(HOME[name]) / name).exists()]


@once
def folder(module: Module) -> Path:
    """Return the module's folder in the cache; the name has a hash of everything that the programs are built from."""
    source = module.source
    key = hashlib.sha256()
    for part in (
        (source / module.mod_file).read_bytes(),
        (source / module.mod_file).with_suffix(".sum").read_bytes(),
        " ".join(command(module)).encode(),
        go_version().encode(),
        *(file.read_bytes() for file in module.sources()),
    ):
        key.update(hashlib.sha256(part).digest())
    return cache() / "bin" / f"{module.name}-{key.hexdigest()[:16]}"


def command(module: Module) -> list[str]:
    return ["go", "build", "-trimpath", "-mod=readonly", "-buildvcs=false", *module.flags]


@once
def go_version() -> str:
    if shutil.which("go") is None:
        raise BuildError(
            "go is not on PATH: the real cluster is built from source and needs Go 1.26 or newer; "
            "`make test` runs without it"
        )
    return subprocess.run(
        ["go", "env", "GOVERSION", "GOOS", "GOARCH"], check=True, capture_output=True, text=True, env=environment()
    ).stdout


def toolchain(mod_file: Path) -> str:
    """Return the toolchain that a go.mod names. Without one, an old Go must fail instead of downloading a newer one."""
    named = re.search(r"^toolchain (\S+)$", mod_file.read_text(), re.MULTILINE)
    return named[1] if named else "local"


def environment(module: Module | None = None) -> dict[str, str]:
    chosen = toolchain(module.source / module.mod_file) if module else "local"
    variables = os.environ | {"CGO_ENABLED": "0", "GOTOOLCHAIN": chosen, "GOWORK": "off"}
    if module and module.cgo:
        # NVML's binding passes a linker flag that go must allow, and its header warns about old functions.
        allowed = "-Wl,--unresolved-symbols=ignore-in-object-files"
        variables |= {"CGO_ENABLED": "1", "CGO_CFLAGS": "-O1 -w", "CGO_LDFLAGS_ALLOW": allowed}
    return variables


def link(module: Module, name: str, path: Path, lock: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    say(f"build: {name} ...")
    begun = time.monotonic()
    for stale in path.parent.glob(f".{name}-*"):  # left by a killed build; none is running while we hold the lock
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{name}-") as scratch:
        linked = Path(scratch) / name
        # -v names each package as it is compiled. It is not part of `command`, whose hash names the folder of the cache.
        with subprocess.Popen(
            [*command(module), "-v", "-o", str(linked), module.programs[name]],
            cwd=with_extensions(module, Path(scratch)),
            env=environment(module),
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=(lock,),  # go continues when this process is killed, so wait for it
        ) as go:
            follow(name, go.stderr or (), begun)
        if go.returncode:
            raise BuildError(f"go build of {name} ({module.programs[name]}) failed, see above; nothing was kept")
        linked.rename(path)
    say(f"build: {name} done in {time.monotonic() - begun:.0f} s")


def with_extensions(module: Module, scratch: Path) -> Path:
    """Return the folder to build a module in: its own, or a copy of it to which k8s.io/apiextensions-api was added."""
    if not (module.source / "apiextensions-api").exists():
        return module.source
    copy = Path(shutil.copytree(module.source, scratch / "source"))
    [name, *_] = module.programs
    old = source_of(name, EXTENSIONS)
    for part in ("pkg/apis/apiextensions/v1", "pkg/apis/apiextensions/v1beta1", "pkg/client"):
        for file in (old / part).rglob("*.go"):
            new = copy / "apiextensions-api" / file.relative_to(old)
            new.parent.mkdir(parents=True, exist_ok=True)
            moved = r"k8s\.io/apiextensions-apiserver/(pkg/(?:apis/apiextensions/v1|client/))"
            new.write_text(re.sub(moved, r"k8s.io/apiextensions-api/\1", file.read_text()))
    return copy


def follow(name: str, lines: Iterable[str], begun: float, every: float = SAY_EVERY) -> None:
    """Print the progress of a build at intervals, and immediately any line that is not the name of a package."""
    packages: list[str] = []
    finished = threading.Event()

    def print_progress() -> None:
        while not finished.wait(every):
            progress = (
                f"{len(packages)} packages compiled, the last one {packages[-1]}" if packages else "nothing to compile"
            )
            say(f"build: {name}, {time.monotonic() - begun:.0f} s: {progress}")

    printer = threading.Thread(target=print_progress)
    printer.start()
    try:
        for line in lines:
            text = line.rstrip()
            if " " in text or text.startswith("#"):
                say(text)
            else:
                packages.append(text)
    finally:
        finished.set()
        printer.join()


def main() -> None:
    """Build the named programs; or all programs, and the control planes of other minors that are named: `python -m e2e.build 1.34`."""
    arguments = sys.argv[1:]
    try:
        if arguments and all(name in HOME for name in arguments):
            paths = [program(name) for name in arguments]
        else:
            paths = [*everything(*arguments).values()]
        print(*paths, sep="\n")
    except BuildError as error:
        sys.exit(f"build: {error}")


if __name__ == "__main__":
    main()
