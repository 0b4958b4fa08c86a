import json
from pathlib import Path

import pytest

from app.datasets.schemas import dataset_json, describe_builtin
from app.datasets.service import Upload, add_csv
from app.db import Database
from app.spec import TableSchema
from app.storage import LocalStorage
from app.tables import BUILTIN, profile_csv
from tests.fakes import START
from tests.rows import add_project

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
        dataset = add_csv(
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
        assert [(problem["column"], problem["message"].split(",")[0].split(";")[0]) for problem in problems] == [
            ("mass", "Column 'mass' has empty cells"),
            ("mass", "Column 'mass' has infinite values"),
            ("species", "Column 'species' is text"),
            ("site", "Column 'site' is text"),
            ("site", "Column 'site' has the same value in every row"),
        ]

    def test_a_column_name_is_never_a_template(self, database: Database, tmp_path: Path) -> None:
        path = tmp_path / "upload"
        path.write_text("{missing},b\n,1\n1,2\n")
        with database.write() as session:
            project_id = add_project(session).id
        upload = Upload(path, "x.csv", profile_csv(path))
        storage = LocalStorage(tmp_path / "storage")
        dataset = add_csv(database, storage, upload, project_id=project_id, user="ada", now=START)
        assert "Column '{missing}' has empty cells, 1 in all" in dataset_json(dataset)["problems"][0]["message"]


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
