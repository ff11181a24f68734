/* Stands in for `ckpt agent`: appends one line about how it was started to the file CKPT_TEST_RECORD, and lives on
 * until CKPT_TEST_HOLD, if set, is no longer there. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static void status(char *line, const char *name)
{
    char text[256];
    FILE *file = fopen("/proc/self/status", "r");

    while (fgets(text, sizeof text, file))
        if (!strncmp(text, name, strlen(name))) {
            text[strcspn(text, "\n")] = 0;
            strcat(strcat(line, "|"), text);
        }
    fclose(file);
}

int main(int argc, char **argv)
{
    static char line[65536], part[512], target[256], number[300];
    const char *record = getenv("CKPT_TEST_RECORD"), *hold = getenv("CKPT_TEST_HOLD");
    DIR *directory = opendir("/proc/self/fd");
    struct dirent *entry;
    int fd;

    snprintf(line, sizeof line, "pid=%d|leads=%d|cwd=%s|args=", getpid(), getsid(0) == getpid(), getcwd(part, sizeof part));
    for (int i = 0; i < argc; i++)
        strcat(strcat(line, i ? " " : ""), argv[i]);
    strcat(line, "|fds=");
    while ((entry = readdir(directory))) {
        ssize_t n = readlinkat(dirfd(directory), entry->d_name, target, sizeof target - 1);

        if (n < 0 || atoi(entry->d_name) == dirfd(directory))
            continue;
        target[n] = 0;
        snprintf(number, sizeof number, "%d:%s,", atoi(entry->d_name), target);
        strcat(line, number);
    }
    closedir(directory);
    status(line, "SigBlk");
    status(line, "SigIgn");
    for (char **variable = environ; *variable; variable++)
        strcat(strcat(line, "|env "), *variable);
    strcat(line, "\n");
    if (record) {
        fd = open(record, O_WRONLY | O_APPEND | O_CREAT, 0600);
        if (write(fd, line, strlen(line)) < 0)
            return 1;
        close(fd);
    }
    for (int i = 0; hold && !access(hold, F_OK) && i < 60000; i++)
        nanosleep(&(struct timespec){0, 1000000}, 0);
    return 0;
}
