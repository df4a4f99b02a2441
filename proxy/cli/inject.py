"""``sidefetch inject``: add the sidecar to manifests of pods that request it."""

import argparse
import difflib
import sys
from collections.abc import Iterator
from pathlib import Path

from proxy.cli.extras import require_kube_extra
from proxy.cli.options import Commands
from proxy.errors import ConfigError

__all__ = ["add_to", "defaults_of"]


def add_to(commands: Commands) -> None:
    """Add the subcommand ``inject`` with its flags to *commands*, the subparsers of argparse.

    It sets ``run`` in the parsed arguments to the function that executes the command and returns the exit code.
    """
    parser = commands.add_parser(
        "inject",
        help="add the sidecar to the manifests of pods that request it",
        description="Print the manifests with the sidecar in each pod that requests it by the annotation"
        ' sidefetch.io/inject: "true", and without it in each pod that no longer does. Everything else, including'
        " comments, is unchanged. The webhook does the same.",
        usage="sidefetch inject -f FILE [-f FILE...] [--defaults FILE] [--diff]",
        allow_abbrev=False,
    )
    parser.add_argument(
        "-f",
        metavar="FILE",
        dest="files",
        action="append",
        required=True,
        help="manifests in YAML or JSON; - for stdin",
    )
    parser.add_argument(
        "--defaults", metavar="FILE", help="JSON file with annotations and options for pods without their own"
    )
    parser.add_argument("--diff", action="store_true", help="print only the difference")
    parser.set_defaults(run=_run)


def defaults_of(path: str | None) -> str:
    """Return the JSON text of ``--defaults``: annotations and options for pods without their own.

    Args:   path: the file, ``-`` for stdin, or None for ``{}``, no defaults.
    Raises: ConfigError: the file cannot be read.
    """
    return _read(path) if path is not None else "{}"


def _run(arguments: argparse.Namespace) -> int:
    with require_kube_extra():
        from proxy.kube.annotations import Defaults
        from proxy.kube.manifests import inject_text
    defaults = Defaults.parse(defaults_of(arguments.defaults), arguments.defaults or "defaults")
    texts = {_name(file): _read(file) for file in arguments.files}
    problems: list[str] = []
    done: dict[str, str] = {}
    for name, text in texts.items():
        try:
            manifest = inject_text(text, name, defaults)
        except ConfigError as wrong:
            problems += wrong.args
            continue
        done[name] = manifest.text
        for warning in manifest.warnings:
            print(f"sidefetch: {warning}", file=sys.stderr)
    if problems:
        raise ConfigError(*problems)
    if arguments.diff:
        for name, text in done.items():
            sys.stdout.writelines(_difference(texts[name], text, name))
    else:
        sys.stdout.write("---\n".join(map(_end_line, done.values())))
    return 0


def _name(file: str) -> str:
    return "stdin" if file == "-" else file


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{_name(file)}: cannot be read: {error}") from None


def _end_line(text: str) -> str:
    return text if text.endswith("\n") or not text else text + "\n"


def _difference(before: str, after: str, name: str) -> Iterator[str]:
    for line in difflib.unified_diff(
        before.splitlines(True), after.splitlines(True), name, f"{name} with Sidefetch"
    ):
        yield _end_line(line)
