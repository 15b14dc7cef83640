# shellcheck shell=bash
# Shared by the drills: a service, good traffic, figures.

# Fails if a tool is missing: need TOOL...
need() {
    local tool
    for tool in "$@"; do
        command -v "$tool" >/dev/null || { echo "$tool is missing; this drill needs $*" >&2; return 1; }
    done
}

# Builds weir, weir-bench if it is named, and examples. With DRILL_BINARY only the examples, which
# need not be fast there: build [weir-bench] [EXAMPLE...]
build() {
    local binaries=(--bin weir)
    [[ ${1:-} != weir-bench ]] || { binaries=(--workspace --bin weir --bin weir-bench); shift; }
    if [[ -z ${DRILL_BINARY:-} ]]; then
        cargo build --quiet --release "${binaries[@]}" "${@/#/--example=}"
    elif (($# > 0)); then
        cargo build --quiet "${@/#/--example=}"
    fi
}

# Fails, with the log of Redis, unless all of these processes run: running PID...
running() {
    local server
    for server; do
        kill -0 "$server" 2>/dev/null || { cat "$dir/redis.log" >&2; echo "Redis has ended" >&2; return 1; }
    done
}

# Starts a Redis on $dir/redis.sock; sets redis.
local_redis() {
    need redis-server redis-cli || return 1
    redis-server --port 0 --unixsocket "$dir/redis.sock" --save "" --dir "$dir" >"$dir/redis.log" &
    redis=$!
    until redis-cli -s "$dir/redis.sock" PING >/dev/null 2>&1; do
        running "$redis" || return 1
        sleep 0.05
    done
}

# Starts the service on free ports, with the policies in $dir/limits and the given settings; sets pid, grpc and http.
serve() {
    # Otherwise the address of the last one might still be read.
    : >"$dir/log"
    ${apart[@]+"${apart[@]}"} env "$@" WEIR_GRPC__LISTEN=127.0.0.1:0 WEIR_HTTP__LISTEN=127.0.0.1:0 WEIR_LOG__FORMAT=json \
        WEIR_SHUTDOWN__DELAY=1ms "$binary" serve --limits "$dir/limits" 2>"$dir/log" &
    pid=$!
    local line
    # The reader of the log ends when the service does, so this never waits forever.
    line=$(grep -m1 '"message":"serving"' < <(tail -n +1 -F --pid="$pid" "$dir/log" 2>/dev/null)) || {
        cat "$dir/log" >&2
        return 1
    }
    grpc=$(sed -E 's/.*"grpc":"([^"]*)".*/\1/' <<<"$line")
    http=$(sed -E 's/.*"http":"([^"]*)".*/\1/' <<<"$line")
}

stop() {
    if [[ -n ${pid:-} ]]; then
        kill -TERM "$pid" 2>/dev/null || true
        wait "$pid" || true
        pid=
    fi
}

# The value of a figure in the report of a load: figure FILE NAME
figure() {
    sed -E "s/.*\"latency_us\":\{([^}]*)\}.*/\1/; s/.*\"$2\":([0-9.]+).*/\1/" "$1"
}

# Good traffic for this many seconds: good SECONDS FILE
good() {
    ${beside[@]+"${beside[@]}"} "$(dirname "$binary")/weir-bench" --addr "$grpc" --rate 2000 --connections 4 --streams 16 --keys 1000 --summary-only \
        --warmup 1s --duration "$1s" --format json >"$2"
    grep -q '"errors":{"total":0,' "$2" || { cat "$2" >&2; echo "good traffic has met errors" >&2; return 1; }
}

resident() {
    awk '/^VmRSS:/ { print $2 }' "/proc/$pid/status"
}

free_port() {
    local port
    while port=$((20000 + RANDOM % 12000)) && (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
    echo "$port"
}

# The sum of the samples on standard input whose names and labels match: sum PATTERN
sum() {
    awk -v pattern="$1" '$1 ~ pattern { sum += $2 } END { printf "%d", sum }'
}

# The CPU time that a process has used so far, in hundredths of a second.
cpu_time() {
    awk '{ print $14 + $15 }' "/proc/$1/stat"
}
