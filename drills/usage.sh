# shellcheck shell=bash
# Listing the keys of a store together with good traffic.

# The keys of memory or of the Redis servers on these ports: stored PORT...
stored() {
    local port sum=0
    (($# > 0)) || { curl -sf "http://$http/metrics" | sed -nE 's/^weir_keys ([0-9]+)$/\1/p'; return; }
    for port in "$@"; do sum=$((sum + $(redis-cli -p "$port" DBSIZE))); done
    echo "$sum"
}

# The seconds of each first page, sorted, of a prefix or of all: pages PREFIX ROWS
pages() {
    for _ in {1..21}; do
        # A shared store is left alone for a while after each page.
        sleep 0.3
        curl -sf --json "{\"prefix\":[$1],\"pageSize\":$2}" -o /dev/null -w '%{time_total}\n' "http://$http/v1/admin/list_keys" || return 1
    done | sort -n
}

# The CPU time of all processes that keep the keys, in hundredths of a second: memory is the service's own.
keepers_time() {
    local one sum=0
    for one in ${redis:-$pid}; do sum=$((sum + $(cpu_time "$one"))); done
    echo "$sum"
}

# Fills a store whose servers are on these ports, and lists it together with good traffic: list_all
# NAME KEYS [PORT...]
list_all() {
    local name=$1 keys=$2 rows at first since took before used idle traffic seed=0 failed=
    shift 2
    local bench
    bench=$(dirname "$binary")/weir-bench
    until (($(stored "$@") >= keys)); do
        seed=$((seed + 1))
        # Among this many numbers hardly one is drawn twice.
        "$bench" --addr "$grpc" --call stream --streams 8 --window 64 --key 'user/{}/fill' --keys 1000000000000 --seed "$seed" \
            --summary-only --warmup 0s --duration "$((keys > 2000000 ? 30 : 3))s" --format json >"$dir/filled"
        grep -q '"errors":{"total":0,' "$dir/filled" || { cat "$dir/filled" >&2; return 1; }
    done
    for rows in 100 1000; do
        for at in '' '"user"'; do
            # In a condition, no command ends a function by failing.
            pages "$at" "$rows" >"$dir/pages" || { echo "no page is served" >&2; return 1; }
            first=$(sed -n 11p "$dir/pages")
            printf '%-8s first page of %4d rows, %-10s median %5.1f ms, worst of 21 %5.1f ms\n' "$name" "$rows" \
                "${at:+of a prefix}" "$(awk -v s="$first" 'BEGIN { print s * 1e3 }')" "$(awk 'END { print $1 * 1e3 }' "$dir/pages")"
            awk -v s="$first" -v rows="$rows" 'BEGIN { exit rows == 100 && s > 0.05 }' || { echo "over 50 ms" >&2; failed=1; }
        done
    done
    # The store's CPU time for good traffic alone.
    before=$(keepers_time)
    good 5 "$dir/quiet" || failed=1
    idle=$(($(keepers_time) - before))
    good 7200 "$dir/beside" &
    traffic=$!
    sleep 2
    before=$(keepers_time) since=$(date +%s%N)
    "$binary" usage --top 3 --addr "$grpc" >"$dir/top" || failed=1
    took=$((($(date +%s%N) - since) / 1000000)) used=$(($(keepers_time) - before))
    pkill -TERM -P "$traffic"
    wait "$traffic" || failed=1
    (($(wc -l <"$dir/top") == 4)) || { cat "$dir/top" >&2; failed=1; }
    awk -v name="$name" -v keys="$(stored "$@")" -v ms="$took" -v used="$used" -v idle="$idle" 'BEGIN {
        printf "%-8s weir usage over %d keys: %.1f s; CPU of the store %.0f %% of a core, with good traffic alone %.0f %%\n",
            name, keys, ms / 1e3, used * 1e3 / ms, idle / 6 }'
    printf '%-8s good traffic, p99 %s us alone, %s us beside the scan\n' "$name" "$(figure "$dir/quiet" p99)" "$(figure "$dir/beside" p99)"
    [[ -z $failed ]]
}

usage() {
    local keys=${DRILL_KEYS:-1000000} ports=() name servers cluster url failed=
    need redis-server redis-cli
    build weir-bench
    mkdir "$dir/limits"
    cat >"$dir/limits/default.yaml" <<'YAML'
schema:
  user: { children: { "*": { limits: [{ name: per-user, fixed_window: { count: 1000000000, period: 30d } }] } } }
YAML
    for name in ${DRILL_STORES:-memory Redis Cluster}; do
        if [[ $name == memory ]]; then
            serve WEIR_STORE__MAX_KEYS=$((2 * keys))
            list_all memory "$keys" || failed=1
            stop
            continue
        fi
        ports=() redis= servers=1 cluster=no
        [[ $name != Cluster ]] || servers=3 cluster=yes
        while ((${#ports[@]} < servers)); do
            ports+=("$(free_port)")
            mkdir "$dir/${ports[-1]}"
            redis-server --port "${ports[-1]}" --save "" --dir "$dir/${ports[-1]}" \
                --cluster-enabled "$cluster" >>"$dir/redis.log" &
            redis+=" $!"
            until redis-cli -p "${ports[-1]}" PING >/dev/null 2>&1; do
                running $redis
                sleep 0.05
            done
        done
        url=redis://127.0.0.1:${ports[0]}
        if [[ $cluster == yes ]]; then
            redis-cli --cluster create "${ports[@]/#/127.0.0.1:}" --cluster-yes >"$dir/cluster.log"
            until redis-cli -p "${ports[2]}" CLUSTER INFO | grep -q cluster_state:ok; do
                running $redis
                sleep 0.1
            done
            url=redis-cluster://127.0.0.1:${ports[0]}
        fi
        serve WEIR_STORE__URL="$url" WEIR_STORE__REDIS__COMMAND_TIMEOUT=1s
        list_all "$name" "$keys" "${ports[@]}" || failed=1
        stop
        kill $redis
        wait $redis || true
        redis=
    done
    [[ -z $failed ]]
}
