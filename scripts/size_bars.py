"""Hold the house's measurable rules over the source tree; exits 1 and names every place that breaks one.

The bars, their reason and the code bases they were measured in: docs/decisions/0008-measured-house-rules.md.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FILE_MAX: Final = 400
FILE_P90: Final = 250
FUNCTION_MAX: Final = 60
FUNCTION_P95: Final = 40
TESTS_PER_SOURCE: Final = 1.0
SOURCE: Final = ("app", "workers")
TESTS: Final = ("tests",)
TOOLS: Final = ("benchmarks", "scripts")
FIRST_PARTY: Final = (*SOURCE, *TESTS, *TOOLS)
JUNK_DRAWER: Final = re.compile(r"_*(utils?|utilities|helpers?|common|misc|managers?|other)", re.IGNORECASE)

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class SourceFile:
    """One parsed file; `path` is relative to the root of the tree."""

    path: Path
    lines: int
    tree: ast.Module


@dataclass(frozen=True)
class Problem:
    path: Path
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def read_folder(root: Path, folders: Iterable[str]) -> list[SourceFile]:
    """Every Python file below the given folders, in the order of their paths."""
    paths = sorted(path for folder in folders for path in (root / folder).rglob("*.py"))
    return [_read(root, path) for path in paths]


def _read(root: Path, path: Path) -> SourceFile:
    text = path.read_text(encoding="utf-8")
    return SourceFile(path.relative_to(root), text.count("\n"), ast.parse(text, filename=str(path)))


def percentile(values: Sequence[int], share: float) -> int:
    """The nearest-rank percentile: the smallest value that at least `share` of all values do not exceed."""
    ranked = sorted(values)
    rank = -(-len(ranked) * round(share * 100) // 100)
    return ranked[max(rank, 1) - 1] if ranked else 0


def functions(file: SourceFile) -> Iterator[FunctionNode]:
    return (node for node in ast.walk(file.tree) if isinstance(node, FunctionNode))


def length(function: FunctionNode) -> int:
    """Lines from `def` to the end of the body; decorators do not count."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def too_long(file: SourceFile) -> Iterator[Problem]:
    if file.lines > FILE_MAX:
        yield Problem(file.path, 1, f"the file has {file.lines} lines, the bar is {FILE_MAX}: split it by use case")
    for node in functions(file):
        if length(node) > FUNCTION_MAX:
            text = f"'{node.name}' has {length(node)} lines, the bar is {FUNCTION_MAX}: name its steps"
            yield Problem(file.path, node.lineno, text)


def unannotated(file: SourceFile) -> Iterator[Problem]:
    methods = {
        id(item)
        for node in ast.walk(file.tree)
        if isinstance(node, ast.ClassDef)
        for item in node.body
        if isinstance(item, FunctionNode) and not _is_static(item)
    }
    for node in functions(file):
        missing = [name for name, annotated in _parameters(node, skip_first=id(node) in methods) if not annotated]
        if node.returns is None:
            missing.append("return")
        if missing:
            yield Problem(file.path, node.lineno, f"'{node.name}' has no annotation for: {', '.join(missing)}")


def _is_static(function: FunctionNode) -> bool:
    return any(isinstance(item, ast.Name) and item.id == "staticmethod" for item in function.decorator_list)


def _parameters(function: FunctionNode, *, skip_first: bool) -> list[tuple[str, bool]]:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args][1 if skip_first else 0 :]
    rest = [item for item in (arguments.vararg, arguments.kwarg) if item is not None]
    return [(item.arg, item.annotation is not None) for item in [*positional, *arguments.kwonlyargs, *rest]]


def deferred_imports(file: SourceFile) -> Iterator[Problem]:
    found = {
        (inner.lineno, module)
        for node in functions(file)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Import | ast.ImportFrom)
        for module in _imported(inner)
        if module.split(".")[0] in FIRST_PARTY
    }
    for line, module in sorted(found):
        text = f"'{module}' is imported inside a function: move the import up, or mend the cycle it dodges"
        yield Problem(file.path, line, text)


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if node.module else []


def junk_drawers(file: SourceFile) -> Iterator[Problem]:
    for part in file.path.with_suffix("").parts:
        if JUNK_DRAWER.fullmatch(part):
            yield Problem(file.path, 1, f"'{part}' names no noun: call it after what is in it, such as clock or keys")


CHECKS: Final = (too_long, unannotated, deferred_imports, junk_drawers)


@dataclass(frozen=True)
class Measurement:
    """One figure over a group of files, with the bar it must not pass."""

    name: str
    value: float
    bar: float
    at_least: bool = False

    @property
    def holds(self) -> bool:
        return self.value >= self.bar if self.at_least else self.value <= self.bar

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        return f"{'ok  ' if self.holds else 'FAIL'} {self.name}: {self.value:g} ({sign} {self.bar:g})"


def measure(source: Sequence[SourceFile], tests: Sequence[SourceFile]) -> list[Measurement]:
    """The figures that no single place breaks. Empty source has a test ratio of 1."""
    figures = []
    for name, files in (("source", source), ("tests", tests)):
        lengths = [length(node) for file in files for node in functions(file)]
        figures.append(Measurement(f"{name}, file p90", percentile([file.lines for file in files], 0.90), FILE_P90))
        figures.append(Measurement(f"{name}, function p95", percentile(lengths, 0.95), FUNCTION_P95))
    source_lines = sum(file.lines for file in source)
    ratio = sum(file.lines for file in tests) / source_lines if source_lines else 1.0
    figures.append(Measurement("test lines per source line", round(ratio, 2), TESTS_PER_SOURCE, at_least=True))
    return figures


def check(root: Path) -> tuple[list[Problem], list[Measurement]]:
    """All problems and figures of the tree at `root`."""
    source, tests, tools = (read_folder(root, folders) for folders in (SOURCE, TESTS, TOOLS))
    everything = [*source, *tests, *tools]
    problems = [problem for file in everything for rule in CHECKS for problem in rule(file)]
    return problems, measure(source, tests)


def main(root: Path) -> int:
    problems, figures = check(root)
    for line in (*problems, *figures):
        print(line)
    return 1 if problems or not all(figure.holds for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parents[1]))
