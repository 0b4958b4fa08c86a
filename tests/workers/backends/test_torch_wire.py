"""Messages between ranks: what is sent is what arrives, and an end that is gone is an error, not silence."""

from multiprocessing import Pipe

import numpy as np
import pytest

from workers.backends.torch.wire import receive, send


class TestRoundTrip:
    @pytest.mark.parametrize(
        "value",
        [
            np.arange(6, dtype=np.int64).reshape(2, 3),
            np.array([0.1, np.inf, np.nan]),
            np.array(2.0, np.float32),  # a scale: no axis may come to it
            np.zeros((0, 3), np.float32),
            np.arange(6.0).reshape(2, 3).T,
        ],
        ids=["whole", "strange", "scalar", "empty", "transposed"],
    )
    def test_arrays_keep_type_shape_and_bits(self, value: np.ndarray) -> None:
        ours, theirs = Pipe()
        with ours, theirs:
            send(ours, {"order": "run", "first": 3}, {"value": value})

            head, arrays = receive(theirs)

        assert head == {"order": "run", "first": 3}
        assert (arrays["value"].dtype, arrays["value"].shape) == (value.dtype, value.shape)
        assert arrays["value"].tobytes() == value.tobytes()

    def test_received_arrays_can_be_written(self) -> None:
        # torch warns of tensors over memory that is not.
        ours, theirs = Pipe()
        with ours, theirs:
            send(ours, {}, {"value": np.zeros(2)})
            _, arrays = receive(theirs)

        arrays["value"][0] = 1.0
        assert arrays["value"].tolist() == [1.0, 0.0]

    def test_a_message_needs_no_arrays(self) -> None:
        ours, theirs = Pipe()
        with ours, theirs:
            send(ours, {"done": "join"})

            assert receive(theirs) == ({"done": "join"}, {})


class TestEndThatIsGone:
    def test_receiving_ends(self) -> None:
        ours, theirs = Pipe()
        theirs.close()
        with ours, pytest.raises(EOFError):
            receive(ours)

    def test_sending_fails(self) -> None:
        ours, theirs = Pipe()
        theirs.close()
        with ours, pytest.raises(OSError, match="Broken pipe"):
            send(ours, {"order": "run"})
