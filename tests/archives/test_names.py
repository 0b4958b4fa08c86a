"""Names of an archive's files: plain relative paths, and a tree that is the same on every system."""

import pytest

from app.archives import ArchiveTooLarge, UnsafeArchive
from app.archives.names import Tree, check_name

GOOD = ("train.py", "a/b/c.txt", "a/", "ünïcode/日本.py", "with space", "-dash", ".hidden", "a..b", "..c", "x" * 255)


def tree(*names: str, limit: int = 100) -> Tree:
    made = Tree(limit)
    for name in names:
        check_name(name)
        made.add(name)
    return made


class TestOneName:
    @pytest.mark.parametrize("name", GOOD)
    def test_a_plain_relative_one_passes(self, name: str) -> None:
        assert tree(name).folders in ((), ("a",), ("a", "a/b"), ("ünïcode",))

    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("", "no name"),
            ("/", "absolute"),
            ("/etc/passwd", "absolute"),
            ("//host/share", "absolute"),
            ("../x", r"\.\."),
            ("a/../../x", r"\.\."),
            ("a/..", r"\.\."),
            ("../", r"\.\."),
            ("a//b", "empty part"),
            ("./a", "part '.'"),
            ("a/.", "part '.'"),
            ("a//", "empty part"),
            ("C:/x", "drive"),
            ("c:x", "drive"),
            ("a\\b", "backslash"),
            ("\\\\host\\share", "backslash"),
            ("a\0b", "cannot be seen"),
            ("a\nb", "cannot be seen"),
            ("a\x1b[2J", "cannot be seen"),
            ("a\x85b", "cannot be seen"),
            ("a\u2028b", "cannot be seen"),
            ("gpj.\u202etxt", "cannot be seen"),
            ("a\udc80b", "cannot be seen"),
            ("x" * 256, "too long a part"),
            ("é" * 128, "too long a part"),
            ("/".join(["x" * 100] * 11), "too long a name"),
            ("/".join(["d"] * 65), "too deep"),
        ],
    )
    def test_anything_else_is_named_with_the_reason(self, name: str, reason: str) -> None:
        with pytest.raises(UnsafeArchive, match=reason) as caught:
            check_name(name)
        assert caught.value.entry == name
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 400


class TestTogether:
    def test_folders_come_before_what_is_in_them(self) -> None:
        assert tree("a/b/x", "c/y", "a/z", "d/").folders == ("a", "a/b", "c", "d")

    @pytest.mark.parametrize(
        ("names", "reason"),
        [
            (("x", "x"), "there twice"),
            (("a/", "a/"), "there twice"),
            (("Train.py", "train.py"), "capitals"),
            (("a/x", "A/y"), "capitals"),
            (("a/", "A/"), "capitals"),
            (("straße", "STRASSE"), "capitals"),
            (("é", "e\u0301"), "capitals"),
            (("a", "a/b"), "which is a file"),
            (("A", "a/b"), "which is a file"),
            (("a/b", "a"), "a file and a folder"),
            (("a/", "a"), "a file and a folder"),
            (("a", "a/"), "which is a file"),
        ],
    )
    def test_two_that_could_be_one_are_refused(self, names: tuple[str, ...], reason: str) -> None:
        with pytest.raises(UnsafeArchive, match=reason) as caught:
            tree(*names)
        assert caught.value.entry == names[-1]

    @pytest.mark.parametrize("names", [("a/x", "a/"), ("a/", "a/x"), ("a/b/", "a/")])
    def test_a_folder_may_be_named_before_or_after_its_files(self, names: tuple[str, str]) -> None:
        assert tree(*names).folders[0] == "a"

    def test_folders_that_are_only_implied_count_too(self) -> None:
        deep = "/".join(str(level) for level in range(20))
        assert len(tree(deep, limit=20).folders) == 19
        with pytest.raises(ArchiveTooLarge, match="files and folders"):
            tree(deep, limit=19)
