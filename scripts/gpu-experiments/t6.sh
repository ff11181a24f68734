#!/usr/bin/env bash
# T6: does a preloaded hook on the driver's interface see every byte of device memory that a program allocates,
# whichever way the program reaches the driver?
#
#   t6.sh FOLDER      of the programs that t6_build.sh made
#
# Runs each program under the hooks, and compares phase by phase what the hooks counted with what the driver says is
# gone. Prints a record and as its last line "T6 PASS ..." or "T6 FAIL ..."; exits 0 or 1. Ends within three minutes.
# With a folder RECORD, leaves the programs' output and the hooks' reports there.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -ne 1 ] || ! cd "$1" 2>/dev/null; then
    echo "T6 FAIL usage: t6.sh FOLDER of the programs that t6_build.sh made"
    exit 1
fi
programs=$PWD
# Others that write such reports may take their place: libraries for LD_PRELOAD.
hooks=${T6_HOOKS:-$programs/t6_hooks.so}
# shellcheck source=scripts/gpu-experiments/t6_find.sh
. "$here/t6_find.sh"

program_limit_s=60
total_limit_s=165
work=$(mktemp -d) || { echo "T6 FAIL no temporary folder"; exit 1; }
trap 'rm -rf "$work"' EXIT

note() { echo "# $*"; }
skip() {
    skips+=("$1 ($2)")
    note "$1: skipped, $2"
}
fail() {
    failures+=("$1: $2")
    note "$1: $2"
}

failures=()
skips=()
agreeing=0
compared=0
programs_run=0
worst=0   # MiB that a phase is off by, and that a program's first phases leave behind unseen.
besides=0

# Runs `$2 ...` as `$1` with the hooks in it, and nothing else of ours. T6_BLIND and LD_LIBRARY_PATH of the program come
# as assignments before it.
run_hooked() {
    local name=$1 limit=$((total_limit_s - SECONDS))
    shift
    if [ "$limit" -gt "$program_limit_s" ]; then limit=$program_limit_s; fi
    if [ "$limit" -lt 5 ]; then return 124; fi
    : >"$work/$name.report"
    timeout -k 5 "$limit" env LD_PRELOAD="$hooks" T6_REPORT="$work/$name.report" "$@" \
        >"$work/$name.out" 2>"$work/$name.err" </dev/null
}

keep_record() {
    local file
    if [ -n "${RECORD:-}" ] && [ -d "$RECORD" ]; then
        for file in "$work/$1".*; do cp "$file" "$RECORD/t6-${file##*/}" || note "$1: no copy in $RECORD"; done
    fi
}

# Compares the program's lines with the hooks' report. Writes the record, and last a line
# "verdict AGREEING COMPARED WORST_MIB BESIDES_MIB [PHASE THAT DISAGREES...]".
#   phase P from A to B taken N slack N kept N kind K asked N    (the program)
#   live PA device N managed N host N pool N vmm N graph N array N    (the hooks)
# Of a phase, with the differences between the reports PA and PB:
#   what the hooks saw of the kind is at least what the program asked for;
#   nothing is gone that they did not see: taken <= all they saw, with managed memory and memory of graphs, which need
#   not be in the device;
#   nothing they saw is not gone: taken >= what is in the device for sure, less what the driver had kept of the first
#   time. A graph's own phase has launched it, so that its memory is there.
compare() {
    awk -v program="$1" '
    function mib(bytes) { return sprintf("%.1f", bytes / 1048576) }
    function delta(from, to, kind) { return live[to, kind] - live[from, kind] }
    function device_delta(from, to) {
        return delta(from, to, "device") + delta(from, to, "pool") + delta(from, to, "vmm") + delta(from, to, "array")
    }
    function entries_between(from, to,    i, name, calls, text) {
        text = ""
        for (i = 1; i <= entry_count; i++) {
            name = entries[i]
            calls = entry_calls[to, name] - entry_calls[from, name]
            if (calls > 0)
                text = text "; " name " " calls " x " mib(entry_bytes[to, name] - entry_bytes[from, name]) " MiB"
        }
        return text
    }
    function judge(name, from, to, taken, slack, kept, kind, asked,    sure, most, off, why) {
        phases++
        if (!((name from, "device") in live) || !((name to, "device") in live)) {
            print "# " program " " name to ": the hooks gave no report: DISAGREES"
            bad = bad " " name to
            return
        }
        sure = device_delta(name from, name to)
        most = sure + delta(name from, name to, "managed") + delta(name from, name to, "graph")
        if (kind == "graph") sure += asked
        off = 0
        if (taken > most) off = taken - most
        if (taken < sure - kept) off = taken - (sure - kept)
        why = ""
        if (off > slack) why = "memory is gone that no hook saw"
        if (-off > slack) why = "the hooks count memory that is not gone"
        if (kind != "none" && delta(name from, name to, kind) < asked) why = "the hooks did not see what was asked for"
        if (off > worst) worst = off
        if (-off > worst) worst = -off
        print "# " program " " name to ": gone " mib(taken) " MiB, hooked " mib(sure) \
            (most > sure ? " to " mib(most) : "") " MiB, off by " mib(off) " of " mib(slack) ": " \
            (why == "" ? "agrees" : "DISAGREES, " why) entries_between(last_report, name to)
        last_report = name to
        if (why == "") agreeing++
        else bad = bad " " name to
    }
    # What the first time of a phase left behind, and how much of it the hooks know as live. Without reports, of a
    # context or a module: only said.
    function overhead(name, taken,    seen) {
        last_report = name ".before"
        if ((last_report, "device") in live) {
            seen = device_delta(name ".begun", last_report)
            if (taken - seen > 0) besides += taken - seen
        }
        if (taken != 0)
            print "# " program " " name ": " mib(taken) " MiB stay gone besides, " mib(seen) " MiB of it hooked"
    }
    FNR == 1 { file = FILENAME == ARGV[1] ? 1 : 2 } # Even when the report is empty.
    file == 1 && $1 == "hooked" {
        if (!($3 in known)) { known[$3] = 1; entries[++entry_count] = $3 }
        entry_calls[$2, $3] = $5
        entry_bytes[$2, $3] = $7
        in_all[$3] = $3 " " $5 " x " mib($7) " MiB (" substr(($9 > 0 ? ", failed " $9 : "") \
            ($11 > 0 ? ", dlsym" : "") ($13 > 0 ? ", cuGetProcAddress" : "") ($15 > 0 ? ", linked" : "") \
            ($17 > 0 ? ", other addresses " $17 : ""), 3) ")"
    }
    file == 1 && $1 == "live" { for (i = 3; i < NF; i += 2) live[$2, $i] = $(i + 1) }
    file == 1 && $1 == "wrong" { unknown = $4; twice = $6; lost = $8; unsized = $10 }
    file == 2 && $1 == "#" { sub(/^# /, ""); print "# " program ": " $0 }
    file == 2 && $1 == "overhead" && NF == 4 { overhead($2, $4) }
    file == 2 && $1 == "broken" {
        phases++
        bad = bad " " $2
        sub(/^broken /, "")
        print "# " program ": phase broke off: " $0
    }
    file == 2 && $1 == "phase" && NF == 16 { judge($2, $4, $6, $8, $10, $12, $14, $16) }
    END {
        text = ""
        for (i = 1; i <= entry_count; i++) text = text (i > 1 ? "; " : "") in_all[entries[i]]
        if (entry_count > 0) print "# " program " in all: " text
        if (twice > 0) print "# " program ": " twice " addresses given again without a free that was seen"
        if (unknown > 0) bad = bad " " unknown "-frees-of-unseen-memory"
        if (lost > 0) bad = bad " " lost "-records-lost"
        if (unsized > 0) bad = bad " " unsized "-arrays-of-unknown-size"
        if (phases == 0) bad = bad " no-phase"
        print "verdict " agreeing + 0 " " phases + 0 " " mib(worst) " " mib(besides) bad
    }' "$work/$1.report" "$work/$1.out" >"$work/$1.verdict"
}

# Shows why a program stopped.
show_end_of() {
    tail -q -n 4 "$work/$1.err" "$work/$1.out" | sed -n "s/^..*/# $1: &/p"
}

larger() { printf '%s\n' "$@" | sort -g | tail -n 1; }

# One program: run, compared, added to the sums.
watch() {
    local name=$1 status verdict
    run_hooked "$@"
    status=$?
    if [ $status -eq 77 ]; then
        skip "$name" "$(sed -n 's/^skip //p' "$work/$name.out" | head -n 1)"
        return
    fi
    if [ ! -e "$work/$name.out" ]; then
        fail "$name" "no time left to run it"
        return
    fi
    programs_run=$((programs_run + 1))
    compare "$name"
    grep '^#' "$work/$name.verdict"
    keep_record "$name"
    read -r -a verdict <<<"$(sed -n 's/^verdict //p' "$work/$name.verdict")"
    if [ ${#verdict[@]} -lt 4 ]; then
        fail "$name" "its output could not be compared"
        return
    fi
    agreeing=$((agreeing + verdict[0]))
    compared=$((compared + verdict[1]))
    worst=$(larger "$worst" "${verdict[2]}")
    besides=$(larger "$besides" "${verdict[3]}")
    if [ ${#verdict[@]} -gt 4 ]; then fail "$name" "${verdict[*]:4}"; fi
    if [ $status -ne 0 ] || ! grep -q '^done$' "$work/$name.out"; then
        show_end_of "$name"
        if [ $status -eq 124 ] || [ $status -eq 137 ]; then
            fail "$name" "stopped by the time limit"
        else
            fail "$name" "ended early with status $status"
        fi
    fi
}

# The comparison must notice a hook that is missing: here that of cuMemCreate counts nothing.
watch_blind() {
    local name=blind-control bad
    run_hooked "$name" T6_BLIND=cuMemCreate "$programs/t6_driver" dlsym
    if [ ! -e "$work/$name.out" ]; then
        fail "$name" "no time left to run it"
        return
    fi
    compare "$name"
    keep_record "$name"
    bad=$(sed -n 's/^verdict [^ ]* [^ ]* [^ ]* [^ ]*//p' "$work/$name.verdict")
    note "$name: with a blind hook of cuMemCreate these disagree:$bad"
    case "$bad " in
    *" vmm.during "*) ;;
    *) fail "$name" "a missing hook was not noticed" ;;
    esac
}

if [ ! -e "$programs/t6_hooks.so" ]; then
    echo "T6 FAIL no t6_hooks.so in $programs"
    exit 1
fi

watch static-runtime "$programs/t6_runtime"
if ! shared_runtime=$(find_shared_runtime); then
    skip shared-runtime "no libcudart.so.13 here"
elif [ ! -x "$programs/t6_runtime_shared" ]; then
    skip shared-runtime "not built"
else
    watch shared-runtime LD_LIBRARY_PATH="$(dirname "$shared_runtime")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
        "$programs/t6_runtime_shared"
fi
for way in dlsym procaddress procaddress1 entrypoint; do watch "driver-$way" "$programs/t6_driver" "$way"; done
watch driver-linked "$programs/t6_linked" linked
if [ -z "${T6_HOOKS:-}" ]; then watch_blind; fi

if python=$(python3 -c 'import sys; print(sys.executable)' 2>/dev/null); then
    for allocator in default expandable async; do
        watch "torch-$allocator" "$python" "$here/t6_torch.py" "$allocator"
    done
else
    skip torch "no python3"
fi

figure="$programs_run programs, $agreeing of $compared phases agree, at worst $worst MiB apart"
figure+=", at most $besides MiB of a program's code and pools besides"
for skipped in "${skips[@]}"; do figure+="; skipped $skipped"; done
for failure in "${failures[@]}"; do figure+="; $failure"; done
if [ ${#failures[@]} -eq 0 ] && [ "$agreeing" -eq "$compared" ] && [ "$compared" -gt 0 ]; then
    echo "T6 PASS $figure"
    exit 0
fi
echo "T6 FAIL $figure"
exit 1
