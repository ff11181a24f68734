/* Live AMX tiles: eight tiles configured and loaded, held through a spin, stored and compared. */
#include "victim.h"
#include <cpuid.h>
#include <sys/syscall.h>

enum { TILES = 8, TILE_BYTES = 16 * 64, SPINS = 8000000, ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };

void hold_tiles(const void *config, const void *in, void *out, long spins);

__asm__(".text\n"
	".globl hold_tiles\n"
	"hold_tiles:\n"
	"  ldtilecfg (%rdi)\n"
	"  mov $64, %eax\n"
	".irp n,0,1,2,3,4,5,6,7\n"
	"  tileloadd \\n*1024(%rsi,%rax,1), %tmm\\n\n"
	".endr\n"
	"1: dec %rcx\n"
	"  jnz 1b\n"
	".irp n,0,1,2,3,4,5,6,7\n"
	"  tilestored %tmm\\n, \\n*1024(%rdx,%rax,1)\n"
	".endr\n"
	"  tilerelease\n"
	"  ret\n");

static struct {
	uint8_t palette, start_row, reserved[14];
	uint16_t column_bytes[16];
	uint8_t rows[16];
} __attribute__((aligned(64))) config;

static uint64_t in[TILES * TILE_BYTES / 8] __attribute__((aligned(64)));
static uint64_t out[TILES * TILE_BYTES / 8] __attribute__((aligned(64)));

static void set_up(void)
{
	unsigned a = 0, b = 0, c = 0, d = 0;
	__get_cpuid_count(7, 0, &a, &b, &c, &d);
	if ((d >> 24 & 1) == 0 || syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) != 0) {
		say("skipped: this processor or kernel has no AMX");
		_exit(EXIT_SKIPPED);
	}
	step_ms = 0;
	config.palette = 1;
	for (int i = 0; i < TILES; i++) {
		config.column_bytes[i] = 64;
		config.rows[i] = 16;
	}
}

static void hold(int step)
{
	for (size_t i = 0; i < sizeof in / 8; i++)
		in[i] = mix((uint64_t)step * 100000 + i);
	memset(out, 0, sizeof out);
	hold_tiles(&config, in, out, SPINS);
	for (size_t i = 0; i < sizeof in / 8; i++)
		if (in[i] != out[i])
			FAIL("tile %zu word %zu is %016lx, was %016lx", i / 128, i % 128, out[i], in[i]);
	say("step %d: tmm0-7 held", step);
}

static void verify(void) {}
