# shellcheck shell=bash
# Redis Cluster of three masters on loopback: cluster-0, cluster-1, cluster-2. SLUICE_CLUSTER_REPLICAS=1 adds a replica
# for each (cluster-3 ...), for tests of a failover; unset means the shape of last time, so that `down` finds them all.

cluster_shape=$SLUICE_SERVERS_DIR/run/cluster.size
cluster_size=$(cat "$cluster_shape" 2>/dev/null || say 3)
[[ -z ${SLUICE_CLUSTER_REPLICAS:-} ]] || cluster_size=$((3 * (1 + SLUICE_CLUSTER_REPLICAS)))
cluster_replicas=$((cluster_size / 3 - 1))

cluster_packages() { redis_packages; }
cluster_install() {
  redis_install
  # another shape than last time: the nodes remember the old one in nodes.conf, so begin anew
  local shape unit
  shape=$(cat "$cluster_shape" 2>/dev/null || say "$cluster_size")
  if [[ $shape != "$cluster_size" ]]; then
    for ((unit = 0; unit < shape; unit++)); do
      end "cluster-$unit" TERM
      rm -rf "$(dir_of "cluster-$unit")"
    done
  fi
  say "$cluster_size" >"$cluster_shape"
}

cluster_units() {
  local i
  for ((i = 0; i < cluster_size; i++)); do say "cluster-$i"; done
}

cluster_port() { say $((CLUSTER_PORT + ${1#cluster-})); }

cluster_start() {
  local port
  port=$(cluster_port "$1")
  # full coverage off: one dead node must cost its own slots, not the cluster
  redis_spawn "$1" "$port" --appendonly no --maxmemory 128mb --cluster-enabled yes --cluster-config-file nodes.conf \
    --cluster-port $((port + 1000)) --cluster-node-timeout 2000 --cluster-require-full-coverage no \
    --cluster-replica-validity-factor 0 --repl-diskless-sync-delay 0
}

# Ready: the node answers, and its cluster does too if it has joined one.
cluster_ready() {
  local info
  info=$(redis_ask "$(cluster_port "$1")" cluster info 2>/dev/null) || return 1
  grep -qE '^cluster_(state:ok|known_nodes:1)' <<<"$info"
}

# cluster_setup joins fresh nodes. redis-cli returns before every node agrees, and for up to a second a node still lists
# a replica as a master, so it waits until each sees the whole.
cluster_setup() {
  local unit nodes=() try
  for unit in $(cluster_units); do nodes+=("127.0.0.1:$(cluster_port "$unit")"); done
  if redis_ask "$CLUSTER_PORT" cluster info | grep -q '^cluster_slots_assigned:0'; then
    redis-cli --cluster create "${nodes[@]}" --cluster-replicas "$cluster_replicas" --cluster-yes \
      </dev/null >"$(dir_of cluster-0)/create.log" 2>&1 || {
      complain "the cluster could not be created: $(tail -n 5 "$(dir_of cluster-0)/create.log")"
      return 1
    }
  fi
  for unit in $(cluster_units); do
    for ((try = 0; try < 400; try++)); do
      ! cluster_whole "$(cluster_port "$unit")" || continue 2
      sleep 0.05
    done
    complain "$unit does not see the whole cluster: $(redis_ask "$(cluster_port "$unit")" cluster nodes)"
    return 1
  done
}

cluster_whole() { # PORT
  local info nodes
  info=$(redis_ask "$1" cluster info | tr -d '\r') && nodes=$(redis_ask "$1" cluster nodes) || return 1
  grep -q '^cluster_state:ok$' <<<"$info" && grep -q "^cluster_known_nodes:$cluster_size\$" <<<"$info" &&
    grep -q '^cluster_slots_ok:16384$' <<<"$info" && ! grep -qE 'fail|handshake' <<<"$nodes" &&
    (($(grep -c slave <<<"$nodes" || true) == 3 * cluster_replicas))
}

cluster_stop() { end "$1" TERM; }
