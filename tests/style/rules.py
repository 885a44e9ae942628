"""The project's own rules about source code, as functions from a module's text to what is wrong with it.

ruff, mypy and import-linter hold the rest. Each finding is ``line: what``. Sets have no order that two runs
share, so the core must not iterate over one where the order could matter; a loop whose order cannot matter
says so in a comment on its line: ``# any order``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

CORE_PACKAGES = (
    "protocol", "log", "purgatory", "replication", "controller", "coordinator", "share", "metrics"
)  # fmt: skip
SHELL_PACKAGES = ("server", "network", "coordination", "testing")
MODULE_LINES_MAX = 1_000
FUNCTION_LINES_MAX = 70
LONG_BECAUSE = "This module is long because"

_FORBIDDEN_MODULES = frozenset({"time", "random", "secrets"})
_FORBIDDEN_CALLS = {
    "open": "opens a file",
    "io.open": "opens a file",
    "os.open": "opens a file",
    "os.fdopen": "opens a file",
    "os.urandom": "draws random bytes",
    "uuid.uuid1": "draws a random id",
    "uuid.uuid4": "draws a random id",
    "uuid4": "draws a random id",
    "datetime.now": "reads the clock",
    "datetime.utcnow": "reads the clock",
    "datetime.today": "reads the clock",
    "date.today": "reads the clock",
    "datetime.datetime.now": "reads the clock",
    "datetime.datetime.utcnow": "reads the clock",
    "datetime.date.today": "reads the clock",
    "print": "prints; results are values",
    "input": "reads standard input",
    "id": "is different in every run",
}
_UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
_ORDER_FREE = frozenset({"sorted", "set", "frozenset", "any", "all", "sum", "min", "max", "len"})
_ANY_ORDER = "# any order"


def size(source: str) -> list[str]:
    """Modules and functions that are too long to read; a module may say in its docstring why it is long."""
    findings = []
    lines = source.count("\n") + (not source.endswith("\n"))
    tree = ast.parse(source)
    if lines > MODULE_LINES_MAX and LONG_BECAUSE not in (ast.get_docstring(tree) or ""):
        findings.append(f"1: the module has {lines} lines, more than {MODULE_LINES_MAX}")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                findings.append(
                    f"{node.lineno}: {node.name} has {length} lines, more than {FUNCTION_LINES_MAX}"
                )
    return findings


def documented(source: str) -> list[str]:
    """A module without a docstring."""
    return [] if ast.get_docstring(ast.parse(source)) else ["1: the module says nothing about what it is for"]


def finished(source: str) -> list[str]:
    """Notes that something is left to do: they belong into the issue tracker, or into a commit."""
    return [
        f"{number}: {match[0]}"
        for number, line in enumerate(source.splitlines(), start=1)
        if (match := _UNFINISHED.search(line))
    ]


def deterministic(source: str) -> list[str]:
    """Clocks, dice, files and printing in code that gets all of these as arguments; iteration over sets."""
    tree = ast.parse(source)
    findings = ordered(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            findings += [
                f"{node.lineno}: imports {alias.name}"
                for alias in node.names
                if alias.name in _FORBIDDEN_MODULES
            ]
        elif isinstance(node, ast.ImportFrom) and node.module in _FORBIDDEN_MODULES:
            findings.append(f"{node.lineno}: imports from {node.module}")
        elif isinstance(node, ast.Call) and (name := _dotted(node.func)) in _FORBIDDEN_CALLS:
            findings.append(f"{node.lineno}: {name}() {_FORBIDDEN_CALLS[name]}")
    return sorted(findings, key=lambda finding: int(finding.split(":")[0]))


def ordered(source: str) -> list[str]:
    """Iteration over sets: their order is another one in each run."""
    lines = source.splitlines()
    return [
        f"{node.lineno}: iterates over a set, whose order differs from run to run"
        for node in _set_iterations(ast.parse(source))
        if _ANY_ORDER not in lines[node.lineno - 1]
    ]


def _dotted(node: ast.expr) -> str:
    """``a.b.c`` of a name or an attribute of names; else ``""``."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := _dotted(node.value)):
        return f"{base}.{node.attr}"
    return ""


def _set_iterations(tree: ast.Module) -> Iterator[ast.expr]:
    """What is iterated over in an order that shows, and is a set as far as one can tell from the text."""
    names = _names_of_sets(tree)
    order_free = {
        argument
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _dotted(node.func) in _ORDER_FREE
        for argument in node.args
    }
    for node in ast.walk(tree):
        iterated: list[ast.expr] = []
        if isinstance(node, ast.For | ast.AsyncFor):
            iterated = [node.iter]
        elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp) and node not in order_free:
            iterated = [generator.iter for generator in node.generators]
        elif isinstance(node, ast.Call) and _dotted(node.func) in ("list", "tuple", "iter", "enumerate"):
            iterated = node.args[:1] if node not in order_free else []
        yield from (expression for expression in iterated if _is_set(expression, names))


def _names_of_sets(tree: ast.Module) -> frozenset[str]:
    """Names and attributes (``self.x``) that the module annotates or assigns as sets."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and _is_set_type(node.annotation):
            names.add(_dotted(node.target))
        elif isinstance(node, ast.arg) and node.annotation is not None and _is_set_type(node.annotation):
            names.add(node.arg)
        elif isinstance(node, ast.Assign) and _is_set(node.value, frozenset()):
            names.update(_dotted(target) for target in node.targets)
    return frozenset(names - {""})


def _is_set_type(annotation: ast.expr) -> bool:
    base = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    return _dotted(base) in ("set", "frozenset", "AbstractSet", "Set")


def _is_set(expression: ast.expr, names: frozenset[str]) -> bool:
    if isinstance(expression, ast.Set | ast.SetComp):
        return True
    if isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.BitOr | ast.BitAnd | ast.Sub):
        return _is_set(expression.left, names) or _is_set(expression.right, names)
    if isinstance(expression, ast.Call):
        return _dotted(expression.func) in ("set", "frozenset")
    return _dotted(expression) in names


def defined_names(text: str) -> list[tuple[int, str]]:
    """Functions, methods, classes and constants of a module, with their lines."""
    tree = ast.parse(text)
    found = [
        (node.lineno, node.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        found += [(node.lineno, target.id) for target in targets if isinstance(target, ast.Name)]
    return [(line, name) for line, name in found if not name.startswith("__")]


def used_names(text: str) -> set[str]:
    """Names that a module loads or imports, attributes, keywords, and the words of its strings: a handler may
    be looked up by name. Docstrings do not count."""
    tree = ast.parse(text)
    prose = {
        id(statement.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in node.body
        if isinstance(statement, ast.Expr)
    }
    used: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                used.add(name)
            case ast.alias(name=name):
                used.add(name.rpartition(".")[2])
            case ast.Constant(value=str(value)) if id(node) not in prose:
                used |= set(re.findall(r"\w+", value))
    return used
