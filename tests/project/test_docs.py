"""Pages for people: their links lead somewhere, their pictures are small and come along, their commands exist."""

import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import json5
import pytest
from typer.main import get_command

from app.cli.program import app as command_line
from app.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
PICTURES = sorted((ROOT / "docs/pictures").iterdir())
DRAWINGS = [path for path in PICTURES if path.suffix == ".svg"]
PHOTOGRAPHS = [path for path in PICTURES if path.suffix == ".png"]
LARGEST: Final = 200_000
LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
# Settings of the compose files and of single commands, which the server's settings do not know.
OTHERS: Final = {"TRAINSHED_URL", "TRAINSHED_KEY"}


def blocks(text: str, language: str) -> Iterator[str]:
    yield from re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of headings: lower case, no punctuation, hyphens for blanks."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands(page: Path) -> Iterator[list[str]]:
    """The words of each `trainshed …` line of a page's examples."""
    text = page.read_text(encoding="utf-8")
    for block in (*blocks(text, "sh"), *blocks(text, "console")):
        for line in block.splitlines():
            # What stands behind `--` is a command of the user's own.
            words = line.removeprefix("$ ").split("#")[0].split(" -- ")[0].split()
            if words[:1] == ["trainshed"] and not line.startswith(" "):
                yield words[1:]


class TestLinks:
    @pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
    def test_lead_somewhere(self, page: Path) -> None:
        broken = []
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            linked = (page.parent / path).resolve() if path else page
            if not linked.exists() or (anchor and linked.suffix == ".md" and anchor not in anchors(linked)):
                broken.append(target)
        assert broken == []

    def test_every_page_for_users_is_linked_from_the_readme(self) -> None:
        linked = set(LINK.findall((ROOT / "README.md").read_text(encoding="utf-8")))
        assert {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} <= linked


class TestPictures:
    @pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
    def test_are_small(self, picture: Path) -> None:
        assert 0 < picture.stat().st_size < LARGEST

    @pytest.mark.parametrize("picture", DRAWINGS, ids=lambda path: path.name)
    def test_drawings_fetch_nothing(self, picture: Path) -> None:
        text = picture.read_text(encoding="utf-8")
        assert text.startswith("<svg")
        assert re.findall(r"@font-face|@import|url\((?!#)|<script|(?:href|src)=\"(?!#)", text) == []

    @pytest.mark.parametrize("picture", PHOTOGRAPHS, ids=lambda path: path.name)
    def test_photographs_can_be_read_on_a_page(self, picture: Path) -> None:
        head = picture.read_bytes()[:24]
        assert head[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = struct.unpack(">II", head[16:])
        assert 600 <= width <= 1600
        assert height <= 1300


class TestExamplesInPages:
    @pytest.mark.parametrize("page", ["README.md", "docs/getting-started.md", "docs/operations.md", "docs/scripts.md"])
    def test_commands_and_their_options_exist(self, page: str) -> None:
        group = get_command(command_line)
        found = list(commands(ROOT / page))
        assert len(found) > 8
        for words in found:
            command = group
            for word in words:
                command = getattr(command, "commands", {}).get(word, command)
            assert command is not group, words
            if command.context_settings.get("ignore_unknown_options"):
                continue  # becomes another program, which has options of its own
            known = {option for parameter in command.params for option in parameter.opts}
            assert {word for word in words if re.fullmatch(r"--?[a-z-]+", word)} <= known, words

    @pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
    def test_json_is_json(self, page: Path) -> None:
        for block in blocks(page.read_text(encoding="utf-8"), "json"):
            if "…" not in block:
                documents = block.splitlines() if block.count("\n{") and not block.startswith("{\n") else [block]
                for document in documents:
                    json.loads(document)

    @pytest.mark.parametrize(
        "page", ["README.md", "docs/getting-started.md", "docs/errors.md", "docs/architecture.md", "docs/operations.md"]
    )
    def test_variables_are_settings(self, page: str) -> None:
        text = (ROOT / page).read_text(encoding="utf-8")
        known = {f"TRAINSHED_{name.upper()}" for name in Settings.model_fields} | OTHERS
        assert set(re.findall(r"TRAINSHED_[A-Z_]*[A-Z]", text)) <= known

    def test_commented_json_is_json5(self) -> None:
        text = (ROOT / "docs/getting-started.md").read_text(encoding="utf-8")
        (block,) = blocks(text, "jsonc")
        assert json5.loads("{" + block + "}")["target"] == "species"
