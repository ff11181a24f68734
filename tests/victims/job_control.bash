# Pipelines under job control: each in a process group of its own, whose leader is its first process, which ends first.
set -m
steps=${1:-60}
# As in victim.h: where a test wants the program to wait, and for which file.
waits_at=${CKPT_VICTIM_WAITS_AT:-0} waits_for=${CKPT_VICTIM_WAITS_FOR:-/}

# What is left of it lives in the group of one that has gone.
true | { while [[ ! -e over ]]; do sleep 0.05; done; echo "left over" >left; } &
group=$(jobs -p %1)
while kill -0 "$group" 2>/dev/null; do sleep 0.01; done

echo ready
for ((step = 1; step <= steps; step++)); do
    echo "$step" | { read -r number; echo "step $number $(jobs -r | wc -l)"; }
    kill -0 -- "-$group" || exit 1
    while ((step == waits_at)) && [[ ! -e $waits_for ]]; do sleep 0.01; done
    sleep 0.02
done
touch over
wait %1 || exit 2
cat left
kill -0 -- "-$group" 2>/dev/null && exit 3
exit 7
