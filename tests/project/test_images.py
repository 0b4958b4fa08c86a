"""The two Dockerfiles, read instruction by instruction."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from app.settings import load_settings
from scripts.framework_environments import interpreters, requirements

ROOT = Path(__file__).resolve().parents[2]
FILES = ("Dockerfile", "Dockerfile.gpu")
COMMANDS = {"Dockerfile": '["api"]', "Dockerfile.gpu": '["worker"]'}
EXTRA = {"Dockerfile": "api", "Dockerfile.gpu": "worker"}
SCRIPT = "/opt/pip/bin/python scripts/framework_environments.py"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


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


def runs(name: str) -> list[str]:
    return [rest for keyword, rest in instructions(name) if keyword == "RUN"]


@pytest.mark.parametrize("name", FILES)
class TestBothImages:
    def test_base_image_is_a_build_argument_with_a_tag(self, name: str) -> None:
        first, *rest = instructions(name)
        assert re.fullmatch(r"PYTHON_IMAGE=python:3\.1[123]-slim-\w+", first[1])
        stages = [arguments for keyword, arguments in rest if keyword == "FROM"]
        assert stages == ["${BUILD_IMAGE:-${PYTHON_IMAGE}} AS build", "${PYTHON_IMAGE}"]

    @pytest.mark.parametrize("argument", ["PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"])
    def test_place_of_packages_can_be_chosen(self, name: str, argument: str) -> None:
        # pip reads every option from PIP_<OPTION> (pip.pypa.io, "Configuration"), and an empty one is as none.
        assert ("ARG", argument) in instructions(name)

    def test_process_itself_gets_the_signals(self, name: str) -> None:
        stage = dict(final_stage(name))
        assert stage["ENTRYPOINT"] == '["trainshed"]'
        assert stage["CMD"] == COMMANDS[name]

    def test_folders_that_become_volumes_have_their_users(self, name: str) -> None:
        stage = final_stage(name)
        keywords = [keyword for keyword, _rest in stage]
        setup = next(rest for keyword, rest in stage if keyword == "RUN")
        assert "--owner trainshed --group trainshed --mode 0750 /var/lib/trainshed &&" in f"{setup} &&"
        # The setgid bit is what makes the storage one of the group (tests/storage/test_shared_folder.py).
        assert "--owner trainshed --group trainshed --mode 2770 /var/lib/trainshed/storage" in setup
        assert "--gid 10001" in setup
        assert "--uid 10001" in setup
        assert ("USER", "10001:10001") in stage
        assert keywords.index("RUN") < keywords.index("USER") < keywords.index("ENTRYPOINT")

    def test_image_that_runs_has_no_sources_and_installs_nothing(self, name: str) -> None:
        stage = final_stage(name)
        copies = [rest for keyword, rest in stage if keyword == "COPY"]
        assert copies
        assert all(rest.startswith("--from=build /opt/") for rest in copies)
        assert "--from=build /opt/pip" not in " ".join(copies)
        assert not any("pip" in rest for keyword, rest in stage if keyword == "RUN")

    def test_every_installation_uses_the_pins(self, name: str) -> None:
        pip, *others = runs(name)
        assert pip.startswith("python -m venv /opt/pip ")
        assert "--constraint constraints.txt pip" in pip
        assert all("pip install" not in run for run in others)
        assert f"{SCRIPT} service --extra {EXTRA[name]} /opt/trainshed" in others

    def test_new_version_changes_the_last_layer_alone(self, name: str) -> None:
        """What takes minutes and gigabytes comes before the source is copied, and stays as it is."""
        parts = instructions(name)
        copied = parts.index(("COPY", "app app"))
        after = [rest for keyword, rest in parts[copied:] if keyword == "RUN"]
        assert after[0].startswith(f"{SCRIPT} product /opt/product /opt/trainshed")
        assert not any("service" in rest or "frameworks --" in rest for rest in after)
        assert final_stage(name).index(("COPY", "--from=build /opt/product /opt/product")) > max(
            index for index, part in enumerate(final_stage(name)) if part[0] == "COPY" and "product" not in part[1]
        )

    def test_no_library_path_is_set(self, name: str) -> None:
        variables = " ".join(rest for keyword, rest in instructions(name) if keyword == "ENV")
        assert "LD_LIBRARY_PATH" not in variables
        assert "PYTHONPATH" not in variables

    def test_environment_holds_only_known_settings(self, name: str, tmp_path: Path) -> None:
        text = " ".join(rest for keyword, rest in final_stage(name) if keyword == "ENV")
        variables = dict(re.findall(r"(TRAINSHED_\w+)=(\S+)", text))
        if "TRAINSHED_INTERPRETERS_FILE" in variables:
            written = tmp_path / "interpreters.json"
            written.write_text(json.dumps(interpreters(["torch"], Path("/opt/frameworks"))), encoding="utf-8")
            variables["TRAINSHED_INTERPRETERS_FILE"] = str(written)
        assert load_settings(variables).home == Path("/var/lib/trainshed")


class TestApiImage:
    def test_installs_no_framework(self) -> None:
        assert not any("frameworks --" in run for run in runs("Dockerfile"))
        names = " ".join(requirements(PROJECT, "api"))
        assert not re.search(r"torch|tensorflow|keras|nvidia", names)


class TestWorkerImage:
    def test_worker_s_own_environment_has_no_framework(self) -> None:
        names = " ".join(requirements(PROJECT, "worker"))
        assert not re.search(r"torch|tensorflow|keras", names)

    def test_frameworks_go_where_the_setting_looks(self) -> None:
        (build,) = [run for run in runs("Dockerfile.gpu") if "frameworks --" in run]
        assert '--accelerator "${ACCELERATOR}"' in build
        assert '--torch-index "${TORCH_INDEX_URL}"' in build
        assert build.endswith(" /opt/frameworks")
        text = " ".join(rest for keyword, rest in final_stage("Dockerfile.gpu") if keyword == "ENV")
        assert "TRAINSHED_INTERPRETERS_FILE=/opt/frameworks/interpreters.json" in text

    def test_gpu_is_the_default(self) -> None:
        arguments = [rest for keyword, rest in instructions("Dockerfile.gpu") if keyword == "ARG"]
        assert 'FRAMEWORKS="torch tensorflow"' in arguments
        assert "ACCELERATOR=cuda" in arguments

    def test_trainers_may_pass_the_run_folder_and_not_list_it(self) -> None:
        setup = next(rest for keyword, rest in final_stage("Dockerfile.gpu") if keyword == "RUN")
        assert "--owner root --group trainshed --mode 0771 /var/lib/trainshed-run" in setup
        text = " ".join(rest for keyword, rest in final_stage("Dockerfile.gpu") if keyword == "ENV")
        assert "TRAINSHED_RUN_DIR=/var/lib/trainshed-run" in text


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
