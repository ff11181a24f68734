/* What libckpt.so costs a program that takes no checkpoint: idle LIBRARY EMPTY [LIVES [ROUNDS [WHAT...]]].
 *
 * Three processes of this program, one without a library, one with the library EMPTY and one with LIBRARY preloaded, do the
 * same calls, taking turns, each ROUNDS times; then three others do (LIVES times, and for each kind of calls): where the
 * dynamic linker and the kernel have put things makes a difference of its own. WHAT are names of the table below; all without. Writes CSV: a sample is
 * the mean of the calls of a turn, in nanoseconds. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LENGTH(array) (sizeof(array) / sizeof *(array))

static void must(int is_so, const char *what)
{
    if (is_so)
        return;
    perror(what);
    exit(1);
}

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

static int null, pipe_ends[2];
static char bytes[64];

static void malloc_free(int count)
{
    for (int i = 0; i < count; i++) {
        void *volatile block = malloc(32 + (i & 63));
        free(block);
    }
}

/* Of a program that has large allocations, in the areas that the small ones are in too. A free has to look closer. */
static void *large[64];

static void allocate_large(int count)
{
    (void)count;
    for (size_t i = 0; i < LENGTH(large); i++)
        must((large[i] = malloc(100000)) != 0, "malloc");
}

static void free_large(int count)
{
    (void)count;
    for (size_t i = 0; i < LENGTH(large); i++)
        free(large[i]);
}

static void open_close(int count)
{
    for (int i = 0; i < count; i++)
        close(open("/dev/null", O_RDWR | O_CLOEXEC));
}

static void write_null(int count)
{
    for (int i = 0; i < count; i++)
        must(write(null, bytes, sizeof bytes) == sizeof bytes, "write");
}

static void write_pipe(int count)
{
    for (int i = 0; i < count; i++)
        must(write(pipe_ends[1], bytes, sizeof bytes) == sizeof bytes, "write to a pipe");
}

static void empty_pipe(int count)
{
    char what_was_written[64];
    for (int i = 0; i < count; i++)
        must(read(pipe_ends[0], what_was_written, sizeof bytes) == sizeof bytes, "read from a pipe");
}

static void wait_for(pid_t child)
{
    int status;
    must(child > 0 && waitpid(child, &status, 0) == child && status == 0, "a child");
}

static void fork_wait(int count)
{
    for (int i = 0; i < count; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        wait_for(child);
    }
}

static void *nothing(void *argument)
{
    return argument;
}

static void thread(int count)
{
    for (int i = 0; i < count; i++) {
        pthread_t id;
        must(pthread_create(&id, 0, nothing, 0) == 0 && pthread_join(id, 0) == 0, "a thread");
    }
}

extern char **environ;
static char *const truth[] = {"/bin/true", 0};

static void fork_exec(int count)
{
    for (int i = 0; i < count; i++) {
        pid_t child = fork();
        if (child == 0) {
            execve(truth[0], truth, environ);
            _exit(1);
        }
        wait_for(child);
    }
}

/* As system(3), popen(3), Python and Rust do: no page tables are copied. */
static void spawn(int count)
{
    for (int i = 0; i < count; i++) {
        pid_t child;
        must(posix_spawn(&child, truth[0], 0, 0, truth, environ) == 0, "posix_spawn");
        wait_for(child);
    }
}

static const struct {
    const char *name;
    int count; /* calls of a turn */
    void (*call)(int);
    void (*before)(int), (*after)(int); /* not measured */
} calls[] = {
    {"malloc-free", 100000, malloc_free, 0, 0},
    {"malloc-free-large", 100000, malloc_free, allocate_large, free_large},
    {"open-close", 100, open_close, 0, 0},
    {"write-null", 1000, write_null, 0, 0},
    {"write-pipe", 500, write_pipe, 0, empty_pipe},
    {"fork-wait", 1, fork_wait, 0, 0},
    {"thread", 4, thread, 0, 0},
    {"fork-exec-true", 1, fork_exec, 0, 0},
    {"spawn-true", 1, spawn, 0, 0},
};
enum { CALLS = LENGTH(calls), KINDS = 3 };

/* One of the three processes: does what it is told on its standard input, and answers with the time. */
static int work(void)
{
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    must(null >= 0 && pipe2(pipe_ends, O_CLOEXEC) == 0, "pipe");
    for (int i; read(0, &i, sizeof i) == sizeof i;) {
        if (calls[i].before)
            calls[i].before(calls[i].count);
        double begin = now_ns();
        calls[i].call(calls[i].count);
        double sample = (now_ns() - begin) / calls[i].count;
        if (calls[i].after)
            calls[i].after(calls[i].count);
        must(write(1, &sample, sizeof sample) == sizeof sample, "an answer");
    }
    return 0;
}

struct worker {
    pid_t pid;
    int line;
};

static struct worker start(const char *self, const char *library)
{
    int ends[2];
    char preload[4096 + sizeof "LD_PRELOAD="];
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", library);
    char *variables[] = {"PATH=/usr/bin:/bin", *library ? preload : 0, 0}, *arguments[] = {"idle", 0};
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
    pid_t pid = fork();
    must(pid >= 0, "fork");
    if (pid == 0) {
        must(dup2(ends[1], 0) == 0 && dup2(ends[1], 1) == 1, "dup2");
        execve(self, arguments, variables);
        must(0, self);
    }
    close(ends[1]);
    return (struct worker){pid, ends[0]};
}

static double turn(struct worker *worker, int call)
{
    double sample;
    must(write(worker->line, &call, sizeof call) == sizeof call, "a turn");
    must(read(worker->line, &sample, sizeof sample) == sizeof sample, "the time of a turn");
    return sample;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    if (argc == 1)
        return work();
    int lives = argc > 3 ? atoi(argv[3]) : 20, rounds = argc > 4 ? atoi(argv[4]) : 100;
    if (argc < 3 || lives < 1 || rounds < 1) {
        fprintf(stderr, "idle LIBRARY EMPTY [LIVES [ROUNDS [WHAT...]]]\n");
        return 2;
    }
    const char *names[KINDS] = {"bare", "empty", "ckpt"}, *libraries[KINDS] = {"", argv[2], argv[1]};
    int wanted[CALLS];
    for (int call = 0; call < CALLS; call++) {
        wanted[call] = argc < 6;
        for (int i = 5; i < argc; i++)
            wanted[call] |= !strcmp(argv[i], calls[call].name);
    }
    int most = lives * rounds, samples = 0;
    double *times[CALLS][KINDS];
    for (int i = 0; i < CALLS * KINDS; i++)
        must((times[i / KINDS][i % KINDS] = calloc(most, sizeof(double))) != 0, "calloc");
    for (int life = 0; life < lives; life++) {
        for (int call = 0; call < CALLS; call++) {
            if (!wanted[call])
                continue;
            struct worker workers[KINDS];
            for (int kind = 0; kind < KINDS; kind++)
                workers[kind] = start(argv[0], libraries[kind]);
            /* The first round is for caches and for what is made once. */
            for (int round = -1; round < rounds; round++)
                for (int i = 0; i < KINDS; i++) {
                    int kind = (life + round + 1 + i) % KINDS;
                    double sample = turn(&workers[kind], call);
                    if (round >= 0)
                        times[call][kind][samples + round] = sample;
                }
            for (int kind = 0; kind < KINDS; kind++) {
                close(workers[kind].line);
                wait_for(workers[kind].pid);
            }
        }
        samples += rounds;
    }
    /* Of neighbouring turns, so that what else the machine does is in both. */
    printf("what,kind,samples,least_ns,p10_ns,median_ns,p99_ns,more_than_bare_ns\n");
    double *more = calloc(most, sizeof *more);
    must(more != 0, "calloc");
    for (int call = 0; call < CALLS; call++) {
        double median_more[KINDS];
        for (int kind = 0; wanted[call] && kind < KINDS; kind++) {
            for (int i = 0; i < samples; i++)
                more[i] = times[call][kind][i] - times[call][0][i];
            qsort(more, samples, sizeof *more, ascending);
            median_more[kind] = more[samples / 2];
        }
        for (int kind = 0; wanted[call] && kind < KINDS; kind++) {
            double *of = times[call][kind];
            qsort(of, samples, sizeof *of, ascending);
            printf("%s,%s,%d,%.2f,%.2f,%.2f,%.2f,%.2f\n", calls[call].name, names[kind], samples, of[0], of[samples / 10],
                   of[samples / 2], of[(samples - 1) * 99 / 100], median_more[kind]);
        }
    }
    return 0;
}
