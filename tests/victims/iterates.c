/* Linked into a victim: the program's own dl_iterate_phdr, which looks the next one up when it is first called, as Seastar's programs have. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stddef.h>

typedef int (*callback)(struct dl_phdr_info *, size_t, void *);

int dl_iterate_phdr(callback what, void *data)
{
	static int (*next)(callback, void *);
	if (next == NULL)
		*(void **)&next = dlsym(RTLD_NEXT, "dl_iterate_phdr");
	return next(what, data);
}
