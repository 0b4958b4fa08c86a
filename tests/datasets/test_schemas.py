import json
import re
from pathlib import Path
from typing import get_args

import pytest

from app.datasets.schemas import dataset_json, describe_builtin, problems_of
from app.datasets.service import Upload, add_dataset
from app.db import Database
from app.spec import TableSchema
from app.spec.table import DataNote, NoteCode
from app.storage import LocalStorage
from app.tables import BUILTIN, profile, profile_csv
from tests.fakes import START
from tests.rows import add_project

DATA = Path(__file__).parents[1] / "data"
CSV = "height,mass,species,site\n1.5,,gentoo,a\n2.5,inf,adelie,a\n3.5,4,adelie,a\n4.5,5,gentoo,a\n"


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
class TestDatasetJson:
    @pytest.fixture
    def shown(self, database: Database, tmp_path: Path) -> dict[str, object]:
        path = tmp_path / "upload"
        path.write_text(CSV)
        with database.write() as session:
            project_id = add_project(session).id
        upload = Upload(path, "penguins.csv", profile_csv(path))
        dataset = add_dataset(
            database, LocalStorage(tmp_path / "storage"), upload, project_id=project_id, user="ada", now=START
        )
        return dataset_json(dataset)

    def test_is_plain_json_without_where_it_lies(self, shown: dict[str, object]) -> None:
        assert json.loads(json.dumps(shown, allow_nan=False)) == shown
        assert "storage_key" not in shown
        assert shown["object"] == "dataset"
        assert shown["created_at"] == "2026-01-31T12:00:00.000000Z"

    def test_has_the_statistics_of_every_column(self, shown: dict[str, object]) -> None:
        table = TableSchema.model_validate(shown["table"])
        assert [column.name for column in table.columns] == ["height", "mass", "species", "site"]
        height = table.column("height")
        assert height is not None
        assert (height.minimum, height.maximum, height.missing) == (1.5, 4.5, 0)

    def test_warns_of_what_training_will_meet(self, shown: dict[str, object]) -> None:
        problems = shown["problems"]
        assert isinstance(problems, list)
        assert [(problem["column"], problem["code"], problem["count"], problem["row"]) for problem in problems] == [
            ("mass", "missing", 1, 2),
            ("mass", "infinite", 1, 3),
            ("site", "constant", 1, None),
        ]
        assert problems[0]["message"] == "Column 'mass' has 1 empty cell of 4, the first in row 2."
        assert problems[0]["suggestion"] == 'set data.missing to "drop" or "impute"'

    def test_a_column_name_is_never_a_template(self, database: Database, tmp_path: Path) -> None:
        path = tmp_path / "upload"
        path.write_text("{missing},b\n,1\n1,2\n")
        with database.write() as session:
            project_id = add_project(session).id
        upload = Upload(path, "x.csv", profile_csv(path))
        storage = LocalStorage(tmp_path / "storage")
        dataset = add_dataset(database, storage, upload, project_id=project_id, user="ada", now=START)
        assert "Column '{missing}' has 1 empty cell of 2" in dataset_json(dataset)["problems"][0]["message"]


class TestProblemsOf:
    def test_bad_cells_among_numbers_are_named(self) -> None:
        # Data rows 58 and 94 of the reported file, so rows 59 and 95 counted with the header.
        found = [
            problem for problem in problems_of(profile(DATA / "mixed_types.csv")) if problem["code"] == "not_a_number"
        ]
        assert [(problem["column"], problem["count"], problem["row"]) for problem in found] == [
            ("f2", 1, 59),
            ("f3", 1, 95),
        ]
        assert found[0]["message"] == "Row 59, column 'f2': 'unknown' is not a number, although most cells are numbers."

    def test_every_kind_of_problem_has_a_suggestion(self) -> None:
        for code in (*get_args(NoteCode), "not_a_number"):
            table = TableSchema(
                source_kind="csv", rows=1, columns=[], problems=[DataNote(code="missing", count=1, message="m")]
            )
            note = table.problems[0].model_copy(update={"code": code})
            (shown,) = problems_of(table.model_copy(update={"problems": [note]}))
            assert shown["suggestion"], code

    def test_the_documentation_explains_every_kind(self) -> None:
        page = (DATA.parents[1] / "docs" / "data.md").read_text(encoding="utf-8")
        explained = set(re.findall(r"^\| `([a-z_]+)` \| ", page, re.MULTILINE))
        assert {*get_args(NoteCode), "not_a_number"} <= explained

    def test_a_table_stored_by_the_first_release_is_read_and_judged_by_its_columns(self, tmp_path: Path) -> None:
        path = tmp_path / "upload"
        path.write_text(CSV)
        stored = profile(path).model_dump(mode="json")
        for key in ("problems", "image_shape"):  # what the first release did not write
            del stored[key]
        for column in stored["columns"]:
            del column["shape"]
        found = problems_of(TableSchema.model_validate(stored))
        assert [(problem["column"], problem["code"], problem["row"]) for problem in found] == [
            ("mass", "missing", None),
            ("mass", "infinite", 3),
            ("site", "constant", None),
        ]


class TestDescribeBuiltin:
    @pytest.mark.parametrize("name", BUILTIN)
    def test_says_what_a_spec_needs(self, name: str) -> None:
        shown = describe_builtin(name)
        assert shown["id"] == name
        assert shown["default_target"] == "target"
        assert shown["default_task"] in ("classification", "regression")
        assert shown["description"]
        assert json.loads(json.dumps(shown, allow_nan=False)) == shown

    def test_numbers_of_the_digits(self) -> None:
        # sklearn.datasets.load_digits: 1797 images of 64 pixels and a target.
        shown = describe_builtin("digits")
        assert shown["rows"] == 1797
        assert len(shown["table"]["columns"]) == 65

    def test_an_unknown_name(self) -> None:
        with pytest.raises(KeyError):
            describe_builtin("mnist")
