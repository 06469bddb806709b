# shellcheck shell=bash
# Redis 7 from Debian: redis-limiter (counters, no persistence) and redis-stock (append-only file).
# Both refuse writes when full instead of evicting: an evicted counter or reservation would be forgotten silently.

redis_packages() { if ! have redis-server || ! have redis-cli; then say redis-server redis-tools; fi; }

redis_install() {
  [[ $(redis-server --version) == *' v=7.'* ]] || {
    complain "redis-server is not version 7: $(redis-server --version)"
    return 1
  }
}

redis_units() { say redis-limiter redis-stock; }

redis_port() { if [[ $1 == redis-limiter ]]; then say "$LIMITER_PORT"; else say "$STOCK_PORT"; fi; }

redis_start() {
  local appendonly=no
  [[ $1 != redis-stock ]] || appendonly=yes
  redis_spawn "$1" "$(redis_port "$1")" --appendonly "$appendonly" --appendfsync everysec --maxmemory 256mb
}

# redis_spawn UNIT PORT FLAG... : what the singles and the cluster nodes have in common.
redis_spawn() {
  local unit=$1 port=$2 dir
  shift 2
  dir=$(dir_of "$unit")
  # set-proc-title no: keeps the folder in the command line; enable-debug-command: tests make a server sleep by it
  spawn "$unit" redis-server --port "$port" --bind 127.0.0.1 --protected-mode yes --dir "$dir/" --save '' \
    --maxmemory-policy noeviction --set-proc-title no --enable-debug-command local "$@"
}

redis_ready() { redis_ask "$(redis_port "$1")" ping 2>/dev/null | grep -q PONG; }

redis_ask() { # PORT COMMAND...
  local port=$1
  shift
  timeout 2 redis-cli -h 127.0.0.1 -p "$port" "$@" </dev/null
}

redis_setup() { :; }
redis_stop() { end "$1" TERM; }
