"""Sentences for what pip says; the texts are pip's own (26.3), as it printed them."""

import pytest

from workers.environments.pip_output import notice_of, reason_of, shown

MISSING = [
    "ERROR: Could not find a version that satisfies the requirement nope (from versions: none)",
    "ERROR: No matching distribution found for nope",
]
REFUSED = (
    "WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after connection broken "
    "by 'NewConnectionError(\"HTTPConnection(host='127.0.0.1', port=9): Failed to establish a new connection: "
    "[Errno 111] Connection refused\")': /simple/nope/"
)
UNREACHABLE = [REFUSED, *MISSING]
CONFLICT = [
    "ERROR: Cannot install -r requirements.txt (line 1) because these package versions have conflicting dependencies.",
    "The conflict is caused by:",
    "    lightning 2.6 depends on torch<2",
    "    The user requested (constraint) torch==2.13.0",
    "    The user requested lightning>=2",
    "To fix this you could try to:",
    "1. loosen the range of package versions you've specified",
]


def reason(lines: list[str], *, source_builds: bool = False) -> str:
    return reason_of(lines, "3.12", source_builds=source_builds)


class TestNotices:
    @pytest.mark.parametrize("size", ["20.0 MB", "506.3 MB", "1.2 GB"])
    def test_large_downloads_are_told(self, size: str) -> None:
        line = f"  Downloading transformers-5.0-py3-none-any.whl ({size})"
        assert notice_of(line) == f"Downloading transformers-5.0-py3-none-any.whl ({size})."

    @pytest.mark.parametrize(
        "line",
        [
            "  Downloading rich-14.1.0-py3-none-any.whl (243 kB)",
            "  Downloading rich-14.1.0-py3-none-any.whl (19.9 MB)",
            "Collecting rich==14.1.0",
            "Downloading",
            "",
        ],
    )
    def test_small_ones_and_all_else_are_not(self, line: str) -> None:
        assert notice_of(line) is None

    def test_what_is_installed_is_named_as_far_as_a_line_goes(self) -> None:
        assert notice_of("Installing collected packages: b, a") == "Installing b, a."
        ten = ", ".join(f"p{number}" for number in range(10))
        assert (
            notice_of(f"Installing collected packages: {ten}")
            == "Installing p0, p1, p2, p3, p4, p5, p6, p7 and 2 more."
        )


class TestLines:
    def test_the_name_of_our_file_is_taken_out(self) -> None:
        line = "Collecting aiohttp (from fsspec[http]>=2->lightning->-r requirements.txt (line 12))"
        assert shown(line) == "Collecting aiohttp (from fsspec[http]>=2->lightning)"
        assert shown("Collecting rich (from -r requirements.txt (line 1))") == "Collecting rich"


class TestReasons:
    def test_a_name_that_nobody_knows(self) -> None:
        assert reason(MISSING).startswith("No wheel 'nope' for Python 3.12 was found where packages come from")
        assert "built from their sources" in reason(MISSING)

    def test_where_sources_are_built_it_is_no_question_of_wheels(self) -> None:
        told = reason(MISSING, source_builds=True)
        assert told == "No package 'nope' for Python 3.12 was found where packages come from: is the name right?"

    def test_a_version_that_is_not_there(self) -> None:
        versions = ", ".join(f"1.{minor}" for minor in range(12))
        line = f"ERROR: Could not find a version that satisfies the requirement rich==99 (from versions: {versions})"
        told = reason([line, "ERROR: No matching distribution found for rich==99"])
        assert told.startswith("There is no 'rich==99' for Python 3.12")
        assert told.endswith("there are among others 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 1.10, 1.11.")

    def test_one_that_another_package_wants(self) -> None:
        line = "ERROR: Could not find a version that satisfies the requirement nope>=2 (from app) (from versions: 1.0)"
        assert reason([line]).startswith("There is no 'nope>=2'")

    def test_an_index_that_cannot_be_reached_is_not_a_wrong_name(self) -> None:
        assert "cannot be reached from the worker" in reason(UNREACHABLE)

    def test_an_index_that_could_not_be_reached_once_is_no_reason(self) -> None:
        lines = [REFUSED, MISSING[0].replace("none", "1.0")]
        assert reason(lines).startswith("There is no 'nope'")

    def test_what_does_not_go_together(self) -> None:
        assert reason(CONFLICT) == (
            "They do not go together: lightning 2.6 depends on torch<2; this host keeps torch==2.13.0; "
            "the requirements ask for lightning>=2."
        )

    @pytest.mark.parametrize(
        ("line", "told"),
        [
            ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "hashes were made of"),
            ("ERROR: In --require-hashes mode, all requirements must have their versions pinned with ==.", "all must"),
            ("ERROR: Hashes are required in --require-hashes mode, but they are missing from some", "all must"),
            ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "was full"),
            ("ERROR: 401 Error, Credentials not correct for https://example.org/simple/rich/", "asks for a password"),
            ("SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]", "does not trust"),
            ("ERROR: Package 'x' requires a different Python: 3.11.7 not in '>=3.12'", "for the Python of the job"),
            ("error: metadata-generation-failed", "built from its sources"),
        ],
    )
    def test_what_is_known_is_told_in_plain_words(self, line: str, told: str) -> None:
        assert told in reason(["Collecting rich", line])

    def test_what_is_not_known_is_told_as_pip_says_it(self) -> None:
        assert reason(["Collecting rich", "ERROR: something new", "and more"]) == "pip said: something new"
        assert reason(["killed"]) == "pip said: killed"
        assert reason([]) == "pip said: nothing"
