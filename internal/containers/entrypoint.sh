#!/bin/sh
# Makes a cluster where there is none and runs it, with the password of POSTGRES_PASSWORD.
set -eu
data=/var/lib/postgresql/data
run_as="setpriv --reuid=postgres --regid=postgres --clear-groups"
mkdir -p "$data" /var/run/postgresql
chown postgres:postgres "$data" /var/run/postgresql
chmod 700 "$data"
if [ ! -e "$data/PG_VERSION" ]; then
  printf '%s\n' "$POSTGRES_PASSWORD" >/tmp/password
  chown postgres:postgres /tmp/password
  $run_as initdb --pgdata="$data" --username=postgres --pwfile=/tmp/password --auth=scram-sha-256 \
    --encoding=UTF8 --locale=C --no-sync --no-instructions >/dev/null
  rm /tmp/password
  echo 'host all all all scram-sha-256' >>"$data/pg_hba.conf"
fi
exec $run_as postgres -D "$data" -k /var/run/postgresql -c listen_addresses='*'
