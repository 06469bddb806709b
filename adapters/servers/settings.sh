# shellcheck shell=bash
# What an instance of the service needs to run against these servers: addresses, keys, tokens.

keys=$SLUICE_SERVERS_DIR/keys

cluster_url() {
  local unit nodes=()
  for unit in $(cluster_units); do nodes+=("127.0.0.1:$(cluster_port "$unit")"); done
  say "redis+cluster://$(IFS=, && say "${nodes[*]}")"
}

postgres_url() { say "postgres://sluice:sluice@127.0.0.1:$POSTGRES_PORT/sluice?sslmode=disable"; }

# settings prints the service's settings for production mode. SLUICE_STOCK=cluster keeps the stock in the cluster.
settings() {
  make_keys
  local stock=redis://127.0.0.1:$STOCK_PORT
  case ${SLUICE_STOCK:-single} in
    single) ;;
    cluster) stock=$(cluster_url) ;;
    *) complain "SLUICE_STOCK is single or cluster, not $SLUICE_STOCK" && return 2 ;;
  esac
  setting SLUICE_LIMITER_REDIS "redis://127.0.0.1:$LIMITER_PORT"
  setting SLUICE_STOCK_REDIS "$stock"
  setting SLUICE_QUEUE rocketmq
  setting SLUICE_ROCKETMQ_NAME_SERVERS "127.0.0.1:$NAMESRV_PORT"
  setting SLUICE_ORDERS "$(postgres_url)"
  setting SLUICE_RULES_SOURCE nacos
  setting SLUICE_NACOS_SERVERS "127.0.0.1:$NACOS_PORT"
  setting SLUICE_TICKET_KEYS "$keys/ticket.json"
  setting SLUICE_NONCE_KEY "$keys/nonce.json"
  setting SLUICE_DRAW_KEY "$keys/draw.json"
  setting SLUICE_SESSION_KEYS "$keys/session.json"
  setting SLUICE_PAYMENT_KEY "$keys/payment.json"
  setting SLUICE_ADMIN_TOKENS "$keys/admin.tokens"
  setting SLUICE_ADMIN_TOKEN_FILE "$keys/admin.token"
  setting SLUICE_EDGE_TRUSTED_CIDRS 127.0.0.0/8,::1/128
}

# test_settings prints what package servers reads, whose names differ from the service's settings on purpose, and drops
# the latter: in a shell that has them, a test of an embedded instance would get a production instance.
test_settings() {
  settings | sed -n 's/^export \([A-Z_]*\)=.*/unset \1/p'
  setting SLUICE_TEST_LIMITER_REDIS "redis://127.0.0.1:$LIMITER_PORT"
  setting SLUICE_TEST_STOCK_REDIS "redis://127.0.0.1:$STOCK_PORT"
  setting SLUICE_TEST_CLUSTER_REDIS "$(cluster_url)"
  setting SLUICE_TEST_POSTGRES "$(postgres_url)"
  setting SLUICE_TEST_ROCKETMQ "127.0.0.1:$NAMESRV_PORT"
  setting SLUICE_TEST_NACOS "127.0.0.1:$NACOS_PORT"
  setting SLUICE_SERVERS_DIR "$SLUICE_SERVERS_DIR"
}

setting() { # NAME VALUE, quoted for any shell
  printf "export %s='%s'\n" "$1" "${2//\'/\'\\\'\'}"
}

# make_keys makes what is missing, readable by the owner alone; what exists stays, so that instances started at
# different times agree. In a subshell: the lock and the umask end with it.
make_keys() (
  umask 077
  mkdir -p "$keys"
  exec 7>"$keys/.lock"
  flock 7
  for name in ticket nonce draw session payment; do
    [[ -s $keys/$name.json ]] || keep "$keys/$name.json" \
      '{"keys":[{"kty":"oct","kid":"%s","alg":"HS256","use":"sig","k":"%s"}]}\n' "$name-$(random 6)" "$(random 32)"
  done
  [[ -s $keys/admin.token ]] || keep "$keys/admin.token" '%s' "$(random 32)"
  keep "$keys/admin.tokens" 'operator sha256:%s\n' "$(sha256sum <"$keys/admin.token" | cut -d' ' -f1)"
)

# keep FILE FORMAT WORD... writes a file whole or not at all.
keep() {
  local file=$1 format=$2
  shift 2
  # shellcheck disable=SC2059 # the formats are the ones above
  printf "$format" "$@" >"$file.new"
  mv "$file.new" "$file"
}

# random BYTES in base64url without padding, as JSON Web Keys want it.
random() { head -c "$1" /dev/urandom | base64 -w 0 | tr '+/' '-_' | tr -d '='; }
