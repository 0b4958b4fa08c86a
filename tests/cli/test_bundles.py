"""The commands about bundles."""

from typing import Any

import pytest

from tests.cli.conftest import Trainshed
from tests.cli.fake_server import AT, FakeServer, listing, problem

BUNDLE = "bun_01k0000000000000000000000a"
OTHER = "bun_01k0000000000000000000000b"


def bundle(bundle_id: str = BUNDLE, **members: Any) -> dict[str, Any]:
    base = {
        "id": bundle_id,
        "object": "bundle",
        "name": "code",
        "format": "zip",
        "digest": "0" * 64,
        "size_bytes": 2048,
        "unpacked_bytes": 4096,
        "files": 2,
        "created_by": "ada",
        "created_at": AT,
    }
    return {**base, **members}


@pytest.fixture
def two(server: FakeServer) -> FakeServer:
    server.on("GET /v1/bundles", listing(bundle(), bundle(OTHER)))
    for each in (BUNDLE, OTHER):
        server.on(f"DELETE /v1/bundles/{each}", {})
        files = [{"name": "train.py", "size_bytes": 4000}]
        server.on(f"GET /v1/bundles/{each}", bundle(each, file_list=files, file_list_complete=False))
    return server


class TestList:
    @pytest.mark.usefixtures("two")
    def test_each_is_a_row(self, trainshed: Trainshed) -> None:
        out = trainshed("bundles", "ls").out
        assert BUNDLE in out
        assert OTHER in out
        assert "2.0 KiB" in out

    @pytest.mark.usefixtures("two")
    def test_a_program_gets_the_page(self, trainshed: Trainshed) -> None:
        assert [item["id"] for item in trainshed("bundles", "ls", "--json").json["data"]] == [BUNDLE, OTHER]

    def test_none_is_said(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/bundles", listing())
        assert trainshed("bundles", "ls").out.startswith("No bundles")


class TestShow:
    def test_it_lists_the_files(self, two: FakeServer, trainshed: Trainshed) -> None:
        out = trainshed("bundles", "show", BUNDLE).out
        assert "train.py" in out
        assert "2 files in all" in out
        assert [request.url.path for request in two.requests] == [f"/v1/bundles/{BUNDLE}"]

    @pytest.mark.usefixtures("two")
    def test_a_program_gets_the_object(self, trainshed: Trainshed) -> None:
        assert trainshed("bundles", "show", "000b", "--json").json["id"] == OTHER


class TestRemove:
    def test_several_go_by_id_or_its_end(self, two: FakeServer, trainshed: Trainshed) -> None:
        assert trainshed("bundles", "rm", BUNDLE, "000b", BUNDLE, "--json").json == {"deleted": [BUNDLE, OTHER]}
        assert len(two.asked(f"DELETE /v1/bundles/{BUNDLE}")) == 1

    def test_one_that_jobs_need_stays(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on(f"DELETE /v1/bundles/{BUNDLE}", problem(409, "conflict", "job_1 needs it."))
        ran = trainshed("bundles", "rm", BUNDLE)
        assert (ran.code, ran.err.splitlines()[0]) == (2, "error: job_1 needs it.")

    @pytest.mark.parametrize(("name", "sentence"), [("zzzz", "No bundle"), ("a", "No bundle"), ("0000", "No bundle")])
    @pytest.mark.usefixtures("two")
    def test_a_name_that_means_none_is_refused(self, trainshed: Trainshed, name: str, sentence: str) -> None:
        ran = trainshed("bundles", "rm", name)
        assert (ran.code, sentence in ran.err) == (2, True)

    def test_one_that_means_several_is_refused(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/bundles", listing(bundle(), bundle(f"{BUNDLE[:-5]}1000a")))
        ran = trainshed("bundles", "rm", "000a")
        assert (ran.code, "More than one bundle is '000a'" in ran.err) == (2, True)
