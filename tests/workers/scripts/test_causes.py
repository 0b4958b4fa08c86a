"""What is said about each end. The texts are what the libraries themselves write."""

import signal

import pytest

from app.errors import Cause
from workers.scripts.causes import culprit, judge, shown, swallowed
from workers.scripts.ranks import Exit

EXHAUSTED = "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with"
COMMAND = ["python", "train.py"]
TRACEBACK = 'Traceback (most recent call last):\n  File "/w/code/train.py", line 3, in <module>\n    train()\n'


def code(number: int, rank: int = 0) -> Exit:
    return Exit(rank, number, None)


def by(number: int) -> Exit:
    return Exit(0, None, number)


class TestCause:
    @pytest.mark.parametrize(
        ("text", "cause"),
        [
            ("ValueError: no good", Cause.USER_CODE),
            ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", Cause.DEVICE_OUT_OF_MEMORY),
            ("RuntimeError: CUDA error: out of memory", Cause.DEVICE_OUT_OF_MEMORY),
            (
                f"{EXHAUSTED} shape[1] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator x",
                Cause.DEVICE_OUT_OF_MEMORY,
            ),
            (
                f"{EXHAUSTED} shape[1] and type float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu",
                Cause.HOST_OUT_OF_MEMORY,
            ),
            (
                "RuntimeError: [enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory",
                Cause.HOST_OUT_OF_MEMORY,
            ),
            ("MemoryError", Cause.HOST_OUT_OF_MEMORY),
            (
                "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.28 TiB for an array",
                Cause.HOST_OUT_OF_MEMORY,
            ),
            ("OSError: [Errno 12] Cannot allocate memory", Cause.HOST_OUT_OF_MEMORY),
            (
                "ERROR: Unexpected bus error. This might be caused by insufficient shared memory (shm).",
                Cause.SHARED_MEMORY,
            ),
            ("OSError: [Errno 28] No space left on device", Cause.ARTIFACT_UNREADABLE),
            ("OSError: [Errno 28] No space left on device: '/dev/shm/x'", Cause.SHARED_MEMORY),
        ],
    )
    def test_last_exception_names_it(self, text: str, cause: Cause) -> None:
        assert judge(code(1), TRACEBACK + text, COMMAND).cause is cause

    @pytest.mark.parametrize(
        ("text", "cause"),
        [
            ("RuntimeError: Found no NVIDIA driver on your system.", Cause.DEVICE_UNAVAILABLE),
            ("RuntimeError: No CUDA GPUs are available", Cause.DEVICE_UNAVAILABLE),
            ("AssertionError: Torch not compiled with CUDA enabled", Cause.DEVICE_UNAVAILABLE),
            ("RuntimeError: CUDA error: uncorrectable ECC error encountered", Cause.DEVICE_FAULT),
        ],
    )
    def test_card_that_is_not_seen_counts_where_one_was_leased(self, text: str, cause: Cause) -> None:
        assert judge(code(1), TRACEBACK + text, COMMAND, on_cards=True).cause is cause
        assert judge(code(1), TRACEBACK + text, COMMAND).cause is Cause.USER_CODE

    @pytest.mark.parametrize(
        ("number", "cause"),
        [
            (signal.SIGKILL, Cause.TRAINER_KILLED),
            (signal.SIGBUS, Cause.SHARED_MEMORY),
            (signal.SIGSEGV, Cause.USER_CODE),
            (signal.SIGXFSZ, Cause.USER_CODE),
            (signal.SIGTERM, Cause.USER_CODE),
        ],
    )
    def test_signals(self, number: int, cause: Cause) -> None:
        found = judge(by(number), "", COMMAND)

        assert found.cause is cause
        assert f"'python train.py' was ended by signal {signal.Signals(number).name}." in found.message

    def test_abort_for_want_of_memory(self) -> None:
        tail = "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc"

        assert judge(by(signal.SIGABRT), tail, COMMAND).cause is Cause.HOST_OUT_OF_MEMORY

    def test_shell_s_code_for_a_killed_child(self) -> None:
        found = judge(code(137), "Killed", ["sh", "run.sh"])

        assert found.cause is Cause.TRAINER_KILLED
        assert "exit code 137 (a shell's word for signal SIGKILL)" in found.sentence

    def test_error_that_was_caught_long_before_is_not_the_cause(self) -> None:
        tail = f"{TRACEBACK}MemoryError\nsmaller batch\nepoch 2\n{TRACEBACK}ValueError: labels"

        assert judge(code(1), tail, COMMAND).cause is Cause.USER_CODE

    def test_error_behind_an_error_is(self) -> None:
        chain = "\n\nDuring handling of the above exception, another exception occurred:\n\n"
        tail = f"{TRACEBACK}torch.OutOfMemoryError: CUDA out of memory.{chain}{TRACEBACK}RuntimeError: cannot clean up"

        assert judge(code(1), tail, COMMAND).cause is Cause.DEVICE_OUT_OF_MEMORY

    def test_program_without_tracebacks_is_read_by_its_last_lines(self) -> None:
        assert judge(code(1), "error: CUDA out of memory", ["./train"]).cause is Cause.DEVICE_OUT_OF_MEMORY


class TestCulprit:
    LOST = "torch.distributed.DistBackendError: Connection closed by peer [127.0.0.1]:4711"

    def test_all_good_is_nobody(self) -> None:
        assert culprit([code(0), code(0, rank=1)], {}) is None

    def test_first_that_was_seen(self) -> None:
        assert culprit([code(1), code(2, rank=1)], {0: "ValueError", 1: "KeyError"}) == code(1)

    def test_rank_that_lost_its_connection_is_not_to_blame(self) -> None:
        assert culprit([code(1), code(2, rank=1)], {0: self.LOST, 1: "KeyError"}) == code(2, rank=1)

    def test_rank_that_was_asked_to_leave_is_not_to_blame(self) -> None:
        assert culprit([by(signal.SIGTERM), code(2, rank=1)], {1: "KeyError"}) == code(2, rank=1)

    def test_where_nobody_is_to_blame_the_first_is(self) -> None:
        assert culprit([code(1), Exit(1, None, signal.SIGTERM)], {0: self.LOST}) == code(1)


class TestSentence:
    def test_exception_and_code_are_named(self) -> None:
        found = judge(code(1), TRACEBACK + "KeyError: 'loss'", COMMAND)

        assert found.sentence == "'python train.py' ended with exit code 1: KeyError: 'loss'."

    def test_missing_module_says_how_to_add_it(self) -> None:
        found = judge(code(1), TRACEBACK + "ModuleNotFoundError: No module named 'rich'", COMMAND)

        assert (
            'Add \'rich\' to the bundle, or its package to "environment": {"requirements": ["rich"]}.' in found.sentence
        )

    def test_syntax_error_says_where(self) -> None:
        tail = "  File \"/run/work/job_1-1/code/lib/train.py\", line 7\n    if x\n        ^\nSyntaxError: expected ':'"

        assert judge(code(1), tail, COMMAND).sentence.endswith("SyntaxError: expected ':' (lib/train.py, line 7).")

    def test_exit_without_an_exception_is_just_that(self) -> None:
        assert judge(code(2), "usage: train.py [-h]\nInput: wrong", COMMAND).sentence == (
            "'python train.py' ended with exit code 2."
        )

    def test_rank_is_named_where_there_are_several(self) -> None:
        found = judge(code(1, rank=3), f"[rank3]: {TRACEBACK}[rank3]: ValueError: x", COMMAND, 4)

        assert found.sentence == "Rank 3 of 'python train.py' ended with exit code 1: [rank3]: ValueError: x."

    @pytest.mark.parametrize(
        ("text", "hint"),
        [
            ("OSError: [Errno 27] File too large", "over the limit of one file's size"),
            ("BlockingIOError: [Errno 11] Resource temporarily unavailable", "as many processes and threads"),
            ("RuntimeError: can't start new thread", "as many processes and threads"),
            ("socket.gaierror: [Errno -3] Temporary failure in name resolution", "The job has no network"),
        ],
    )
    def test_limits_of_the_host_are_named(self, text: str, hint: str) -> None:
        assert hint in judge(code(1), TRACEBACK + text, COMMAND).sentence

    def test_last_output_is_bounded(self) -> None:
        message = judge(code(1), "\n".join("x" * 10_000 for _ in range(100)), COMMAND).message

        assert len(message) < 4_000

    @pytest.mark.parametrize("command", [["sh", "a\nb\x1b[31m"], ["x" * 500], ["ä", "\ud800"]])
    def test_commands_are_shown_in_one_short_line(self, command: list[str]) -> None:
        assert shown(command).isprintable()
        assert len(shown(command)) <= 210


class TestSwallowed:
    @pytest.mark.parametrize("line", ["CUDA out of memory", "MemoryError", "std::bad_alloc"])
    def test_memory_that_ran_out_is_seen(self, line: str) -> None:
        assert swallowed(f"epoch 1\n{line}\nbye") == line

    @pytest.mark.parametrize("text", ["", "all good", "ValueError: x", "CUDA out of memory\n" + "line\n" * 100])
    def test_other_last_words_are_not(self, text: str) -> None:
        assert swallowed(text) is None


class TestHints:
    def hint(self, error: str, *files: str) -> str:
        return judge(code(1), TRACEBACK + error, COMMAND, files=files).sentence.partition(f"{error}. ")[2]

    @pytest.mark.parametrize(
        ("error", "part"),
        [
            ("ModuleNotFoundError: No module named 'torch'", "--framework torch"),
            ("ModuleNotFoundError: No module named 'keras'", "--framework tensorflow"),
            ("ModuleNotFoundError: No module named 'cv2'", '["opencv-python-headless"]'),
            ("ModuleNotFoundError: No module named 'yaml'", '["PyYAML"]'),
            ("ModuleNotFoundError: No module named 'rich'", '["rich"]'),
            ("ModuleNotFoundError: No module named 'json.nope'", "a file of yours called json.py"),
            ("FileNotFoundError: [Errno 2] No such file or directory: 'data/a.csv'", "trainshed run --dry-run"),
            ("ImportError: attempted relative import with no known parent package", "python -m package.module"),
            ("EOFError: EOF when reading a line", "standard input is empty"),
        ],
    )
    def test_common_errors_say_what_to_do(self, error: str, part: str) -> None:
        assert part in self.hint(error)

    def test_file_of_the_host_is_no_file_of_the_bundle(self) -> None:
        assert self.hint("FileNotFoundError: [Errno 2] No such file or directory: '/data/a.csv'") == ""

    def test_module_in_another_folder_of_the_bundle_needs_no_package(self) -> None:
        error = "ModuleNotFoundError: No module named 'birds'"
        hint = self.hint(error, "train.py", "old/src/birds/__init__.py", "src/birds/__init__.py", "src/birdsong.py")
        assert hint.startswith("The bundle has it in 'src'")
        assert "requirements" in self.hint(error, "train.py", "src/birdsong.py")


class TestLaunchers:
    CHILD = (
        "[rank1]: Traceback (most recent call last):\n"
        "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    )
    LOST = "[rank0]: Traceback (most recent call last):\n[rank0]: RuntimeError: Connection closed by peer\n"
    TORCHRUN = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n====\ntrain.py FAILED\n"
    ACCELERATE = "subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 1.\n"

    @pytest.mark.parametrize("launcher", [TORCHRUN, ACCELERATE])
    @pytest.mark.parametrize("between", ["", LOST])
    def test_error_of_the_child_is_the_cause(self, launcher: str, between: str) -> None:
        verdict = judge(code(1), self.CHILD + between + TRACEBACK + launcher, ["torchrun", "train.py"])

        assert verdict.cause is Cause.DEVICE_OUT_OF_MEMORY
        assert verdict.sentence.startswith(
            "'torchrun train.py' ended with exit code 1: [rank1]: torch.OutOfMemoryError"
        )

    def test_launcher_that_saw_no_error_of_its_child_is_named(self) -> None:
        assert "ChildFailedError" in judge(code(1), TRACEBACK + self.TORCHRUN, ["torchrun", "train.py"]).sentence
