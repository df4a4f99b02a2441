"""Injection into text: YAML in which everything else, comments too, stays as its people have written it."""

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
"""How far people indent what is within a mapping."""
_PLAIN: Final = re.compile(r"(?!(?:y|n|yes|no|on|off|true|false|null)\Z)[A-Za-z/][A-Za-z0-9_./-]*", re.IGNORECASE)
"""Text that needs no quotes, whichever version of YAML it is read as."""
_WIDEST: Final = 2**16


@attrs.frozen
class Manifest:
    """A text, and what its people should know."""

    text: str
    warnings: tuple[str, ...]


def inject_text(text: str, file: str, defaults: Defaults) -> Manifest:
    """*text*, its pods with the sidecars that they ask for. Documents in which nothing changes stay byte for byte.

    Raises: ConfigError: it is not YAML, or pods ask for what cannot be: one argument for each of all problems, with
            *file* and line.
    """
    problems: list[str] = []
    warnings: list[str] = []
    pieces: list[str] = []
    for piece, line in _pieces(text):
        try:
            pieces.append(_injected(piece, defaults, _InjectionNotes(file, line, problems, warnings)))
        except YAMLError as wrong:
            problems.append(f"{file}:{line + _line_of(wrong)}: not YAML: {_why(wrong)}")
    if problems:
        raise ConfigError(*problems)
    return Manifest("".join(pieces), tuple(warnings))


@attrs.frozen
class _InjectionNotes:
    file: str
    line: int
    """Of the document, from 1."""
    problems: list[str]
    warnings: list[str]

    def tell(
        self, kind: list[str], document: Any, item: Sequence[str | int], name: str, said: Iterable[str]
    ) -> None:
        node = reduce(getitem, item, document)
        where = f"{self.file}:{self.line + node.lc.line}: {name}"
        kind += [f"{where}: {each}" for each in said]


def _pieces(text: str) -> Iterator[tuple[str, int]]:
    """Documents, and what is between them, each with its line."""
    at = 0
    for found in _SEPARATOR.finditer(text):
        for begin, end in ((at, found.start()), found.span()):
            yield text[begin:end], text.count("\n", 0, begin) + 1
        at = found.end()
    yield text[at:], text.count("\n", 0, at) + 1


def _injected(piece: str, defaults: Defaults, told: _InjectionNotes) -> str:
    if not piece.strip() or _SEPARATOR.fullmatch(piece):
        return piece
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = _WIDEST
    document = yaml.load(piece)
    before = _bare(document)
    after = before
    for place in find_pods(before):
        pod = reduce(getitem, place.path, before)
        told.tell(told.warnings, document, place.item, place.name, place.warnings)
        try:
            answer = inject(pod, defaults)
        except InjectionRefused as refused:
            told.tell(told.problems, document, place.item, place.name, refused.reasons)
            continue
        told.tell(told.warnings, document, place.item, place.name, answer.warnings)
        after = _replaced(after, place.path, answer.pod)
    operations = [attrs.evolve(each, value=_quoted(each.value)) for each in difference(before, after)]
    if not operations:
        return piece
    return _as_json(after) if piece.lstrip().startswith("{") else _written(yaml, document, operations, after)


def _as_json(document: Any) -> str:
    """Without YAML's liberties, which not every reader of JSON takes."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _written(yaml: YAML, document: Any, operations: Sequence[Operation], after: Any) -> str:
    _indent_as(document, yaml)
    changed = apply(document, iter(operations))
    if _bare(changed) != after:  # by its anchors, something else has changed, too
        changed = after
    text = io.StringIO()
    yaml.dump(changed, text)
    return text.getvalue()


def _indent_as(document: Any, yaml: YAML) -> None:
    """Have *yaml* write mappings and lists as *document* has most of them."""
    mappings, lists = Counter[int](), Counter[int]()
    for inner, offset in _offsets(document):
        (mappings if isinstance(inner, Mapping) else lists)[offset] += 1
    mapping, sequence = (
        each.most_common(1)[0][0] if each else usual for each, usual in ((mappings, _USUAL), (lists, 0))
    )
    yaml.indent(mapping=mapping, sequence=sequence + len("- "), offset=sequence)


def _offsets(node: Any) -> Iterator[tuple[Any, int]]:
    """The mappings and lists within mappings, and how far they are to the right of these; none in one line."""
    if isinstance(node, CommentedMap | CommentedSeq) and not node.fa.flow_style():
        for inner in node.values() if isinstance(node, CommentedMap) else node:
            is_block = isinstance(inner, CommentedMap | CommentedSeq) and not inner.fa.flow_style()
            if is_block and isinstance(node, CommentedMap):
                yield inner, inner.lc.col - node.lc.col
            yield from _offsets(inner)


def _bare(node: Any) -> Any:
    """Without what YAML tells beside the values."""
    match node:
        case Mapping():
            return {key: _bare(value) for key, value in node.items()}
        case list():
            return [_bare(each) for each in node]
        case TaggedScalar():
            return _bare(node.value)
        case str():
            return str(node)
        case _:
            return node


def _quoted(node: Any) -> Any:
    """With quotes around what some would read as something else than text."""
    match node:
        case dict():
            return {key: _quoted(value) for key, value in node.items()}
        case list():
            return [_quoted(each) for each in node]
        case str() if not _PLAIN.fullmatch(node) and '"' not in node:
            return DoubleQuotedScalarString(node)
        case _:
            return node


def _replaced(node: Any, path: Sequence[str | int], value: Any) -> Any:
    """*node* with *value* at *path*, and otherwise the same."""
    if not path:
        return value
    first: Any = path[0]
    inner = _replaced(node[first], path[1:], value)
    if isinstance(node, list):
        return [inner if index == first else each for index, each in enumerate(node)]
    return {**node, first: inner}


def _line_of(wrong: YAMLError) -> int:
    mark = wrong.problem_mark if isinstance(wrong, MarkedYAMLError) else None
    return mark.line if mark is not None else 0


def _why(wrong: YAMLError) -> str:
    said = wrong.problem if isinstance(wrong, MarkedYAMLError) else None
    return " ".join(str(said or wrong).split())
