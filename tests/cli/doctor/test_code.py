"""What the doctor says of code that users bring along."""

import pytest

from tests.cli.doctor.planting import Host
from workers.sandbox import FILTER, NAMESPACE, USER_NAMESPACE


class TestNetwork:
    @pytest.mark.parametrize("means", [NAMESPACE, USER_NAMESPACE])
    def test_it_is_named_what_keeps_it_in(self, host: Host, means: str) -> None:
        host.isolation = means

        assert (
            host.examine()["code.network"].message == f"Code of users is kept from the network by a {means} of its own."
        )
        assert host.warnings() == {}

    def test_filter_alone_is_a_warning(self, host: Host) -> None:
        host.isolation = FILTER

        assert host.warnings().keys() == {"code.network"}
        assert "no loopback device" in host.warnings()["code.network"]

    def test_so_is_nothing_at_all(self, host: Host) -> None:
        host.isolation = None

        assert "environment_failed" in host.warnings()["code.network"]


class TestUsers:
    def test_each_way_is_told(self, host: Host) -> None:
        assert "TRAINSHED_TRAINER_UIDS" not in host.examine()["code.users"].message
        host.uid = 0
        assert "runs as root" in host.examine()["code.users"].message
        host.uid = 1000
        assert "the worker's own user" in host.examine()["code.users"].message

    def test_users_of_its_own(self, host: Host) -> None:
        host.uid = 0
        host.environ["TRAINSHED_TRAINER_UIDS"] = "20000-20255"

        assert "users of its own" in host.examine()["code.users"].message
