"""Programs that the compose test runs: what they say is kept, and a failure tells its end."""

import os
import sys
from pathlib import Path

import pytest

from scripts.compose_test.commands import CommandFailed, Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell({"PATH": os.environ["PATH"], "COLOUR": "green"}, tmp_path / "log", tmp_path)


class TestRun:
    def test_answers_standard_output(self, shell: Shell) -> None:
        assert shell.run("sh", "-c", "echo out; echo err >&2") == "out\n"

    def test_log_has_command_and_both_outputs(self, shell: Shell) -> None:
        shell.run("sh", "-c", "echo out; echo err >&2")
        assert shell.log.read_text().split("\n")[1:] == ["$ sh -c echo out; echo err >&2", "err", "out", ""]

    def test_has_the_shell_s_environment_and_folder_and_no_other(self, shell: Shell) -> None:
        assert shell.run("sh", "-c", 'echo "$COLOUR ${HOME:-none}"; pwd') == f"green none\n{shell.folder}\n"

    def test_nothing_to_read_unless_given(self, shell: Shell) -> None:
        assert shell.run("cat") == ""

    def test_bytes_arrive_on_standard_input(self, shell: Shell) -> None:
        assert shell.run("cat", stdin=b"a\0b") == "a\0b"

    def test_file_arrives_on_standard_input(self, shell: Shell, tmp_path: Path) -> None:
        (tmp_path / "in").write_text("from a file")
        assert shell.run("cat", stdin=tmp_path / "in") == "from a file"

    def test_output_goes_into_a_file_when_asked(self, shell: Shell, tmp_path: Path) -> None:
        assert shell.run("printf", "\\377", into=tmp_path / "out") == ""
        assert (tmp_path / "out").read_bytes() == b"\xff"


class TestFailure:
    def test_tells_code_and_last_lines_and_keeps_them(self, shell: Shell) -> None:
        with pytest.raises(CommandFailed, match=r"`sh -c .*` ended with 3: line 6\n(.*\n)+line 20") as failure:
            shell.run("sh", "-c", "for i in $(seq 20); do echo line $i >&2; done; exit 3")
        assert failure.value.said.startswith("line 1\n")

    def test_of_an_earlier_command_is_not_told_again(self, shell: Shell) -> None:
        shell.run("sh", "-c", "echo earlier >&2")
        with pytest.raises(CommandFailed) as failure:
            shell.run("false")
        assert "earlier" not in str(failure.value)
        assert "it said nothing" in str(failure.value)

    def test_program_that_is_not_there_is_named(self, shell: Shell) -> None:
        with pytest.raises(CommandFailed, match="`no-such-program` is not installed"):
            shell.run("no-such-program")

    def test_end_comes_at_the_limit(self, shell: Shell) -> None:
        with pytest.raises(CommandFailed, match=r"was not done in 0\.1 s"):
            shell.run(sys.executable, "-c", "input()", stdin=Path("/dev/zero"), limit_s=0.1)

    def test_long_command_is_told_by_its_end(self, shell: Shell) -> None:
        with pytest.raises(CommandFailed, match="`false … five six seven eight`"):
            shell.run("false", "two", "three", "four", "five", "six", "seven", "eight")

    def test_can_be_an_answer(self, shell: Shell) -> None:
        assert shell.succeeds("true")
        assert not shell.succeeds("false")
