"""Until the database has the schema of this code, everything that needs it is told to come again."""

from anyio.to_thread import run_sync
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.auth import is_public
from app.api.errors import SchemaNotReady
from app.db import Database
from app.migrations_runner import SchemaState, schema_state


class SchemaGate:
    """Pure ASGI. In a deployment the API can be up before the migration is done; once it is, nothing is asked again."""

    def __init__(self, app: ASGIApp, database: Database) -> None:
        self.app = app
        self._database = database
        self._open = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._open and scope["type"] == "http" and not is_public(scope["path"]):
            state = await run_sync(self._look)
            self._open = state is SchemaState.CURRENT
            if not self._open:
                raise SchemaNotReady(state.message)
        await self.app(scope, receive, send)

    def _look(self) -> SchemaState:
        with self._database.read() as session:
            return schema_state(session)
