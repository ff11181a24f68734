/* Prints the control block, errno as the constructor left it, and the disposition of SIGUSR1, then waits for input
 * to end. With the argument "exec" it starts itself anew first. */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int before = errno;
    const char *control = dlsym(RTLD_DEFAULT, "ckpt_control");

    if (argc > 1 && !strcmp(argv[1], "exec")) {
        execl("/proc/self/exe", argv[0], (char *)0);
        return 1;
    }
    printf("errno %d\n", before);
    printf("magic %.7s\n", control);
    printf("version %u\n", *(const uint32_t *)(control + 8));
    printf("bytes %u\n", *(const uint32_t *)(control + 12));
    printf("state %u\n", *(const uint32_t *)(control + 16));
    printf("signal %d\n", *(const int32_t *)(control + 20));
    printf("signal_taken %u\n", *(const uint32_t *)(control + 24));
    printf("agent_pid %d\n", *(const int32_t *)(control + 28));
    printf("stub_bytes %lu\n", *(const uint64_t *)(control + 40) - *(const uint64_t *)(control + 32));
    printf("stub_begins %02x%02x\n", (*(const uint8_t **)(control + 32))[0], (*(const uint8_t **)(control + 32))[1]);
    printf("interval_ms %lu\n", *(const uint64_t *)(control + 72));
    printf("job %016lx\n", *(const uint64_t *)(control + 80));
    printf("generation %lu\n", *(const uint64_t *)(control + 88));
    printf("reason %s\n", control + 96);
    printf("name %s\n", control + 96 + 128);
    printf("dir %s\n", control + 96 + 256);
    printf("log %s\n", control + 96 + 256 + 4096);
    printf("agent %s\n", control + 96 + 256 + 2 * 4096);
    printf("digest %lu\n", *(const uint64_t *)(control + 96 + 256 + 3 * 4096));
    printf("keep %lu\n", *(const uint64_t *)(control + 96 + 256 + 3 * 4096 + 8));
    const char *const method[] = { "method", "chunk_bytes", "tree_min_bytes", "verify_matches" };
    for (int i = 0; i < 4; i++)
        printf("%s %lu\n", method[i], *(const uint64_t *)(control + 96 + 256 + 3 * 4096 + 24 + 8 * i));
    printf("memory_bytes %lu\n", *(const uint64_t *)(control + 96 + 256 + 3 * 4096 + 16));
    printf("files_max_bytes %lu\n", *(const uint64_t *)(control + 96 + 256 + 3 * 4096 + 72));
    printf("with_dirs %s\n", control + 96 + 256 + 3 * 4096 + 80);
    printf("end\n");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
