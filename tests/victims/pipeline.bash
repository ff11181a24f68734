# Pipelines, one of them in the background: bash with children and theirs, most of which do not live long.
steps=${1:-80}
# As in victim.h: where a test wants the program to wait, and for which file.
waits_at=${CKPT_VICTIM_WAITS_AT:-0} waits_for=${CKPT_VICTIM_WAITS_FOR:-/}

numbers() {
    local -i number
    for ((number = 1; number <= steps; number++)); do
        echo "number $number"
        sleep 0.02
    done
}

count() {
    local -i lines=0 sum=0
    local word number
    while read -r word number; do
        lines+=1
        sum+=number
    done
    echo "$lines lines, sum $sum"
}

echo ready
count < <(numbers) >counted &
numbers | sed -u 's/number/step/' | while read -r word number; do
    echo "$word $number $(echo "$((number * 7))" | tr 0-9 a-j)"
    while ((number == waits_at)) && [[ ! -e $waits_for ]]; do sleep 0.01; done
done
wait
cat counted
exit 7
