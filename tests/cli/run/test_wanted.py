"""Options as a spec."""

import json
from pathlib import Path

import pytest

from app.cli.errors import UsageProblem
from app.cli.run.wanted import How, Labels, Place, body_of, data_of, requirements_of, spec_of, variables_of
from app.spec import ScriptSpec, parse_spec

PLAIN = How(("python", "train.py"), None, None, None, None, network=False)
BUNDLE = "bun_01k0000000000000000000000a"
DATA = "ds_01k0000000000000000000000a"


class TestSpec:
    def test_what_nobody_asked_for_is_left_to_the_server(self) -> None:
        spec = spec_of(Labels(None, ()), Place(1, None, None, None), "torch", PLAIN.script, [])
        assert spec == {"framework": "torch", "script": {"command": ["python", "train.py"]}, "device_count": 1}

    def test_every_option_has_its_place(self) -> None:
        how = How(("python", "train.py"), "per_device", "exit", "val_loss:max", 7, network=True)
        labels, place = Labels("mine", ("team:birds", "note:a:b")), Place(2, "cpu", "1h30m", 2)
        script = {**how.script, "environment": {"variables": {"A": "1"}, "requirements": ["rich==14.1.0"]}}
        spec = spec_of(labels, place, "torch", script, ["priority=5", "script.seed=8"])
        body = json.loads(body_of(spec, BUNDLE, {"train": DATA}))
        assert body == {
            "name": "mine",
            "tags": {"team": "birds", "note": "a:b"},
            "framework": "torch",
            "script": {
                "command": ["python", "train.py"],
                "processes": "per_device",
                "success": "exit",
                "monitor": {"metric": "val_loss", "mode": "max"},
                "seed": 8,
                "network": True,
                "environment": {"variables": {"A": "1"}, "requirements": ["rich==14.1.0"]},
                "bundle": BUNDLE,
                "data": {"train": DATA},
            },
            "device_count": 2,
            "device_type": "cpu",
            "timeout_s": 5400,
            "retry": {"failures": 2},
            "priority": 5,
        }
        assert isinstance(parse_spec(body), ScriptSpec)

    def test_without_code_and_data_there_is_nothing_about_them(self) -> None:
        spec = spec_of(Labels(None, ()), Place(1, None, None, None), "python", PLAIN.script, [])
        assert json.loads(body_of(spec, None, {}))["script"] == {"command": ["python", "train.py"]}

    def test_a_monitor_needs_no_direction(self) -> None:
        how = How(("python", "train.py"), None, None, "f1", None, network=False)
        assert how.script["monitor"] == {"metric": "f1"}

    @pytest.mark.parametrize("tag", ["birds", ":birds", "team:"])
    def test_a_tag_that_is_none_is_refused(self, tag: str) -> None:
        with pytest.raises(UsageProblem, match="--tag team:birds"):
            _ = Labels(None, (tag,)).spec


class TestVariables:
    def test_a_value_is_given_or_taken_from_here(self) -> None:
        found = variables_of(["A=1", "B=x=y", "C=", "HERE"], {"HERE": "there"})
        assert found == {"A": "1", "B": "x=y", "C": "", "HERE": "there"}

    @pytest.mark.parametrize("text", ["GONE", "=1", ""])
    def test_neither_is_refused(self, text: str) -> None:
        with pytest.raises(UsageProblem, match="WANDB_MODE=offline"):
            variables_of([text], {})


class TestData:
    def test_ids_addresses_and_files_pass(self, tmp_path: Path) -> None:
        file = tmp_path / "a=b.csv"
        file.write_text("x\n1\n")
        given = [f"train={DATA}", "test=root://pool/a.csv", f"more={file}"]
        assert data_of(given) == {"train": DATA, "test": "root://pool/a.csv", "more": str(file)}

    def test_a_file_must_be_there(self) -> None:
        with pytest.raises(UsageProblem, match=r"--data train: gone\.csv is neither a file here nor the id"):
            data_of(["train=gone.csv"])

    @pytest.mark.parametrize("text", ["train", "train=", f"={DATA}"])
    def test_a_part_must_not_be_missing(self, text: str) -> None:
        with pytest.raises(UsageProblem, match="must be NAME=VALUE"):
            data_of([text])

    def test_a_name_goes_once(self) -> None:
        with pytest.raises(UsageProblem, match="train is given twice"):
            data_of([f"train={DATA}", f"train={DATA}"])


class TestRequirements:
    def test_a_file_that_is_sent_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "needs").mkdir()
        (tmp_path / "needs" / "gpu.txt").write_text("rich\n")
        names = ["needs/gpu.txt", "train.py"]
        assert requirements_of(Path("needs/gpu.txt"), tmp_path, names) == "needs/gpu.txt"
        assert requirements_of(tmp_path / "needs" / "gpu.txt", tmp_path, names) == "needs/gpu.txt"

    def test_of_any_other_the_lines_are_sent(self, tmp_path: Path) -> None:
        file = tmp_path / "needs.txt"
        file.write_text("# what it needs\n\nrich==14.1.0  # colours\nattrs \\\n  --hash=sha256:00\n")
        lines = ["rich==14.1.0  # colours", "attrs \\", "  --hash=sha256:00"]
        code = tmp_path / "code"
        code.mkdir()
        assert requirements_of(file, code, ["train.py"]) == lines
        assert requirements_of(file, None, []) == lines
        assert requirements_of(file, tmp_path, ["train.py"]) == lines  # there, but an ignore file leaves it out

    def test_none_is_none(self, tmp_path: Path) -> None:
        assert requirements_of(None, tmp_path, []) is None

    def test_a_file_that_is_gone_or_empty_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UsageProblem, match="no such file"):
            requirements_of(Path("gone.txt"), tmp_path, [])
        (tmp_path / "empty.txt").write_text("# nothing\n")
        with pytest.raises(UsageProblem, match="names no package"):
            requirements_of(tmp_path / "empty.txt", None, [])

    def test_a_file_that_is_no_text_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "bad.txt").write_bytes(b"\xff\xfe")
        with pytest.raises(UsageProblem, match="UTF-8"):
            requirements_of(tmp_path / "bad.txt", None, [])
