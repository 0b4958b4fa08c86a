"""What goes over a base: the key, the constraints, and what is refused before pip is asked."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from app.spec.requirements import parse_requirements
from workers.environments.base import Base
from workers.environments.errors import EnvironmentFailed
from workers.environments.plan import Plan, Sources

TORCH = {"torch": "2.13.0+cpu", "trainshed": "0.1.0", "numpy": "2.4.6"}
TENSORFLOW = {"tensorflow-cpu": "2.21.0", "keras": "3.15.1", "trainshed": "0.1.0"}


def base(
    framework: str = "torch",
    packages: Mapping[str, str] | None = None,
    *,
    version: str = "3.12.4",
    python: str = "/opt/torch/bin/python",
) -> Base:
    return Base(
        framework=framework,
        python=Path(python),
        version=version,
        packages=TORCH if packages is None else packages,
        scripts={},
        paths=("/opt/torch/lib/python3.12/site-packages",),
        needs=("numpy>=2.1", "pydantic[email]>=2.12"),
    )


def plan(text: str, over: Base | None = None, sources: Sources | None = None, *, trainer: bool = False) -> Plan:
    return Plan(over or base(), parse_requirements(text), sources or Sources(), runs_trainer=trainer)


class TestTheKey:
    def test_it_is_the_name_of_a_folder(self) -> None:
        key = plan("rich").key
        assert len(key) == 32
        assert set(key) <= set("0123456789abcdef")

    def test_the_same_has_the_same(self) -> None:
        assert plan("rich\ntqdm").key == plan("# sorted\ntqdm\nRich").key

    def test_whatever_makes_another_environment_has_another(self) -> None:
        keys = [
            plan("rich").key,
            plan("rich==14").key,
            plan("rich", base(framework="python")).key,
            plan("rich", base(version="3.12.5")).key,
            plan("rich", base(python="/opt/other/bin/python")).key,
            plan("rich", base(packages={**TORCH, "torch": "2.14.0"})).key,
            plan("rich", base(packages={**TORCH, "rich": "14"})).key,
            plan("rich", sources=Sources(index="https://example.org/simple")).key,
            plan("rich", sources=Sources(extra_indexes=("https://example.org/simple",))).key,
            plan("rich", sources=Sources(find_links="/wheels")).key,
            plan("rich", sources=Sources(source_builds=True)).key,
            plan("rich", trainer=True).key,
        ]
        assert len(set(keys)) == len(keys)


class TestReplacements:
    @pytest.mark.parametrize("asked", ["torch==2.1", "torch<2.13", "torch>=3", "Torch!=2.13.0"])
    def test_another_torch_is_refused(self, asked: str) -> None:
        with pytest.raises(EnvironmentFailed, match=r"this host has torch 2\.13\.0\+cpu.*\"framework\": \"python\""):
            plan(f"rich\n{asked}").check()

    @pytest.mark.parametrize("asked", ["torch", "torch==2.13.0", "torch==2.13.0+cpu", "torch>=2", "torch~=2.13.0"])
    def test_the_torch_that_is_there_may_be_named(self, asked: str) -> None:
        plan(asked).check()

    @pytest.mark.parametrize("asked", ["tensorflow==2.16", "tensorflow-cpu<2.21", "keras==2.15"])
    def test_another_tensorflow_or_keras_is_refused_by_each_of_its_names(self, asked: str) -> None:
        with pytest.raises(EnvironmentFailed, match="this host has"):
            plan(asked, base("tensorflow", TENSORFLOW)).check()

    def test_a_line_for_another_python_is_none(self) -> None:
        plan('torch==2.1; python_version < "3.12"').check()
        with pytest.raises(EnvironmentFailed):
            plan('torch==2.1; python_version >= "3.12"').check()

    def test_a_job_without_a_framework_of_ours_may_bring_its_own(self) -> None:
        own = plan("torch==2.1", base("python"))
        own.check()
        assert own.constraints == ("trainshed==0.1.0",)

    @pytest.mark.parametrize("framework", ["torch", "python"])
    def test_trainshed_itself_is_never_another(self, framework: str) -> None:
        with pytest.raises(EnvironmentFailed, match=r"runs trainshed 0\.1\.0. Leave it out"):
            plan("trainshed==9", base(framework)).check()


class TestConstraints:
    def test_what_others_bring_along_may_not_replace_the_framework_either(self) -> None:
        assert plan("lightning").constraints == ("torch==2.13.0+cpu", "trainshed==0.1.0")

    def test_what_our_trainer_needs_is_among_them_where_it_runs(self) -> None:
        # pip: constraints may have no extras.
        assert plan("x", trainer=True).constraints[-2:] == ("numpy>=2.1", "pydantic>=2.12")

    def test_tensorflow_goes_by_two_names(self) -> None:
        made = plan("x", base("tensorflow", TENSORFLOW))
        assert made.aliases == {"tensorflow": "2.21.0"}
        assert made.constraints == (
            "keras==3.15.1",
            "tensorflow==2.21.0",
            "tensorflow-cpu==2.21.0",
            "trainshed==0.1.0",
        )

    def test_there_is_no_alias_without_tensorflow(self) -> None:
        assert plan("x").aliases == {}
        assert plan("x", base("python", TENSORFLOW)).aliases == {}


class TestHowPipIsTold:
    def test_what_pip_knows_on_the_host_holds_when_nothing_is_set(self) -> None:
        assert plan("x").environment() == {"PIP_ONLY_BINARY": ":all:"}

    def test_an_index_replaces_what_pip_knows(self) -> None:
        told = plan("x", sources=Sources(index="https://me:secret@example.org/simple")).environment()
        assert told["PIP_INDEX_URL"] == "https://me:secret@example.org/simple"
        assert told["PIP_CONFIG_FILE"] == "/dev/null"

    def test_none_is_no_index_at_all(self) -> None:
        told = plan("x", sources=Sources(index="none", find_links="/my wheels")).environment()
        assert told == {
            "PIP_NO_INDEX": "1",
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_FIND_LINKS": "file:///my%20wheels",
            "PIP_ONLY_BINARY": ":all:",
        }

    def test_more_places_may_be_asked(self) -> None:
        sources = Sources(extra_indexes=("https://a/simple", "https://b/simple"), find_links="https://c/wheels/")
        told = plan("x", sources=sources).environment()
        assert told["PIP_EXTRA_INDEX_URL"] == "https://a/simple https://b/simple"
        assert told["PIP_FIND_LINKS"] == "https://c/wheels/"

    def test_sources_are_built_only_where_that_is_set(self) -> None:
        assert plan("x", sources=Sources(source_builds=True)).environment() == {}

    def test_hashes_are_required_of_all(self) -> None:
        text = "x==1 --hash=sha256:" + "0" * 64
        assert plan(text).environment()["PIP_REQUIRE_HASHES"] == "1"
