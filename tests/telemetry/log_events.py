"""The events that the program logs, found in its source."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import proxy

__all__ = ["logged_events"]

_PROXY: Final = Path(proxy.__file__).parent
_LEVELS: Final = {"debug", "info", "warning", "error"}


def logged_events() -> set[str]:
    """Return the names of all events. Raises: ValueError: a call's event cannot be determined."""
    return {event for path in sorted(_PROXY.rglob("*.py")) for event in _of_file(path)}


def _of_file(path: Path) -> Iterator[str]:
    where = path.relative_to(_PROXY).as_posix()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    methods = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and any(_is_log_method(part) for part in ast.walk(node.value))
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    wrappers: dict[str, int] = {"_format_line": 1} if where == "net/io/logs.py" else {}
    for call in _calls(tree):
        name = call.func
        if not call.args or not (_is_log_method(name) or (isinstance(name, ast.Name) and name.id in methods)):
            continue
        match call.args[0]:
            case ast.Constant(value=str(event)):
                yield event
            case ast.Name(id=variable):
                wrappers.update(_wrapper(functions, call, variable))
            case _:
                raise ValueError(f"{path}:{call.lineno}: which event is that?")
    for call in _calls(tree):
        if isinstance(call.func, ast.Attribute) and call.func.attr in wrappers:
            match call.args[wrappers[call.func.attr]]:
                case ast.Constant(value=str(event)):
                    yield event


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _is_log_method(node: ast.AST) -> bool:
    """Return whether *node* is ``log.info``, ``self._log.warning``, and so on."""
    if not isinstance(node, ast.Attribute) or node.attr not in _LEVELS:
        return False
    owner = node.value
    name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
    return name.lstrip("_") == "log"


def _wrapper(
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef], call: ast.Call, variable: str
) -> dict[str, int]:
    """Return the method around *call*, and where its callers give it the event; ``self`` is not counted."""
    for function in functions:
        if any(node is call for node in ast.walk(function)):
            names = [argument.arg for argument in function.args.args]
            if variable in names:
                return {function.name: names.index(variable) - 1}
    raise ValueError(f"line {call.lineno}: {variable} is no parameter")
