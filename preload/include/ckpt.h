/* ckpt.h - what a program may ask of libckpt.so.
 *
 * Nothing here is needed to be checkpointed. The declarations are weak, so that a program which uses them links
 * without the library, and runs without it when each use is guarded:
 *
 *     if (ckpt_checkpoint && ckpt_checkpoint() != 0)
 *         perror("ckpt_checkpoint");
 *
 * Both functions may be called from any thread and from signal handlers.
 */
#ifndef CKPT_H
#define CKPT_H

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

#ifdef __cplusplus
}
#endif

#endif
