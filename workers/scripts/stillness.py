"""Which entries of the checkpoint folder belong together, and are complete. Pure: the time is a parameter.

A script says nothing about its files, so they are looked at: what has not changed for two seconds is complete, and what
was written within two seconds of one another is one checkpoint. A script that says `{"checkpoint": "last.pt"}` is
believed at once.
"""

import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from workers.scripts.metrics import Standing
from workers.scripts.tree import Entry, File

QUIET_S: Final = 2.0
PATIENCE_S: Final = 30.0
"""How long complete entries wait for one that never rests, such as a log file in the folder."""
HASTE_S: Final = 6.0
"""How long one that never rests is waited for when each change is another file of that name: it was renamed to it."""
SMALL_BYTES: Final = 1024 * 1024
SMALL_TOGETHER_BYTES: Final = 16 * 1024 * 1024
_UNFINISHED: Final = (".tmp", ".part", ".partial", ".incomplete")
_NUMBER: Final = re.compile(r"\d+")


def is_wanted(name: str) -> bool:
    """Whether an entry can be part of a checkpoint: neither hidden nor named as unfinished."""
    return not name.startswith(".") and not name.endswith(_UNFINISHED)


@dataclass
class _Seen:
    """One entry, as the looks saw it. `standing`: where the script was when its last change was noticed.

    `replaced`: by its last change it became another file, as one that is written elsewhere and renamed does.
    """

    entry: Entry
    began_s: float
    changed_s: float
    standing: Standing
    taken: tuple[File, ...] | None = None
    announced: bool = False
    replaced: bool = False

    @property
    def is_new(self) -> bool:
        """Whether it has something that no checkpoint has."""
        return bool(self.entry.files) and self.entry.files != self.taken


class Watched:
    """What was seen of a folder so far. `quiet_s`, `patience_s` in seconds, on the same clock as the looks."""

    def __init__(self, *, quiet_s: float = QUIET_S, patience_s: float = PATIENCE_S) -> None:
        self._quiet_s = quiet_s
        self._patience_s = patience_s
        self._seen: dict[str, _Seen] = {}
        self._announced: dict[str, Standing] = {}

    def look(self, entries: Mapping[str, Entry], now_s: float, standing: Standing) -> None:
        """Take note of what is in the folder now."""
        for name in self._seen.keys() - entries.keys():
            del self._seen[name]
        for name, entry in entries.items():
            seen = self._seen.get(name)
            if seen is None:
                seen = self._seen[name] = _Seen(entry, now_s, now_s, standing)
            elif seen.entry.files != entry.files:
                seen.began_s = seen.began_s if seen.is_new else now_s
                seen.replaced = _is_another(seen.entry, entry)
                seen.entry, seen.changed_s, seen.standing, seen.announced = entry, now_s, standing, False
            if name in self._announced:
                seen.standing, seen.announced = self._announced.pop(name), True
        self._announced.clear()

    def announce(self, name: str, standing: Standing) -> None:
        """The script says that this entry is complete as the next look finds it."""
        self._announced[name] = standing

    def taken(self, names: Iterable[str]) -> None:
        """These entries, as the last look found them, are done with."""
        for name in names:
            seen = self._seen[name]
            seen.taken, seen.announced = seen.entry.files, False

    def ripe(self, now_s: float, *, all_of_them: bool = False) -> list[str]:
        """The names of new entries that are complete, in the order of their last change."""
        new = sorted((seen for seen in self._seen.values() if seen.is_new), key=lambda seen: seen.began_s)
        found: list[_Seen] = []
        for group in self._groups(new):
            rested = now_s - max(seen.changed_s for seen in group) >= self._quiet_s
            found += [
                seen
                for seen in group
                if all_of_them or rested or seen.announced or self._is_overdue(seen, now_s, alone=len(group) == 1)
            ]
        return [seen.entry.name for seen in sorted(found, key=lambda seen: seen.changed_s)]

    def _is_overdue(self, seen: _Seen, now_s: float, *, alone: bool) -> bool:
        """Whether it is taken though its group does not rest: complete for long, or complete whenever it is seen."""
        hasty = alone and seen.replaced and now_s - seen.began_s >= HASTE_S
        return hasty or now_s - seen.changed_s >= self._patience_s

    def restless(self, now_s: float) -> str | None:
        """The name of an entry that has changed all the time for so long that no checkpoint could be made of it."""
        waits = (seen for seen in self._seen.values() if seen.is_new and now_s - seen.began_s >= self._patience_s)
        return next((seen.entry.name for seen in waits if now_s - seen.changed_s < self._quiet_s), None)

    def _groups(self, new: list[_Seen]) -> list[list[_Seen]]:
        """Entries that were written together: each began within the rest of another that is among them."""
        groups: list[list[_Seen]] = []
        until_s = 0.0
        for seen in new:
            if groups and seen.began_s <= until_s + self._quiet_s:
                groups[-1].append(seen)
                until_s = max(until_s, seen.changed_s)
            else:
                groups.append([seen])
                until_s = seen.changed_s
        return groups

    def standing_of(self, names: Iterable[str]) -> Standing:
        """Where the script was when it last changed any of these."""
        return max((self._seen[name] for name in names), key=lambda seen: seen.changed_s).standing

    def entry(self, name: str) -> Entry:
        return self._seen[name].entry

    def companions(self, names: AbstractSet[str]) -> list[str]:
        """What lies unchanged beside new entries, and belongs to a checkpoint with all that the script would look for.

        Small entries, and of those whose names differ in numbers only (`step-10`, `step-20`) the newest, unless one of
        them is new.
        """
        old = [seen for name, seen in self._seen.items() if name not in names and seen.taken == seen.entry.files]
        old.sort(key=lambda seen: (max((file.modified_ns for file in seen.entry.files), default=0), seen.entry.name))
        newest = {_pattern(seen.entry.name): seen.entry.name for seen in old}
        kept = {newest[pattern] for pattern in newest.keys() - {_pattern(name) for name in names}}
        room = SMALL_TOGETHER_BYTES
        for seen in reversed(old):
            if seen.entry.name not in kept and seen.entry.size <= min(SMALL_BYTES, room):
                room -= seen.entry.size
                kept.add(seen.entry.name)
        return sorted(name for name in kept if self._seen[name].entry.files)


def _is_another(old: Entry, new: Entry) -> bool:
    if old.is_folder or new.is_folder or not (old.files and new.files):
        return False
    return old.files[0].inode != new.files[0].inode


def _pattern(name: str) -> str:
    return _NUMBER.sub("#", name)
