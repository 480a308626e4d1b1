"""Packages of the distribution that tests need.

They are runc, CNI plugins and a static busybox for a real node, a C compiler for Go's race detector, and a browser for the dashboard's
pages. INSTALL=1 in the environment installs missing packages with apt; otherwise nothing is installed.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from e2e.build import BuildError
from e2e.ground import foreign
from e2e.ground.cache import locked, say

CNI_PLUGINS = Path("/usr/lib/cni")
BUSYBOX = Path("/bin/busybox")
BROWSER = "chromium"
HEADER = Path("/usr/include/stdlib.h")


def browser() -> str:
    """Return the path of Chromium; "" if there is none."""
    return next((path for name in (BROWSER, "chromium-browser") if (path := shutil.which(name))), "")


def present(*more: str) -> dict[str, bool]:
    """Return for each package whether the files that we use exist."""
    return dict.fromkeys(more, bool(browser())) | {
        "runc": shutil.which("runc") is not None,
        "containernetworking-plugins": all((CNI_PLUGINS / name).exists() for name in ("ptp", "host-local", "loopback")),
        "iproute2": shutil.which("ip") is not None,
        "iptables": shutil.which("iptables") is not None,
        "busybox-static": BUSYBOX.exists() and is_static(BUSYBOX),
        "util-linux": all(shutil.which(command) for command in ("unshare", "nsenter")),
        "mount": shutil.which("mount") is not None,
        "gcc": shutil.which("gcc") is not None,
        "libc6-dev": HEADER.exists(),
    }


def missing(*more: str) -> list[str]:
    """Return the packages that are missing."""
    return [name for name, exists in present(*more).items() if not exists]


def require(*more: str) -> None:
    """Raise BuildError with the missing packages and the command that installs them; with INSTALL=1 run it first.

    The packages of a real node are always required; the browser only by its name.
    """
    with locked("packages"):
        names = missing(*more)
        if not names:
            return
        if shutil.which("apt-get") is None:
            raise BuildError(f"the tests need {', '.join(names)} (Debian's names): install them")
        if os.environ.get("INSTALL") != "1":
            package_list = " ".join(names)
            raise BuildError(
                f"the tests need {package_list}: run `apt-get install --no-install-recommends {package_list}`, or set INSTALL=1"
            )
        if os.geteuid() != 0:
            raise BuildError(f"INSTALL=1 needs root to install {', '.join(names)}: run it as root")
        say(f"apt-get install {' '.join(names)}")
        if not apt("install", *names):
            say("apt-get update, then once more")
            apt("update")
            apt("install", *names)
        if still_missing := missing(*more):
            raise BuildError(f"could not install {', '.join(still_missing)}: the messages of apt-get are above")


def apt(action: str, *names: str) -> bool:
    options = ["--yes", "--no-install-recommends"] if action == "install" else []
    done = subprocess.run(
        ["apt-get", action, "--quiet=2", *options, *names],
        env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return done.returncode == 0


def is_static(binary: Path) -> bool:
    """Return whether a program runs without a dynamic loader, which an image of this one file does not have."""
    return b"/ld-linux" not in binary.read_bytes()


def main() -> None:
    """Exit with a message on a machine where a real node cannot or must not run."""
    if sys.platform != "linux" or os.geteuid() != 0:
        sys.exit("the real node needs Linux and root; `make test` runs anywhere")
    try:
        foreign.refuse()
        require(BROWSER)
    except (BuildError, foreign.ForeignError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
