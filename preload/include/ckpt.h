/* ckpt.h - what a program may ask of libckpt.so.
 *
 * Nothing here is needed to be checkpointed. The declarations are weak, so that a program which uses them links
 * without the library, and runs without it when each use is guarded:
 *
 *     if (ckpt_checkpoint && ckpt_checkpoint() != 0)
 *         perror("ckpt_checkpoint");
 *
 * The functions may be called from any thread, and from signal handlers unless it says otherwise.
 */
#ifndef CKPT_H
#define CKPT_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Asks for a checkpoint of the calling program. Returns 0 once the request is under way: the program is stopped
 * for a moment soon afterwards, not necessarily before this returns, and the log in the store's directory says how
 * it ended. Otherwise returns -1 and sets errno:
 *
 *     EAGAIN   another request of this process is being passed on at this moment
 *     ENOTSUP  the program can not be checkpointed; `ckpt checkpoint PID` says why
 *     others   the agent could not be started; the log says which step failed (ENOENT: no `ckpt` beside
 *              libckpt.so and none in CKPT_AGENT)
 *
 * A program that goes on after a restart goes on behind the call during which the checkpoint was taken. To tell
 * the two apart, compare ckpt_generation() with its value before. */
int ckpt_checkpoint(void) __attribute__((weak));

/* How many times the program has been restarted from a checkpoint: 0 in its first life. A change means that what
 * must not be used twice (random state, nonces, tokens, keys of a session) has to be made anew. */
unsigned long ckpt_generation(void) __attribute__((weak));

/* Which copy of a checkpoint the program is (`ckpt restart --copy`): a text of 1 to 64 characters that stays where it
 * is, or NULL in a program that is no copy. Copies of one checkpoint begin with the same memory: compare the text with
 * the one before, and make anew what must differ between them (random state, keys, tokens, names, cached pids). A
 * restart that makes a copy of a copy gives it another id; an ordinary restart of a copy keeps the id. */
const char *ckpt_copy_id(void) __attribute__((weak));

/* What a pointer leads to. */
enum ckpt_memory_kind {
    CKPT_MEMORY_HOST = 0,    /* memory of the host */
    CKPT_MEMORY_PINNED = 1,  /* memory of the host that the CUDA driver has pinned */
    CKPT_MEMORY_DEVICE = 2,  /* memory of a GPU */
    CKPT_MEMORY_MANAGED = 3  /* managed memory, which host and GPU share */
};

struct ckpt_memory {
    int kind;          /* enum ckpt_memory_kind */
    int device;        /* the GPU's number in the program; -1 for other kinds */
    const void *start; /* the allocation that the pointer lies in; null if it is not known */
    size_t bytes;      /* its size; 0 if it is not known */
    unsigned long id;  /* its number in `ckpt show`; 0 if it is not recorded */
};

/* Says what `pointer`, which may lie anywhere in an allocation, leads to. Returns 0, or -1 with EINVAL for a null
 * pointer. Not for signal handlers, in programs that use CUDA. */
int ckpt_classify(const void *pointer, struct ckpt_memory *memory) __attribute__((weak));

#ifdef __cplusplus
}
#endif

#endif
