"""Install each system into its own folder with pip or npm. The folders are not committed."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

from .systems import NODE, Checkout, NodePackages, PythonPackages, System

CHECKOUT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"


class NotInstalled(Exception):
    """A system cannot be installed here. The message says why."""


@dataclass(frozen=True)
class Program:
    """How to run the program of a system: the arguments before the command, and the environment."""

    arguments: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


def install(system: System, cache: Path) -> Program:
    """Install a system and return its program. Packages that are installed in the right version are kept."""
    match system.install:
        case PythonPackages():
            python = _python_packages(system.install, cache)
            return Program((python, str(PROGRAMS / system.program)), dict(system.environment))
        case NodePackages():
            node, folder = _node(cache), _node_packages(system.install, cache)
            for name in (system.program, "common.mjs"):  # Node resolves imports from the folder of the file
                shutil.copy(PROGRAMS / name, folder / name)
            return Program((node, str(folder / system.program)), dict(system.environment))
        case Checkout():
            beside = _beside(system.install, cache)
            commit = system.install.commit
            sources = _sources_of(commit, cache) if commit else CHECKOUT / "src"
            path = os.pathsep.join((str(sources), beside))
            return Program((sys.executable, str(PROGRAMS / system.program)), {"PYTHONPATH": path, **system.environment})


def _python_packages(wanted: PythonPackages, cache: Path) -> str:
    folder = cache / _name(wanted.requirements[0])
    python = folder / "bin" / "python"
    if not _is_installed(folder, wanted.requirements):
        _start_anew(folder)
        _run([find_python(wanted.at_least), "-m", "venv", folder])
        _run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted.requirements])
        _note(folder, wanted.requirements)
    return str(python)


def _beside(wanted: Checkout, cache: Path) -> str:
    folder = cache / "windlass"
    if not _is_installed(folder, wanted.requirements):
        _start_anew(folder)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, "--no-deps", "--target", folder, *wanted.requirements])
        _note(folder, wanted.requirements)
    return str(folder)


def find_commit(name: str) -> str:
    """The full hash of a branch, a tag or a hash."""
    return _run(["git", "-C", CHECKOUT, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]).strip()


def _sources_of(commit: str, cache: Path) -> Path:
    folder = cache / f"windlass-{commit[:12]}"
    if not _is_installed(folder, (commit,)):
        _start_anew(folder)
        archive = folder / "src.tar"
        _run(["git", "-C", CHECKOUT, "archive", "--format", "tar", "--output", archive, commit, "src"])
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        archive.unlink()
        _note(folder, (commit,))
    return folder / "src"


def _node_packages(wanted: NodePackages, cache: Path) -> Path:
    folder = cache / _name(wanted.requirements[0])
    _npm_install(folder, wanted.requirements)
    return folder


def _node(cache: Path) -> str:
    """Install Node with npm, because the Node of the machine may be too old for the systems."""
    machine = {"x86_64": "x64", "AMD64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    package = f"node-{platform.system().lower()}-{machine}"
    _npm_install(cache / "node", (f"{package}@{NODE}",))
    return str(cache / "node" / "node_modules" / package / "bin" / "node")


def _npm_install(folder: Path, requirements: tuple[str, ...]) -> None:
    if _is_installed(folder, requirements):
        return
    if shutil.which("npm") is None:
        raise NotInstalled("npm is not on the PATH; install Node.js")
    _start_anew(folder)
    (folder / "package.json").write_text('{"private": true, "type": "module"}\n', encoding="utf-8")
    quiet = ("--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error")
    # npm may warn about `engines`: it compares with the Node that runs npm, not with the one that is installed here.
    _run(["npm", "install", "--save-exact", *quiet, *requirements], folder)
    _note(folder, requirements)


def find_python(at_least: tuple[int, int]) -> str:
    """This Python if it is new enough, else one on the PATH, else one of pyenv."""
    if sys.version_info >= at_least:
        return sys.executable
    names = [f"python3.{minor}" for minor in range(at_least[1], 20)] + ["python3"]
    candidates = [found for name in names if (found := shutil.which(name))]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates += sorted(str(path) for path in pyenv.glob("versions/3.*/bin/python3"))
    check = f"import sys; sys.exit(sys.version_info < {at_least})"
    for candidate in candidates:
        if subprocess.run([candidate, "-c", check], capture_output=True).returncode == 0:
            return candidate
    raise NotInstalled(f"Python {at_least[0]}.{at_least[1]} or newer was not found; install it")


def _name(requirement: str) -> str:
    return requirement.partition("==")[0].partition("@")[0]


def _is_installed(folder: Path, requirements: tuple[str, ...]) -> bool:
    note = folder / "installed.txt"
    return note.exists() and note.read_text(encoding="utf-8").split() == list(requirements)


def _note(folder: Path, requirements: tuple[str, ...]) -> None:
    (folder / "installed.txt").write_text("\n".join(requirements) + "\n", encoding="utf-8")


def _start_anew(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _run(command: list[str | Path], folder: Path | None = None) -> str:
    """Run a command to its end and return its output."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    except OSError as error:
        raise NotInstalled(f"{Path(command[0]).name}: {error.strerror}") from error
    if done.returncode != 0:
        words = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        wrong = [line for line in words if "error" in line.lower()] or words or ["no message"]
        # npm prints the error first and the path of its log last. pip prints the error last.
        message = " ".join(wrong[:2]).replace("npm error ", "") if command[0] == "npm" else wrong[-1]
        raise NotInstalled(f"{Path(command[0]).name} failed: {message[:200]}")
    return done.stdout
