"""What the demo asks of the models that it trained: three rows, and the answers in the table's own labels."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table

from app.cli.client import Client
from app.cli.demo.outcome import Outcome
from app.cli.demo.plan import PENGUINS
from app.cli.figures import number
from app.cli.tables import table


@dataclass(frozen=True)
class Answer:
    """One prediction beside the truth."""

    job: str
    row: str
    label: str
    probability: float
    truth: str

    @property
    def passed(self) -> bool:
        return self.label == self.truth


def ask(client: Client, outcome: Outcome) -> Iterator[Answer]:
    """Predict the three penguins with the model of a trial; nothing for trials of other data."""
    if not outcome.trial.predict:
        return
    body = json.dumps({"rows": [row for _truth, row in PENGUINS], "timeout_s": 60}).encode()
    found = client.post(f"/v1/jobs/{outcome.job['id']}/predict", body)
    for (truth, row), label, shares in zip(PENGUINS, found["labels"], found["probabilities"], strict=True):
        told = (
            f"{row['island']}, bill {row['bill_length_mm']} × {row['bill_depth_mm']} mm, {row['sex'] or 'sex unknown'}"
        )
        yield Answer(outcome.trial.name, told, str(label), float(shares[label]), truth)


def answers_table(answers: Sequence[Answer]) -> Table:
    return table(
        ("model", "row", "predicted", "probability", "truth"),
        (
            (
                answer.job,
                answer.row,
                f"{answer.label} {'✓' if answer.passed else '✗'}",
                number(answer.probability),
                answer.truth,
            )
            for answer in answers
        ),
        title="Predictions",
    )
