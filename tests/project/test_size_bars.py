"""The bars are held on a small tree with planted faults; the figures are worked out by hand in each test."""

import ast
import textwrap
from pathlib import Path

import pytest

from scripts import size_bars
from scripts.size_bars import FILE_MAX, FUNCTION_MAX, Measurement, SourceFile, check, main, measure, percentile

ROOT = Path(__file__).resolve().parents[2]


def plant(root: Path, path: str, text: str) -> None:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(textwrap.dedent(text), encoding="utf-8")


def messages(root: Path) -> list[str]:
    problems, _figures = check(root)
    return [str(problem) for problem in problems]


def long_function(lines: int) -> str:
    return "def run() -> None:\n" + "    pass\n" * (lines - 1)


def file_of(lines: int, functions: int = 0) -> SourceFile:
    text = "def f() -> None: ...\n" * functions + "x = 1\n" * (lines - functions)
    return SourceFile(Path("app/x.py"), lines, ast.parse(text))


class TestLength:
    def test_file_at_the_bar_passes(self, tmp_path: Path) -> None:
        plant(tmp_path, "app/clock.py", "x = 1\n" * FILE_MAX)
        assert messages(tmp_path) == []

    def test_file_over_the_bar_is_named_with_its_lines(self, tmp_path: Path) -> None:
        plant(tmp_path, "app/clock.py", "x = 1\n" * (FILE_MAX + 1))
        assert messages(tmp_path) == ["app/clock.py:1: the file has 401 lines, the bar is 400: split it by use case"]

    def test_function_at_the_bar_passes(self, tmp_path: Path) -> None:
        plant(tmp_path, "workers/loop.py", long_function(FUNCTION_MAX))
        assert messages(tmp_path) == []

    def test_function_over_the_bar_is_named_with_its_line(self, tmp_path: Path) -> None:
        plant(tmp_path, "workers/loop.py", "\n" + long_function(FUNCTION_MAX + 1))
        assert messages(tmp_path) == ["workers/loop.py:2: 'run' has 61 lines, the bar is 60: name its steps"]

    def test_decorators_do_not_count(self, tmp_path: Path) -> None:
        plant(tmp_path, "app/x.py", "@d\n" * 5 + long_function(FUNCTION_MAX))
        assert messages(tmp_path) == []

    def test_async_methods_and_nested_functions_count_too(self, tmp_path: Path) -> None:
        body = "class A:\n    async def run(self) -> None:\n" + "        pass\n" * 60
        plant(tmp_path, "tests/test_a.py", body)
        assert messages(tmp_path) == ["tests/test_a.py:2: 'run' has 61 lines, the bar is 60: name its steps"]

    @pytest.mark.parametrize("folder", ["app", "workers", "tests", "benchmarks", "scripts"])
    def test_every_folder_of_ours_is_read(self, tmp_path: Path, folder: str) -> None:
        plant(tmp_path, f"{folder}/deep/down/x.py", long_function(61))
        assert len(messages(tmp_path)) == 1

    def test_migrations_are_generated_and_not_read(self, tmp_path: Path) -> None:
        plant(tmp_path, "alembic/versions/0001_x.py", long_function(400))
        assert messages(tmp_path) == []


class TestAnnotations:
    def test_missing_parameter_and_return_are_named(self, tmp_path: Path) -> None:
        plant(tmp_path, "app/x.py", "def f(a: int, b, *c, d, **e): ...\n")
        assert messages(tmp_path) == ["app/x.py:1: 'f' has no annotation for: b, d, c, e, return"]

    def test_self_and_cls_need_none(self, tmp_path: Path) -> None:
        text = """
            class A:
                def f(self, a: int) -> None: ...
                @classmethod
                def g(cls) -> None: ...
        """
        plant(tmp_path, "app/x.py", text)
        assert messages(tmp_path) == []

    def test_first_parameter_of_a_static_method_needs_one(self, tmp_path: Path) -> None:
        text = """
            class A:
                @staticmethod
                def f(a) -> None: ...
        """
        plant(tmp_path, "app/x.py", text)
        assert messages(tmp_path) == ["app/x.py:4: 'f' has no annotation for: a"]

    def test_function_inside_a_method_is_no_method(self, tmp_path: Path) -> None:
        text = """
            class A:
                def f(self) -> None:
                    def inner(a) -> None: ...
        """
        plant(tmp_path, "app/x.py", text)
        assert messages(tmp_path) == ["app/x.py:4: 'inner' has no annotation for: a"]


class TestDeferredImports:
    @pytest.mark.parametrize("statement", ["import app.db", "from app.db import Database", "from workers import loop"])
    def test_first_party_import_in_a_function_is_refused(self, tmp_path: Path, statement: str) -> None:
        plant(tmp_path, "app/x.py", f"def f() -> None:\n    {statement}\n")
        (message,) = messages(tmp_path)
        assert message.startswith("app/x.py:2: '")
        assert message.endswith("is imported inside a function: move the import up, or mend the cycle it dodges")

    def test_nested_function_is_named_once(self, tmp_path: Path) -> None:
        plant(tmp_path, "app/x.py", "def f() -> None:\n    def g() -> None:\n        import app.db\n")
        assert len(messages(tmp_path)) == 1

    def test_imports_at_the_top_and_of_others_pass(self, tmp_path: Path) -> None:
        plant(tmp_path, "app/x.py", "import app.db\ndef f() -> None:\n    import torch\n    import application\n")
        assert messages(tmp_path) == []


class TestNames:
    @pytest.mark.parametrize("name", ["utils", "util", "helpers", "common", "misc", "manager", "_utils", "Utilities"])
    def test_junk_drawer_is_refused_as_file_and_as_folder(self, tmp_path: Path, name: str) -> None:
        plant(tmp_path, f"app/{name}.py", "")
        plant(tmp_path, f"workers/{name}/clock.py", "")
        expected = f"'{name}' names no noun: call it after what is in it, such as clock or keys"
        assert messages(tmp_path) == [f"app/{name}.py:1: {expected}", f"workers/{name}/clock.py:1: {expected}"]

    def test_name_that_only_contains_such_a_word_passes(self, tmp_path: Path) -> None:
        plant(tmp_path, "app/utilisation.py", "")
        plant(tmp_path, "app/common_ancestor.py", "")
        assert messages(tmp_path) == []


class TestPercentile:
    @pytest.mark.parametrize(
        ("values", "share", "expected"),
        [
            # Nearest rank, as in the worked example of Wikipedia's "Percentile" (15, 20, 35, 40, 50).
            ([15, 20, 35, 40, 50], 0.05, 15),
            ([15, 20, 35, 40, 50], 0.30, 20),
            ([15, 20, 35, 40, 50], 0.40, 20),
            ([50, 40, 35, 20, 15], 0.50, 35),
            ([15, 20, 35, 40, 50], 1.00, 50),
            ([7], 0.9, 7),
            ([], 0.9, 0),
        ],
    )
    def test_nearest_rank(self, values: list[int], share: float, expected: int) -> None:
        assert percentile(values, share) == expected


class TestFigures:
    def test_one_large_file_among_nine_small_ones_passes_and_two_do_not(self) -> None:
        small = [file_of(10)] * 9
        assert measure([*small, file_of(399)], [])[0].value == 10
        assert measure([*small[:8], file_of(399), file_of(399)], [])[0] == Measurement("source, file p90", 399, 250)

    def test_ratio_counts_lines(self) -> None:
        figure = measure([file_of(100)], [file_of(90), file_of(35)])[-1]
        assert figure.value == 1.25
        assert figure.holds
        assert str(figure) == "ok   test lines per source line: 1.25 (>= 1)"

    def test_too_few_tests_fail(self) -> None:
        figure = measure([file_of(100)], [file_of(99)])[-1]
        assert not figure.holds
        assert str(figure) == "FAIL test lines per source line: 0.99 (>= 1)"

    def test_no_source_needs_no_tests(self) -> None:
        assert measure([], [])[-1].holds


class TestMain:
    def test_clean_tree_exits_with_zero_and_prints_its_figures(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        plant(tmp_path, "app/x.py", "x = 1\n")
        plant(tmp_path, "tests/test_x.py", "x = 1\n")
        assert main(tmp_path) == 0
        assert "ok   source, file p90: 1 (<= 250)" in capsys.readouterr().out

    def test_planted_problem_exits_with_one(self, tmp_path: Path) -> None:
        plant(tmp_path, "app/x.py", "def f(): ...\n")
        plant(tmp_path, "tests/test_x.py", "x = 1\n")
        assert main(tmp_path) == 1

    def test_figure_over_its_bar_exits_with_one(self, tmp_path: Path) -> None:
        plant(tmp_path, "app/x.py", "x = 1\n")
        assert main(tmp_path) == 1

    def test_the_page_that_explains_the_bars_states_them(self) -> None:
        page = (ROOT / "docs/decisions/0008-measured-house-rules.md").read_text(encoding="utf-8")
        file_p90, file_max = size_bars.FILE_P90, size_bars.FILE_MAX
        assert f"90 % have at most {file_p90}, none more than {file_max}" in page
        assert f"95 % have at most {size_bars.FUNCTION_P95}, none more than {size_bars.FUNCTION_MAX}" in page
