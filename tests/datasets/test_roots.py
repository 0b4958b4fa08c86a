"""Addresses of files in data roots."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.datasets.roots import DataRoots, InvalidUri, UnknownRoot, parse_uri, root_of
from app.tables.in_place import RootUnavailable


class TestParseUri:
    def test_root_and_path(self) -> None:
        place = parse_uri("root://scans/2025/a table%20.csv")
        assert (place.root, place.path) == ("scans", "2025/a table%20.csv")
        assert place.uri == "root://scans/2025/a table%20.csv"

    @pytest.mark.parametrize(
        "uri",
        [
            "",
            "scans/a.csv",
            "file:///etc/passwd",
            "root://",
            "root://scans",
            "root://scans/",
            "root:///etc/passwd",
            "root://Scans/a.csv",
            "root://../a.csv",
            "root://scans//a.csv",
            "root://scans/a.csv/",
            "root://scans/../a.csv",
            "root://scans/a/../../b.csv",
            "root://scans/./a.csv",
            "root://scans/a\0.csv",
            "root://scans/a\n.csv",
            "root://scans/a\udc80.csv",
            "root://scans/" + "x" * 1100,
        ],
    )
    def test_anything_else_is_refused_with_an_example(self, uri: str) -> None:
        with pytest.raises(InvalidUri, match=r"an address looks like 'root://scans/2025/table\.csv'") as caught:
            parse_uri(uri)
        assert (caught.value.code, caught.value.pointer) == ("invalid_data", "/uri")
        assert len(str(caught.value)) < 400

    @given(st.text())
    def test_what_is_taken_names_a_file_below(self, text: str) -> None:
        try:
            place = parse_uri(f"root://scans/{text}")
        except InvalidUri:
            return
        assert place.uri == f"root://scans/{text}"
        assert (Path("/root") / place.path).parts[:2] == ("/", "root")
        assert not {"", ".", ".."} & set(place.path.split("/"))

    def test_the_root_of_a_stored_address(self) -> None:
        assert (root_of("root://scans/a.csv"), root_of(None)) == ("scans", None)


class TestDataRoots:
    @pytest.fixture
    def roots(self, tmp_path: Path) -> DataRoots:
        (tmp_path / "a.csv").write_text("a\n1\n")
        return DataRoots({"scans": tmp_path, "birds": tmp_path / "missing"})

    def test_a_file_in_one(self, roots: DataRoots) -> None:
        with roots.open("root://scans/a.csv") as file:
            assert file.path.read_text() == "a\n1\n"
            assert file.uri == "root://scans/a.csv"

    def test_a_root_that_this_host_does_not_have_names_those_that_it_has(self, roots: DataRoots) -> None:
        with pytest.raises(UnknownRoot, match="data root 'whales', which this host does not have: it has birds, scans"):
            roots.open("root://whales/a.csv")
        with pytest.raises(UnknownRoot, match="it has none; TRAINSHED_DATA_ROOTS"):
            DataRoots({}).open("root://whales/a.csv")

    def test_the_one_root_that_there_is_is_suggested(self, tmp_path: Path) -> None:
        with pytest.raises(UnknownRoot) as caught:
            DataRoots({"scans": tmp_path}).open("root://scan/a.csv")
        assert caught.value.suggestion == "root://scans/…"

    def test_a_root_whose_folder_is_gone(self, roots: DataRoots) -> None:
        with pytest.raises(RootUnavailable, match="its folder is gone"), roots.open("root://birds/a.csv"):
            pass
