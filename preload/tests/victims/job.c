/* A job: executes itself five times, says "done", waits for the end of its input, and does it again. Each says which mark its
 * children would find, on one line. With CKPT_TEST_FORKS it forks instead, and its child does, too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void execute(void)
{
    for (int i = 0; i < 5; i++) {
        pid_t child = fork();

        if (child == 0) {
            execl("/proc/self/exe", "job", "child", (char *)0);
            _exit(1);
        }
        waitpid(child, NULL, 0);
    }
}

int main(int argc, char **argv)
{
    (void)argv;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("mark %s, agent %zu\n", getenv("CKPT_MARK"), strlen(getenv("CKPT_AGENT_PID")));
    if (argc > 1)
        return 0;
    execute();
    puts("done");
    while (getchar() != EOF)
        ;
    execute();
    return 0;
}
