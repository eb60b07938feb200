"""What the figures were measured on: without it they mean nothing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
from pathlib import Path

from flockmq import __version__
from flockmq.server.build import build_kind

SBIN = ("/usr/sbin", "/usr/local/sbin")


def find(program: str) -> str | None:
    """Path of a program; Debian keeps servers where ordinary users don't look."""
    path = os.pathsep.join((os.environ.get("PATH", ""), *SBIN))
    return shutil.which(program, path=path)


def describe() -> dict[str, object]:
    """Processor, system and versions of everything that takes part."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gb": _memory_gb(),
        "architecture": platform.machine(),
        "kernel": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "flockmq": __version__,
        "build": build_kind(),
        "uvloop": _package("uvloop"),
        "openssl": _openssl(),
        "mosquitto": _first_line("mosquitto", "-h"),
        "nats": _first_line("nats-server", "--version"),
    }


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory_gb() -> float:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)


def _package(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _openssl() -> str:
    import ssl

    return ssl.OPENSSL_VERSION


def _first_line(program: str, flag: str) -> str | None:
    path = find(program)
    if path is None:
        return None
    said = subprocess.run([path, flag], capture_output=True, text=True, check=False, timeout=10)
    lines = (said.stdout or said.stderr).splitlines()
    return lines[0].strip() if lines else None
