# Builtins alone, so that bash never has a child: arrays, arithmetic, patterns, traps, a file of its own.
# With "children" as second argument it starts a child at every step, and most of the time has none; with "untrapped" as
# third it leaves signals alone.
steps=${1:-80} children=${2:-no}
# As in victim.h: where a test wants the program to wait, and for which file.
waits_at=${CKPT_VICTIM_WAITS_AT:-0} waits_for=${CKPT_VICTIM_WAITS_FOR:-/}

declare -A kept
declare -i state=4711 step
[ "$3" = untrapped ] || trap 'echo "ended after $step"' EXIT
exec 5>lines

stir() {
    local -i round
    for ((round = 0; round < 400; round++)); do
        state=$(((state * 1103515245 + 12345 + round) & 0x7fffffffffff))
    done
}

digest() {
    local key text=
    for key in "${!kept[@]}"; do text+="$key=${kept[$key]};"; done
    local -i at sum=0
    for ((at = 0; at < ${#text}; at++)); do
        printf -v code %d "'${text:at:1}"
        sum=$(((sum * 31 + code) & 0xffffffffffff))
    done
    printf -v sum_text %x "$sum"
}

echo ready
for ((step = 1; step <= steps; step++)); do
    stir
    kept[key$((state % 17))]=$state
    [[ $state =~ ([0-9])([0-9])$ ]] && kept[${BASH_REMATCH[1]}]=${BASH_REMATCH[2]}
    digest
    if [ "$children" = children ]; then /bin/true; fi
    echo "step $step $sum_text $state"
    printf '%d %q\n' "$step" "${kept[*]}" >&5
    while ((step == waits_at)) && [[ ! -e $waits_for ]]; do :; done
done
echo verified
exit 5
