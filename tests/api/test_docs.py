"""Swagger UI and the page of errors: served from here alone, under a policy that lets nothing else in."""

import re
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

from app.api import docs
from app.api.job_examples import job_examples
from app.api.problems import PROBLEMS
from tests.api.client import ONE_DATABASE, Api, problem

ADDRESS = re.compile(r"(?:src|href)=\"([^\"]+)\"")


@ONE_DATABASE
class TestSwaggerUi:
    def test_the_root_leads_to_it(self, api: Api) -> None:
        answer = api.with_key(None).get("/")
        assert (answer.status_code, answer.headers["location"]) == (307, "/docs")

    def test_everything_it_loads_comes_from_here(self, api: Api) -> None:
        nobody = api.with_key(None)
        page = nobody.get("/docs")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        addresses = ADDRESS.findall(page.text)
        assert len(addresses) == 4
        for address in addresses:
            assert address.startswith("/docs/assets/")
            found = nobody.get(address)
            assert found.status_code == 200
            assert len(found.content) > 100
            assert found.headers["cache-control"] == "public, max-age=3600"
        assert "//" not in page.text.replace("<!doctype html>", "")

    def test_its_scripts_are_files_so_the_policy_allows_no_inline_ones(self, api: Api) -> None:
        page = api.with_key(None).get("/docs")
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert re.findall(r"<script[^>]*>([^<]*)</script>", page.text) == ["", ""]

    def test_it_reads_our_document_and_keeps_the_key(self, api: Api) -> None:
        script = api.with_key(None).get("/docs/assets/start.js")
        assert script.headers["content-type"] == "text/javascript; charset=utf-8"
        assert 'url: "/openapi.json"' in script.text
        assert "persistAuthorization: true" in script.text

    @pytest.mark.parametrize(
        "name", ["redoc.standalone.js", "../docs.py", "..%2fdocs.py", "start.js%00", "", "docs.py"]
    )
    def test_no_other_file_is_served(self, api: Api, name: str) -> None:
        problem(api.get(f"/docs/assets/{name}"), 404, "not_found")


BROWSER = shutil.which("chromium") or shutil.which("chromium", path="/usr/lib/chromium")
# As root and without any network but the loopback; nothing of its own may go out.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--virtual-time-budget=8000",
    "--dump-dom",
    "--enable-logging=stderr",
)


@ONE_DATABASE
@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
class TestInABrowser:
    def test_shows_every_operation_and_the_button_without_a_network(self, url: str, tmp_path: Path) -> None:
        only_here = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
        command = [str(BROWSER), *FLAGS, only_here, f"--user-data-dir={tmp_path}", f"{url}/docs"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        operations = httpx.get(f"{url}/openapi.json").json()["paths"].values()
        assert done.stdout.count('class="opblock-summary-path"') == sum(len(methods) for methods in operations)
        assert "btn authorize" in done.stdout
        assert "Content Security Policy" not in done.stderr

    def test_the_form_of_a_job_offers_each_example(self, url: str, tmp_path: Path) -> None:
        page = f"{url}/docs#/Jobs/create_job"
        command = [str(BROWSER), *FLAGS, f"--user-data-dir={tmp_path}", page]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        offered = set(re.findall(r"<option[^>]*>([^<]+)</option>", done.stdout))
        assert {example["summary"] for example in job_examples().values()} <= offered
        assert {"Model: cnn", "Layer: conv2d", "Optimizer: adamw", "Schedule: cosine"} <= offered


class TestAssets:
    def test_every_one_is_there(self) -> None:
        own = Path(docs.__file__).parent / "static"
        for name in docs._ASSETS:
            assert (own / name).is_file() or (docs.assets_folder() / name).is_file()


@ONE_DATABASE
class TestErrorsPage:
    def test_explains_every_code_at_the_place_that_its_type_names(self, api: Api) -> None:
        document = problem(api.get("/nothing"), 404, "not_found")
        path, _, fragment = document["type"].partition("#")
        page = api.with_key(None).get(path).text
        assert f'<tr id="{fragment}">' in page
        for code, kind in PROBLEMS.items():
            assert f'<tr id="{code}"><td><code>{code}</code></td><td>{kind.status}</td>' in page
