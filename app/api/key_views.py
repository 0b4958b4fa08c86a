"""The shapes of API keys on the wire."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.api.views import Moment, View

Permission = Literal["code"]


class KeyView(View):
    id: str
    object: Literal["key"]
    project: str
    user: str
    name: str
    role: Literal["viewer", "user", "admin"]
    permissions: list[Permission]
    hint: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class NewKeyView(KeyView):
    secret: str = Field(description="The key itself. It is shown this once and stored nowhere.")


class KeyRequest(BaseModel):
    """A new key. A project that does not exist yet is made."""

    model_config = ConfigDict(extra="forbid", strict=True)

    user: Annotated[str, Field(min_length=1, max_length=120, description="Whose key it is.", examples=["ada"])]
    name: Annotated[str, Field(min_length=1, max_length=120, description="To tell keys apart.", examples=["laptop"])]
    role: Annotated[
        Literal["viewer", "user", "admin"],
        Field(description="A viewer reads, a user also submits and cancels, an admin also manages keys and workers."),
    ] = "user"
    project: Annotated[str, Field(min_length=1, max_length=120, description="Default: your own project.")] | None = None
    expires_at: (
        Annotated[Moment, Field(description="RFC 3339. Default: never.", examples=["2030-01-31T00:00:00Z"])] | None
    ) = None
    permissions: Annotated[
        list[Permission],
        Field(max_length=8, description="`code`: may bring code along that workers run.", examples=[["code"]]),
    ] = []


class KeyChange(BaseModel):
    """What of a key can be changed: what it may besides its role."""

    model_config = ConfigDict(extra="forbid", strict=True)

    permissions: Annotated[
        list[Permission],
        Field(max_length=8, description="All that the key has from now on; `[]` takes all away.", examples=[["code"]]),
    ]
