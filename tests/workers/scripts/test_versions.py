"""Versions of frameworks by what is installed, and names of media types."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from workers.scripts.media import UNKNOWN, media_type
from workers.scripts.versions import framework_version


class TestFrameworkVersion:
    def test_installed_framework_is_found_without_importing_it(self) -> None:
        try:
            expected = version("torch")
        except PackageNotFoundError:
            pytest.skip("torch is not installed")

        assert framework_version("torch") == expected

    @pytest.mark.parametrize("package", ["tensorflow", "tensorflow_cpu"])
    def test_tensorflow_has_several_names(self, package: str, tmp_path: Path) -> None:
        (tmp_path / f"{package}-2.21.0.dist-info").mkdir()
        (tmp_path / "tensorflow_estimator-1.0.dist-info").mkdir()

        assert framework_version("tensorflow", ["/no/such", str(tmp_path)]) == "2.21.0"

    def test_one_that_is_not_there_is_unknown(self, tmp_path: Path) -> None:
        assert framework_version("torch", [str(tmp_path)]) == "unknown"


class TestMediaType:
    @pytest.mark.parametrize(
        ("name", "expected"),
        [("a.JSON", "application/json"), ("a.zip", "application/zip"), ("a.png", "image/png"), ("a.csv", "text/csv")],
    )
    def test_known_ones(self, name: str, expected: str) -> None:
        assert media_type(name) == expected

    @pytest.mark.parametrize("name", ["a", "a.html", "a.svg", "a.js", "a.pt", "html"])
    def test_what_a_browser_would_run_is_bytes(self, name: str) -> None:
        assert media_type(name) == UNKNOWN
