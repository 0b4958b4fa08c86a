"""Who may do what: projects, API keys, and the principal behind a request.

InvalidAccount   a name, a user, an expiry or a permission that cannot be
LastAdminKey     revoking this key would lock everybody out
CodeNotAllowed   the key lacks the permission to bring code along
"""

import hmac
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, Final

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from app.accounts import keys
from app.accounts.models import ApiKey, Project
from app.db import lock_key
from app.errors import Conflict, NotFound, TrainshedError
from app.ids import new_id
from app.spec import SpecProblem

_ACCOUNTS_LOCK: Final = 7_301_010
_NAME_LIMIT: Final = 120
CODE: Final = "code"
PERMISSIONS: Final = (CODE,)
"""What a key may besides its role. No role has any of it by itself, an admin's neither."""

FIRST_PROJECT: Final = "default"
FIRST_USER: Final = "admin"


class Role(StrEnum):
    """What a key may do; each role may do everything that the ones before it may."""

    VIEWER = "viewer"
    USER = "user"
    ADMIN = "admin"

    def covers(self, needed: "Role") -> bool:
        """Whether a key with this role may do what asks for `needed`; `<` would compare the letters of the words."""
        return _RANK[self] >= _RANK[needed]


_RANK: Final = {Role.VIEWER: 0, Role.USER: 1, Role.ADMIN: 2}


@dataclass(frozen=True)
class Principal:
    """Whose request this is: a user in a project, with a role. Plain values, so it outlives the session."""

    key_id: str
    project_id: str
    project: str
    user: str
    role: Role
    permissions: frozenset[str] = frozenset()

    def may(self, permission: str) -> bool:
        """Whether the key has the permission, whatever its role; KeyError for one that does not exist."""
        if permission not in PERMISSIONS:
            raise KeyError(permission)
        return permission in self.permissions


class InvalidAccount(TrainshedError):
    """`problems` has one entry, with the field's pointer in the posted body."""

    code: ClassVar[str] = "invalid_request"

    def __init__(self, field: str, message: str, example: str) -> None:
        self.problems = [SpecProblem(f"/{field}", message, example)]
        super().__init__(f"{field}: {message}")


class LastAdminKey(Conflict):
    def __init__(self, key_id: str) -> None:
        super().__init__(
            f"'{key_id}' is the last admin key that works; make another admin key first, then revoke this one."
        )
        self.key_id = key_id


class CodeNotAllowed(TrainshedError):
    """Code of users runs as programs on the workers' hosts, so a key may bring it along only when somebody said so."""

    code: ClassVar[str] = "code_not_allowed"

    def __init__(self, key_id: str) -> None:
        super().__init__(
            "This needs a key with the permission 'code'; yours does not have it. An admin gives it with "
            f"`trainshed key permit {key_id} code` on the server's host, or with PATCH /v1/keys/{key_id} and "
            '{"permissions": ["code"]}.'
        )
        self.required_permission = CODE


def authenticate(session: Session, secret: str, now: datetime) -> Principal | None:
    """The principal of a key, or None when it does not work (now). What is no key costs no query."""
    if not keys.is_well_formed(secret):
        return None
    digest = keys.digest(secret)
    row = session.execute(select(ApiKey, Project.name).join(Project).where(ApiKey.digest == digest)).one_or_none()
    if row is None:
        return None
    key, project = row
    # The comparison that counts is this one, not the database's, whose collation and timing are not ours.
    if not hmac.compare_digest(key.digest, digest) or not _works(key, now):
        return None
    return Principal(key.id, key.project_id, project, key.user, Role(key.role), frozenset(key.permissions))


def create_key(
    session: Session,
    *,
    project: str,
    user: str,
    name: str,
    role: Role,
    now: datetime,
    expires_at: datetime | None = None,
    permissions: Iterable[str] = (),
) -> tuple[ApiKey, str]:
    """Make a key; the second value is its text, which cannot be read again later. An unknown project is made too.

    Raises:
        InvalidAccount: a name is empty, too long or has control characters, `expires_at` has passed, or a permission
            does not exist.
    """
    granted = _permissions(permissions)
    owner = _checked("user", user, "ada")
    label = _checked("name", name, "laptop")
    if expires_at is not None and expires_at <= now:
        raise InvalidAccount("expires_at", "This time has passed; a key must work at first.", "2030-01-01T00:00:00Z")
    home = find_or_create_project(session, project, now)
    text = keys.new_key()
    key = ApiKey(
        id=new_id("key"),
        project_id=home.id,
        user=owner,
        name=label,
        role=role.value,
        permissions=granted,
        hint=text.hint,
        digest=keys.digest(text.text),
        created_at=now,
        expires_at=expires_at,
    )
    session.add(key)
    session.flush()
    return key, text.text


def first_key(session: Session, now: datetime, permissions: Iterable[str] = ()) -> str | None:
    """The text of the first admin key, made when there is no key at all; None when there is one.

    Of several processes that ask at once exactly one gets a key.
    """
    lock_key(session, _ACCOUNTS_LOCK)
    if session.scalar(select(ApiKey.id).limit(1)) is not None:
        return None
    made = create_key(
        session,
        project=FIRST_PROJECT,
        user=FIRST_USER,
        name="first key",
        role=Role.ADMIN,
        now=now,
        permissions=permissions,
    )
    return made[1]


def find_or_create_project(session: Session, name: str, now: datetime) -> Project:
    """The project of that name. Two requests that name a new one at once get the same row."""
    wanted = _checked("project", name, FIRST_PROJECT)
    lock_key(session, _ACCOUNTS_LOCK)
    found = session.scalar(select(Project).where(Project.name == wanted))
    if found is None:
        found = Project(id=new_id("prj"), name=wanted, created_at=now)
        session.add(found)
        session.flush()
    return found


def list_keys(
    session: Session, *, after: str | None = None, limit: int = 50, descending: bool = True
) -> list[tuple[ApiKey, str]]:
    """A page of all keys with the name of their project, by id, which is by time; revoked ones too."""
    query = select(ApiKey, Project.name).join(Project)
    if after is not None:
        query = query.where(ApiKey.id < after if descending else ApiKey.id > after)
    query = query.order_by(ApiKey.id.desc() if descending else ApiKey.id.asc()).limit(limit)
    return [(key, project) for key, project in session.execute(query)]


def revoke_key(session: Session, key_id: str, now: datetime) -> ApiKey:
    """Make a key stop working at once; again is harmless, and keeps the first time.

    Raises:
        NotFound: there is no such key.
        LastAdminKey: it is the last admin key that works.
    """
    lock_key(session, _ACCOUNTS_LOCK)
    key = session.get(ApiKey, key_id)
    if key is None:
        raise NotFound("key", key_id)
    if key.revoked_at is not None:
        return key
    if key.role == Role.ADMIN and _works(key, now) and _other_admins(session, key_id, now) == 0:
        raise LastAdminKey(key_id)
    key.revoked_at = now
    session.flush()
    return key


def permit_key(session: Session, key_id: str, permissions: Iterable[str]) -> tuple[ApiKey, str]:
    """Give a key just these permissions; the second value is the name of its project.

    Raises:
        NotFound: there is no such key.
        InvalidAccount: a permission does not exist.
        Conflict: the key is revoked, so nothing can be given to it any more.
    """
    granted = _permissions(permissions)
    lock_key(session, _ACCOUNTS_LOCK)
    key = session.get(ApiKey, key_id)
    if key is None:
        raise NotFound("key", key_id)
    if key.revoked_at is not None:
        raise Conflict(f"Key '{key_id}' is revoked; make a new one with these permissions.")
    key.permissions = granted
    session.flush()
    return key, session.scalars(select(Project.name).where(Project.id == key.project_id)).one()


def _permissions(asked: Iterable[str]) -> list[str]:
    """Each once, in our own order."""
    wanted = list(asked)
    for permission in wanted:
        if permission not in PERMISSIONS:
            known = ", ".join(f"'{name}'" for name in PERMISSIONS)
            raise InvalidAccount("permissions", f"'{permission[:40]}' is no permission; known: {known}.", '["code"]')
    return [name for name in PERMISSIONS if name in wanted]


def _works(key: ApiKey, now: datetime) -> bool:
    return key.revoked_at is None and (key.expires_at is None or key.expires_at > now)


def _other_admins(session: Session, key_id: str, now: datetime) -> int:
    query = select(func.count()).where(
        ApiKey.role == Role.ADMIN.value,
        ApiKey.id != key_id,
        ApiKey.revoked_at.is_(None),
        or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > now),
    )
    return session.scalar(query) or 0


def _checked(field: str, value: str, example: str) -> str:
    text = value.strip()
    if not text or len(text) > _NAME_LIMIT:
        raise InvalidAccount(field, f"This needs 1 to {_NAME_LIMIT} characters; it has {len(text)}.", example)
    if any(unicodedata.category(character).startswith("C") for character in text):
        raise InvalidAccount(field, "Control and direction characters are not allowed in a name.", example)
    return text
