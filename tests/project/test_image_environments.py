"""The script that fills the images: one environment per framework, and the product once for all of them."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import grimp
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from app.settings import load_settings
from scripts import framework_environments
from scripts.framework_environments import (
    EXTRAS,
    environment,
    framework_list,
    link,
    plan,
    product,
    prune,
    requirements,
)

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("app", "workers", include_external_packages=True, cache_dir=None)


@pytest.fixture(scope="module")
def packages() -> Mapping[str, list[str]]:
    """Names of packages by what they let one import."""
    return metadata.packages_distributions()


class TestCompleteness:
    """What starts in an image finds there all that it imports, also far down."""

    @pytest.mark.parametrize(
        ("extra", "starts"),
        [
            ("api", "app.main"),
            ("api", "app.control"),
            ("api", "app.cli.processes.key"),
            ("api", "app.cli.program"),
            ("worker", "app.cli.processes.worker"),
            ("worker", "app.cli.processes.health"),
            ("worker", "app.cli.program"),
            ("torch", "workers.launcher"),
            ("torch", "workers.backends.torch.backend"),
            ("torch", "workers.predictor"),
            ("torch", "workers.user_predictor"),
            ("torch", "workers.user_export"),
            ("torch", "workers.exports.python_model.torch_onnx"),
            ("tensorflow", "workers.user_predictor"),
            ("tensorflow", "workers.exports.python_model.keras_native"),
            ("tensorflow", "workers.user_export_check"),
            ("worker", "workers.user_export_check"),
            ("torch", "workers.environments.step"),
            ("tensorflow", "workers.environments.activation"),
            ("tensorflow", "workers.trainer"),
            # Loaded by name, so not found from the others.
            ("api", "app.tables.apart"),
            ("worker", "workers.exports.__main__"),
            ("tensorflow", "workers.backends.tensorflow.backend"),
        ],
    )
    def test_every_import_is_of_a_package_that_is_installed(
        self, graph: grimp.ImportGraph, packages: Mapping[str, list[str]], extra: str, starts: str
    ) -> None:
        reached = graph.find_upstream_modules(starts)
        outside = {name for name in reached if graph.is_module_squashed(name)} - sys.stdlib_module_names
        installed = {canonicalize_name(Requirement(line).name) for line in requirements(PROJECT, extra)}
        missing = {name for name in outside if not {canonicalize_name(found) for found in packages[name]} & installed}
        assert reached
        assert missing == set()


class TestFrameworkEnvironments:
    @pytest.mark.parametrize("accelerator", ["cuda", "cpu"])
    @pytest.mark.parametrize("frameworks", [["torch"], ["tensorflow"], ["torch", "tensorflow"]])
    def test_no_environment_gets_two_frameworks(self, frameworks: list[str], accelerator: str) -> None:
        # torch brings CUDA 13 and TensorFlow CUDA 12, with equal file names (tensorflow/tensorflow#60913).
        installed = {}
        for command in plan(frameworks, accelerator, Path("/opt"), PROJECT):
            if "install" in command:
                names = {re.split(r"[\[>=<; ]", part)[0] for part in command[command.index("constraints.txt") + 1 :]}
                installed[command[command.index("--python") + 1]] = names
        assert set(installed) == {f"/opt/{name}/bin/python" for name in frameworks}
        for python, names in installed.items():
            assert ("torch" in names) == ("/opt/torch/" in python)
            assert bool({"tensorflow", "tensorflow-cpu", "keras"} & names) == ("/opt/tensorflow/" in python)

    def test_only_the_gpu_image_gets_tensorflow_with_cuda(self) -> None:
        cuda, cpu = (plan(["tensorflow"], kind, Path("/opt"), PROJECT)[1] for kind in ("cuda", "cpu"))
        assert any(part.startswith("tensorflow[and-cuda]") for part in cuda)
        assert not any("cuda" in part for part in cpu)

    def test_environment_is_made_before_it_is_filled_and_has_no_pip(self) -> None:
        first, second = environment(Path("/opt/a"), ["x>=1"])
        assert first == [sys.executable, "-m", "venv", "--without-pip", "/opt/a"]
        assert second[:5] == [sys.executable, "-m", "pip", "--python", "/opt/a/bin/python"]
        assert second[-3:] == ["--constraint", "constraints.txt", "x>=1"]

    def test_torch_s_own_index_is_asked_for_torch_alone(self) -> None:
        index = "https://wheels.example/cpu"
        commands = plan(["torch", "tensorflow"], "cpu", Path("/opt"), PROJECT, index)
        asking = [command for command in commands if index in command]
        assert [command[command.index("--python") + 1] for command in asking] == ["/opt/torch/bin/python"]

    def test_requirements_are_those_of_the_project(self) -> None:
        wanted = requirements(PROJECT, EXTRAS["torch"]["cpu"])
        assert "pydantic>=2.12" in wanted
        assert wanted[-1].startswith("torch>=")

    @pytest.mark.parametrize("text", ["", "  ", "jax", "torch,tensorflow", "torch jax"])
    def test_unknown_frameworks_are_refused(self, text: str) -> None:
        with pytest.raises(Exception, match="must name one or more of: torch, tensorflow"):
            framework_list(text)

    def test_repeats_count_once(self) -> None:
        assert framework_list("torch torch tensorflow") == ["torch", "tensorflow"]

    def test_needs_only_the_standard_library(self) -> None:
        # The image's build runs it before anything is installed.
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(ROOT / "scripts/framework_environments.py"), "--help"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


class TestFilling:
    """The program's steps over real environments; what pip would do is written down instead."""

    @pytest.fixture
    def ran(self, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
        ran: list[list[str]] = []

        def run(command: list[str], **_options: object) -> None:
            ran.append(command)
            if "--without-pip" in command:
                (Path(command[-1]) / "lib/python3.11/site-packages").mkdir(parents=True)

        monkeypatch.setattr(subprocess, "run", run)
        monkeypatch.chdir(ROOT)
        return ran

    def test_writes_what_the_worker_reads_and_proves_that_it_loads(self, tmp_path: Path, ran: list[list[str]]) -> None:
        folder = tmp_path / "frameworks"
        arguments = ["frameworks", "--frameworks", "tensorflow", "--accelerator", "cpu", str(folder)]
        assert framework_environments.main(arguments) == 0
        assert ran[-1] == [str(folder / "tensorflow/bin/python"), "-c", "import tensorflow"]
        settings = load_settings({"TRAINSHED_INTERPRETERS_FILE": str(folder / "interpreters.json")})
        assert settings.interpreters == {"tensorflow": folder / "tensorflow/bin/python"}

    def test_service_gets_its_extra(self, tmp_path: Path, ran: list[list[str]]) -> None:
        assert framework_environments.main(["service", "--extra", "api", str(tmp_path / "a")]) == 0
        assert any(part.startswith("fastapi") for part in ran[-1])

    def test_product_is_installed_once_and_seen_by_all(self, tmp_path: Path, ran: list[list[str]]) -> None:
        places = [tmp_path / name for name in ("service", "torch")]
        for place in places:
            (place / "lib/python3.11/site-packages").mkdir(parents=True)
        arguments = ["product", str(tmp_path / "product"), *map(str, places)]
        assert framework_environments.main(arguments) == 0
        assert ran == product(places, tmp_path / "product")
        assert "--no-deps" in ran[0]
        for place in places:
            assert (place / "lib/python3.11/site-packages/trainshed.pth").read_text() == f"{tmp_path / 'product'}\n"

    def test_link_works_without_a_path_variable(self, tmp_path: Path) -> None:
        """The worker starts its trainers with -P and without PYTHONPATH (workers/launch.py)."""
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "a")], check=True)
        (tmp_path / "product").mkdir()
        (tmp_path / "product/ours.py").write_text("print('found')")
        link([tmp_path / "a"], tmp_path / "product")
        command = [str(tmp_path / "a/bin/python"), "-P", "-m", "ours"]
        done = subprocess.run(command, env={}, capture_output=True, text=True, check=True)
        assert done.stdout == "found\n"

    def test_test_suites_and_headers_go_and_the_rest_stays(self, tmp_path: Path) -> None:
        kept = ("torch/lib/a.so", "torch/testing/__init__.py", "numpy/core.py", "x/tests/data.csv", "numpy/include/a.h")
        gone = ("numpy/tests/__init__.py", "numpy/core/tests/__init__.py", "torch/include/a.h", "onnx/backend/test/a")
        for name in (*kept, *gone):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()
        prune(tmp_path)
        left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
        assert left == set(kept)
