# shellcheck shell=bash disable=SC2034,SC2154 # here, archive: shared with lib.sh
# RocketMQ 5.3.3 from Maven: rocketmq-namesrv and rocketmq-broker.

rocketmq_packages() {
  have javac || say openjdk-17-jdk-headless
  have mvn || say maven
}

rocketmq_install() {
  local lib=$SLUICE_SERVERS_DIR/rocketmq work
  maven_libs "$here/rocketmq/pom.xml" "$lib"
  (cd "$here/../.." && go build -o "$SLUICE_SERVERS_DIR/bin/rocketmqadmin" ./adapters/servers/rocketmqadmin/cmd)
  cp "$here/rocketmq/logback.xml" "$lib/logback.xml" # a running server must not depend on the tree
  [[ ! -f $lib/noha.jar ]] || return 0
  # a jar, not a folder: class data sharing refuses folders
  work=$(mktemp -d "$lib/noha.XXXXXX")
  mkdir -p "$work/META-INF/service"
  say NoHA >"$work/META-INF/service/org.apache.rocketmq.store.ha.HAService"
  CLASSPATH="$lib/lib/*" javac -proc:none -nowarn -d "$work" "$here/rocketmq/NoHA.java"
  jar cf "$work.jar" -C "$work" .
  mv "$work.jar" "$lib/noha.jar"
  rm -rf "$work"
}

rocketmq_units() { say rocketmq-namesrv rocketmq-broker; }

rocketmq_port() { if [[ $1 == rocketmq-namesrv ]]; then say "$NAMESRV_PORT"; else say "$BROKER_PORT"; fi; }

rocketmq_start() {
  local unit=$1 dir lib=$SLUICE_SERVERS_DIR/rocketmq archive archive_flag role
  dir=$(dir_of "$unit")
  mkdir -p "$dir/store" "$dir/tmp"
  class_archive "$unit"
  if [[ $unit == rocketmq-namesrv ]]; then
    printf '%s\n' "listenPort=$NAMESRV_PORT" bindAddress=127.0.0.1 >"$dir/conf"
    role=(-Xms64m -Xmx64m org.apache.rocketmq.namesrv.NamesrvStartup)
  else
    # started before its name server, a broker registers only 10 s later
    local try
    for ((try = 0; try < 600; try++)); do
      ! rocketmq_ready rocketmq-namesrv || break
      sleep 0.05
    done
    {
      cat "$here/rocketmq/broker.conf"
      printf '%s\n' "namesrvAddr=127.0.0.1:$NAMESRV_PORT" "listenPort=$BROKER_PORT" \
        "storePathRootDir=$dir/store" "storePathCommitLog=$dir/store/commitlog"
    } >"$dir/conf"
    role=(-Xms256m -Xmx256m -XX:MaxDirectMemorySize=128m
      --add-opens=java.base/java.nio=ALL-UNNAMED --add-opens=java.base/sun.nio.ch=ALL-UNNAMED
      --add-exports=java.base/jdk.internal.ref=ALL-UNNAMED
      org.apache.rocketmq.broker.BrokerStartup)
  fi
  # the class path travels in the environment: java expands lib/* there, and the command line stays readable
  ROCKETMQ_HOME=$dir CLASSPATH="$lib/noha.jar:$lib/lib/*" \
    spawn "$unit" env -u NAMESRV_ADDR java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss512k \
    -XX:MaxMetaspaceSize=128m -XX:ReservedCodeCacheSize=64m -XX:-UsePerfData -XX:+ExitOnOutOfMemoryError "$archive_flag" \
    -Djava.net.preferIPv4Stack=true -Dtls.server.mode=disabled "-Duser.home=$dir" "-Djava.io.tmpdir=$dir/tmp" \
    "-Drmq.logback.configurationFile=$lib/logback.xml" "${role[@]}" -c "$dir/conf"
}

rocketmq_ready() {
  if [[ $1 == rocketmq-namesrv ]]; then
    "$SLUICE_SERVERS_DIR/bin/rocketmqadmin" ready-namesrv "127.0.0.1:$NAMESRV_PORT" 2>/dev/null
  else
    "$SLUICE_SERVERS_DIR/bin/rocketmqadmin" ready "127.0.0.1:$NAMESRV_PORT" "127.0.0.1:$BROKER_PORT" 2>/dev/null
  fi
}

# The group's retry topic must exist beforehand, or the first retry of a message comes only after 39 s.
rocketmq_setup() {
  local admin=("$SLUICE_SERVERS_DIR/bin/rocketmqadmin")
  "${admin[@]}" topic "127.0.0.1:$NAMESRV_PORT" seckill_order 4
  "${admin[@]}" group "127.0.0.1:$NAMESRV_PORT" seckill_order_consumer
}

# KILL: on SIGTERM a broker takes 8 to 16 s, and the store survives (that it does is one of the things relied on).
rocketmq_stop() { end_java "$1" KILL; }
