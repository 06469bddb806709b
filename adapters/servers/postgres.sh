# shellcheck shell=bash
# PostgreSQL 15 from Debian, on a cluster of its own: database sluice, user sluice, loopback over TCP only.

postgres_bin=/usr/lib/postgresql/15/bin

postgres_packages() { [[ -x $postgres_bin/postgres ]] || say postgresql-15; }
postgres_units() { say postgres; }
postgres_port() { say "$POSTGRES_PORT"; }

# PostgreSQL refuses to run as root.
postgres_as=()
((EUID != 0)) || postgres_as=(setpriv --reuid postgres --regid postgres --init-groups --reset-env --)

postgres_install() {
  local dir
  dir=$(dir_of postgres)
  [[ ! -f $dir/data/PG_VERSION ]] || return 0
  rm -rf "$dir/data"
  mkdir -p "$dir/data"
  if ((EUID == 0)); then
    chown postgres: "$dir/data"
    "${postgres_as[@]}" test -x "$dir" || {
      complain "user postgres cannot search $dir: every folder above it must allow that (chmod o+x), or choose another SLUICE_SERVERS_DIR"
      return 1
    }
  fi
  # --no-sync: a half-made database after a power cut is made again, see above
  (cd "$dir" && "${postgres_as[@]}" "$postgres_bin/initdb" -D "$dir/data" -U sluice -A trust -E UTF8 \
    --locale=C.UTF-8 --no-sync >"$dir/initdb.log" 2>&1) || {
    complain "initdb failed: $(tail -n 10 "$dir/initdb.log")"
    rm -rf "$dir/data"
    return 1
  }
}

# The durability settings are the production ones on purpose: tests that measure or kill it must meet the real thing.
postgres_start() {
  local dir
  dir=$(dir_of "$1")
  spawn "$1" "${postgres_as[@]}" "$postgres_bin/postgres" -D "$dir/data" \
    -c "port=$POSTGRES_PORT" -c listen_addresses=127.0.0.1 -c unix_socket_directories= \
    -c shared_buffers=32MB -c max_connections=100 -c max_wal_size=256MB \
    -c fsync=on -c synchronous_commit=on -c timezone=UTC -c log_timezone=UTC
}

postgres_ready() { "$postgres_bin/pg_isready" -q -t 2 -h 127.0.0.1 -p "$POSTGRES_PORT" -U sluice -d postgres; }

postgres_setup() {
  local ask=("$postgres_bin/psql" -h 127.0.0.1 -p "$POSTGRES_PORT" -U sluice -d postgres -qAtX)
  [[ $("${ask[@]}" -c "select 1 from pg_database where datname='sluice'") == 1 ]] ||
    "${ask[@]}" -c 'create database sluice'
}

postgres_stop() { end "$1" INT; } # INT: fast shutdown, open connections are cut
