"""What kind of bundle an archive is, by what is in it."""

import pytest

from app.archives import Contents, Member
from app.bundles.names import InvalidBundle, bundle_name, format_of


def contents(*names: str) -> Contents:
    return Contents(tuple(Member(name, 1) for name in names), (), len(names))


class TestFormat:
    @pytest.mark.parametrize("name", ["tool-1.0-py3-none-any.whl", "renamed.zip", ""])
    def test_a_wheel_says_so_in_itself_whatever_it_is_called(self, name: str) -> None:
        assert format_of(contents("tool/__init__.py", "tool-1.0.dist-info/WHEEL"), name) == "wheel"

    @pytest.mark.parametrize(
        "names", [("train.py",), ("WHEEL",), ("a/tool-1.0.dist-info/WHEEL",), ("tool-1.0.dist-info/METADATA",)]
    )
    def test_anything_else_is_a_zip(self, names: tuple[str, ...]) -> None:
        assert format_of(contents(*names), "code.zip") == "zip"

    @pytest.mark.parametrize("name", ["tool.whl", "TOOL.WHL"])
    def test_one_that_is_only_called_a_wheel_is_refused(self, name: str) -> None:
        with pytest.raises(InvalidBundle, match=r"no \*\.dist-info/WHEEL"):
            format_of(contents("train.py"), name)

    def test_one_without_files_is_no_bundle(self) -> None:
        with pytest.raises(InvalidBundle, match="has no file"):
            format_of(contents(), "code.zip")


class TestName:
    def test_the_client_s_is_made_harmless(self) -> None:
        assert bundle_name("../../etc/tool\u202e.zip", "zip") == "tool.zip"

    @pytest.mark.parametrize(("bundle_format", "expected"), [("zip", "bundle.zip"), ("wheel", "bundle.whl")])
    def test_without_one_the_kind_says_it(self, bundle_format: str, expected: str) -> None:
        assert bundle_name("", "wheel" if bundle_format == "wheel" else "zip") == expected
