/* Every general register, the flags, the x87 stack and control word, MXCSR, and the fs and gs bases.
 *
 * All are loaded with known values, held through a loop of the `loop` instruction (which counts in rcx and
 * changes no flag), stored and compared. */
#include "victim.h"
#include <asm/prctl.h>
#include <sys/syscall.h>

enum { SPINS = 4000000 };

/* In the order in which hold_registers() loads and stores them; rcx counts and ends as zero. */
static const char *const names[] = { "rax", "rbx", "rdx", "rsi", "rdi", "rbp", "r8", "r9",
				     "r10", "r11", "r12", "r13", "r14", "r15", "rcx", "flags" };
enum { REGISTERS = 16 };
uint64_t registers_in[REGISTERS], registers_out[REGISTERS];
uint64_t stack_before, stack_after;

void hold_registers(void);
__asm__(".text\n"
	".globl hold_registers\n"
	"hold_registers:\n"
	"  push %rbx\n  push %rbp\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
	"  pushq registers_in+120(%rip)\n"
	"  mov registers_in+0(%rip), %rax\n  mov registers_in+8(%rip), %rbx\n"
	"  mov registers_in+16(%rip), %rdx\n  mov registers_in+24(%rip), %rsi\n"
	"  mov registers_in+32(%rip), %rdi\n  mov registers_in+40(%rip), %rbp\n"
	"  mov registers_in+48(%rip), %r8\n  mov registers_in+56(%rip), %r9\n"
	"  mov registers_in+64(%rip), %r10\n  mov registers_in+72(%rip), %r11\n"
	"  mov registers_in+80(%rip), %r12\n  mov registers_in+88(%rip), %r13\n"
	"  mov registers_in+96(%rip), %r14\n  mov registers_in+104(%rip), %r15\n"
	"  mov registers_in+112(%rip), %rcx\n"
	"  popfq\n"
	"  mov %rsp, stack_before(%rip)\n"
	"1: loop 1b\n"
	"  mov %rsp, stack_after(%rip)\n"
	"  pushfq\n"
	"  cld\n"
	"  mov %rax, registers_out+0(%rip)\n  mov %rbx, registers_out+8(%rip)\n"
	"  mov %rdx, registers_out+16(%rip)\n  mov %rsi, registers_out+24(%rip)\n"
	"  mov %rdi, registers_out+32(%rip)\n  mov %rbp, registers_out+40(%rip)\n"
	"  mov %r8, registers_out+48(%rip)\n  mov %r9, registers_out+56(%rip)\n"
	"  mov %r10, registers_out+64(%rip)\n  mov %r11, registers_out+72(%rip)\n"
	"  mov %r12, registers_out+80(%rip)\n  mov %r13, registers_out+88(%rip)\n"
	"  mov %r14, registers_out+96(%rip)\n  mov %r15, registers_out+104(%rip)\n"
	"  mov %rcx, registers_out+112(%rip)\n"
	"  popq registers_out+120(%rip)\n"
	"  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbp\n  pop %rbx\n"
	"  ret\n");

static const uint16_t x87_control = 0x0e7f; /* double precision, truncation, all masked */
static const uint32_t mxcsr = 0xffc0;       /* flush to zero, denormals are zero, truncation, all masked */
static uint64_t behind_gs[4] = { 0x6773626173650001, 2, 3, 4 };
static unsigned long fs_base;

static void load_x87(int step)
{
	__asm__ volatile("fninit\n\tfldcw %0" : : "m"(x87_control));
	for (int i = 0; i < 8; i++) {
		double value = step + i;
		__asm__ volatile("fldl %0" : : "m"(value));
	}
}

static void compare_x87(int step)
{
	uint16_t control = 0;
	for (int i = 7; i >= 0; i--) {
		double value = 0;
		__asm__ volatile("fstpl %0" : "=m"(value));
		if (value != step + i)
			FAIL("x87 register %d is %g, was %d", i, value, step + i);
	}
	__asm__ volatile("fnstcw %0\n\tfninit" : "=m"(control));
	if (control != x87_control)
		FAIL("x87 control word is %04x, was %04x", control, x87_control);
}

static void compare_bases(void)
{
	unsigned long fs = 0, gs = 0;
	uint64_t through_gs = 0;
	CHECK(syscall(SYS_arch_prctl, ARCH_GET_FS, &fs) == 0 && fs == fs_base);
	CHECK(syscall(SYS_arch_prctl, ARCH_GET_GS, &gs) == 0 && gs == (unsigned long)behind_gs);
	__asm__ volatile("mov %%gs:0, %0" : "=r"(through_gs));
	CHECK(through_gs == behind_gs[0]);
}

static void set_up(void)
{
	step_ms = 0;
	CHECK(syscall(SYS_arch_prctl, ARCH_GET_FS, &fs_base) == 0);
	CHECK(syscall(SYS_arch_prctl, ARCH_SET_GS, behind_gs) == 0);
}

static void hold(int step)
{
	uint32_t usual = 0, found = 0;
	/* Carry, parity, adjust, zero, sign, direction and overflow in all combinations; bits 1 and 9 are always on. */
	uint64_t bits = (uint64_t)step * 37;
	uint64_t flags = 0x202 | (bits & 1) | (bits & 2) << 1 | (bits & 4) << 2 | (bits & 8) << 3 | (bits & 16) << 3 |
			 (bits & 32) << 5 | (bits & 64) << 5;
	for (int i = 0; i < REGISTERS; i++)
		registers_in[i] = mix((uint64_t)step * 100 + (uint64_t)i);
	registers_in[14] = SPINS;
	registers_in[15] = flags;
	__asm__ volatile("stmxcsr %0" : "=m"(usual));
	load_x87(step);
	__asm__ volatile("ldmxcsr %0" : : "m"(mxcsr));
	hold_registers();
	__asm__ volatile("stmxcsr %0\n\tldmxcsr %1" : "=m"(found) : "m"(usual));
	compare_x87(step);
	if (found != mxcsr)
		FAIL("mxcsr is %x, was %x", found, mxcsr);
	registers_in[14] = 0;
	for (int i = 0; i < REGISTERS; i++)
		if (registers_in[i] != registers_out[i])
			FAIL("%s is %016lx, was %016lx", names[i], registers_out[i], registers_in[i]);
	CHECK(stack_before == stack_after);
	compare_bases();
	say("step %d: registers held", step);
}

static void verify(void) {}
