"""Short names of jobs."""

import pytest

from app.cli.errors import UsageProblem
from app.cli.identity import resolve_job
from tests.cli.fake_server import JOB, OTHER_JOB, FakeServer, job, listing


@pytest.fixture
def jobs(server: FakeServer) -> FakeServer:
    server.on("GET /v1/jobs", listing(job(OTHER_JOB), job(JOB)))
    return server


def resolved(server: FakeServer, text: str) -> str:
    with server.client() as client:
        return resolve_job(client, text)


class TestResolve:
    def test_a_whole_id_is_taken_as_it_is_without_asking(self, jobs: FakeServer) -> None:
        assert resolved(jobs, JOB) == JOB
        assert jobs.requests == []

    def test_latest_is_the_newest(self, jobs: FakeServer) -> None:
        assert resolved(jobs, "latest") == OTHER_JOB
        assert jobs.requests[0].url.params["limit"] == "1"

    @pytest.mark.parametrize("text", [JOB[-4:], JOB[-10:], JOB[4:], JOB])
    def test_the_end_of_an_id_or_all_of_it_but_the_prefix_names_it(self, jobs: FakeServer, text: str) -> None:
        assert resolved(jobs, text) == JOB

    def test_a_beginning_that_is_common_is_refused_with_the_candidates(self, jobs: FakeServer) -> None:
        with pytest.raises(UsageProblem, match=f"names 2 jobs: {OTHER_JOB}, {JOB}"):
            resolved(jobs, "job_01k0")

    @pytest.mark.parametrize("text", ["zzzz", "00a", "", "../secret"])
    def test_what_names_no_job_is_refused(self, jobs: FakeServer, text: str) -> None:
        with pytest.raises(UsageProblem, match="trainshed ls"):
            resolved(jobs, text)

    def test_latest_of_none_says_how_to_make_one(self, server: FakeServer) -> None:
        server.on("GET /v1/jobs", listing())
        with pytest.raises(UsageProblem, match="trainshed submit"):
            resolved(server, "latest")
