"""The files of NVIDIA's GPU driver on a host without a GPU: library, tools, device files, and the kernel module's MIG files."""

import os
import stat
import subprocess
from pathlib import Path

from e2e.build import source_of

NVML = Path(__file__).with_name("nvml.c")
CUDA = Path(__file__).with_name("cuda.c")
VERSION = "550.163.01"  # as nvml.c reports it
DRIVER, CAPABILITIES = 195, 237  # major numbers of device files
DEVICES = {"nvidia0": 0, "nvidia1": 1, "nvidiactl": 255, "nvidia-uvm": 254}
# GPU instances of the second GPU, and the minor numbers of their device files: their own, and that of their compute instance.
INSTANCES = {7: (70, 71), 8: (80, 81)}
# A tool of the driver that records its arguments.
TOOL = """\
#!/bin/sh
read -r line || :
echo "${0##*/} $* $line" >> "${0%/*}/asked"
[ -z "$CUDA_MPS_LOG_DIRECTORY" ] || touch "$CUDA_MPS_LOG_DIRECTORY/control.log"
"""


def install(root: Path) -> None:
    """Lay out the driver below a folder."""
    for folder in ("usr/lib64", "usr/bin", "dev/nvidia-caps"):
        (root / folder).mkdir(parents=True)
    headers = source_of("gpu-kubelet-plugin", "github.com/NVIDIA/go-nvml") / "pkg/nvml"
    library = root / "usr/lib64/libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", f"-I{headers}", "-o", library, NVML], check=True, timeout=60)
    cuda = ["-Wl,-soname,libcuda.so.1", "-o", library.with_name(f"libcuda.so.{VERSION}"), CUDA]
    subprocess.run(["cc", "-shared", "-fPIC", *cuda], check=True, timeout=60)
    for name in ("nvidia-smi", "nvidia-cuda-mps-control"):
        tool = root / "usr/bin" / name
        tool.write_text(TOOL)
        tool.chmod(0o755)
    for name, minor in DEVICES.items():
        os.mknod(root / "dev" / name, 0o666 | stat.S_IFCHR, os.makedev(DRIVER, minor))
    for minor in sum(INSTANCES.values(), ()):
        place = root / f"dev/nvidia-caps/nvidia-cap{minor}"
        os.mknod(place, 0o444 | stat.S_IFCHR, os.makedev(CAPABILITIES, minor))


def mig_files(root: str = "") -> str:
    """Return a script that adds the kernel module's MIG files to /proc in its own mount namespace."""
    devices = f"Character devices:\\n{CAPABILITIES} nvidia-caps\\n\\nBlock devices:\\n"
    lines = [
        f"mount -t tmpfs nvidia {root}/proc/driver",
        f"printf '{devices}' > {root}/proc/driver/devices",
        f"mount --bind {root}/proc/driver/devices {root}/proc/devices",
        f"mkdir {root}/proc/driver/nvidia-caps",
    ]
    for instance, (minor, compute) in INSTANCES.items():
        for place, number in ((f"gi{instance}", minor), (f"gi{instance}/ci0", compute)):
            folder = f"{root}/proc/driver/nvidia/capabilities/gpu1/mig/{place}"
            lines += [
                f"mkdir -p {folder}",
                f"printf 'DeviceFileMinor: {number}\\nDeviceFileMode: 292\\n' > {folder}/access",
                f"echo gpu1/{place}/access {number} >> {root}/proc/driver/nvidia-caps/mig-minors",
            ]
    return "\n".join(lines)
