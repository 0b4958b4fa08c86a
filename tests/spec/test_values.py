"""Wrong values: refused where they stand, with a sentence that says what is right and an example."""

import json
from typing import Any

import pytest

from app.spec import InvalidSpec, SpecProblem, parse_job
from tests.spec.bodies import body, hyper, problem_at, problems_of


class TestNumbers:
    @pytest.mark.parametrize("wrong", [True, "0.1", float("nan"), float("inf"), 0, -1, None, [0.1], {}])
    def test_a_learning_rate_must_be_a_positive_number(self, wrong: object) -> None:
        problem = problem_at(hyper(learning_rate=wrong), "/hyperparameters/learning_rate")
        assert problem.message.startswith(
            "hyperparameters.learning_rate must be a number greater than 0, for example 0.001; it is "
        )

    @pytest.mark.parametrize("field", ["learning_rate", "l1", "l2"])
    @pytest.mark.parametrize("wrong", [1e300, 1e31, 1e-31, 5e-324])
    def test_a_factor_that_is_infinite_or_0_in_32_bits_is_refused(self, field: str, wrong: float) -> None:
        # With 1e300 torch raised an OverflowError of its own, as if the fault were in somebody's code.
        problem = problem_at(hyper(**{field: wrong}), f"/hyperparameters/{field}")
        assert problem.message == (
            f"hyperparameters.{field} must fit the 32-bit numbers of training: between 1e-30 and 1e+30."
        )

    @pytest.mark.parametrize("field", ["learning_rate", "l1", "l2"])
    @pytest.mark.parametrize("right", [1e-30, 1e30])
    def test_the_ends_of_the_range_belong_to_it(self, field: str, right: float) -> None:
        assert getattr(parse_job(hyper(**{field: right})).hyperparameters, field) == right

    @pytest.mark.parametrize("moment", ["beta_1", "beta_2"])
    def test_a_share_that_is_1_in_32_bits_is_refused(self, moment: str) -> None:
        # TensorFlow divided by 1 - beta = 0, torch did not: the same spec, and only one of them diverged.
        wrong = hyper(optimizer={"name": "adam", moment: 1 - 1e-9})
        problem = problem_at(wrong, f"/hyperparameters/optimizer/{moment}")
        assert "must be at most 0.9999999: closer to 1 it is 1 to the 32-bit numbers" in problem.message

    def test_an_epsilon_that_is_0_in_32_bits_is_refused(self) -> None:
        # A unit that never fires has a gradient of 0, and 0 / (0 + 0) is NaN.
        wrong = hyper(optimizer={"name": "adam", "epsilon": 1e-50})
        assert "32-bit" in problem_at(wrong, "/hyperparameters/optimizer/epsilon").message

    @pytest.mark.parametrize("wrong", [True, "20", 20.0, 20.5, 0, -3, 10**7, 10**400, None])
    def test_epochs_must_be_a_whole_number_in_range(self, wrong: object) -> None:
        problem = problem_at(hyper(epochs=wrong), "/hyperparameters/epochs")
        assert "must be a whole number, at least 1 and at most 1000000, for example 20" in problem.message

    @pytest.mark.parametrize(
        ("wrong", "suggestion"),
        [("0.1", "0.1"), ("1e-3", "0.001"), ("abc", "0.001"), ("inf", "0.001"), (True, "0.001")],
    )
    def test_a_number_written_as_text_is_suggested_as_a_number(self, wrong: object, suggestion: str) -> None:
        assert problem_at(hyper(learning_rate=wrong), "/hyperparameters/learning_rate").suggestion == suggestion

    @pytest.mark.parametrize(("wrong", "suggestion"), [("64", "64"), (64.0, "64"), (6.4, "64"), ("x", "64")])
    def test_a_whole_number_is_suggested_where_it_was_meant(self, wrong: object, suggestion: str) -> None:
        # 6.4 and "x" mean no whole number, so the field's own example (64) is given.
        assert problem_at(hyper(batch_size=wrong), "/hyperparameters/batch_size").suggestion == suggestion

    def test_text_that_looks_like_a_number_is_called_text(self) -> None:
        assert problem_at(hyper(epochs="20"), "/hyperparameters/epochs").message.endswith('it is "20", which is text.')

    def test_an_integer_of_thousands_of_digits_is_not_repeated(self) -> None:
        message = problem_at(hyper(epochs=10**5000), "/hyperparameters/epochs").message
        assert "a number of more than 60 digits" in message
        assert len(message) < 200

    def test_a_number_beyond_what_a_float_holds_is_refused(self) -> None:
        assert problem_at(hyper(l1=10**400), "/hyperparameters/l1").message.startswith("hyperparameters.l1 must be")

    @pytest.mark.parametrize("value", [-0.1, 1.0, 1.5])
    def test_dropout_must_leave_something(self, value: float) -> None:
        problem = problem_at(body(model={"type": "mlp", "dropout": value}), "/model/dropout")
        assert "at least 0 and below 1" in problem.message

    @pytest.mark.parametrize(
        ("key", "wrong"), [("priority", 11), ("priority", -11), ("timeout_s", 0), ("device_count", -1)]
    )
    def test_whole_numbers_of_the_job_have_bounds(self, key: str, wrong: int) -> None:
        assert problem_at(body(**{key: wrong}), f"/{key}").message.startswith(f"{key} must be a whole number")


class TestDeviceCount:
    def test_zero_is_refused_with_the_way_to_train_without_a_gpu(self) -> None:
        problem = problem_at(body(device_count=0), "/device_count")
        assert 'set device_type to "cpu"' in problem.message
        assert problem.suggestion == "device_type: cpu"

    def test_false_is_not_zero(self) -> None:
        assert problem_at(body(device_count=False), "/device_count").message.endswith("it is false.")


class TestWords:
    @pytest.mark.parametrize(
        ("key", "wrong", "suggestion"),
        [
            ("framework", "pytorch", "torch"),
            ("framework", "Torch", "torch"),
            ("framework", "keras", "tensorflow"),
            ("framework", "tensorflwo", "tensorflow"),
            ("device_type", "gpu", "cuda"),
            ("task", "clasification", "classification"),
            ("loss", "sparse_categorical_crossentropy", "cross_entropy"),
            ("loss", "smooth-l1", "huber"),
        ],
    )
    def test_the_nearest_word_is_suggested(self, key: str, wrong: str, suggestion: str) -> None:
        problem = problem_at(body(**{key: wrong}), f"/{key}")
        assert problem.suggestion == suggestion
        assert f'it is "{wrong}"' in problem.message

    def test_all_words_are_listed(self) -> None:
        assert problem_at(body(framework="jax"), "/framework").message == (
            'framework must be "torch" or "tensorflow"; it is "jax".'
        )

    @pytest.mark.parametrize("kind", ["os.system", "a;id", "../../x", "__import__('os')", "", "\x00", "x" * 100_000])
    def test_a_model_type_that_is_not_a_known_word_is_refused(self, kind: str) -> None:
        problem = problem_at(body(model={"type": kind}), "/model/type")
        known = '"linear", "mlp", "cnn", "resnet", "sequential" or "python"'
        assert problem.message.startswith(f"model.type must be {known}; it is ")
        assert len(problem.message) < 200

    def test_a_layer_has_no_short_form(self) -> None:
        raw = body(model={"type": "sequential", "layers": ["relu"]})
        assert problem_at(raw, "/model/layers/0").message == (
            'model.layers[0] must be an object whose type is "dense", "activation", "dropout", "batch_norm", '
            '"layer_norm", "flatten", "reshape", "conv1d", "conv2d", "max_pool2d", "avg_pool2d", "global_avg_pool2d", '
            '"embedding", "lstm", "gru", "residual" or "parallel"; it is "relu".'
        )

    def test_a_model_that_is_no_name_and_no_object_is_told_both(self) -> None:
        problem = problem_at(body(model=3), "/model")
        assert problem.message == (
            'model must be "linear", "mlp", "cnn", "resnet", "sequential" or "python", or an object with that type, '
            'for example "mlp"; it is 3.'
        )
        assert problem.suggestion == "mlp"

    def test_a_metric_alone_is_suggested_as_a_list(self) -> None:
        assert problem_at(body(metrics="accuracy"), "/metrics").suggestion == '["accuracy"]'

    def test_a_wrong_metric_is_pointed_at_in_its_list(self) -> None:
        problem = problem_at(body(metrics=["accuracy", "acc"]), "/metrics/1")
        assert problem.suggestion == "accuracy"

    def test_a_repeated_metric_is_refused(self) -> None:
        assert "only once" in problem_at(body(metrics=["mae", "mae"]), "/metrics").message

    def test_true_and_false_are_not_one_and_zero(self) -> None:
        problem = problem_at(
            hyper(optimizer={"name": "sgd", "momentum": 0.9, "nesterov": 1}), "/hyperparameters/optimizer/nesterov"
        )
        assert problem.message == "hyperparameters.optimizer.nesterov must be true or false; it is 1."
        assert problem.suggestion == "true"


class TestLater:
    @pytest.mark.parametrize(
        ("raw", "pointer"),
        [
            (body(model="transformer"), "/model"),
            (body(model={"type": "transformer"}), "/model/type"),
            (body(model={"type": "sequential", "layers": [{"type": "conv3d"}]}), "/model/layers/0/type"),
            (hyper(optimizer="lion"), "/hyperparameters/optimizer"),
            (hyper(schedule={"name": "polynomial"}), "/hyperparameters/schedule/name"),
        ],
    )
    def test_what_is_not_there_yet_says_so(self, raw: dict[str, Any], pointer: str) -> None:
        assert "comes later" in problem_at(raw, pointer).message


class TestTogether:
    def test_validation_and_test_must_leave_rows(self) -> None:
        problem = problem_at(body(data={"source": "digits", "split": {"validation": 0.5, "test": 0.5}}), "/data/split")
        assert "below 1" in problem.message

    @pytest.mark.parametrize("share", [-0.1, 0.91, 1])
    def test_a_share_is_at_most_nine_tenths(self, share: float) -> None:
        raw = body(data={"source": "digits", "split": {"validation": share}})
        assert "at least 0 and at most 0.9" in problem_at(raw, "/data/split/validation").message

    def test_nesterov_needs_momentum(self) -> None:
        problem = problem_at(hyper(optimizer={"name": "sgd", "nesterov": True}), "/hyperparameters/optimizer")
        assert "momentum" in problem.message

    def test_all_problems_are_told_at_once(self) -> None:
        raw = {
            "framework": "jax",
            "model": {"type": "mlp", "hidden": [0, True]},
            "data": 3,
            "hyperparameters": {"lr": 1},
        }
        assert [problem.pointer for problem in problems_of(raw)] == [
            "/framework",
            "/model/hidden/0",
            "/model/hidden/1",
            "/data",
            "/hyperparameters/lr",
        ]

    def test_the_error_reads_as_sentences(self) -> None:
        with pytest.raises(
            InvalidSpec, match=r"^The spec cannot be accepted\. /framework: framework must be "
        ) as caught:
            parse_job(body(framework="jax"))
        assert caught.value.code == "invalid_spec"
        assert caught.value.problems == [
            SpecProblem("/framework", 'framework must be "torch" or "tensorflow"; it is "jax".', "torch")
        ]


class TestText:
    @pytest.mark.parametrize("name", ["", " ", ".", "..", "x" * 121, "a\nb", "a\x00b", "a\u202eb", "\ud800", 5, ["x"]])
    def test_a_name_must_be_short_plain_text(self, name: object) -> None:
        assert problem_at(body(name=name), "/name").message.startswith("name must ")

    def test_the_character_that_cannot_be_shown_is_named(self) -> None:
        assert "character 2 is U+202E" in problem_at(body(name="a\u202eb"), "/name").message

    def test_seventeen_tags_are_too_many(self) -> None:
        problem = problem_at(body(tags={f"k{i}": "v" for i in range(17)}), "/tags")
        assert problem.message == "tags must have at most 16 pairs, but has 17."

    @pytest.mark.parametrize(
        ("tags", "pointer"), [({"a": 1}, "/tags/a"), ({"": "v"}, "/tags/"), ({"a/b": "\n"}, "/tags/a~1b")]
    )
    def test_a_wrong_tag_is_pointed_at(self, tags: dict[str, object], pointer: str) -> None:
        assert "tags" in problem_at(body(tags=tags), pointer).message

    def test_a_wrong_tag_key_is_called_a_key(self) -> None:
        problem = problem_at(body(tags={"k" * 65: "v"}), f"/tags/{'k' * 65}")
        assert problem.message.startswith('The key "kkk')
        assert "text of 1 to 64 characters" in problem.message

    @pytest.mark.parametrize(
        "when", ["2030-01-31", "2030-01-31T08:00:00", "tomorrow", 1_900_000_000, True, "2030-13-31T08:00:00Z"]
    )
    def test_a_time_needs_its_zone(self, when: object) -> None:
        problem = problem_at(body(not_before=when), "/not_before")
        assert "a time with its zone" in problem.message
        assert "2030-01-31T08:00:00Z" in problem.message


class TestData:
    @pytest.mark.parametrize(
        ("wrong", "nearest"), [("digit", "digits"), ("Iris", "iris"), ("breast-cancer", "breast_cancer")]
    )
    def test_a_misspelt_built_in_set_is_recognised(self, wrong: str, nearest: str) -> None:
        problem = problem_at(body(data={"source": wrong}), "/data/source")
        assert problem.suggestion == nearest
        assert problem_at(body(data=wrong), "/data").suggestion == nearest

    @pytest.mark.parametrize("source", ["/etc/passwd", "http://169.254.169.254/", "ds_../x", "", "ds_"])
    def test_a_source_is_a_known_name_or_an_id(self, source: str) -> None:
        assert problem_at(body(data={"source": source}), "/data/source").message.startswith("data.source must be")

    @pytest.mark.parametrize("features", [[], ["a", "a"], [""], ["a", 1], "some", None, {}])
    def test_features_are_all_or_a_list_of_different_names(self, features: object) -> None:
        problems = problems_of(body(data={"source": "digits", "features": features}))
        assert all(problem.pointer.startswith("/data/features") for problem in problems)

    def test_sixteen_thousand_features_are_checked_in_no_time(self) -> None:
        names = [f"f{i}" for i in range(16_384)]
        assert parse_job(body(data={"source": "digits", "features": names})).data.features == names


class TestBodies:
    @pytest.mark.parametrize(
        ("key", "where"), [("data.split", "/data/split"), ("hyperparameters", "/hyperparameters"), ("retry", "/retry")]
    )
    def test_what_must_be_an_object_gets_an_example(self, key: str, where: str) -> None:
        raw = body(data={"source": "digits", "split": 3}, hyperparameters=[], retry="never")
        problem = problem_at(raw, where)
        assert problem.message.startswith(f"{key} must be an object, for example {{")
        assert problem.suggestion is not None
        right = json.loads(problem.suggestion)
        top, *inner = where[1:].split("/")
        parse_job(body(**{top: {"source": "digits", inner[0]: right} if inner else right}))

    @pytest.mark.parametrize("raw", [[], None, "x", 3, True, 1.5, [{}]])
    def test_a_body_that_is_no_object_is_refused_as_a_whole(self, raw: object) -> None:
        problems = problems_of(raw)
        assert [problem.pointer for problem in problems] == [""]
        assert problems[0].message.startswith("The body must be an object; it is ")

    def test_what_is_missing_is_named(self) -> None:
        assert [problem.pointer for problem in problems_of({})] == ["/framework", "/model", "/data"]
        assert problems_of({})[0].message == 'framework is missing; it must be "torch" or "tensorflow".'

    def test_a_deep_body_is_no_trouble(self) -> None:
        deep: object = 1
        for _ in range(100_000):
            deep = [deep]
        assert {problem.pointer for problem in problems_of(body(tags=deep, data={"source": deep}))} == {
            "/tags",
            "/data/source",
        }

    def test_a_body_of_wrong_keys_is_explained_up_to_a_hundred(self) -> None:
        assert len(problems_of(body(**{f"lerning_rate_{i}": 1 for i in range(5000)}))) == 100


class TestNamesAndTimes:
    @pytest.mark.parametrize("name", ["\u200b", " \u2060 ", "\u00a0"])
    def test_a_name_of_invisible_characters_alone_is_refused(self, name: str) -> None:
        assert "at least one visible character" in problem_at(body(name=name), "/name").message

    @pytest.mark.parametrize("time", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+00:01"])
    def test_a_time_that_has_no_date_in_utc_is_refused(self, time: str) -> None:
        # Every store keeps times in UTC; converting these raises OverflowError.
        message = problem_at(body(not_before=time), "/not_before").message
        assert message.startswith("not_before must be a time between the years 1 and 9999 in UTC")

    def test_the_last_second_in_utc_is_accepted(self) -> None:
        assert parse_job(body(not_before="9999-12-31T23:59:59Z")).not_before is not None
