"""Programs of system call filters, run by an interpreter of classic BPF; what the kernel makes of them: test_sandbox.

The numbers of calls were taken from the kernel's own tables (arch/x86/entry/syscalls/syscall_64.tbl and
include/uapi/asm-generic/unistd.h); some are checked against what Python knows by another way.
"""

import errno
import os
import socket
import struct
from collections.abc import Sequence

import pytest

from workers import call_filter
from workers.call_filter import DANGEROUS, Line

ALLOW, REFUSE, UNKNOWN = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
COLUMN = {"x86_64": 0, "aarch64": 1}[os.uname().machine]


def verdict(rules: Sequence[Line], number: int, argument: int = 0) -> int:
    """What a filter answers to a call, by the machine of classic BPF; a call that no rule names is allowed."""
    data = struct.pack("<IIQQ", number, 0, 0, argument)  # seccomp_data: number, architecture, place, first argument
    accumulator, at = number, 0
    program = [*rules, (0x06, 0, 0, ALLOW)]
    while True:
        operation, if_true, if_false, value = program[at]
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif operation == 0x15:
            at += if_true if accumulator == value else if_false
        elif operation == 0x45:
            at += if_true if accumulator & value else if_false
        else:
            assert operation == 0x06, "an operation that this machine does not know"
            return value


class TestNoNetwork:
    @pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, socket.AF_PACKET])
    def test_sockets_of_other_families_are_refused(self, family: socket.AddressFamily) -> None:
        assert verdict(call_filter.no_network(), (41, 198)[COLUMN], family) == REFUSE

    def test_those_of_this_machine_are_allowed(self) -> None:
        assert verdict(call_filter.no_network(), (41, 198)[COLUMN], socket.AF_UNIX) == ALLOW

    def test_ring_that_could_open_some_is_refused(self) -> None:
        assert verdict(call_filter.no_network(), 425) == REFUSE

    def test_other_calls_are_allowed(self) -> None:
        assert verdict(call_filter.no_network(), (0, 63)[COLUMN]) == ALLOW  # read


class TestNoDangerousCalls:
    RULES = call_filter.no_dangerous_calls(unix_sockets_only=False)

    @pytest.mark.parametrize("name", sorted(DANGEROUS))
    def test_each_is_refused(self, name: str) -> None:
        assert verdict(self.RULES, DANGEROUS[name][COLUMN]) == REFUSE

    @pytest.mark.parametrize(
        "flag",
        [0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000, 0x80],
        ids=["mounts", "cgroups", "names", "ipc", "users", "pids", "networks", "time"],
    )
    def test_clone_makes_no_new_namespace(self, flag: int) -> None:
        """The flags are those of sched.h (clone(2))."""
        assert verdict(self.RULES, (56, 220)[COLUMN], flag | 17) == REFUSE

    def test_clone_makes_threads_and_processes(self) -> None:
        threads = 0x3D0F00  # what glibc's pthread_create gives
        assert verdict(self.RULES, (56, 220)[COLUMN], threads) == ALLOW
        assert verdict(self.RULES, (56, 220)[COLUMN], 17) == ALLOW

    def test_clone3_seems_not_to_be_there_so_that_libraries_take_clone(self) -> None:
        assert verdict(self.RULES, 435) == UNKNOWN

    def test_sockets_are_refused_only_where_nothing_else_shuts_off_the_network(self) -> None:
        number = (41, 198)[COLUMN]
        assert verdict(self.RULES, number, socket.AF_INET) == ALLOW
        assert verdict(call_filter.no_dangerous_calls(unix_sockets_only=True), number, socket.AF_INET) == REFUSE

    def test_no_number_is_there_twice(self) -> None:
        for column in (0, 1):
            numbers = [pair[column] for pair in DANGEROUS.values()]
            assert len(set(numbers)) == len(numbers)

    def test_it_fits_what_the_kernel_takes(self) -> None:
        assert len(self.RULES) < 4096  # BPF_MAXINSNS


def test_machine_that_we_do_not_know_has_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "host", "6.1", "1", "riscv64")))

    assert not call_filter.is_known()
