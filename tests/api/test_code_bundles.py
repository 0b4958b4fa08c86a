"""What a spec says of its bundle over HTTP: the bundle, the files in it, and what is to be installed."""

from typing import Any

import pytest

from app.storage import Storage
from tests.api.client import ONE_DATABASE, Api, Tenant, problem
from tests.api.coding import add_bundle, only_error, python, script, submitted

GONE = "bun_01k0000000000000000000000a"


@ONE_DATABASE
class TestBundle:
    @pytest.mark.parametrize(("body", "place"), [(script, "script"), (python, "model")], ids=["script", "model"])
    def test_one_that_is_not_there_is_told_with_the_newest(self, coder: Api, body: Any, place: str) -> None:
        found = only_error(coder.post("/v1/jobs", json=body(GONE)))
        assert (found["pointer"], found["suggestion"]) == (f"/{place}/bundle", None)
        newest = add_bundle(coder)
        assert only_error(coder.post("/v1/jobs", json=body(GONE)))["suggestion"] == newest

    def test_that_of_another_project_is_not_there(self, api: Api, other: Tenant, bundle: str) -> None:
        found = only_error(api.with_key(other.coder).post("/v1/jobs", json=script(bundle)))
        assert f"There is no bundle '{bundle}' in this project" in found["message"]
        assert found["suggestion"] is None

    def test_the_file_that_python_is_to_run_must_be_in_it(self, coder: Api, bundle: str) -> None:
        found = only_error(coder.post("/v1/jobs", json=script(bundle, command=["python", "trian.py"])))
        assert (found["pointer"], found["suggestion"]) == ("/script/command/1", "train.py")

    def test_a_file_without_a_bundle_is_told_before_it_fails(self, coder: Api) -> None:
        found = only_error(coder.post("/v1/jobs", json=script(None, command=["python", "train.py"])))
        assert found["pointer"] == "/script/bundle"
        assert "so there is no file 'train.py' to run" in found["message"]

    def test_a_file_of_the_bundle_is_no_program(self, coder: Api, bundle: str) -> None:
        found = only_error(coder.post("/v1/jobs", json=script(bundle, command=["train.py"])))
        assert (found["pointer"], found["suggestion"]) == ("/script/command", '["python", "train.py"]')

    def test_what_only_a_shell_would_understand_is_a_warning(self, coder: Api, bundle: str) -> None:
        (warning,) = submitted(coder, script(bundle, command=["python", "train.py", ">", "log.txt"]))["warnings"]
        assert warning.startswith("'>' is given to the program as it is: no shell reads the command")
        words = ["bash", "-c", "python train.py > log.txt"]
        assert submitted(coder, script(None, command=words))["warnings"] == []

    def test_what_runs_without_a_bundle_is_not_looked_for(self, coder: Api) -> None:
        assert submitted(coder, script(None, command=["python", "/opt/elsewhere.py"]))["warnings"] == []

    def test_a_module_that_it_lacks_is_a_warning(self, coder: Api, bundle: str) -> None:
        made = submitted(coder, python(bundle, entrypoint="elsewhere.models:build"))
        (warning,) = made["warnings"]
        assert warning.startswith("The bundle has no module 'elsewhere.models'; the job works only if the worker's")
        (warning,) = submitted(coder, python(bundle, entrypoint="net.small:build"))["warnings"]
        assert warning.endswith("Did you mean nets/small.py?")

    def test_one_whose_file_was_lost_is_told(self, coder: Api, bundle: str, storage: Storage) -> None:
        (key,) = storage.list("bundles/")
        storage.delete(key)
        found = only_error(coder.post("/v1/jobs", json=script(bundle)))
        assert found["pointer"] == "/script/bundle"
        assert "upload it again" in found["message"]


@ONE_DATABASE
class TestRequirements:
    @pytest.mark.parametrize(("body", "place"), [(script, "script"), (python, "model")], ids=["script", "model"])
    def test_a_file_of_the_bundle_or_lines(self, coder: Api, bundle: str, body: Any, place: str) -> None:
        for wanted in ("requirements.txt", ["rich==14.1.0", "numpy>=2"]):
            made = submitted(coder, body(bundle, environment={"requirements": wanted}))
            assert made["effective_spec"][place]["environment"]["requirements"] == wanted

    @pytest.mark.parametrize(
        ("wanted", "says", "suggestion"),
        [
            ("requirement.txt", "There is no file 'requirement.txt' in the bundle", "requirements.txt"),
            ("broken.txt", "Line 2 of the requirements cannot be taken: editable installs", "rich==14.1.0"),
            ("binary.txt", "must be UTF-8 text", None),
            ("rich==14.1.0", "requirements that are in no file are a list", '["rich==14.1.0"]'),
        ],
    )
    def test_a_file_that_cannot_be_taken(
        self, coder: Api, bundle: str, wanted: str, says: str, suggestion: str | None
    ) -> None:
        found = only_error(coder.post("/v1/jobs", json=script(bundle, environment={"requirements": wanted})))
        assert found["pointer"] == "/script/environment/requirements"
        assert says in found["message"]
        assert found["suggestion"] == suggestion

    def test_a_line_is_pointed_at(self, coder: Api) -> None:
        wanted = ["rich==14.1.0", "https://example.com/x.whl"]
        found = only_error(coder.post("/v1/jobs", json=script(environment={"requirements": wanted})))
        assert found["pointer"] == "/script/environment/requirements/1"
        assert "is an address" in found["message"]

    def test_a_file_needs_a_bundle(self, coder: Api) -> None:
        found = only_error(coder.post("/v1/jobs", json=script(environment={"requirements": "requirements.txt"})))
        assert found["suggestion"] == '["rich==14.1.0"]'

    def test_all_that_is_wrong_is_told_at_once(self, coder: Api, bundle: str) -> None:
        body = script(bundle, command=["python", "x.py"], environment={"requirements": "y.txt"})
        errors = problem(coder.post("/v1/jobs", json=body), 422, "invalid_spec")["errors"]
        assert [error["pointer"] for error in errors] == ["/script/environment/requirements", "/script/command/1"]
