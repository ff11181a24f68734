/* One allocation of so many MiB, of which so many bytes change every 10 ms, anywhere. Says "ready", and ends when it is ended:
 * scripts/measure-data. Arguments: MIB BYTES. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static uint64_t state = 88172645463325252u;

static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

int main(int count, char **arguments)
{
	if (count != 3)
		return 2;
	size_t bytes = strtoul(arguments[1], NULL, 10) << 20;
	int changes = atoi(arguments[2]);
	unsigned char *memory = malloc(bytes);
	if (!memory)
		return 1;
	for (size_t at = 0; at < bytes; at += sizeof(uint64_t))
		*(uint64_t *)(memory + at) = next();
	puts("ready");
	fflush(stdout);
	for (;;) {
		for (int n = 0; n < changes; n++)
			memory[next() % bytes]++;
		usleep(10000);
	}
}
