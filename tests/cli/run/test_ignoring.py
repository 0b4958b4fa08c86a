"""Which files of a folder are sent."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from app.cli.errors import UsageProblem
from app.cli.run.ignoring import code_files


def make(folder: Path, *names: str) -> Path:
    """Files with a byte each."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    return folder


def ignore(folder: Path, text: str, name: str = ".gitignore") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


class TestWithoutIgnoreFiles:
    def test_everything_is_code_in_the_order_of_names(self, tmp_path: Path) -> None:
        make(tmp_path, "train.py", "model/net.py", "a.txt")
        assert list(code_files(tmp_path).files) == ["a.txt", "model/net.py", "train.py"]

    def test_what_nobody_means_is_left_out(self, tmp_path: Path) -> None:
        make(tmp_path, "train.py", ".git/HEAD", ".venv/bin/python", "__pycache__/train.pyc", "m/__pycache__/x.pyc")
        make(tmp_path, "old.pyc", "node_modules/a/b.js", ".env", "deep/.env", ".mypy_cache/a")
        assert list(code_files(tmp_path).files) == ["train.py"]

    def test_a_virtual_environment_is_known_by_what_is_in_it(self, tmp_path: Path) -> None:
        make(tmp_path, "train.py", "my-env/pyvenv.cfg", "my-env/lib/site.py")
        assert list(code_files(tmp_path).files) == ["train.py"]

    def test_other_hidden_files_are_code(self, tmp_path: Path) -> None:
        make(tmp_path, ".config/a.toml", ".coveragerc")
        assert list(code_files(tmp_path).files) == [".config/a.toml", ".coveragerc"]

    def test_paths_are_where_the_content_lies(self, tmp_path: Path) -> None:
        make(tmp_path, "m/a.py")
        assert code_files(tmp_path).files == {"m/a.py": (tmp_path / "m" / "a.py").resolve()}


class TestIgnoreFiles:
    def test_git_s_are_followed_in_every_folder(self, tmp_path: Path) -> None:
        make(tmp_path, "train.py", "data/a.csv", "m/a.py", "m/cache/x", "m/b.tmp", "b.tmp")
        ignore(tmp_path, "/data/\n")
        ignore(tmp_path / "m", "cache\n*.tmp\n")
        files = list(code_files(tmp_path).files)
        assert files == [".gitignore", "b.tmp", "m/.gitignore", "m/a.py", "train.py"]

    def test_ours_takes_back_out_of_a_folder_that_is_left_out(self, tmp_path: Path) -> None:
        make(tmp_path, "train.py", "data/small.csv", "data/large.csv", "data/deep/a.json", "data/deep/b.csv", "runs/x")
        ignore(tmp_path, "data/\nruns/\n")
        ignore(tmp_path, "!data/small.csv\n!/data/deep/*.json\n", ".trainshedignore")
        ignore(tmp_path / "data", "!large.csv\n")
        files = [name for name in code_files(tmp_path).files if not name.startswith(".")]
        assert files == ["data/deep/a.json", "data/small.csv", "train.py"]

    @pytest.mark.parametrize("pattern", ["!*.csv", "!**/small.csv", "!date/small.csv"])
    def test_a_pattern_that_does_not_say_where_does_not_open_it(self, pattern: str, tmp_path: Path) -> None:
        make(tmp_path, "train.py", "data/small.csv")
        ignore(tmp_path, "data/\n")
        ignore(tmp_path, f"{pattern}\n", ".trainshedignore")
        assert [name for name in code_files(tmp_path).files if not name.startswith(".")] == ["train.py"]

    def test_ours_adds_to_git_s_and_can_take_back(self, tmp_path: Path) -> None:
        make(tmp_path, "train.py", "small.csv", "large.csv", "notes.md")
        ignore(tmp_path, "*.csv\n")
        ignore(tmp_path, "!small.csv\nnotes.md\n.*ignore\n", ".trainshedignore")
        assert list(code_files(tmp_path).files) == ["small.csv", "train.py"]

    def test_the_nearest_file_has_the_last_word(self, tmp_path: Path) -> None:
        make(tmp_path, "m/keep.log", "n/drop.log")
        ignore(tmp_path, "*.log\n")
        ignore(tmp_path / "m", "!keep.log\n")
        assert list(code_files(tmp_path).files) == [".gitignore", "m/.gitignore", "m/keep.log"]

    def test_even_what_is_never_code_can_be_taken_back(self, tmp_path: Path) -> None:
        make(tmp_path, ".env", "train.py")
        ignore(tmp_path, "!.env\n.trainshedignore\n", ".trainshedignore")
        assert list(code_files(tmp_path).files) == [".env", "train.py"]

    def test_those_above_count_up_to_the_repository(self, tmp_path: Path) -> None:
        ignore(tmp_path, "train.py\n")  # outside of the repository
        repository = make(tmp_path / "repository", ".git/HEAD", "job/train.py", "job/a.csv", "job/big/x")
        ignore(repository, "*.csv\n/job/big/\n")
        assert list(code_files(repository / "job").files) == ["train.py"]

    def test_a_pattern_that_is_none_is_named(self, tmp_path: Path) -> None:
        make(tmp_path, "train.py")
        ignore(tmp_path, "!\n")
        with pytest.raises(UsageProblem, match=r"A pattern in \.gitignore"):
            code_files(tmp_path)

    @pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
    def test_git_itself_says_the_same(self, tmp_path: Path) -> None:
        make(tmp_path, "a.py", "b/a.py", "b/c/a.py", "b/x.log", "x.log", "b/c/x.log", "foo/bar", "b/foo/bar", "z/f o")
        ignore(tmp_path, "*.log\n!/x.log\nfoo/\n# text\n\n")
        ignore(tmp_path / "b", "!x.log\n/c/a.py\n")
        ignore(tmp_path / "z", "f\\ o\n")
        for command in (["git", "init", "--quiet"], ["git", "add", "--all", "--dry-run"]):
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        listed = sorted(line.removeprefix("add '").removesuffix("'") for line in done.stdout.splitlines())
        assert list(code_files(tmp_path).files) == listed


class TestLinks:
    def test_a_link_to_a_file_inside_is_that_file(self, tmp_path: Path) -> None:
        make(tmp_path, "real.py")
        (tmp_path / "link.py").symlink_to("real.py")
        assert code_files(tmp_path).files["link.py"] == (tmp_path / "real.py").resolve()

    def test_other_links_are_left_out_and_named(self, tmp_path: Path) -> None:
        folder = make(tmp_path / "code", "m/a.py")
        make(tmp_path, "secret")
        (folder / "out").symlink_to(tmp_path / "secret")
        (folder / "nothing").symlink_to("gone")
        (folder / "folder").symlink_to("m")
        (folder / "round").symlink_to("round")
        found = code_files(folder)
        assert list(found.files) == ["m/a.py"]
        assert found.left_out == {
            "folder": "a link to a folder",
            "nothing": "a link to nothing",
            "out": "a link out of the folder",
            "round": "a link to nothing",
        }

    def test_a_pipe_is_not_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        assert code_files(tmp_path).left_out == {"pipe": "not a regular file"}
