"""Injection of the sidecar into the text of YAML or JSON manifests, whose other content and comments stay."""

import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import getitem
from typing import Any, Final

import attrs
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq, TaggedScalar
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from proxy.errors import ConfigError
from proxy.kube.annotations import Defaults
from proxy.kube.errors import InjectionRefused
from proxy.kube.inject import inject
from proxy.kube.patch import Operation, apply, difference
from proxy.kube.workloads import find_pods

__all__ = ["Manifest", "inject_text"]

_SEPARATOR: Final = re.compile(r"^---[ \t]*(?:#.*)?(?:\r?\n|\Z)", re.MULTILINE)
_USUAL: Final = 2
"""The default indentation of nested mappings."""
_PLAIN: Final = re.compile(r"(?!(?:y|n|yes|no|on|off|true|false|null)\Z)[A-Za-z/][A-Za-z0-9_./-]*", re.IGNORECASE)
"""A text that needs no quotes in any version of YAML."""
_WIDEST: Final = 2**16


@attrs.frozen
class Manifest:
    """The text of a manifest after injection, and warnings for its author."""

    text: str
    warnings: tuple[str, ...]
    """Each begins with the file, the line and the name of the object."""


def inject_text(text: str, file: str, defaults: Defaults) -> Manifest:
    """Return the manifest *text* with the sidecar in each pod that requests it, and without it in the others.

    It may have several YAML or JSON documents, with pods or with workloads such as Deployments. Documents without
    changes stay byte for byte.

    Args:   file: the name of the file, for messages.
            defaults: the values for annotations that pods lack.
    Raises: ConfigError: *text* is not YAML, or pods have requests that cannot be met: one argument for each
        problem, with *file* and line.
    """
    problems: list[str] = []
    warnings: list[str] = []
    pieces: list[str] = []
    for piece, line in _pieces(text):
        try:
            pieces.append(_inject_document(piece, defaults, _InjectionNotes(file, line, problems, warnings)))
        except YAMLError as wrong:
            problems.append(f"{file}:{line + _line_of(wrong)}: not YAML: {_why(wrong)}")
    if problems:
        raise ConfigError(*problems)
    return Manifest("".join(pieces), tuple(warnings))


@attrs.frozen
class _InjectionNotes:
    """The lists that collect problems and warnings about one document, with file and line."""

    file: str
    line: int
    """The first line of the document, from 1."""
    problems: list[str]
    warnings: list[str]

    def add(
        self, kind: list[str], document: Any, item: Sequence[str | int], name: str, messages: Iterable[str]
    ) -> None:
        node = reduce(getitem, item, document)
        where = f"{self.file}:{self.line + node.lc.line}: {name}"
        kind += [f"{where}: {each}" for each in messages]


def _pieces(text: str) -> Iterator[tuple[str, int]]:
    """Yield the documents and the separators between them, each with its first line."""
    at = 0
    for found in _SEPARATOR.finditer(text):
        for begin, end in ((at, found.start()), found.span()):
            yield text[begin:end], text.count("\n", 0, begin) + 1
        at = found.end()
    yield text[at:], text.count("\n", 0, at) + 1


def _inject_document(piece: str, defaults: Defaults, notes: _InjectionNotes) -> str:
    if not piece.strip() or _SEPARATOR.fullmatch(piece):
        return piece
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = _WIDEST
    document = yaml.load(piece)
    before = _plain_values(document)
    after = before
    for place in find_pods(before):
        pod = reduce(getitem, place.path, before)
        notes.add(notes.warnings, document, place.item, place.name, place.warnings)
        try:
            answer = inject(pod, defaults)
        except InjectionRefused as refused:
            notes.add(notes.problems, document, place.item, place.name, refused.reasons)
            continue
        notes.add(notes.warnings, document, place.item, place.name, answer.warnings)
        after = _replace_value(after, place.path, answer.pod)
    operations = [attrs.evolve(each, value=_quote_texts(each.value)) for each in difference(before, after)]
    if not operations:
        return piece
    return _as_json(after) if piece.lstrip().startswith("{") else _written(yaml, document, operations, after)


def _as_json(document: Any) -> str:
    """Return *document* as the text of a JSON document, for a manifest that was JSON: YAML's syntax is not JSON."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _written(yaml: YAML, document: Any, operations: Sequence[Operation], after: Any) -> str:
    _indent_as(document, yaml)
    changed = apply(document, iter(operations))
    if _plain_values(changed) != after:  # anchors have changed another place, too
        changed = after
    text = io.StringIO()
    yaml.dump(changed, text)
    return text.getvalue()


def _indent_as(document: Any, yaml: YAML) -> None:
    """Make *yaml* indent mappings and lists as most of *document* does."""
    mappings, lists = Counter[int](), Counter[int]()
    for inner, offset in _offsets(document):
        (mappings if isinstance(inner, Mapping) else lists)[offset] += 1
    mapping, sequence = (
        each.most_common(1)[0][0] if each else usual for each, usual in ((mappings, _USUAL), (lists, 0))
    )
    yaml.indent(mapping=mapping, sequence=sequence + len("- "), offset=sequence)


def _offsets(node: Any) -> Iterator[tuple[Any, int]]:
    """Yield the block mappings and lists within mappings, with their indentation relative to the mapping."""
    if isinstance(node, CommentedMap | CommentedSeq) and not node.fa.flow_style():
        for inner in node.values() if isinstance(node, CommentedMap) else node:
            is_block = isinstance(inner, CommentedMap | CommentedSeq) and not inner.fa.flow_style()
            if is_block and isinstance(node, CommentedMap):
                yield inner, inner.lc.col - node.lc.col
            yield from _offsets(inner)


def _plain_values(node: Any) -> Any:
    """Return *node* as plain values, without YAML's comments, tags and styles."""
    match node:
        case Mapping():
            return {key: _plain_values(value) for key, value in node.items()}
        case list():
            return [_plain_values(each) for each in node]
        case TaggedScalar():
            return _plain_values(node.value)
        case str():
            return str(node)
        case _:
            return node


def _quote_texts(node: Any) -> Any:
    """Return *node* with quotes around texts that YAML could read as other types."""
    match node:
        case dict():
            return {key: _quote_texts(value) for key, value in node.items()}
        case list():
            return [_quote_texts(each) for each in node]
        case str() if not _PLAIN.fullmatch(node) and '"' not in node:
            return DoubleQuotedScalarString(node)
        case _:
            return node


def _replace_value(node: Any, path: Sequence[str | int], value: Any) -> Any:
    """Return a copy of *node* with *value* at *path*."""
    if not path:
        return value
    first: Any = path[0]
    inner = _replace_value(node[first], path[1:], value)
    if isinstance(node, list):
        return [inner if index == first else each for index, each in enumerate(node)]
    return {**node, first: inner}


def _line_of(wrong: YAMLError) -> int:
    mark = wrong.problem_mark if isinstance(wrong, MarkedYAMLError) else None
    return mark.line if mark is not None else 0


def _why(wrong: YAMLError) -> str:
    messages = wrong.problem if isinstance(wrong, MarkedYAMLError) else None
    return " ".join(str(messages or wrong).split())
