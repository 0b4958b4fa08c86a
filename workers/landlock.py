"""Landlock: a process shuts itself in, without any right, so that it reaches no process outside of what it starts.

Under it no signal gets to another process of the same user, no memory or environment of one can be read, no abstract
socket of the machine be connected to (from ABI 6 of the kernel on), and no device file be made. Everything else stays
as it is; a kernel without Landlock changes nothing. Linux; standard library only: the launcher imports this.
"""

import ctypes
import os
import struct
from typing import Final

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_VERSION_FLAG: Final = 1
_RULE_PATH_BENEATH: Final = 1

_MAKE_CHAR, _MAKE_BLOCK, _REFER = 1 << 6, 1 << 11, 1 << 13
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1 << 0, 1 << 1
_REFER_SINCE: Final = 2
"""Before it, a process under any ruleset could move no file from one folder to another."""
_SCOPES_SINCE: Final = 6


def version() -> int:
    """The kernel's version of Landlock; 0 without one."""
    return max(0, _call(_CREATE_RULESET, None, 0, _VERSION_FLAG))


def restrict() -> bool:
    """Shut this process in for good; False where the kernel cannot. It must be unable to get new privileges.

    Raises:
        OSError: the kernel said that it can, and then could not.
    """
    known = version()
    if known < _REFER_SINCE:
        return False
    scopes = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if known >= _SCOPES_SINCE else 0
    handled = struct.pack("QQQ", _MAKE_CHAR | _MAKE_BLOCK | _REFER, 0, scopes)
    # The attribute grew with the versions; an older kernel takes no more than it knows.
    ruleset = _checked(_call(_CREATE_RULESET, handled, len(handled) if scopes else 8, 0))
    try:
        root = os.open("/", os.O_PATH | os.O_CLOEXEC)
        try:
            _checked(_call(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, struct.pack("=Qi", _REFER, root), 0))
        finally:
            os.close(root)
        _checked(_call(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)
    return True


def _checked(answer: int) -> int:
    if answer < 0:
        raise OSError(ctypes.get_errno(), "Landlock could not be applied")
    return answer


def _call(number: int, *arguments: object) -> int:
    library = ctypes.CDLL(None, use_errno=True)
    return int(library.syscall(ctypes.c_long(number), *(_argument(argument) for argument in arguments)))


def _argument(value: object) -> object:
    return ctypes.c_long(value) if isinstance(value, int) else value
