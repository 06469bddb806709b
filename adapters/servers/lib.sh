# shellcheck shell=bash disable=SC2034 # the variables are read by the files beside this one
# What every server script shares: folders, ports, starting, watching and stopping one process.
# Sourced by servers.sh, never run by itself.
#
# A "unit" is one process. Its folder, run/UNIT, holds its pid, its log and everything it writes, and its command line
# names that folder: this is how a pid file is checked before anything is done to the pid in it.

set -euo pipefail
export LC_ALL=C
umask 022 # user postgres must be able to search the folders made here

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# PostgreSQL refuses to run as root, so root starts it as user postgres, who cannot search /root (mode 0700).
if [[ -z ${SLUICE_SERVERS_DIR:-} ]]; then
  if ((EUID == 0)); then
    SLUICE_SERVERS_DIR=/var/cache/sluice-servers
  else
    SLUICE_SERVERS_DIR=${XDG_CACHE_HOME:-$HOME/.cache}/sluice-servers
  fi
fi
mkdir -p "$SLUICE_SERVERS_DIR/run"
SLUICE_SERVERS_DIR=$(cd "$SLUICE_SERVERS_DIR" && pwd)
export SLUICE_SERVERS_DIR

# An offset makes a second, independent set possible: another SLUICE_SERVERS_DIR and, say, offset 10000.
offset=${SLUICE_SERVERS_PORT_OFFSET:-0}
LIMITER_PORT=$((16379 + offset))
STOCK_PORT=$((16380 + offset))
CLUSTER_PORT=$((17000 + offset)) # and the next ones; the cluster bus is 1000 above
POSTGRES_PORT=$((15432 + offset))
NAMESRV_PORT=$((19876 + offset))
BROKER_PORT=$((20911 + offset)) # and 2 below
NACOS_PORT=$((18848 + offset))  # and 1000 and 1001 above, for gRPC

say() { printf '%s\n' "$*"; }
complain() { printf 'servers: %s\n' "$*" >&2; }
have() { command -v "$1" >/dev/null; }
dir_of() { printf '%s/run/%s\n' "$SLUICE_SERVERS_DIR" "$1"; }
now_ms() { printf '%s\n' $((${EPOCHREALTIME/./} / 1000)); }

# pid_of UNIT prints its pid if that process lives and is that server. A zombie has an empty command line.
pid_of() {
  local dir pid
  dir=$(dir_of "$1")
  pid=$(cat "$dir/pid" 2>/dev/null) || return 1
  [[ -n $pid && -r /proc/$pid/cmdline && $(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null) == *"$dir/"* ]] || return 1
  printf '%s\n' "$pid"
}

# spawn UNIT COMMAND... starts COMMAND detached: no terminal, no inherited lock (9), output in the unit's log.
# Every link of the chain execs, so the pid stays the one of the server.
spawn() {
  local unit=$1 dir
  shift
  dir=$(dir_of "$unit")
  mkdir -p "$dir"
  [[ ! -f $dir/log ]] || mv -f "$dir/log" "$dir/log.1"
  (cd "$dir" && exec setsid nohup "$@") </dev/null >"$dir/log" 2>&1 9>&- &
  printf '%s\n' $! >"$dir/pid"
}

# gone PID SECONDS waits until the kernel has forgotten the process: killed ones can stay zombies for a second or two,
# and PostgreSQL takes a zombie for a living predecessor.
gone() {
  local try
  for ((try = 0; try < $2 * 20; try++)); do
    [[ -d /proc/$1 ]] || return 0
    sleep 0.05
  done
  return 1
}

# end UNIT SIGNAL [SECONDS] sends SIGNAL, and KILL when that was not enough after SECONDS.
end() {
  local unit=$1 signal=$2 patience=${3:-10} pid child children
  pid=$(pid_of "$unit") || return 0
  children=$(cat "/proc/$pid/task/$pid/children" 2>/dev/null || true)
  kill -s CONT "$pid" 2>/dev/null || true # a paused server would not see the signal
  kill -s "$signal" "$pid" 2>/dev/null || true
  if ! gone "$pid" "$patience" && pid_of "$unit" >/dev/null; then
    complain "$unit did not end on SIG$signal within $patience s: killed"
    kill -s KILL "$pid" 2>/dev/null || true
    gone "$pid" 5 || true
  fi
  for child in $children; do gone "$child" 5 || true; done
  rm -f "$(dir_of "$unit")/pid"
}

# start_units UNIT... starts those that do not run, then waits for each and prints the line people look for.
start_units() {
  local unit family began
  began=$(now_ms)
  local -A state
  for unit in "$@"; do
    if pid_of "$unit" >/dev/null; then
      state[$unit]='already up'
    else
      family=$(family_of "$unit")
      if "${family}_ready" "$unit"; then
        complain "$unit is not running, yet somebody answers at $(address_of "$unit"): another SLUICE_SERVERS_DIR?"
        return 1
      fi
      state[$unit]='ready in'
      "${family}_start" "$unit"
    fi
  done
  for unit in "$@"; do await "$unit" "$began" "${state[$unit]}"; done
}

await() { # UNIT BEGAN_MS WORDS
  local unit=$1 began=$2 words=$3 family ms
  family=$(family_of "$unit")
  until "${family}_ready" "$unit"; do
    ms=$(($(now_ms) - began))
    if ! pid_of "$unit" >/dev/null; then
      lament "$unit" 'ended while starting'
      return 1
    elif ((ms > 90000)); then # a JVM beside a compiler on two cores takes 15 s
      lament "$unit" 'is not ready after 90 s'
      return 1
    fi
    sleep 0.05
  done
  ms=$(($(now_ms) - began))
  [[ $words == 'already up' ]] || words=$(printf '%s %d.%02d s' "$words" $((ms / 1000)) $((ms % 1000 / 10)))
  printf '%-16s %-18s %s\n' "$unit" "$(address_of "$unit")" "$words"
}

lament() { # UNIT WORDS
  complain "$1 $2; the end of $(dir_of "$1")/log:"
  tail -n 25 "$(dir_of "$1")/log" | sed 's/^/    /' >&2
}

# apt_install PACKAGE... installs by apt and makes sure that no service of these packages runs, now or after a reboot.
# A package that is already there is left alone.
apt_install() {
  (($# > 0)) || return 0
  local as=() policy=/usr/sbin/policy-rc.d failed=0
  if ((EUID != 0)); then
    if ! sudo -n true 2>/dev/null; then
      complain "missing Debian packages; as root: apt-get install --no-install-recommends $*"
      return 1
    fi
    as=(sudo -n)
  fi
  say "installing $* (log: $SLUICE_SERVERS_DIR/apt.log)"
  # policy-rc.d is Debian's switch for "install, do not start"; one that is there already is put back afterwards,
  # also the one of a run that was cut off
  [[ ! -f $policy || -f $policy.sluice-saved ]] || "${as[@]}" mv "$policy" "$policy.sluice-saved"
  printf '#!/bin/sh\nexit 101\n' | "${as[@]}" tee "$policy" >/dev/null
  "${as[@]}" chmod 755 "$policy"
  {
    "${as[@]}" apt-get update -q &&
      "${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
        install --no-install-recommends "$@"
  } </dev/null >"$SLUICE_SERVERS_DIR/apt.log" 2>&1 || failed=1
  if [[ -f $policy.sluice-saved ]]; then
    "${as[@]}" mv "$policy.sluice-saved" "$policy"
  else
    "${as[@]}" rm -f "$policy"
  fi
  if ((failed)); then
    complain "apt-get install $* failed; the end of its log:"
    tail -n 25 "$SLUICE_SERVERS_DIR/apt.log" | sed 's/^/    /' >&2
    return 1
  fi
  local package
  for package in "$@"; do
    case $package in
      redis-server) "${as[@]}" systemctl disable redis-server >/dev/null 2>&1 || true ;;
      postgresql-15) "${as[@]}" systemctl disable postgresql >/dev/null 2>&1 || true ;;
    esac
  done
}

# maven_libs POM DIR copies the jars that POM names into DIR, once per version of POM. One Maven at a time: two would
# only share the network, and Maven's local repository is not made for it.
maven_libs() {
  local pom=$1 dir=$2 work
  cmp -s "$pom" "$dir/pom.xml" && return 0
  work=$(mktemp -d "$SLUICE_SERVERS_DIR/maven.XXXXXX")
  cp "$pom" "$work/pom.xml"
  (
    flock 8
    mvn -B -q -ntp -f "$work/pom.xml" package </dev/null >"$work/log" 2>&1
  ) 8>"$SLUICE_SERVERS_DIR/maven.lock" || {
    complain "Maven could not fetch what $pom names; the end of its log:"
    tail -n 25 "$work/log" | sed 's/^/    /' >&2
    rm -rf "$work"
    return 1
  }
  rm -rf "$dir"
  mkdir -p "$dir"
  mv "$work/target/lib" "$dir/lib"
  cp "$pom" "$dir/pom.xml" # last: its presence says that the rest is whole
  rm -rf "$work"
}

# class_archive UNIT puts the JVM flag into the array archive_flag: use the class archive of this unit, or write one when
# the server ends by itself. With it a start takes a third less CPU. The name carries the JVM, which refuses others'.
class_archive() {
  local jvm
  jvm=$(stat -L -c %Y "$(command -v java)")
  archive=$SLUICE_SERVERS_DIR/$1-$jvm.jsa
  if [[ -f $archive ]]; then
    archive_flag=-XX:SharedArchiveFile=$archive
  else
    archive_flag=-XX:ArchiveClassesAtExit=$archive.new
  fi
}

# end_java UNIT SIGNAL ends it; the first time by SIGTERM and with patience, so that the class archive gets written.
end_java() {
  local archive archive_flag
  class_archive "$1"
  if [[ -f $archive ]]; then
    end "$1" "$2" 20
  else
    rm -f "$archive.new"
    end "$1" TERM 60
    [[ ! -s $archive.new ]] || mv "$archive.new" "$archive"
  fi
}
