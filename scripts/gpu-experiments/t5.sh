#!/usr/bin/env bash
# T5: a program with GPU state killed and restarted by ckpt, twice in a row, with the same pid and tids.
#
#   t5.sh FOLDER      of the programs built, with ckpt and libckpt.so
#
# First in place, with nobody killed: as the driver and the program alone can do it. Then `plain`: ckpt captures what the
# driver leaves; and `evict`: the driver's mappings of devices are replaced by reservations before.
set -u
bin=$(cd "$1" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/t5.XXXXXX") || exit 1
started=()
trap 'for pid in "${started[@]}"; do kill -9 "$pid" 2>/dev/null; done; rm -rf "$work"' EXIT

record() { sed "s/^/# $1: /"; }

# Waits until a command succeeds, for so many seconds.
within() {
    local seconds=$1 end
    shift
    end=$((SECONDS + seconds))
    until "$@"; do
        ((SECONDS < end)) || return 1
        sleep 0.05
    done
}

gone() { ! kill -0 "$1" 2>/dev/null; }

there_or_gone() { [ -e "$1" ] || gone "$2"; }

counted() { grep -q "^count $1\$" "$2/out"; }

in_place() { # WAY
    local dir=$work/in-place-$1
    mkdir "$dir"
    touch "$dir/go-20" "$dir/go-40"
    timeout -k 5 60 "$bin/t5_counter" "$1" "$dir" 20 40 60 >"$dir/out" 2>&1 </dev/null
    grep '^#' "$dir/out" | record "in place, $1"
    grep -q '^ended$' "$dir/out"
}

restarted() { # WAY
    local dir=$work/$1 pid stop restarter=none ckpt=$bin/ckpt
    mkdir "$dir"
    env LD_PRELOAD="$bin/libckpt.so" CKPT_DIR="$dir/store" CKPT_AGENT="$ckpt" \
        "$bin/t5_counter" "$1" "$dir" 20 40 60 >"$dir/out" 2>&1 </dev/null &
    pid=$!
    started+=("$pid")
    for stop in 20 40; do
        within 60 there_or_gone "$dir/ready-$stop" "$pid"
        if [ ! -e "$dir/ready-$stop" ]; then
            echo "# $1: stop $stop was not reached"
            tail -n 5 "$dir/out" | record "$1: output"
            return 1
        fi
        if ! timeout -k 5 60 "$ckpt" checkpoint "$pid" >"$dir/checkpoint-$stop" 2>&1; then
            record "$1: checkpoint at $stop" <"$dir/checkpoint-$stop"
            return 1
        fi
        record "$1: checkpoint at $stop" <"$dir/checkpoint-$stop"
        # In its second life it is the child of the first restart, which reaps it and ends.
        { kill -9 "$pid" && wait "$pid"; } 2>/dev/null
        within 20 gone "$pid" && within 20 gone "$restarter" || return 1
        timeout -k 5 120 "$ckpt" restart "$dir/store" >"$dir/restart-$stop" 2>&1 </dev/null &
        restarter=$!
        started+=("$restarter")
        touch "$dir/go-$stop"
        if ! within 60 counted $((stop + 1)) "$dir"; then
            record "$1: restart at $stop" <"$dir/restart-$stop"
            tail -n 5 "$dir/out" | record "$1: output"
            return 1
        fi
        echo "# $1: counts on from $stop"
    done
    within 60 grep -q '^ended$' "$dir/out"
    local status=$?
    grep '^#' "$dir/out" | record "$1"
    return $status
}

results=()
for way in plain evict; do
    if in_place $way; then results+=("in place $way: yes"); else results+=("in place $way: NO"); fi
done
passed=no
if [ -x "$bin/ckpt" ] && [ -e "$bin/libckpt.so" ]; then
    for way in plain evict; do
        if restarted $way; then
            results+=("restart $way: yes")
            passed=yes
        else
            results+=("restart $way: NO")
        fi
    done
else
    echo "# ckpt and libckpt.so are not in $bin: restarts not tried"
fi
text=$(printf '; %s' "${results[@]}")
if [ $passed = yes ]; then echo "T5 PASS ${text#; }"; else echo "T5 FAIL ${text#; }" && exit 1; fi
