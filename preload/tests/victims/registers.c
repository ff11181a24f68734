/* Computes in three threads with every register, the flags and the red zone in use, while a timer interrupts them, and
 * prints what came out. The sum depends on each instruction having seen what the one before it left. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#define THREADS 3

void churn(uint64_t rounds, uint64_t *out);

/* rdi counts down by `dec`, which leaves the carry for the next round's first `adc`. */
__asm__(".intel_syntax noprefix\n"
        ".globl churn\n"
        "churn:\n"
        "push rbx\npush rbp\npush r12\npush r13\npush r14\npush r15\npush rsi\n"
        "mov rax, 0x9e3779b97f4a7c15\nmov rbx, 3\nmov rcx, 5\nmov rdx, 7\nmov rsi, 11\nmov rbp, 13\nmov r8, 17\nmov r9, 19\n"
        "mov r10, 23\nmov r11, 29\nmov r12, 31\nmov r13, 37\nmov r14, 41\nmov r15, 43\n"
        "movq xmm0, rax\nmovq xmm1, rbx\nmovq xmm2, rcx\nmovq xmm3, rdx\nmovq xmm4, rsi\nmovq xmm5, rbp\nmovq xmm6, r8\n"
        "movq xmm7, r9\nmovq xmm8, r10\nmovq xmm9, r11\nmovq xmm10, r12\nmovq xmm11, r13\nmovq xmm12, r14\nmovq xmm13, r15\n"
        "movq xmm14, rax\nmovq xmm15, rbx\n"
        "fld1\n"
        "clc\n"
        "1:\n"
        "adc rax, rbx\nadc rbx, rcx\nadc rcx, rdx\nadc rdx, rsi\nadc rsi, rbp\nadc rbp, r8\nadc r8, r9\nadc r9, r10\n"
        "mov [rsp - 8], r9\nmov [rsp - 128], rbx\n"
        "adc r10, r11\nadc r11, r12\nadc r12, r13\nadc r13, r14\nadc r14, r15\nadc r15, rax\n"
        "paddq xmm0, xmm1\npaddq xmm1, xmm2\npaddq xmm2, xmm3\npaddq xmm3, xmm4\npaddq xmm4, xmm5\npaddq xmm5, xmm6\n"
        "paddq xmm6, xmm7\npaddq xmm7, xmm8\npaddq xmm8, xmm9\npaddq xmm9, xmm10\npaddq xmm10, xmm11\npaddq xmm11, xmm12\n"
        "paddq xmm12, xmm13\npaddq xmm13, xmm14\npaddq xmm14, xmm15\npaddq xmm15, xmm0\n"
        "adc rax, [rsp - 8]\nadc rcx, [rsp - 128]\n"
        "dec rdi\n"
        "jnz 1b\n"
        "pop rdi\n"
        "mov [rdi], rax\nmov [rdi + 8], rbx\nmov [rdi + 16], rcx\nmov [rdi + 24], rdx\nmov [rdi + 32], rsi\n"
        "mov [rdi + 40], rbp\nmov [rdi + 48], r8\nmov [rdi + 56], r9\nmov [rdi + 64], r10\nmov [rdi + 72], r11\n"
        "mov [rdi + 80], r12\nmov [rdi + 88], r13\nmov [rdi + 96], r14\nmov [rdi + 104], r15\n"
        "movq [rdi + 112], xmm0\nmovq [rdi + 120], xmm7\nmovq [rdi + 128], xmm15\n"
        "fistp qword ptr [rdi + 136]\n"
        "pop r15\npop r14\npop r13\npop r12\npop rbp\npop rbx\n"
        "ret\n"
        ".att_syntax\n");

static uint64_t rounds;
static volatile unsigned long alarms;

static void on_alarm(int signal)
{
    alarms++;
}

static void *work(void *out)
{
    printf("thread %ld\n", syscall(SYS_gettid));
    fflush(stdout);
    churn(rounds, out);
    return 0;
}

int main(int argc, char **argv)
{
    static uint64_t out[THREADS][18];
    pthread_t threads[THREADS];
    struct itimerval every = {{0, 1000}, {0, 1000}};

    rounds = strtoull(argv[1], 0, 10);
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_alarm, .sa_flags = SA_RESTART}, 0);
    printf("control %p\n", dlsym(RTLD_DEFAULT, "ckpt_control"));
    for (int i = 1; i < THREADS; i++)
        pthread_create(&threads[i], 0, work, out[i]);
    setitimer(ITIMER_REAL, &every, 0);
    work(out[0]);
    for (int i = 1; i < THREADS; i++)
        pthread_join(threads[i], 0);
    for (int i = 0; i < THREADS; i++)
        for (int j = 0; j < 18; j++)
            printf("sum %d %d %016lx\n", i, j, out[i][j]);
    return alarms == 0;
}
