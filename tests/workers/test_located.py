"""Where a trainer finds its table."""

import errno
import hashlib
import os
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from app.tables import read_table
from app.tables.in_place import RootUnavailable, UnusableFile
from workers.failure import failure_of
from workers.located import located
from workers.protocol import DataSource

CSV = b"a,b\n1,2\n3,4\n"


def in_place(root: Path, content: bytes, name: str = "sub/table.csv", kind: str = "csv") -> DataSource:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    return DataSource(path=name, format=kind, root=str(root), uri=f"root://scans/{name}", digest=digest)


class TestLocated:
    def test_a_built_in_table_has_no_path(self) -> None:
        with located(DataSource(builtin="iris")) as path:
            assert path is None

    def test_a_fetched_file_is_where_it_was_put(self, tmp_path: Path) -> None:
        with located(DataSource(path=str(tmp_path / "table.csv"), format="csv")) as path:
            assert path == tmp_path / "table.csv"

    def test_one_in_place_is_read_through_the_open_file(self, tmp_path: Path) -> None:
        source = in_place(tmp_path, CSV)
        with located(source) as path:
            (tmp_path / "sub" / "table.csv").unlink()
            table = read_table(path, None, source.format)
            assert table.columns["a"].tolist() == [1, 3]
            assert path is not None
            assert path.read_bytes() == CSV

    @pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "npz"])
    def test_every_format_is_read_in_place(self, tmp_path: Path, kind: str) -> None:
        made = tmp_path / "made"
        frame = pl.DataFrame({"a": [1, 3], "y": [2, 4]})
        if kind == "parquet":
            frame.write_parquet(made)
        elif kind == "npz":
            with made.open("wb") as file:
                np.savez(file, a=frame["a"].to_numpy(), y=frame["y"].to_numpy())
        else:
            frame.write_csv(made, separator="\t" if kind == "tsv" else ",")
        source = in_place(tmp_path / "root", made.read_bytes(), "table", kind)
        with located(source) as path:
            table = read_table(path, None, kind)
        assert {name: values.tolist() for name, values in table.columns.items()} == {"a": [1, 3], "y": [2, 4]}

    def test_another_content_is_refused_before_it_is_read(self, tmp_path: Path) -> None:
        source = in_place(tmp_path, CSV)
        (tmp_path / "sub" / "table.csv").write_bytes(b"a,b\n1,2\n3,5\n")
        with pytest.raises(UnusableFile, match="is not the file that was registered"), located(source):
            pytest.fail("it was read")

    def test_one_that_is_gone_is_told_without_a_path_of_the_host(self, tmp_path: Path) -> None:
        source = in_place(tmp_path / "root", CSV)
        (tmp_path / "root" / "sub" / "table.csv").unlink()
        with (
            pytest.raises(UnusableFile, match=r"'root://scans/sub/table\.csv' is not there") as caught,
            located(source),
        ):
            pytest.fail("it was read")
        failed = failure_of(caught.value, None)
        assert (failed.cause, str(tmp_path) in failed.message + failed.detail) == ("invalid_data", False)

    def test_a_disk_that_is_not_mounted_or_fails_while_it_is_read_is_no_fault_of_the_job(self, tmp_path: Path) -> None:
        source = in_place(tmp_path / "root", CSV)
        with pytest.raises(RootUnavailable, match="cannot be read now: Stale file handle") as caught, located(source):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(tmp_path))
        shutil.rmtree(tmp_path / "root" / "sub")
        with pytest.raises(RootUnavailable, match="perhaps nothing is mounted there") as empty, located(source):
            pytest.fail("it was read")
        for error in (caught.value, empty.value):
            failed = failure_of(error, None)
            # One that costs a loss, not a failure, so that it is tried again, perhaps elsewhere.
            assert (failed.cause, str(tmp_path) in failed.message + failed.detail) == ("worker_lost", False)

    def test_a_link_out_is_refused(self, tmp_path: Path) -> None:
        source = in_place(tmp_path / "root", CSV)
        (tmp_path / "outside").write_bytes(CSV)
        (tmp_path / "root" / "sub" / "table.csv").unlink()
        (tmp_path / "root" / "sub" / "table.csv").symlink_to(tmp_path / "outside")
        with pytest.raises(UnusableFile, match="leads out of its data root"), located(source):
            pytest.fail("it was read")
