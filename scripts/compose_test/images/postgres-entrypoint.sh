#!/bin/sh
# What the stack uses of the official entrypoint: an empty PGDATA becomes a cluster with POSTGRES_USER, POSTGRES_DB and
# the password from POSTGRES_PASSWORD_FILE. It becomes the server itself, so that signals reach it.
set -eu

[ "${1:-postgres}" = postgres ] || exec "$@"

if [ ! -s "$PGDATA/PG_VERSION" ]; then
    user=${POSTGRES_USER:-postgres}
    initdb --username="$user" --pwfile="$POSTGRES_PASSWORD_FILE" --auth-local=trust --auth-host=scram-sha-256 \
        --encoding=UTF8 --locale=C.UTF-8 >/dev/null
    echo 'host all all all scram-sha-256' >> "$PGDATA/pg_hba.conf"
    # On the socket alone until the database is there: over the network it would look ready too early.
    pg_ctl --wait -o "-c listen_addresses=''" start >/dev/null
    createdb --username="$user" "${POSTGRES_DB:-$user}"
    pg_ctl --wait stop >/dev/null
fi

shift || true
exec postgres -c listen_addresses='*' "$@"
