#!/usr/bin/env bash
# The real servers on loopback, for development, tests and CI. README.md beside this file says more.
#
#   servers.sh up [NAME...]      install what is missing, start, prepare (cluster, database, topics, default rules)
#   servers.sh down [NAME...]    stop
#   servers.sh status [NAME...]  a table; exit 1 when any is down
#   servers.sh env               export lines for `sluice serve` in production mode
#   servers.sh test-env          export lines for Go tests (package servers)
#   servers.sh seed              push the default rules into Nacos when it has none
#   servers.sh start NAME...     start again, nothing else          for fault tests
#   servers.sh kill NAME...      kill -9                            for fault tests
#   servers.sh pause NAME...     SIGSTOP: accepts, never answers    for fault tests
#   servers.sh resume NAME...    SIGCONT                            for fault tests
#
# NAME is a family (redis, cluster, postgres, rocketmq, nacos) or one process of it (status lists them); none means all.

# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
for family in redis cluster postgres rocketmq nacos settings; do
  # shellcheck source=/dev/null
  source "$here/$family.sh"
done

FAMILIES=(redis cluster postgres rocketmq nacos)

family_of() { # UNIT
  local family
  for family in "${FAMILIES[@]}"; do
    [[ $1 == "$family" || $1 == "$family"-* ]] || continue
    say "$family"
    return 0
  done
  return 1
}

address_of() { # UNIT
  local family port
  family=$(family_of "$1")
  port=$("${family}_port" "$1")
  say "127.0.0.1:$port"
}

# units_of NAME... prints the processes meant, in the order in which they start.
units_of() {
  local name family unit wanted known
  (($# > 0)) || set -- "${FAMILIES[@]}"
  for name in "$@"; do
    family=$(family_of "$name") || {
      complain "no server is called $name; there are: ${FAMILIES[*]}"
      return 2
    }
    known=$("${family}_units")
    wanted=$known
    [[ $name == "$family" ]] || wanted=$name
    for unit in $wanted; do
      grep -qwF -- "$unit" <<<"$known" || {
        complain "no server is called $unit; $family has: ${known//$'\n'/ }"
        return 2
      }
      say "$unit"
    done
  done
}

families_of() { # UNIT...
  local unit
  for unit in "$@"; do family_of "$unit"; done | uniq
}

up() {
  local units packages=() family own unit jobs=() failed=0 job
  units=$(units_of "$@")
  # shellcheck disable=SC2086 # lists of words
  for family in $(families_of $units); do
    # shellcheck disable=SC2207
    packages+=($("${family}_packages"))
  done
  # shellcheck disable=SC2046
  apt_install $(printf '%s\n' "${packages[@]}" | sort -u)
  # shellcheck disable=SC2086
  for family in $(families_of $units); do
    (
      "${family}_install"
      own=()
      for unit in $units; do
        [[ $(family_of "$unit") != "$family" ]] || own+=("$unit")
      done
      start_units "${own[@]}"
      # prepare when the family is complete, not when a single process of it was asked for
      for unit in $("${family}_units"); do
        pid_of "$unit" >/dev/null || exit 0
      done
      "${family}_setup"
    ) &
    jobs+=($!)
  done
  for job in "${jobs[@]}"; do wait "$job" || failed=1; done
  return "$failed"
}

down() {
  local units family unit jobs=() job
  units=$(units_of "$@")
  # shellcheck disable=SC2086
  for family in $(families_of $units); do
    (
      for unit in $(printf '%s\n' $units | tac); do
        [[ $(family_of "$unit") != "$family" ]] || "${family}_stop" "$unit"
      done
    ) &
    jobs+=($!)
  done
  for job in "${jobs[@]}"; do wait "$job"; done
}

status() {
  local units unit family pid state memory failed=0
  units=$(units_of "$@")
  printf '%-16s %-18s %-7s %8s  %s\n' SERVER ADDRESS STATE PID MEMORY
  for unit in $units; do
    family=$(family_of "$unit") pid='-' memory='-' state=down
    if pid=$(pid_of "$unit"); then
      state=up
      "${family}_ready" "$unit" || state=unready
      memory=$(awk '/^VmRSS/ { printf "%d MB", $2 / 1024 }' "/proc/$pid/status" 2>/dev/null || true)
    fi
    [[ $state == up ]] || failed=1
    printf '%-16s %-18s %-7s %8s  %s\n' "$unit" "$(address_of "$unit")" "$state" "${pid:--}" "$memory"
  done
  return "$failed"
}

start() {
  local units
  units=$(units_of "$@")
  # shellcheck disable=SC2086
  start_units $units
}

# signal NAME SIGNAL for fault tests; kill -9 also waits until the process is gone.
signal() {
  local signal=$1 units unit pid
  shift
  units=$(units_of "$@")
  for unit in $units; do
    pid=$(pid_of "$unit") || {
      complain "$unit is not running"
      return 1
    }
    if [[ $signal == KILL ]]; then end "$unit" KILL; else kill -s "$signal" "$pid"; fi
  done
}

usage() {
  sed -n '2,/^$/ s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit 2
}

verb=${1:-}
shift || usage
case $verb in
  start | kill | pause | resume) (($# > 0)) || usage ;;
esac
case $verb in # two people in one tree: one after the other
  up | down | start | kill)
    exec 9>"$SLUICE_SERVERS_DIR/lock"
    flock -w 600 9
    ;;
esac
case $verb in
  up)
    up "$@"
    # not fatal: the servers are of use while the service does not build
    (($# > 0)) || seed || complain 'the servers are up, but an instance that reads its rules from Nacos will not start'
    ;;
  down) down "$@" ;;
  status) status "$@" ;;
  start) start "$@" ;;
  kill) signal KILL "$@" ;;
  pause) signal STOP "$@" ;;
  resume) signal CONT "$@" ;;
  env) settings ;;
  test-env) test_settings ;;
  seed) seed ;;
  *) usage ;;
esac
