"""What of System V's objects belongs to a trainer's user; removing them needs root, and is tried in `users`."""

from pathlib import Path

from workers.user_memory import left_by

# As the kernel prints them (ipc/shm.c, msg.c, sem.c); the second segment was given to another user by its maker.
SHM = """       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime
         0          3  1666               1048576   100   100      0 20001 20001 20001 20001          0
         0          4  1666               1048576   100   100      0     0     0 20001 20001          0          0
"""
MSG = """       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid  cgid      stime      rtime
         0          7   666           0          0     0     0 20002 20002 20002 20002          0          0
"""
SEM = """       key      semid perms      nsems   uid   gid  cuid  cgid      otime      ctime
         0          9   666          1 20001 20001 20001 20001          0          0
"""


class TestLeftBy:
    def test_it_is_who_made_it_that_counts(self, tmp_path: Path) -> None:
        for name, text in {"shm": SHM, "msg": MSG, "sem": SEM}.items():
            (tmp_path / name).write_text(text)

        assert left_by(20_001, tmp_path) == [("shm", 3), ("shm", 4), ("sem", 9)]
        assert left_by(20_002, tmp_path) == [("msg", 7)]
        assert left_by(2_000, tmp_path) == []

    def test_kernel_without_them_has_none(self, tmp_path: Path) -> None:
        assert left_by(20_001, tmp_path) == []
