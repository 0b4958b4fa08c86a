"""Attempts with code of a user's own: what is fetched and launched, in which sandbox, and what counts as success."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.archives import Limits
from app.datasets.roots import DataRoots
from app.errors import Cause
from app.jobs.claims import Claim, ClaimedBundle, ClaimedInput
from app.jobs.states import JobState
from app.spec import EffectiveSpec, parse_job, parse_script, resolve, resolve_script
from tests.e2e.scripts import bundle
from tests.jobs.placing import TABLE
from tests.workers.fake_launcher import FakeRun
from tests.workers.supervisor.bench import Bench
from tests.workers.supervisor.fake_packages import FakePackages
from workers.code_terms import GIB, CodeTerms
from workers.environments.errors import EnvironmentFailed
from workers.launch_port import SCRIPT_HOST, TRAINER
from workers.protocol import Artifact, Done
from workers.sandbox import Sandbox
from workers.stopping import StopReason

BUNDLE = "bun_01k0000000000000000000000a"
PYTHONS = {"torch": Path("/opt/torch/bin/python"), "python": Path("/opt/worker/bin/python")}
CONTENT = bundle({"train.py": "print('hello')", "requirements.txt": "rich==14.1.0\n"})


def claimed_bundle(bench: Bench, content: bytes = CONTENT, digest: str | None = None) -> ClaimedBundle:
    path = bench.equipment.run_dir.parent / "uploaded"
    path.write_bytes(content)
    bench.storage.put(f"bundles/{BUNDLE}", path)
    return ClaimedBundle(BUNDLE, f"bundles/{BUNDLE}", "zip", digest or hashlib.sha256(content).hexdigest())


def script_claim(bench: Bench, spec: dict[str, Any] | None = None, **script: Any) -> Claim:
    body = {"bundle": BUNDLE, "command": ["python", "train.py"], **script}
    effective = resolve_script(parse_script({"script": body, **(spec or {})}), "cuda")
    return replace(bench.claim(), spec=effective, builtin=None, bundle=claimed_bundle(bench))


def model_claim(bench: Bench, **model: Any) -> Claim:
    body = {"type": "python", "bundle": BUNDLE, "entrypoint": "nets:build", **model}
    effective = resolve(parse_job({"framework": "torch", "model": body, "data": "digits"}), TABLE, "cuda")
    assert isinstance(effective, EffectiveSpec)
    return replace(bench.claim(), spec=effective, bundle=claimed_bundle(bench))


@pytest.fixture
def host(bench: Bench) -> Bench:
    bench.equipment = replace(bench.equipment, interpreters=PYTHONS)
    return bench


def leave(bench: Bench, run: FakeRun, *files: tuple[str, bytes], remark: str | None = None) -> None:
    """Play a script that leaves these output files, and is done."""
    for name, content in files:
        bench.leave_file(run, name, content)
        run.says(Artifact(name=name, path=name, media_type="application/octet-stream", kind="output"))
    run.says(Done(metrics={"loss": 0.5}, remark=remark))
    run.end(code=0)


def ending(bench: Bench) -> tuple[str, str | None, str]:
    job = bench.job()
    return job.state, job.cause, bench.attempt().detail or ""


class TestScripts:
    def test_the_host_is_launched_by_the_workers_python_and_told_all(self, host: Bench) -> None:
        variables = {"environment": {"variables": {"GREETING": "hello"}}, "seed": 7}
        supervisor, run = host.run(script_claim(host, {"framework": "torch"}, **variables))
        told, request = run.script, run.request

        assert (request.interpreter, request.entry) == (PYTHONS["python"], SCRIPT_HOST)
        assert (told.interpreter, told.framework) == (str(PYTHONS["torch"]), "torch")
        assert (told.command, told.processes, told.success) == (["python", "train.py"], "one", "files")
        assert (told.variables, told.seed) == ({"GREETING": "hello"}, 7)
        assert [device.id for device in told.devices] == ["host-a-0"]
        assert "GREETING" not in request.environment, "the launcher keeps its rights, so it gets none of theirs"
        leave(host, run, ("out.bin", b"x"))
        host.wait(supervisor)
        assert host.state is JobState.SUCCEEDED

    def test_its_bundle_lies_packed_in_its_folder(self, host: Bench) -> None:
        supervisor, run = host.run(script_claim(host))
        told = run.script

        assert told.bundle is not None
        assert Path(told.bundle).read_bytes() == CONTENT
        assert (Path(told.bundle).parent, told.bundle_format) == (Path(told.work_dir), "zip")
        leave(host, run, ("out.bin", b"x"))
        host.wait(supervisor)

    def test_limits_are_those_of_the_settings(self, host: Bench) -> None:
        terms = CodeTerms(
            max_file_bytes=5,
            max_processes=20,
            max_artifact_bytes=7,
            archive=Limits(entries=3, total_bytes=11, file_bytes=10),
        )
        supervisor, run = host.run(script_claim(host), code=terms)

        assert run.request.sandbox == Sandbox(network=False, needs_loopback=False, max_file_bytes=5, max_processes=20)
        limits = run.script.limits
        assert (limits.archive.entries, limits.archive.total_bytes, limits.archive.file_bytes) == (3, 11, 10)
        assert (limits.max_output_bytes, limits.max_output_files) == (7, 100)
        leave(host, run, ("out.bin", b"x"))
        host.wait(supervisor)

    def test_data_files_are_fetched_by_their_names_or_stay_where_they_are(self, host: Bench, tmp_path: Path) -> None:
        (tmp_path / "table").write_bytes(b"a,b\n")
        (tmp_path / "root").mkdir()
        host.storage.put("datasets/ds_1", tmp_path / "table")
        inputs = (
            ClaimedInput("train", "datasets/ds_1", "csv", None, "d" * 64),
            ClaimedInput("scans", "datasets/ds_2", "npz", "root://scans/2025/a.npz", "e" * 64),
        )
        claim = replace(script_claim(host), inputs=inputs)
        supervisor, run = host.run(claim, roots=DataRoots({"scans": tmp_path / "root"}))
        told = run.script

        assert told.inputs == {
            "train": f"{told.work_dir}/data/train.csv",
            "scans": str(tmp_path / "root" / "2025" / "a.npz"),
        }
        assert told.digests == {"scans": "e" * 64}, "only what lies outside of the storage may have changed"
        assert Path(told.inputs["train"]).read_bytes() == b"a,b\n"
        leave(host, run, ("out.bin", b"x"))
        host.wait(supervisor)

    def test_rank_for_each_device_needs_the_loopback_device(self, host: Bench) -> None:
        supervisor, run = host.run(script_claim(host, processes="per_device", monitor={"metric": "val_accuracy"}))

        assert run.request.sandbox is not None
        assert run.request.sandbox.needs_loopback
        assert run.script.monitor is not None
        assert (run.script.monitor.metric, run.script.monitor.mode) == ("val_accuracy", "max")
        leave(host, run, ("out.bin", b"x"))
        host.wait(supervisor)

    def test_without_a_bundle_nothing_is_fetched(self, host: Bench) -> None:
        claim = replace(script_claim(host, bundle=None), bundle=None)
        supervisor, run = host.run(claim)

        assert (run.script.bundle, run.script.bundle_format) == (None, None)
        leave(host, run, ("out.bin", b"x"))
        host.wait(supervisor)


class TestProof:
    def test_exit_code_0_without_a_file_is_no_success_and_the_remark_is_told(self, host: Bench) -> None:
        supervisor, run = host.run(script_claim(host))
        leave(host, run, remark="It printed: CUDA out of memory")
        host.wait(supervisor)

        state, cause, detail = ending(host)
        assert (state, cause) == ("failed", "incomplete")
        assert "no output file" in detail
        assert "It printed: CUDA out of memory" in detail

    def test_it_is_enough_where_the_spec_says_so(self, host: Bench) -> None:
        supervisor, run = host.run(script_claim(host, success="exit"))
        leave(host, run)
        host.wait(supervisor)

        assert host.state is JobState.SUCCEEDED

    def test_model_job_needs_a_model_and_no_output_will_do(self, host: Bench) -> None:
        supervisor, run = host.run(model_claim(host))
        leave(host, run, ("out.bin", b"x"))
        host.wait(supervisor)

        assert ending(host)[:2] == ("failed", "incomplete")
        assert "left no model" in ending(host)[2]

    def test_more_bytes_than_allowed_are_not_stored(self, host: Bench) -> None:
        supervisor, run = host.run(script_claim(host), code=CodeTerms(max_artifact_bytes=5))
        leave(host, run, ("a.bin", b"xxx"), ("b.bin", b"xxxx"))
        host.wait(supervisor)

        assert ending(host)[:2] == ("failed", "artifact_unreadable")
        assert "'b.bin' has 4 bytes, and all files of the job together 7, more than the 5" in ending(host)[2]
        assert host.storage.list("artifacts") == []

    def test_built_in_models_have_no_such_limit(self, host: Bench) -> None:
        supervisor, run = host.run(code=CodeTerms(max_artifact_bytes=5))
        host.succeed(run, content=b"more than five bytes")
        host.wait(supervisor)

        assert host.state is JobState.SUCCEEDED


class TestBundles:
    def test_changed_bytes_are_not_run(self, host: Bench) -> None:
        claim = replace(script_claim(host), bundle=claimed_bundle(host, digest="0" * 64))
        host.wait(host.begin(claim))

        assert ending(host)[:2] == ("failed", "invalid_data")
        assert "is not what was uploaded" in ending(host)[2]

    def test_one_that_is_gone_is_named(self, host: Bench) -> None:
        claim = script_claim(host)
        host.storage.delete(f"bundles/{BUNDLE}")
        host.wait(host.begin(claim))

        assert ending(host)[:2] == ("failed", "invalid_data")
        assert f"The bundle {BUNDLE} is not in the storage any more" in ending(host)[2]


class TestNetwork:
    def test_it_is_refused_where_the_setting_is_off(self, host: Bench) -> None:
        host.wait(host.begin(script_claim(host, network=True)))

        assert ending(host)[:2] == ("failed", "environment_failed")
        assert "TRAINSHED_CODE_NETWORK is off" in ending(host)[2]

    def test_it_is_given_where_it_is_on(self, host: Bench) -> None:
        supervisor, run = host.run(script_claim(host, network=True), code=CodeTerms(network=True))

        assert run.request.sandbox is not None
        assert run.request.sandbox.network
        leave(host, run, ("out.bin", b"x"))
        host.wait(supervisor)


ASKS: dict[str, Any] = {"environment": {"requirements": "requirements.txt"}}


class TestPackages:
    def test_file_of_the_bundle_is_read_and_its_interpreter_runs_the_command(self, host: Bench) -> None:
        packages = FakePackages()
        supervisor, run = host.run(script_claim(host, **ASKS), environments=packages)

        assert packages.asked == [("python", "rich==14.1.0\n", False)]
        assert (run.script.interpreter, run.request.interpreter) == (str(packages.answer), PYTHONS["python"])
        leave(host, run, ("out.bin", b"x"))
        host.wait(supervisor)
        assert host.lines() == [f"Collecting packages for {host.scene.job_id}-1"]
        assert [entry["code"] for entry in host.journal("notice")] == ["environment_building"]
        assert packages.released == [f"{host.scene.job_id}-1"]

    def test_none_are_asked_for_without_requirements(self, host: Bench) -> None:
        packages = FakePackages()
        supervisor, run = host.run(script_claim(host), environments=packages)

        assert packages.asked == []
        leave(host, run, ("out.bin", b"x"))
        host.wait(supervisor)

    def test_failure_ends_the_attempt_with_pips_last_lines(self, host: Bench) -> None:
        error = EnvironmentFailed(
            "There is no rich 14.1.0.", ["ERROR: No matching distribution found for rich==14.1.0"]
        )
        host.wait(host.begin(script_claim(host, **ASKS), environments=FakePackages(error)))

        assert ending(host)[:2] == ("failed", "environment_failed")
        assert "There is no rich 14.1.0.\nERROR: No matching distribution" in ending(host)[2]

    def test_failure_of_the_host_is_a_loss(self, host: Bench) -> None:
        error = EnvironmentFailed("The disk is full.", cause=Cause.WORKER_LOST)
        host.wait(host.begin(script_claim(host, **ASKS), environments=FakePackages(error)))

        assert host.attempt().cause == "worker_lost"
        assert host.job().losses == 1

    def test_file_that_is_not_in_the_bundle_is_named(self, host: Bench) -> None:
        asks = {"environment": {"requirements": "other.txt"}}
        host.wait(host.begin(script_claim(host, **asks), environments=FakePackages()))

        assert ending(host)[:2] == ("failed", "environment_failed")
        assert "other.txt" in ending(host)[2]

    def test_stop_while_they_are_installed(self, host: Bench) -> None:
        packages = FakePackages(waits=True)
        supervisor = host.begin(script_claim(host, **ASKS), environments=packages)
        assert packages.at_work.wait(20)

        supervisor.stop(StopReason.DRAIN)
        host.wait(supervisor)

        assert host.attempt().cause == "drained"
        assert packages.released == [f"{host.scene.job_id}-1"]

    def test_worker_that_leaves_while_they_are_installed_writes_no_end(self, host: Bench) -> None:
        packages = FakePackages(waits=True)
        supervisor = host.begin(script_claim(host, **ASKS), environments=packages)
        assert packages.at_work.wait(20)

        supervisor.abandon()
        host.wait(supervisor)

        assert host.attempt().ended_at is None


class TestModels:
    def test_our_own_trainer_is_launched_by_the_frameworks_python(self, host: Bench) -> None:
        packages = FakePackages()
        asks = {"requirements": ["einops==0.8.1"], "variables": {"GREETING": "hello"}}
        supervisor, run = host.run(model_claim(host, environment=asks), environments=packages)
        told, request = run.assignment, run.request

        assert (request.interpreter, request.entry) == (PYTHONS["torch"], TRAINER)
        assert packages.asked == [("torch", ["einops==0.8.1"], True)]
        assert (told.packages, told.variables) == (str(packages.answer), {"GREETING": "hello"})
        assert (told.bundle, told.code) == (f"{told.work_dir}/bundle.zip", f"{told.work_dir}/code")
        assert told.archive is not None
        assert told.archive.total_bytes == GIB
        assert request.sandbox == Sandbox(
            network=False, needs_loopback=False, max_file_bytes=CodeTerms().max_file_bytes, max_processes=1024
        )
        host.succeed(run)
        host.wait(supervisor)
        assert host.state is JobState.SUCCEEDED

    def test_built_in_model_has_no_sandbox_and_no_code(self, host: Bench) -> None:
        supervisor, run = host.run()
        told = run.assignment

        assert run.request.sandbox is None
        assert (told.bundle, told.archive, told.code, told.packages, told.variables) == (None, None, None, None, {})
        host.succeed(run)
        host.wait(supervisor)


def test_framework_that_the_worker_does_not_have_any_more_is_a_loss(host: Bench) -> None:
    claim = script_claim(host, {"framework": "tensorflow"})
    host.wait(host.begin(claim))

    assert host.attempt().cause == "worker_lost"
    assert "no interpreter for tensorflow" in (host.attempt().detail or "")
