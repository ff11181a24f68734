// Programs that take steps, and whose checkpoints somebody waits for: they are not to end before.
#pragma once

#include <cstdlib>
#include <unistd.h>

// Between two steps: a pause, and behind the step CKPT_VICTIM_WAITS_AT none that is shorter than until there is the file
// CKPT_VICTIM_WAITS_FOR. Once it is there nobody waits any more for a checkpoint, and there are no pauses.
inline void pause_after(int step, int pause_us) {
    const char *place = getenv("CKPT_VICTIM_WAITS_AT"), *sign = getenv("CKPT_VICTIM_WAITS_FOR");
    bool is_watched = place != nullptr && sign != nullptr;
    while (is_watched && step == atoi(place) && access(sign, F_OK) != 0) usleep(1000);
    if (!is_watched || access(sign, F_OK) != 0) usleep(useconds_t(pause_us));
}
