# shellcheck shell=bash
# Services over Redis: failover and redis-speed.

# A fact of a Sentinel about the master: fact PORT NAME
fact() {
    redis-cli -p "$1" SENTINEL MASTER main | grep -x -A1 "$2" | tail -n 1
}

failover() {
    local rate=20000 units=1000000000 master replica port sentinels=() metrics answered degraded remaining lost
    need redis-server redis-cli
    build weir-bench
    mkdir "$dir/limits"
    cat >"$dir/limits/default.yaml" <<YAML
schema: { user: { children: { "*": { limits: [{ fixed_window: { count: $units, period: 30d } }] } } } }
YAML
    master=$(free_port)
    redis-server --port "$master" --save "" --dir "$dir" >"$dir/redis.log" &
    redis=$!
    replica=$(free_port)
    redis-server --port "$replica" --save "" --dir "$dir" --dbfilename replica.rdb --replicaof "127.0.0.1 $master" >>"$dir/redis.log" &
    redis+=" $!"
    for _ in 1 2 3; do
        port=$(free_port)
        printf 'port %d\nsentinel monitor main 127.0.0.1 %d 2\n' "$port" "$master" >"$dir/sentinel$port.conf"
        redis-server "$dir/sentinel$port.conf" --sentinel >>"$dir/redis.log" &
        redis+=" $!"
        sentinels+=("$port")
    done
    for port in "${sentinels[@]}"; do
        until [[ $(fact "$port" num-slaves 2>/dev/null) == 1 && $(fact "$port" num-other-sentinels) == 2 ]]; do
            running $redis
            sleep 0.2
        done
    done
    serve WEIR_STORE__URL="redis-sentinel://$(printf '127.0.0.1:%s,' "${sentinels[@]}" | sed 's/,$//')/main"
    "$(dirname "$binary")/weir-bench" --addr "$grpc" --rate "$rate" --connections 4 --streams 64 \
        --key user/alex --summary-only --warmup 0s --duration 8s --format json >"$dir/figures" &
    local load=$!
    sleep 3
    # redis-cli exits with 0 also if the server refuses.
    [[ $(redis-cli -p "${sentinels[0]}" SENTINEL FAILOVER main) == OK ]] || { echo "the Sentinel begins no failover" >&2; return 1; }
    wait "$load"
    grep -q '"errors":{"total":0,' "$dir/figures" || { cat "$dir/figures" >&2; echo "checks failed" >&2; return 1; }
    [[ $(fact "${sentinels[0]}" port) == "$replica" ]] || { echo "the replica was not promoted" >&2; return 1; }
    metrics=$(curl -sf "http://$http/metrics")
    answered=$(sum '^weir_checks_total.*outcome="allowed"' <<<"$metrics")
    degraded=$(sum '^weir_degraded_total' <<<"$metrics")
    remaining=$("$binary" check user alex --cost 0 --addr "$grpc" --json | sed -E 's/.*"remaining":"?([0-9]+).*/\1/')
    lost=$((answered - degraded - (units - remaining)))
    printf 'SENTINEL FAILOVER at %d checks a second: %d answered by the store, %d charges lost, %d degraded; p50 %s us, p99 %s us\n' \
        "$rate" $((answered - degraded)) "$lost" "$degraded" "$(figure "$dir/figures" p50)" "$(figure "$dir/figures" p99)"
    ((lost >= 0 && lost <= rate / 20 && degraded == 0)) || { echo "too many, or units that were charged twice" >&2; return 1; }
    stop
}

script_calls() {
    redis-cli -s "$dir/redis.sock" INFO commandstats | sed -nE 's/^cmdstat_evalsha:calls=([0-9]+).*/\1/p'
}

# One load on one store: a line of figures. Everything it sends passes, so that every check also writes.
measure() {
    local name=$1 store=$2 degraded figures calls=0 redis_before weir_before
    shift 2
    local url=memory
    [[ $store == memory ]] || url=redis+unix://$dir/redis.sock
    redis-cli -s "$dir/redis.sock" FLUSHALL >/dev/null
    serve WEIR_STORE__URL=$url WEIR_STORE__REDIS__COMMAND_TIMEOUT=1s
    redis-cli -s "$dir/redis.sock" CONFIG RESETSTAT >/dev/null
    redis_before=$(cpu_time "$redis") weir_before=$(cpu_time "$pid")
    figures=$("$@")
    local redis_used=$(($(cpu_time "$redis") - redis_before)) weir_used=$(($(cpu_time "$pid") - weir_before))
    calls=$(script_calls)
    local metrics checks
    metrics=$(curl -sf "http://$http/metrics")
    checks=$(sum '^weir_checks_total.*outcome="allowed"' <<<"$metrics")
    degraded=$(sum '^weir_degraded_total' <<<"$metrics")
    stop
    [[ $degraded == 0 ]] || { echo "$degraded answers were degraded" >&2; return 1; }
    local per_second=${figures#*per_second=}
    awk -v name="$name" -v store="$store" -v rate="${per_second%% *}" -v checks="$checks" -v redis="$redis_used" \
        -v weir="$weir_used" -v calls="${calls:-0}" -v rest="${figures#*per_second="${per_second%% *}"}" 'BEGIN {
            printf "%-14s %-7s %8d/s  weir %5.2f us  redis %5.2f us  script calls %.3f a check %s\n",
                name, store, rate, weir * 1e4 / checks, redis * 1e4 / checks, calls / checks, rest
            exit calls > checks / 2
        }'
}

# A closed loop of 512 callers for five seconds: its figures.
load() {
    "$target/release/weir-bench" --addr "$grpc" --summary-only --threads 2 --connections 8 --streams 64 \
        --warmup 0s --duration 5s --format json "$@" >"$dir/figures"
    sed -nE 's/.*"checks_per_s":([0-9.]+).*"p50":([0-9.]+).*"p99":([0-9.]+).*/per_second=\1 p50_us=\2 p99_us=\3/p' \
        "$dir/figures"
}

redis-speed() {
    cargo build --quiet --release --workspace --bin weir --bin weir-bench
    mkdir "$dir/limits"
    cat >"$dir/limits/default.yaml" <<'YAML'
schema:
  user:
    children:
      "*":
        limits: [{ gcra: { burst: 1000000000, count: 1000000, period: 1s } }]
        children: { trade: { limits: [{ token_bucket: { capacity: 1000000000, count: 1000000, period: 1s } }] } }
YAML
    local_redis
    local store
    for store in memory redis; do measure "calls, 1 key" $store load --call unary --key user/alex/trade; done
    for store in memory redis; do measure "calls, 100k" $store load --call unary --keys 100000; done
    for store in memory redis; do measure "streams, 1 key" $store load --call stream --window 1 --key user/alex/trade; done
    for store in memory redis; do measure "streams, 100k" $store load --call stream --window 1 --keys 100000; done
}
