/* The least a shell does for job control: job_shell TERMINAL COMMAND...
 * It starts COMMAND as the foreground job of a session on TERMINAL and tells on standard error what becomes of
 * it: "stopped SIGNAL", "exited STATUS", "killed SIGNAL". A byte 'f' on standard input continues the job in the
 * foreground. After its end it tells whether the terminal is the job's ("foreground kept" or "foreground lost"). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int commands = dup(0), terminal, status;
    pid_t job;
    if (argc < 3 || setsid() < 0 || (terminal = open(argv[1], O_RDWR)) < 0)
        return 1;
    ioctl(terminal, TIOCSCTTY, 0);
    signal(SIGTTOU, SIG_IGN);
    fcntl(commands, F_SETFD, FD_CLOEXEC);
    job = fork();
    if (job == 0) {
        setpgid(0, 0);
        tcsetpgrp(terminal, getpid());
        signal(SIGTTOU, SIG_DFL);
        dup2(terminal, 0);
        dup2(terminal, 1);
        dup2(terminal, 2);
        close(terminal);
        execv(argv[2], argv + 2);
        _exit(99);
    }
    setpgid(job, job);
    while (waitpid(job, &status, WUNTRACED) == job) {
        if (WIFSTOPPED(status)) {
            char command = 0;
            dprintf(2, "stopped %d foreground %s\n", WSTOPSIG(status), tcgetpgrp(terminal) == job ? "kept" : "lost");
            tcsetpgrp(terminal, getpgrp());
            if (read(commands, &command, 1) != 1)
                break;
            tcsetpgrp(terminal, job);
            kill(-job, SIGCONT);
        } else {
            const char *foreground = tcgetpgrp(terminal) == job ? "kept" : "lost";
            if (WIFEXITED(status))
                dprintf(2, "exited %d foreground %s\n", WEXITSTATUS(status), foreground);
            else
                dprintf(2, "killed %d foreground %s\n", WTERMSIG(status), foreground);
            return 0;
        }
    }
    kill(-job, SIGKILL);
    return 1;
}
