"""Script jobs: what a client may write, what each slip is told, and what is filled in."""

import json
from typing import Any

import pytest

from app.spec import (
    EffectiveScriptSpec,
    InvalidSpec,
    JobSpec,
    ScriptSpec,
    SpecProblem,
    parse_script,
    parse_spec,
    resolve_script,
)
from app.spec.examples import CODE_EXAMPLES
from app.spec.monitors import direction_of
from app.spec.script import EXAMPLE_BUNDLE
from app.spec.variables import is_ours
from tests.spec.bodies import body, only_problem, problem_at, problems_of

DATA = "ds_01k0000000000000000000000a"


def script(**changes: Any) -> dict[str, Any]:
    """The shortest spec of a script job with some keys of the script changed."""
    return {"script": {"command": ["python", "train.py"], **changes}}


def environment(**changes: Any) -> dict[str, Any]:
    return script(environment=changes)


class TestShortest:
    def test_every_default_is_filled_in_and_in_the_order_of_the_specification(self) -> None:
        dumped = parse_spec(script()).model_dump(mode="json")
        shared = {"device_count": 1, "device_type": "auto", "min_device_memory_bytes": None, "device_name": None}
        rest = {"timeout_s": 86_400, "stop_when_idle_s": None, "priority": 0, "not_before": None}
        expected: dict[str, Any] = {
            "name": None,
            "tags": {},
            "framework": "python",
            "script": {
                "bundle": None,
                "command": ["python", "train.py"],
                "processes": "one",
                "data": {},
                "environment": {"requirements": None, "variables": {}},
                "network": False,
                "success": "files",
                "monitor": None,
                "seed": 0,
            },
            **shared,
            "retry": {"failures": 0, "losses": 3},
            **rest,
        }
        assert dumped == expected
        assert list(dumped) == list(expected)
        assert list(dumped["script"]) == list(expected["script"])

    def test_the_whole_object_means_the_same_as_the_shortest(self) -> None:
        assert parse_spec(parse_spec(script()).model_dump(mode="json")) == parse_spec(script())

    def test_shared_keys_are_checked_as_of_any_job(self) -> None:
        for key, wrong in (("device_count", 0), ("priority", 11), ("timeout_s", 0), ("name", "."), ("tags", {"": "x"})):
            ours, theirs = problems_of(script() | {key: wrong}), problems_of(body(**{key: wrong}))
            assert [problem.message for problem in ours] == [problem.message for problem in theirs]


class TestKinds:
    def test_the_key_script_tells_them_apart(self) -> None:
        assert isinstance(parse_spec(script()), ScriptSpec)
        assert isinstance(parse_spec(body()), JobSpec)

    @pytest.mark.parametrize(
        "key",
        ["model", "data", "task", "loss", "metrics", "hyperparameters", "exports", "initialize_from"],
    )
    def test_a_key_of_model_jobs_beside_it_is_told_with_the_pair(self, key: str) -> None:
        problem = only_problem(script() | {key: None})
        assert problem.pointer == f"/{key}"
        assert problem.message.startswith(f"script and {key} exclude each other")

    def test_each_such_key_is_a_problem_of_its_own(self) -> None:
        found = problems_of(body() | script())
        assert [problem.pointer for problem in found] == ["/model", "/data"]

    def test_a_body_that_is_no_object_is_refused(self) -> None:
        with pytest.raises(InvalidSpec, match="must be an object"):
            parse_script("script")


class TestCommand:
    @pytest.mark.parametrize("wrong", ["python train.py --lr 0.1", ["python", "train.py", "--lr", "0.1"]])
    def test_a_script_that_is_only_a_command_is_told_how_to_write_it(self, wrong: object) -> None:
        problem = only_problem({"script": wrong})
        assert problem.pointer == "/script"
        assert problem.suggestion == '{"command": ["python", "train.py", "--lr", "0.1"]}'
        assert "must be an object with a command, for example {" in problem.message

    @pytest.mark.parametrize(
        ("wrong", "meant"),
        [
            ("train.py", {"command": ["python", "train.py"]}),
            (["train.py", "--lr", "1"], {"command": ["python", "train.py", "--lr", "1"]}),
            ("bun_01k0000000000000000000000a", {"bundle": EXAMPLE_BUNDLE, "command": ["python", "train.py"]}),
        ],
    )
    def test_a_file_or_a_bundle_is_suggested_with_what_runs_it(self, wrong: object, meant: dict[str, Any]) -> None:
        assert json.loads(only_problem({"script": wrong}).suggestion or "") == meant

    def test_a_command_too_long_is_not_repeated(self) -> None:
        problem = only_problem(script(command=["x"] * 257))
        assert problem.message.endswith("it is a list of 257.")
        assert problem.suggestion == '["python", "train.py", "--lr", "0.1"]'
        assert len(only_problem({"script": ["x" * 4096] * 256}).suggestion or "") < 200

    @pytest.mark.parametrize("command", [["python train.py"], ["python -u", "train.py"], ["python\u00a0x"]])
    def test_words_in_one_text_are_refused(self, command: list[str]) -> None:
        assert "must have each word as a text of its own" in only_problem(script(command=command)).message

    def test_a_path_may_have_blanks(self) -> None:
        assert parse_script(script(command=["./my tools/run"])).script.command == ["./my tools/run"]

    def test_one_text_is_suggested_as_words(self) -> None:
        # The words are those of a shell (POSIX quoting), since people copy the line from one.
        problem = only_problem(script(command="python 'my script.py' --name \"a b\""))
        assert problem.pointer == "/script/command"
        assert json.loads(problem.suggestion or "") == ["python", "my script.py", "--name", "a b"]

    @pytest.mark.parametrize("wrong", ["'", "", 3, None, {}, []])
    def test_what_no_words_can_be_made_of_gets_the_example(self, wrong: object) -> None:
        problem = problem_at(script(command=wrong), "/script/command")
        assert problem.suggestion == '["python", "train.py", "--lr", "0.1"]'

    def test_a_number_among_the_words_is_suggested_as_text(self) -> None:
        problem = only_problem(script(command=["python", "train.py", "--lr", 0.1]))
        assert (problem.pointer, problem.suggestion) == ("/script/command/3", '"0.1"')

    def test_a_number_too_long_to_repeat_is_not_suggested(self) -> None:
        assert only_problem(script(command=["python", 10**5000])).suggestion is None

    def test_the_program_must_have_a_name(self) -> None:
        assert "its first word is empty" in only_problem(script(command=["  ", "x"])).message

    def test_an_argument_may_be_empty(self) -> None:
        assert parse_script(script(command=["python", "train.py", "--tag", ""])).script.command[-1] == ""

    @pytest.mark.parametrize("character", ["\x00", "\n", "\ud800", "\u202e"])
    def test_words_are_plain_text(self, character: str) -> None:
        assert "must be plain text" in only_problem(script(command=["python", f"a{character}b"])).message

    def test_bounds(self) -> None:
        assert parse_script(script(command=["x" * 4096] * 256)).script.command[255] == "x" * 4096
        assert only_problem(script(command=["x"] * 257)).pointer == "/script/command"
        assert only_problem(script(command=["x" * 4097])).pointer == "/script/command/0"


class TestData:
    @pytest.mark.parametrize("name", ["train", "a", "x_1", "a" * 32])
    def test_names_that_a_variable_can_end_with(self, name: str) -> None:
        assert parse_script(script(data={name: DATA})).script.data == {name: DATA}

    @pytest.mark.parametrize("name", ["Train", "1a", "_a", "a-b", "ä", "", "a" * 33, "a b", "\u2170"])
    def test_others_are_refused(self, name: str) -> None:
        assert "must be 1 to 32 of a-z, 0-9 and _" in only_problem(script(data={name: DATA})).message

    def test_a_built_in_table_is_no_file(self) -> None:
        problem = only_problem(script(data={"train": "digits"}))
        assert problem.pointer == "/script/data/train"
        assert "is no file, but a script reads files" in problem.message

    @pytest.mark.parametrize("wrong", ["../../x", "root://scans/a.csv", "ds_", "train.csv", "ds_" + "a" * 65])
    def test_what_is_no_id_is_refused(self, wrong: str) -> None:
        assert "must be the id of an uploaded data set" in only_problem(script(data={"train": wrong})).message

    def test_at_most_sixteen(self) -> None:
        most = {f"d{number}": DATA for number in range(16)}
        assert len(parse_script(script(data=most)).script.data) == 16
        assert "at most 16 data sets, but has 17" in only_problem(script(data=most | {"one_more": DATA})).message


class TestEnvironment:
    @pytest.mark.parametrize("name", ["WANDB_MODE", "_x", "a1", "PYTHONHASHSEED", "OMP_NUM_THREADS", "TF_ENABLE"])
    def test_variables_of_the_client(self, name: str) -> None:
        variables = parse_script(environment(variables={name: "1"})).script.environment.variables
        assert variables == {name: "1"}

    @pytest.mark.parametrize(
        "name",
        [
            *("PATH", "HOME", "TMPDIR", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT", "TF_CONFIG"),
            *("TRAINSHED_SEED", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "LD_PRELOAD"),
            *("PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "PYTHON_GIL"),
        ],
    )
    def test_those_that_the_service_sets_are_refused(self, name: str) -> None:
        problem = only_problem(environment(variables={name: "1"}))
        assert problem.pointer == f"/script/environment/variables/{name}"
        assert "is set by the service itself" in problem.message
        assert is_ours(name)

    def test_modules_elsewhere_in_the_bundle_have_another_way(self) -> None:
        assert "trainshed run --folder src" in only_problem(environment(variables={"PYTHONPATH": "src"})).message

    @pytest.mark.parametrize("name", ["1a", "a-b", "a b", "a=b", "", "ä", "A" * 129])
    def test_names_that_are_none_are_refused(self, name: str) -> None:
        assert "must be letters, digits and _" in only_problem(environment(variables={name: "1"})).message

    def test_values_are_text(self) -> None:
        assert only_problem(environment(variables={"A": 3})).suggestion == '"3"'
        assert only_problem(environment(variables={"A": "x" * 4097})).pointer.endswith("/A")
        assert "plain text" in only_problem(environment(variables={"A": "a\nb"})).message

    def test_at_most_sixty_four(self) -> None:
        most = {f"V{number}": "" for number in range(65)}
        assert "at most 64 variables, but has 65" in only_problem(environment(variables=most)).message

    @pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../b", "a\\b", "./a", "a//b", "a/"])
    def test_a_requirements_file_is_inside_the_bundle(self, path: str) -> None:
        problem = only_problem(environment(requirements=path))
        assert problem.pointer == "/script/environment/requirements"
        assert problem.suggestion == "requirements.txt"

    def test_lines_of_such_a_file_are_a_list(self) -> None:
        problem = only_problem(environment(requirements="rich==14.1.0\nnumpy"))
        assert 'what is in such a file is a list, for example ["rich==14.1.0"]' in problem.message

    def test_requirements_are_a_file_or_a_list(self) -> None:
        for wanted in ("lists/gpu.txt", ["rich==14.1.0"], [], None):
            assert parse_script(environment(requirements=wanted)).script.environment.requirements == wanted


class TestUnknownKeys:
    @pytest.mark.parametrize(
        ("raw", "pointer", "suggestion"),
        [
            (script(env={}), "/script/env", "script.environment.variables"),
            (script(comand=["x"]), "/script/comand", "command"),
            (script(pip=["x"]), "/script/pip", "script.environment.requirements"),
            (script() | {"gpus": 1}, "/gpus", "device_count"),
            (script() | {"working_dir": "."}, "/working_dir", "script.bundle"),
            (script() | {"bundle": "bun_1"}, "/bundle", "script.bundle"),
            (script() | {"seed": 3}, "/seed", "script.seed"),
            (script(timeout=3), "/script/timeout", "timeout_s"),
            (script() | {"lr": 0.1}, "/lr", None),
        ],
    )
    def test_our_name_for_it_is_given(self, raw: dict[str, Any], pointer: str, suggestion: str | None) -> None:
        assert problem_at(raw, pointer).suggestion == suggestion

    def test_a_command_without_a_script_leads_to_one(self) -> None:
        wrong = {"command": ["python", "train.py"], "bundle": EXAMPLE_BUNDLE, "data": {"train": DATA}}
        found = {problem.pointer: problem.suggestion for problem in problems_of(wrong)}
        assert found.pop("/script") is not None
        assert found == {"/command": "script.command", "/bundle": "script.bundle", "/data": "script.data"}

    def test_a_misspelt_script_is_told_as_one(self) -> None:
        assert problem_at({"Scripts": {"command": ["python"]}}, "/Scripts").suggestion == "script"

    def test_a_library_without_a_worker_of_its_own_runs_in_any(self) -> None:
        assert only_problem(script() | {"framework": "sklearn"}).suggestion == "python"

    def test_a_framework_of_scripts_is_told_as_such_in_a_model_job(self) -> None:
        assert only_problem(body(framework="python")) == SpecProblem(
            "/framework",
            'framework "python" is for scripts; what trains a model here is "torch" or "tensorflow".',
            "torch",
        )


class TestResolve:
    def test_auto_becomes_the_kind_of_device_of_now(self) -> None:
        assert resolve_script(parse_script(script()), "cuda").device_type == "cuda"
        assert resolve_script(parse_script(script() | {"device_type": "cpu"}), "cuda").device_type == "cpu"

    @pytest.mark.parametrize(("mode", "expected"), [(None, "max"), ("min", "min"), ("max", "max")])
    def test_the_direction_of_the_monitor_is_filled_in(self, mode: str | None, expected: str) -> None:
        monitor = {"metric": "val_accuracy"} | ({} if mode is None else {"mode": mode})
        resolved = resolve_script(parse_script(script(monitor=monitor)), "cpu").script.monitor
        assert resolved is not None
        assert resolved.mode == expected

    @pytest.mark.parametrize("name", [name for name in CODE_EXAMPLES if name.startswith("script_")])
    def test_an_effective_spec_resolves_to_itself_and_survives_json(self, name: str) -> None:
        effective = resolve_script(parse_script(CODE_EXAMPLES[name]), "cpu")
        assert EffectiveScriptSpec.model_validate_json(effective.model_dump_json()) == effective
        again = parse_script(json.loads(effective.model_dump_json()))
        assert resolve_script(again, "cuda") == effective

    @pytest.mark.parametrize(
        ("metric", "direction"),
        [
            *(("loss", "min"), ("val_loss", "min"), ("perplexity", "min"), ("rmse", "min"), ("score_loss", "min")),
            *(("accuracy", "max"), ("val_accuracy", "max"), ("eval/f1", "max"), ("test_acc", "max"), ("top_5", "max")),
            *(("val_top_1", "max"), ("mean_iou", "max"), ("BLEU", "max"), ("stop_s", "min"), ("", "min")),
        ],
    )
    def test_which_way_is_better_is_told_by_the_name(self, metric: str, direction: str) -> None:
        assert direction_of(metric) == direction
