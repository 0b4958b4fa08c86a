"""Output that nobody would write on purpose, and the messages that come of it: bounded, and accepted by the worker."""

import math
import socket
import threading
from pathlib import Path

import pytest

from app.errors import Cause
from tests.workers.scripts.hosted import hosted, script
from workers.protocol import LINE_LIMIT, Decoder, Report
from workers.scripts.messages import LINE_LIMIT as OURS
from workers.scripts.messages import POINTS_LIMIT, Channel
from workers.scripts.metrics import SERIES_LIMIT


def received(end: socket.socket) -> bytes:
    """All that comes until the other end is closed."""
    return b"".join(iter(lambda: end.recv(1 << 16), b""))


class TestFloods:
    def test_hundred_megabytes_of_log_pass_through(self, tmp_path: Path) -> None:
        text = "import os\nline = b'x' * 99 + b'\\n'\nfor _ in range(1000): os.write(1, line * 1000)"
        found = script(tmp_path, text, success="exit")

        assert found.done.stopped is None
        assert found.log_bytes == 100_000_000

    def test_fifty_thousand_metric_lines_are_fifty_thousand_points(self, tmp_path: Path) -> None:
        text = 'for n in range(50_000): print(\'{"step": %d, "loss": %r}\' % (n, 1 / (n + 1)))'
        found = script(tmp_path, text, success="exit")

        assert [point.step for point in found.points] == list(range(50_000))
        assert found.points[-1].value == 1 / 50_000
        assert found.log == ""
        assert max(len(report.points) for report in found.of(Report)) <= POINTS_LIMIT

    def test_line_without_an_end(self, tmp_path: Path) -> None:
        found = script(tmp_path, "import os\nfor _ in range(100): os.write(1, b'x' * 100_000)", success="exit")

        assert found.log.replace("\n", "") == "x" * 10_000_000

    def test_bytes_that_are_no_text(self, tmp_path: Path) -> None:
        text = "import os\nos.write(1, bytes(range(256)) * 1000)\nos.write(1, b'\\n{\"loss\": 1}\\n')"
        found = script(tmp_path, text, success="exit")

        assert [point.value for point in found.points] == [1.0]

    def test_giant_json_line_is_log(self, tmp_path: Path) -> None:
        text = "import json; print(json.dumps({f'k{n}': n for n in range(100_000)})); print('{\"loss\": 1}')"
        found = script(tmp_path, text, success="exit")

        assert [point.name for point in found.points] == ["loss"]
        assert "k99999" in found.log

    @pytest.mark.parametrize("line", ["[" * 100_000, '{"a":' * 9_000 + "1" + "}" * 9_000])
    def test_deeply_nested_line_is_log(self, line: str, tmp_path: Path) -> None:
        found = script(tmp_path, f"print({line!r})", success="exit")

        assert found.points == []
        assert found.log.replace("\n", "") == line

    def test_metrics_that_are_no_numbers(self, tmp_path: Path) -> None:
        text = "import json\nfor v in (float('nan'), float('inf'), -float('inf')): print(json.dumps({'loss': v}))"
        found = script(tmp_path, text, success="exit")

        values = [point.value for point in found.points]
        assert math.isnan(values[0])
        assert values[1:] == [math.inf, -math.inf]
        assert found.done.metrics["loss"] == -math.inf

    def test_names_that_are_long_and_wide_do_not_make_a_line_too_long(self, tmp_path: Path) -> None:
        text = """
import json
for at in [*range(0, 200, 20)] * 100:
    print(json.dumps({f"{n:03}" + "\\U0001F600" * 200: n for n in range(at, at + 20)}))
"""
        found = script(tmp_path, text, success="exit")

        assert len(found.points) == 100 * SERIES_LIMIT
        assert found.done.metrics.keys() == {f"{n:03}" + "\U0001f600" * 117 for n in range(SERIES_LIMIT)}

    @pytest.mark.parametrize("entry", ["../../etc/passwd", "/etc/passwd", "", ".", "x" * 9_000, "\\ud800", "a\\u0000b"])
    def test_checkpoint_that_is_none_costs_nothing(self, entry: str, tmp_path: Path) -> None:
        found = script(tmp_path, f'print(r\'{{"checkpoint": "{entry}", "loss": 1}}\')', success="exit")

        assert (found.done.checkpoint_step, found.notices) == (None, [])

    def test_more_points_than_the_socket_holds_wait_for_who_reads_them(self, tmp_path: Path) -> None:
        text = "import sys\nfor n in range(80_000): print('{\"loss\": %d}' % n)\nprint('the end', file=sys.stderr)"
        with hosted(tmp_path, {"train.py": text}, success="exit") as host:
            host.until(Report)

            assert len(host.finish().points) == 80_000
        assert host.log == "the end\n"


class TestLimits:
    def test_file_over_the_limit_of_one_is_named(self, tmp_path: Path) -> None:
        text = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
with open("big", "wb") as file: file.write(b"x" * 2000)
"""
        failed = script(tmp_path, text).failed

        assert failed.cause is Cause.USER_CODE
        assert "limit of one file's size" in failed.message

    def test_syntax_error(self, tmp_path: Path) -> None:
        failed = script(tmp_path, "if x\n").failed

        assert failed.cause is Cause.USER_CODE
        assert "SyntaxError: expected ':' (train.py, line 1)." in failed.message

    def test_missing_import(self, tmp_path: Path) -> None:
        failed = script(tmp_path, "import no_such_module_at_all").failed

        assert failed.cause is Cause.USER_CODE
        assert '"requirements": ["no_such_module_at_all"]' in failed.message


class TestMessages:
    def test_limit_is_the_worker_s(self) -> None:
        assert OURS == LINE_LIMIT

    def test_every_kind_is_what_the_worker_reads(self) -> None:
        ours, theirs = socket.socketpair()
        sent = bytearray()
        reader = threading.Thread(target=lambda: sent.extend(received(theirs)))
        reader.start()
        channel = Channel(ours)
        progress = {"epoch": 1, "epochs": 2, "step": 3, "steps": 4, "fraction": 0.5, "eta_s": None}
        channel.notice("code", "x" * 5_000 + "\ud800")
        channel.report([("loss", 1, 1, math.nan)] * 10_000, 1, 1, progress)
        channel.report([], 1, 1, progress)
        channel.artifact("a", "outputs/a", "text/plain")
        channel.checkpoint("staged/ckpt-1", 1, 1, {"loss": math.inf}, reason="final", best=True)
        channel.done({"loss": math.nan}, {"checkpoint_step": 3, "remark": "x"})
        channel.failed(Cause.USER_CODE, "x" * 100_000)
        ours.close()
        reader.join()
        theirs.close()
        messages = Decoder().feed(bytes(sent))

        assert [message.type for message in messages] == [
            "notice",
            *["report"] * 4,  # 4,000, 4,000 and 2,000 points, and none
            "artifact",
            "checkpoint",
            "done",
            "failed",
        ]
        assert all(len(line) < LINE_LIMIT for line in bytes(sent).splitlines())
