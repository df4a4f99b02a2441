"""The file system of the image: the interpreter, the needed parts of the standard library, packages, and ``nft``.

``python3 deploy/image.py ENVIRONMENT ROOT`` copies everything that the virtual environment at *ENVIRONMENT* needs
into the folder *ROOT*, under the same paths, and prints the size of each part. ``ldd`` names the shared libraries,
so that the script does not depend on the architecture. The image has no shell and no package manager.
"""

import compileall
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Final

_UNUSED: Final = {
    "dbm": "databases",
    "distutils": "builds packages",
    "ensurepip": "installs pip",
    "idlelib": "an editor",
    "lib2to3": "translates Python 2",
    "pydoc_data": "the interpreter's own help",
    "sqlite3": "a database",
    "test": "tests of the library",
    "tkinter": "windows",
    "turtle.py": "windows",
    "turtledemo": "windows",
}
"""Unused names in the standard library, and their purpose."""
_UNUSED_PREFIXES: Final = (
    "config-",  # link settings for programs that embed Python
    "site-packages",
    "dist-packages",
)
_UNUSED_MODULES: Final = re.compile(r"(_curses\w*|_g?dbm|_sqlite3|_test\w*|_tkinter|nis|readline|xx\w*)\.")
"""Unused compiled modules; most of them need libraries of their own."""
_PROGRAMS: Final = re.compile(r"sidefetch|python[\d.]*")
"""The programs of installed packages that are kept."""
_CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
_LIBRARY_CACHE: Final = Path("/etc/ld.so.cache")
"""The index in which the loader finds libraries outside of its own folders."""
_WRITTEN: Final = {
    "etc/passwd": "root:x:0:0:root:/:/none\nsidefetch:x:65532:65532:sidefetch:/:/none\n",
    "etc/group": "root:x:0:\nsidefetch:x:65532:\n",
    # The names of a pod's /etc/hosts come before those of its DNS.
    "etc/nsswitch.conf": "hosts: files dns\n",
}


def main(environment: Path, root: Path) -> None:
    """Create and fill *root*."""
    library = Path(sysconfig.get_path("stdlib"))
    nft = shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if nft is None:
        raise SystemExit("nft is not installed")
    of_python = [*copy_with_links(Path(sys.executable), root), *_tree(library, root, _is_unused_in(library))]
    installed = _tree(environment, root, _is_unused_program)
    of_nft = copy_with_links(Path(nft), root)
    parts = {
        "Python and its library": of_python,
        "Sidefetch and its packages": installed,
        "shared libraries of these": _libraries_of([*of_python, *installed], root),
        "nft, and libraries that only it needs": [*of_nft, *_libraries_of(of_nft, root)],
        "certificates of authorities": [
            *copy_with_links(_CERTIFICATES, root),
            *copy_with_links(_LIBRARY_CACHE, root),
        ],
    }
    for name, text in _WRITTEN.items():
        (root / name).write_text(text, encoding="ascii")
    temporary = root / "tmp"
    temporary.mkdir()
    temporary.chmod(0o1777)  # for a mounted volume; Sidefetch writes nothing there
    for name, files in parts.items():
        print(f"{_megabytes(files):6.1f} MB  {name}")
    for folder in (library, environment):
        _compile(root, folder)
    print(f"{_megabytes(root.rglob('*')):6.1f} MB  with all modules compiled, so that it starts at once")


def copy_with_links(path: Path, root: Path) -> list[Path]:
    """Copy a file, and all links that lead to it, to the same path under *root*; return the new copies."""
    at = Path("/")
    for depth, part in enumerate(path.parts[1:], 2):
        at /= part
        if at.is_symlink():
            target = os.readlink(at)
            link = place_under(root, at)
            if not link.is_symlink():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(target)
            return copy_with_links(Path(os.path.normpath(at.parent.joinpath(target, *path.parts[depth:]))), root)
    copy = place_under(root, at)
    if copy.exists():
        return []
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(at, copy)
    return [copy]


def find_libraries(files: Iterable[Path]) -> set[Path]:
    """Return the shared libraries and the loader that the programs and libraries among *files* need."""
    found: set[Path] = set()
    for file in filter(_is_linked, files):
        output = subprocess.run(["ldd", str(file)], capture_output=True, text=True, check=False).stdout
        if missing := re.findall(r"(\S+) => not found", output):
            raise SystemExit(f"{file} needs {', '.join(missing)}, which is not there")
        found.update(map(Path, re.findall(r"(?:=> |^\s+)(/\S+) \(0x", output, re.MULTILINE)))
    return found


def place_under(root: Path, path: Path) -> Path:
    """Return the place of the absolute *path* under *root*."""
    return root / path.relative_to("/")


def _tree(folder: Path, root: Path, is_unused: Callable[[Path], bool]) -> list[Path]:
    return [file for path in _files(folder, is_unused) for file in copy_with_links(path, root)]


def _libraries_of(files: Iterable[Path], root: Path) -> list[Path]:
    return [file for library in find_libraries(files) for file in copy_with_links(library, root)]


def _files(folder: Path, is_unused: Callable[[Path], bool]) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if is_unused(path):
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _files(path, is_unused)
        elif path.is_file():
            yield path


def _is_unused_in(library: Path) -> Callable[[Path], bool]:
    def is_unused(path: Path) -> bool:
        first = path.relative_to(library).parts[0]
        return (
            first in _UNUSED
            or path.name == "__pycache__"
            or first.startswith(_UNUSED_PREFIXES)
            or _UNUSED_MODULES.match(path.name) is not None
        )

    return is_unused


def _is_unused_program(path: Path) -> bool:
    return path.name == "__pycache__" or (path.parent.name == "bin" and not _PROGRAMS.fullmatch(path.name))


def _is_linked(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(4) == b"\x7fELF"


def _compile(root: Path, folder: Path) -> None:
    # The file system is read-only, so that Python need not compare the modules with their sources.
    compileall.compile_dir(
        place_under(root, folder),
        quiet=2,
        stripdir=str(root),
        prependdir="/",
        invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
        workers=0,
    )


def _megabytes(files: Iterable[Path]) -> float:
    return sum(file.lstat().st_size for file in files if not file.is_dir()) / 1e6


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
