"""init: a commented spec that the server takes as it stands."""

import json
from pathlib import Path
from typing import Any

import json5
import pytest

from app.cli.errors import UsageProblem
from app.cli.starting import commented_spec
from app.spec import JobSpec, TableSchema, parse_spec, resolve
from app.tables import builtin_schema
from tests.cli.conftest import Trainshed
from tests.cli.fake_server import FakeServer, problem

ID = "ds_01k0000000000000000000000a"


def column(name: str, kind: str = "number", **members: Any) -> dict[str, Any]:
    base = {"name": name, "kind": kind, "missing": 0, "distinct": 40, "labels": None, "minimum": 0.0, "maximum": 9.0}
    return {**base, **members}


def dataset(*columns: dict[str, Any], problems: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    table = {"source_kind": "csv", "rows": 200, "columns": list(columns)}
    return {"id": ID, "name": "birds.csv", "table": table, "problems": list(problems)}


SPECIES = column("species", "text", distinct=2, labels=["a", "b"], minimum=None, maximum=None, texts=200)


def resolved(text: str, content: dict[str, Any]) -> Any:
    """The effective spec of what was written, as the server would make it."""
    spec = parse_spec(json5.loads(text))
    assert isinstance(spec, JobSpec)
    return resolve(spec, TableSchema.model_validate(content["table"]), "cpu")


class TestCommentedSpec:
    @pytest.mark.parametrize("name", ["digits", "iris", "wine", "breast_cancer", "diabetes"])
    @pytest.mark.parametrize("framework", ["torch", "tensorflow"])
    def test_it_is_accepted_for_every_built_in_set(self, name: str, framework: str) -> None:
        content = {"id": name, "name": name, "table": builtin_schema(name).model_dump(mode="json")}
        spec = resolved(commented_spec(content, framework, None), content)
        assert (spec.framework, spec.data.target) == (framework, "target")

    def test_an_image_set_begins_with_a_convolutional_net(self) -> None:
        content = {"id": "digits", "name": "digits", "table": builtin_schema("digits").model_dump(mode="json")}
        assert resolved(commented_spec(content, "torch", None), content).model.type == "cnn"

    def test_the_target_is_found_by_its_name_else_the_last_column(self) -> None:
        content = dataset(SPECIES, column("mass"))
        assert resolved(commented_spec(content, "torch", None), content).data.target == "species"
        content = dataset(column("mass"), column("length"))
        text = commented_spec(content, "torch", None)
        assert resolved(text, content).data.target == "length"
        assert "a guess: the last column; a number: regression" in text

    def test_a_target_that_is_not_there_is_refused_with_the_columns(self) -> None:
        with pytest.raises(UsageProblem, match="no column 'spezies'; the columns are species, mass"):
            commented_spec(dataset(SPECIES, column("mass")), "torch", "spezies")

    def test_gaps_are_counted_and_filled(self) -> None:
        content = dataset(SPECIES, column("mass", missing=3), column("length"))
        text = commented_spec(content, "torch", None)
        assert "// gaps: mass 3" in text
        assert resolved(text, content).data.missing == "impute"

    def test_columns_that_make_no_feature_are_left_out_with_the_reason(self) -> None:
        note = {"column": "id", "code": "all_different", "count": 200, "row": None, "message": "…"}
        content = dataset(column("id", "integer"), column("mass"), SPECIES, problems=(note,))
        text = commented_spec(content, "torch", None)
        assert "// left out: id (a different value in every row, as an id has)" in text
        assert resolved(text, content).data.features == ["mass"]

    def test_names_cannot_break_out_of_their_comment(self) -> None:
        content = dataset(column('a\n"x": 1, //', missing=2), SPECIES)
        assert json5.loads(commented_spec(content, "torch", "species"))["data"]["target"] == "species"


class TestInit:
    def test_a_file_is_uploaded_first_and_the_spec_names_its_id(
        self, server: FakeServer, trainshed: Trainshed, tmp_path: Path
    ) -> None:
        table, job = tmp_path / "birds.csv", tmp_path / "job.json"
        table.write_text("species,mass\na,1\n")
        server.on("POST /v1/datasets", dataset(SPECIES, column("mass")))
        ran = trainshed("init", str(table), "-o", str(job))
        assert (ran.code, ran.err) == (0, f"uploaded birds.csv: {ID}\n")
        assert json5.loads(job.read_text())["data"]["source"] == ID

    def test_so_is_an_address_in_a_data_root(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("POST /v1/datasets", dataset(SPECIES, column("mass")))
        ran = trainshed("init", "root://scans/birds.csv")
        assert (ran.code, ran.err) == (0, f"registered birds.csv: {ID}\n")
        assert json.loads(server.requests[0].content) == {"uri": "root://scans/birds.csv"}
        assert json5.loads(ran.out)["data"]["source"] == ID

    def test_a_data_set_by_name_goes_to_the_standard_output(self, server: FakeServer, trainshed: Trainshed) -> None:
        content = {"id": "iris", "name": "iris", "table": json.loads(builtin_schema("iris").model_dump_json())}
        server.on("GET /v1/datasets/iris", content)
        assert json5.loads(trainshed("init", "iris").out)["data"]["source"] == "iris"

    def test_nothing_is_overwritten(self, server: FakeServer, trainshed: Trainshed, tmp_path: Path) -> None:
        (tmp_path / "job.json").write_text("mine")
        ran = trainshed("init", "iris", "-o", str(tmp_path / "job.json"))
        assert ran.code == 2
        assert (tmp_path / "job.json").read_text() == "mine"
        assert server.requests == []

    def test_what_is_neither_a_file_nor_a_set_is_said(self, trainshed: Trainshed) -> None:
        assert "neither a file here nor a data set" in trainshed("init", "nowhere/x.csv").err

    def test_nor_what_the_server_does_not_know(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/datasets/iriss", problem(404, "not_found", "There is nothing at this address."))
        assert "'iriss' is neither a file here nor a data set" in trainshed("init", "iriss").err

    def test_a_folder_that_is_not_there_is_said_before_anything_is_uploaded(
        self, server: FakeServer, trainshed: Trainshed, tmp_path: Path
    ) -> None:
        ran = trainshed("init", "iris", "-o", str(tmp_path / "nowhere" / "job.json"))
        assert (ran.code, server.requests) == (2, [])
        assert "There is no folder" in ran.err

    def test_a_file_that_cannot_be_written_is_said(
        self, server: FakeServer, trainshed: Trainshed, tmp_path: Path
    ) -> None:
        content = {"id": "iris", "name": "iris", "table": json.loads(builtin_schema("iris").model_dump_json())}
        server.on("GET /v1/datasets/iris", content)
        (tmp_path / "job.json").symlink_to(tmp_path / "nowhere" / "job.json")
        ran = trainshed("init", "iris", "-o", str(tmp_path / "job.json"))
        assert ran.code == 2
        assert "cannot be written: No such file or directory." in ran.err
