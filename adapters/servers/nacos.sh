# shellcheck shell=bash disable=SC2034,SC2154 # here, archive: shared with lib.sh
# Nacos 2.3.2 from Maven, configuration part only: without service naming and raft it writes 4 MB instead of 450 MB and
# has half the threads. HTTP on the port, gRPC for clients 1000 above, gRPC for other servers 1001 above.

nacos_packages() {
  rocketmq_packages
  have curl || say curl
}

nacos_install() {
  local lib=$SLUICE_SERVERS_DIR/nacos
  maven_libs "$here/nacos/pom.xml" "$lib"
  [[ -f $lib/loopback.jar ]] || {
    java -cp "$lib/lib/*" "$here/nacos/Loopback.java" "$lib/loopback.jar.new"
    mv "$lib/loopback.jar.new" "$lib/loopback.jar"
  }
}

nacos_units() { say nacos; }
nacos_port() { say "$NACOS_PORT"; }

nacos_start() {
  local dir lib=$SLUICE_SERVERS_DIR/nacos archive archive_flag jars
  dir=$(dir_of "$1")
  mkdir -p "$dir/conf" "$dir/tmp"
  cp "$here/nacos/application.properties" "$dir/conf/"
  class_archive "$1"
  # The order matters. hessian-4.0.63 goes before hessian-3.3.6: both pack com.caucho.hessian and both are needed (the
  # other order does not start; without 3.3.6 the server answers, but no push ever leaves it). nacos-console goes before
  # nacos-naming: both pack an application.properties. So: the two, then the rest by name.
  jars=("$lib/loopback.jar" "$lib/lib/hessian-4.0.63.jar" "$lib"/lib/*.jar)
  CLASSPATH=$(IFS=: && say "${jars[*]}") \
    spawn "$1" java -Xms128m -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData "$archive_flag" \
    -Djava.net.preferIPv4Stack=true "-Djava.io.tmpdir=$dir/tmp" "-Duser.home=$dir" \
    -Dnacos.standalone=true -Dnacos.functionMode=config "-Dnacos.home=$dir" \
    "-Dspring.config.additional-location=file:$dir/conf/" com.alibaba.nacos.Nacos "--server.port=$NACOS_PORT"
}

nacos_ready() {
  [[ $(curl -s -m 2 "http://127.0.0.1:$NACOS_PORT/nacos/v1/console/health/readiness" 2>/dev/null) == OK ]]
}

nacos_setup() { :; }
nacos_stop() { end_java "$1" TERM; }

# seed pushes the rules that the service ships into a Nacos that has none. What somebody pushed stays.
seed() {
  local url="http://127.0.0.1:$NACOS_PORT/nacos/v1/cs/configs" id='dataId=sluice.rules&group=DEFAULT_GROUP'
  local rules=$SLUICE_SERVERS_DIR/rules.json try
  nacos_ready || {
    complain 'no rules pushed: Nacos is down'
    return 1
  }
  ! curl -s -f -m 5 -o /dev/null "$url?$id" || return 0
  if ! (cd "$here/../.." && go run ./app rules show --default) </dev/null >"$rules" 2>"$rules.log"; then
    complain "no rules pushed: 'go run ./app rules show --default' failed: $(tail -n 3 "$rules.log")"
    return 1
  fi
  curl -s -S -f -m 10 -o /dev/null -d dataId=sluice.rules -d group=DEFAULT_GROUP -d type=json \
    --data-urlencode "content@$rules" "$url" || {
    complain 'no rules pushed: Nacos refused them'
    return 1
  }
  for ((try = 0; try < 100; try++)); do # a read just after a publish may still find nothing
    if curl -s -f -m 5 "$url?$id" 2>/dev/null | cmp -s - "$rules"; then
      say 'the default rules are in Nacos (sluice.rules)'
      return 0
    fi
    sleep 0.05
  done
  complain 'the default rules were pushed, but Nacos does not give them back'
  return 1
}
