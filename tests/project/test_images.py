"""The two Dockerfiles, read instruction by instruction, and the script that fills the worker's image."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from app.settings import load_settings
from scripts import framework_environments
from scripts.framework_environments import EXTRAS, framework_list, interpreters, plan

ROOT = Path(__file__).resolve().parents[2]
FILES = ("Dockerfile", "Dockerfile.gpu")
COMMANDS = {"Dockerfile": '["api"]', "Dockerfile.gpu": '["worker"]'}


def instructions(name: str) -> list[tuple[str, str]]:
    """(keyword, arguments) in order, with continued lines joined and comments dropped."""
    text = (ROOT / name).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(keyword, rest) for keyword, _space, rest in (line.partition(" ") for line in joined.splitlines())]


def final_stage(name: str) -> list[tuple[str, str]]:
    parts = instructions(name)
    last = max(index for index, (keyword, _rest) in enumerate(parts) if keyword == "FROM")
    return parts[last:]


@pytest.mark.parametrize("name", FILES)
class TestBothImages:
    def test_base_image_is_a_build_argument_with_a_tag(self, name: str) -> None:
        first, *rest = instructions(name)
        assert re.fullmatch(r"PYTHON_IMAGE=python:3\.1[123]-slim-\w+", first[1])
        stages = [arguments for keyword, arguments in rest if keyword == "FROM"]
        assert stages == ["${PYTHON_IMAGE} AS build", "${PYTHON_IMAGE}"]

    def test_package_index_can_be_chosen(self, name: str) -> None:
        assert ("ARG", "PIP_INDEX_URL") in instructions(name)

    def test_process_itself_gets_the_signals(self, name: str) -> None:
        stage = dict(final_stage(name))
        assert stage["ENTRYPOINT"] == '["trainshed"]'
        assert stage["CMD"] == COMMANDS[name]

    def test_user_owns_the_folder_that_becomes_a_volume(self, name: str) -> None:
        stage = final_stage(name)
        keywords = [keyword for keyword, _rest in stage]
        setup = next(rest for keyword, rest in stage if keyword == "RUN")
        assert "--owner trainshed --group trainshed --mode 0750 /var/lib/trainshed" in setup
        assert "--uid 10001" in setup
        assert ("USER", "10001:10001") in stage
        assert keywords.index("RUN") < keywords.index("USER") < keywords.index("ENTRYPOINT")

    def test_image_that_runs_has_no_sources_and_installs_nothing(self, name: str) -> None:
        stage = final_stage(name)
        copies = [rest for keyword, rest in stage if keyword == "COPY"]
        assert copies
        assert all(rest.startswith("--from=build /opt/") for rest in copies)
        assert not any("pip" in rest for keyword, rest in stage if keyword == "RUN")

    def test_every_installation_uses_the_pins(self, name: str) -> None:
        runs = [rest for keyword, rest in instructions(name) if keyword == "RUN" and "pip install" in rest]
        assert runs
        assert all("--constraint constraints.txt" in rest for rest in runs)

    def test_no_library_path_is_set(self, name: str) -> None:
        environment = " ".join(rest for keyword, rest in instructions(name) if keyword == "ENV")
        assert "LD_LIBRARY_PATH" not in environment
        assert "PYTHONPATH" not in environment

    def test_environment_holds_only_known_settings(self, name: str, tmp_path: Path) -> None:
        environment = " ".join(rest for keyword, rest in final_stage(name) if keyword == "ENV")
        variables = dict(re.findall(r"(TRAINSHED_\w+)=(\S+)", environment))
        if "TRAINSHED_INTERPRETERS_FILE" in variables:
            written = tmp_path / "interpreters.json"
            written.write_text(json.dumps(interpreters(["torch"], Path("/opt/frameworks"))), encoding="utf-8")
            variables["TRAINSHED_INTERPRETERS_FILE"] = str(written)
        assert load_settings(variables).home == Path("/var/lib/trainshed")


class TestApiImage:
    def test_installs_no_framework(self) -> None:
        installed = [rest for keyword, rest in instructions("Dockerfile") if keyword == "RUN" and "pip" in rest]
        assert len(installed) == 1
        assert installed[0].endswith('".[api]"')


class TestWorkerImage:
    def test_worker_s_own_environment_has_no_framework(self) -> None:
        (run,) = [rest for keyword, rest in instructions("Dockerfile.gpu") if keyword == "RUN" and "pip" in rest]
        assert run.startswith("python -m venv /opt/trainshed")
        assert run.endswith('".[worker]"')

    def test_frameworks_go_where_the_setting_looks(self) -> None:
        build = [rest for keyword, rest in instructions("Dockerfile.gpu") if "framework_environments" in rest]
        assert build[-1].endswith('--accelerator "${ACCELERATOR}" /opt/frameworks')
        environment = " ".join(rest for keyword, rest in final_stage("Dockerfile.gpu") if keyword == "ENV")
        assert "TRAINSHED_INTERPRETERS_FILE=/opt/frameworks/interpreters.json" in environment

    def test_gpu_is_the_default(self) -> None:
        arguments = [rest for keyword, rest in instructions("Dockerfile.gpu") if keyword == "ARG"]
        assert 'FRAMEWORKS="torch tensorflow"' in arguments
        assert "ACCELERATOR=cuda" in arguments


class TestFrameworkEnvironments:
    @pytest.mark.parametrize("accelerator", ["cuda", "cpu"])
    @pytest.mark.parametrize("frameworks", [["torch"], ["tensorflow"], ["torch", "tensorflow"]])
    def test_no_environment_gets_two_frameworks(self, frameworks: list[str], accelerator: str) -> None:
        # torch brings CUDA 13 and TensorFlow CUDA 12, with equal file names (tensorflow/tensorflow#60913).
        commands = plan(frameworks, accelerator, Path("/opt"))
        installed: dict[str, list[str]] = {}
        for program, *rest in commands:
            if "install" in rest:
                installed.setdefault(program, []).append(rest[-1])
        assert installed == {f"/opt/{name}/bin/pip": [f".[{EXTRAS[name][accelerator]}]"] for name in frameworks}

    def test_only_the_gpu_image_gets_tensorflow_with_cuda(self) -> None:
        assert plan(["tensorflow"], "cuda", Path("/opt"))[1][-1] == ".[tensorflow-gpu]"
        assert plan(["tensorflow"], "cpu", Path("/opt"))[1][-1] == ".[tensorflow]"

    def test_environment_is_made_before_it_is_filled(self) -> None:
        first, second = plan(["torch"], "cuda", Path("/opt"))
        assert first == [sys.executable, "-m", "venv", "/opt/torch"]
        assert second[0] == "/opt/torch/bin/pip"
        assert second[-3:-1] == ["--constraint", "constraints.txt"]

    @pytest.mark.parametrize("text", ["", "  ", "jax", "torch,tensorflow", "torch jax"])
    def test_unknown_frameworks_are_refused(self, text: str) -> None:
        with pytest.raises(Exception, match="must name one or more of: torch, tensorflow"):
            framework_list(text)

    def test_repeats_count_once(self) -> None:
        assert framework_list("torch torch tensorflow") == ["torch", "tensorflow"]

    def test_writes_what_the_worker_reads(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        ran: list[list[str]] = []
        monkeypatch.setattr(subprocess, "run", lambda command, **_options: ran.append(command))
        arguments = ["--frameworks", "tensorflow", "--accelerator", "cpu", str(tmp_path / "frameworks")]
        assert framework_environments.main(arguments) == 0
        assert len(ran) == 2
        file = tmp_path / "frameworks/interpreters.json"
        settings = load_settings({"TRAINSHED_INTERPRETERS_FILE": str(file)})
        assert settings.interpreters == {"tensorflow": tmp_path / "frameworks/tensorflow/bin/python"}

    def test_needs_only_the_standard_library(self) -> None:
        # The image's build runs it before anything is installed.
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(ROOT / "scripts/framework_environments.py"), "--help"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


class TestBuildContext:
    def test_everything_that_is_copied_is_in_the_context(self) -> None:
        allowed = {
            line.removeprefix("!")
            for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
            if line.startswith("!")
        }
        copied = {
            source
            for name in FILES
            for keyword, rest in instructions(name)
            if keyword == "COPY" and not rest.startswith("--from")
            for source in rest.split()[:-1]
        }
        assert copied == allowed
        assert all((ROOT / source).exists() for source in copied)

    def test_everything_else_stays_out(self) -> None:
        lines = [line for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
        assert lines[0] == "*"
