"""The compose test looks every half second; its own tests do not wait for that."""

import pytest


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("engine", "stack"):
        monkeypatch.setattr(f"scripts.compose_test.{module}.LOOK_S", 0.01)
