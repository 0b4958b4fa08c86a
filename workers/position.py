"""The content of a checkpoint's state.json: where a training is, and what its decisions depend on."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Plain JSON, read strictly: no unknown keys, and no numbers that JSON does not have."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class Partial(Record):
    """An epoch that is under way: what its batches so far have summed up to.

    `steps` of them were made, over `rows` rows, in `seconds` of computing; `rate` was the last learning rate.
    """

    steps: int
    rows: int
    sums: list[float]
    seconds: float
    rate: float


class BestSoFar(Record):
    """The best epoch so far, by the monitored value, and its metrics."""

    value: float
    epoch: int
    step: int
    metrics: dict[str, float]


class PatienceState(Record):
    """Early stopping's memory: the value to beat by `min_delta`, and for how many epochs it was not."""

    reference: float | None
    waited: int


class Position(Record):
    """The content of state.json: where the training is, and all that its decisions depend on.

    `step`: steps made. `epoch`: complete epochs. `partial`: the epoch after those, when it is under way. `metrics`: the
    values of the last complete epoch. `plateau`: what the learning-rate schedule remembers. `stopped_early`: early
    stopping has ended the training, only the end of it is left. `spec_digest` and `framework` say whose checkpoint it
    is; `threads`, with how many it was computed, because torch's last bits depend on it.
    """

    step: int
    epoch: int
    partial: Partial | None = None
    metrics: dict[str, float]
    best: BestSoFar | None = None
    patience: PatienceState | None = None
    plateau: dict[str, float | int | None] | None = None
    stopped_early: bool = False
    framework: str
    threads: int
    spec_digest: str
