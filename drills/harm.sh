# shellcheck shell=bash
# Harm together with good traffic: abuse, attack and soak.

# Harm may raise the p99 of good traffic to this many times the p99 of a quiet time. Above the usual
# (3 to 8 times).
max_p99_times=10

# Harm together with good traffic for this many seconds, at least 30, and these attacks: harm
# SECONDS [ATTACK...]
harm() {
    local seconds=$1 at start third end most open
    shift
    ((seconds >= 30)) || { echo "DRILL_SECONDS is at least 30" >&2; return 1; }
    build weir-bench abuse attack
    ulimit -n "$(ulimit -Hn)"
    mkdir "$dir/limits"
    cat >"$dir/limits/default.yaml" <<'YAML'
schema:
  flood: { children: { "*": { limits: [9, 1, 3600] } } }
  user: { children: { "*": { limits: [{ gcra: { burst: 1000000000, count: 1000000, period: 1s } }] } } }
YAML
    # Real clients are on other machines: here the service has one core, and the clients have
    # another, of which harm gets the rest that good traffic leaves.
    local apart=() beside=()
    if (($(nproc) > 1)); then
        apart=(taskset -c 0)
        beside=(taskset -c 1)
    fi
    # Far fewer than the keys that arrive, so that memory is full before a third of the time.
    serve WEIR_STORE__MAX_KEYS=100000 WEIR_STORE__WHEN_FULL=evict
    local theirs=(${beside[@]+"${beside[@]}"} chrt --idle 0)
    good "$((seconds / 4 > 60 ? 60 : seconds / 4))" "$dir/quiet"
    start=$(resident)
    "${theirs[@]}" "$target/$profile/examples/abuse" --grpc "$grpc" --seconds "$seconds" >"$dir/done" &
    local harmful=($!) traffic name
    for name in "$@"; do
        "${theirs[@]}" "$target/$profile/examples/attack" "$name" --grpc "$grpc" --http "$http" --connections 20 \
            --seconds "$seconds" >"$dir/done.$name" &
        harmful+=($!)
    done
    good "$((seconds - 1))" "$dir/abused" &
    traffic=$!
    sleep $((seconds / 3))
    third=$(resident)
    wait "$traffic"
    end=$(resident)
    most=$(awk '/^VmHWM:/ { print $2 }' "/proc/$pid/status")
    for name in "${harmful[@]}"; do
        wait "$name" || { cat "$dir"/done*; return 1; }
    done
    cat "$dir/done"
    for name in "$@"; do
        printf '%s %s\n' "$(cat "$dir/done.$name")" "by $name"
    done
    for at in p50 p99 p99.9; do
        printf 'good traffic, %-6s %10s us quiet %10s us under abuse\n' "$at" "$(figure "$dir/quiet" "$at")" "$(figure "$dir/abused" "$at")"
    done
    printf 'memory: %d MB at the start, %d MB after a third, %d MB at the end, %d MB at most\n' \
        $((start / 1024)) $((third / 1024)) $((end / 1024)) $((most / 1024))
    # A tenth, and the buffers of the connections that are open at that moment.
    ((end <= third + third / 10 + 16384)) || { echo "memory grows" >&2; return 1; }
    ((most <= 150 * 1024)) || { echo "memory is above 150 MB" >&2; return 1; }
    awk -v quiet="$(figure "$dir/quiet" p99)" -v abused="$(figure "$dir/abused" p99)" -v times="$max_p99_times" \
        'BEGIN { exit !(quiet > 0 && abused <= times * quiet) }' ||
        { echo "p99 of good traffic is above $max_p99_times times the quiet one" >&2; return 1; }
    local deadline=$((SECONDS + 60))
    until open=$(curl -sf "http://$http/metrics" | sed -nE 's/^weir_connections\{listener="grpc"\} //p') && [[ $open == 0 ]]; do
        ((SECONDS < deadline)) || { echo "$open connections stay open" >&2; return 1; }
        sleep 0.5
    done
    stop
}

abuse() {
    harm "${DRILL_SECONDS:-60}"
}

attacks=(check stream health watch reflection unread unread-batches quotas bodies silent)

# How often a bound has met the attack, by metrics on standard input. Small answers that are not
# read meet none: for them it prints the number of checks beyond good traffic's. met NAME FIGURES
met() {
    local good
    if [[ $1 == unread ]]; then
        good=$(sed -E 's/.*"checks":([0-9]+),.*"not_measured":\{"before":([0-9]+),"warm_up":([0-9]+)\}.*/\1+\2+\3/' "$2")
        echo $(($(sum '^weir_checks_total') - (good)))
    else
        sum '^weir_(requests_rejected|connections_closed|rlqs_rejected)_total.*reason="(open|unread|evicted|full)"'
    fi
}

# One attack, or all, each on a separate service over Redis, together with good traffic.
attack() {
    local only=${1:-} seconds=${DRILL_SECONDS:-20} name told=0 bound=150 most failed settings computed
    build weir-bench attack
    ulimit -n "$(ulimit -Hn)"
    mkdir "$dir/limits"
    cat >"$dir/limits/default.yaml" <<'YAML'
schema:
  user: { children: { "*": { limits: [{ gcra: { burst: 1000000000, count: 1000000, period: 1s } }] } } }
YAML
    cat >"$dir/limits/quota.yaml" <<'YAML'
domain: quota
schema:
  user: { children: { "*": { limits: [{ token_bucket: { capacity: 1000, count: 1000, period: 1s } }] } } }
YAML
    local_redis
    for name in "${attacks[@]}"; do
        [[ -z $only || $name == "$only" ]] || continue
        told=1
        settings=(WEIR_STORE__URL="redis+unix://$dir/redis.sock" WEIR_STORE__REDIS__COMMAND_TIMEOUT=1s)
        # The many connections determine the worst case.
        [[ $name == silent ]] || settings+=(WEIR_GRPC__MAX_CONNECTIONS=128 WEIR_GRPC__MAX_OPEN_STREAMS=128
            WEIR_HTTP__MAX_CONNECTIONS=128 WEIR_STORE__MAX_KEYS=10000)
        [[ $name != quotas ]] || settings+=(WEIR_RLQS__DOMAINS=quota=user WEIR_RLQS__MAX_BUCKETS=10000)
        computed=$(env "${settings[@]}" "$binary" config check --limits "$dir/limits" |
            sed -nE 's/^ *([0-9]+) MB  in all$/\1/p')
        serve "${settings[@]}"
        nice -n 19 "$target/$profile/examples/attack" "$name" --grpc "$grpc" --http "$http" --seconds "$seconds" >"$dir/done" &
        local attacker=$!
        failed=
        good "$((seconds - 3))" "$dir/attacked" || failed=1
        curl -sf "http://$http/readyz" >/dev/null || { echo "the probe fails" >&2; failed=1; }
        wait "$attacker" || { cat "$dir/done"; return 1; }
        most=$(awk '/^VmHWM:/ { print $2 }' "/proc/$pid/status")
        (($(curl -sf "http://$http/metrics" | met "$name" "$dir/attacked") > 0)) || { echo "the attack has met no bound" >&2; failed=1; }
        printf '%-14s %s; good traffic: p99 %s us; memory at most %d MB, computed %d MB\n' \
            "$name" "$(xargs <"$dir/done")" "$(figure "$dir/attacked" p99)" $((most / 1024)) "$computed"
        ((most <= computed * 1024)) || { echo "memory is above what is computed" >&2; failed=1; }
        # Silent connections use their memory, up to grpc.max_connections.
        [[ $name != silent ]] || bound=400
        ((most <= bound * 1024)) || { echo "memory is above $bound MB" >&2; failed=1; }
        [[ -z $failed ]] || return 1
        stop
    done
    [[ $told == 1 ]] || { echo "no attack $only: ${attacks[*]}" >&2; return 1; }
}

# Without bodies, batches and answers that are not read: they take the core that all share here.
soak() {
    harm "${DRILL_SECONDS:-1200}" check stream health watch reflection silent
}
