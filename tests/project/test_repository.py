"""What stands beside the code: licence, pages for people, and words that do not belong into the project's text."""

import hashlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DECISIONS = sorted((ROOT / "docs/decisions").glob("*.md"))
TEXT = {".py", ".md", ".toml", ".txt", ".yml", ".yaml", ".ini", ".sh", ".mako", ""}
SKIPPED = {"build", "dist", "secrets", "__pycache__"}
KEPT_HIDDEN = {".ci", ".dockerignore", ".gitignore", ".hadolint.yaml", ".pre-commit-config.yaml"}

# A tilde stands in each so that this file does not find itself; it is taken out before the search.
FORBIDDEN = {
    "a package registry's host": [
        "py~pi\\.org",
        "python~hosted",
        "registry\\.np~mjs",
        "deb\\.deb~ian",
        "download\\.py~torch",
    ],
    "a path of one machine": ["/work/ma~in", "/work/sha~red", "/ro~ot/", "/opt/whe~els"],
    "praise": [
        "\\bblaz~ing",
        "\\bseam~less",
        "\\bcutting.ed~ge",
        "\\bworld.cla~ss",
        "\\bstate.of.the.a~rt",
        "\\beffort~lessly",
        "\\brevolution~ary",
    ],
    "unfinished work": ["\\bTO~DO\\b", "\\bFIX~ME\\b", "\\bXX~X\\b"],
}


def finds(what: str, text: str) -> bool:
    return any(re.search(pattern.replace("~", ""), text) for pattern in FORBIDDEN[what])


def files(folder: Path = ROOT) -> Iterator[Path]:
    """Every text file of the project; what tools leave behind is hidden or ignored."""
    for path in sorted(folder.iterdir()):
        if path.name in SKIPPED or (path.name.startswith(".") and path.name not in KEPT_HIDDEN):
            continue
        if path.is_dir():
            yield from files(path)
        elif path.suffix in TEXT and path.name != "LICENSE":
            yield path


class TestWords:
    @pytest.mark.parametrize("what", sorted(FORBIDDEN))
    def test_text_speaks_of_the_project_alone(self, what: str) -> None:
        found = [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
            for path in files()
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
            if finds(what, line)
        ]
        assert found == []

    @pytest.mark.parametrize(
        ("what", "text"),
        [
            ("a package registry's host", "https://py~pi.org/simple"),
            ("a path of one machine", "see /work/ma~in/app"),
            ("praise", "a seam~less experience"),
            ("unfinished work", "# TO~DO: later"),
        ],
    )
    def test_each_pattern_finds_its_kind(self, what: str, text: str) -> None:
        assert finds(what, text.replace("~", ""))

    def test_the_product_has_no_unwritten_function(self) -> None:
        empty = [path for path in files(ROOT / "app") if "NotImplementedError" in path.read_text(encoding="utf-8")]
        assert empty == []

    def test_the_search_reads_the_whole_project(self) -> None:
        read = {str(path.relative_to(ROOT)) for path in files()}
        assert {"Makefile", "pyproject.toml", "app/errors.py", "tests/conftest.py", ".ci/run", "Dockerfile"} <= read


class TestLicence:
    def test_is_the_full_text_of_apache_2(self) -> None:
        # SHA-256 of the text as the Apache Software Foundation publishes it.
        digest = hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest()
        assert digest == "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"

    def test_package_says_the_same(self) -> None:
        text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        assert 'license = "Apache-2.0"' in text


class TestPages:
    def test_contributing_fits_a_screen(self) -> None:
        lines = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()
        assert len(lines) <= 40
        assert max(map(len, lines)) <= 140

    def test_contributing_names_only_verbs_that_exist(self) -> None:
        text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
        listed = (ROOT / "Makefile").read_text(encoding="utf-8")
        verbs = set(re.findall(r"make ([a-z]+)", text))
        assert verbs
        assert all(f"\n{verb}: " in listed for verb in verbs)

    def test_changelog_keeps_its_format(self) -> None:
        # https://keepachangelog.com/en/1.1.0/
        text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
        headings = re.findall(r"^#+ .*$", text, re.MULTILINE)
        assert headings[:2] == ["# Changelog", "## [Unreleased]"]
        kinds = {heading.removeprefix("### ") for heading in headings if heading.startswith("### ")}
        assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


class TestDecisions:
    def test_are_numbered_without_gaps(self) -> None:
        assert [int(path.name[:4]) for path in DECISIONS] == list(range(1, len(DECISIONS) + 1))

    @pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
    def test_have_a_title_a_decision_and_alternatives(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        assert text.startswith(f"# {int(path.name[:4])}. ")
        for part in ("**Decision.**", "**Why.**", "**Alternatives considered.**", "**Consequences.**"):
            assert part in text

    @pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
    def test_fit_a_screen(self, path: Path) -> None:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 50

    def test_pages_that_the_code_points_to_exist(self) -> None:
        pointed = {
            match
            for path in files()
            if path.suffix == ".py"
            for match in re.findall(r"docs/decisions/(\d{4})", path.read_text(encoding="utf-8"))
        }
        assert pointed <= {path.name[:4] for path in DECISIONS}


class TestScripts:
    @pytest.mark.parametrize("path", [".ci/run", "scripts/find_python.sh"])
    def test_shell_parses(self, path: str) -> None:
        done = subprocess.run(["/bin/bash", "-n", str(ROOT / path)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
