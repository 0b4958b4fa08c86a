"""Every error becomes one cause of the closed table, and a sentence."""

import errno
from typing import ClassVar

import pytest

from app.errors import Cause, TrainshedError
from app.spec import InvalidSpec, SpecProblem
from tests.workers.fake_backend import FakeBackend, FrameworkError
from workers.backends.base import DeviceUnavailable, Diverged, TrainingFailed
from workers.failure import DETAIL_LIMIT, MESSAGE_LIMIT, failure_of
from workers.protocol import Failed, encode


class BadTable(TrainshedError):
    code: ClassVar[str] = "invalid_data"


class OtherError(TrainshedError):
    code: ClassVar[str] = "conflict"


CAUSES: list[tuple[BaseException, Cause]] = [
    (TrainingFailed("The model file is not complete.", Cause.INCOMPLETE), Cause.INCOMPLETE),
    (Diverged("The loss is NaN at step 3."), Cause.DIVERGED),
    (DeviceUnavailable("The framework sees no device."), Cause.DEVICE_UNAVAILABLE),
    (InvalidSpec([SpecProblem("/data/target", "There is no column 'x'.")]), Cause.INVALID_DATA),
    (BadTable("Row 3 has no value."), Cause.INVALID_DATA),
    (OtherError("No."), Cause.USER_CODE),
    (FrameworkError("out of memory"), Cause.DEVICE_OUT_OF_MEMORY),
    (MemoryError(), Cause.HOST_OUT_OF_MEMORY),
    (OSError(errno.ENOMEM, "Cannot allocate memory"), Cause.HOST_OUT_OF_MEMORY),
    (OSError(errno.ENOSPC, "No space left on device"), Cause.ARTIFACT_UNREADABLE),
    (OSError(errno.EDQUOT, "Disk quota exceeded"), Cause.ARTIFACT_UNREADABLE),
    (OSError(errno.ENOENT, "No such file"), Cause.USER_CODE),
    (ModuleNotFoundError("No module named 'torch'"), Cause.DEVICE_UNAVAILABLE),
    (ValueError("shapes do not match"), Cause.USER_CODE),
]


class TestCause:
    @pytest.mark.parametrize(("error", "cause"), CAUSES, ids=lambda value: type(value).__name__)
    def test_error_has_its_cause(self, error: BaseException, cause: Cause) -> None:
        assert failure_of(error, FakeBackend()).cause == cause

    def test_without_a_backend_its_errors_are_unknown(self) -> None:
        assert failure_of(FrameworkError("out of memory"), None).cause == Cause.USER_CODE


class TestWords:
    def test_our_own_errors_write_their_own_sentence(self) -> None:
        assert failure_of(Diverged("The loss is NaN at step 3."), None).message == "The loss is NaN at step 3."

    def test_others_are_named(self) -> None:
        assert failure_of(ValueError("shapes do not match"), None).message == "ValueError: shapes do not match"

    def test_detail_is_the_traceback(self) -> None:
        assert "ZeroDivisionError" in raised().detail
        assert "in raised" in raised().detail

    def test_our_own_sentence_needs_no_traceback(self) -> None:
        assert failure_of(Diverged("The loss is NaN at step 3."), None).detail == ""

    def test_what_lies_behind_our_own_error_is_told(self) -> None:
        error = TrainingFailed("The device ran out of memory.", Cause.DEVICE_OUT_OF_MEMORY)
        error.__cause__ = FrameworkError("allocator says 0x3f")

        assert "allocator says 0x3f" in failure_of(error, None).detail

    def test_half_characters_can_be_sent(self) -> None:
        failed = failure_of(ValueError("no file caf\udce9"), None)

        assert failed.message == r"ValueError: no file caf\udce9"
        assert encode(failed)

    def test_long_texts_are_cut_and_fit_a_line(self) -> None:
        failed = failure_of(ValueError("x" * 10_000_000), None)

        assert (len(failed.message), len(failed.detail)) == (MESSAGE_LIMIT, DETAIL_LIMIT)
        assert encode(failed)


def raised() -> Failed:
    try:
        _ = 1 / 0
    except ZeroDivisionError as error:
        return failure_of(error, None)
    pytest.fail("nothing was raised")
