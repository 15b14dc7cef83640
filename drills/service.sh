# shellcheck shell=bash
# What drills have in common: a service, good traffic, figures.

# Starts the release binary on free ports, with the policies in $dir/limits and the given settings; sets pid, grpc and http.
serve() {
    # Otherwise what the last one told might still be read.
    : >"$dir/log"
    ${apart[@]+"${apart[@]}"} env "$@" WEIR_GRPC__LISTEN=127.0.0.1:0 WEIR_HTTP__LISTEN=127.0.0.1:0 WEIR_LOG__FORMAT=json \
        WEIR_SHUTDOWN__DELAY=1ms "${DRILL_BINARY:-$target/release/weir}" serve --limits "$dir/limits" 2>"$dir/log" &
    pid=$!
    local line
    # The reader of the log ends when the service does, so this never waits for what cannot come.
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

# Good traffic of so many seconds: good SECONDS FILE
good() {
    ${beside[@]+"${beside[@]}"} "$(dirname "${DRILL_BINARY:-$target/release/weir}")/weir-bench" --addr "$grpc" --rate 2000 --connections 4 --streams 16 --keys 1000 --summary-only \
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
