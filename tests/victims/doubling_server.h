/* A server that doubles the numbers which its clients send, until one of them is closed. */
#ifndef DOUBLING_SERVER_H
#define DOUBLING_SERVER_H
#include "victim.h"
#include <poll.h>
#include <sys/socket.h>

enum { CLIENTS_MAX = 8, EXIT_SERVED = 9 };

/* The life of the process that serves `count` clients, which wait at `listener`; `clients` are the ends that its parent keeps. */
static inline void serve(int listener, const int *clients, int count)
{
	int own[CLIENTS_MAX];
	for (int i = 0; i < count; i++) {
		CHECK((own[i] = accept(listener, NULL, NULL)) >= 0);
		close(clients[i]);
	}
	for (;;) {
		struct pollfd polled[CLIENTS_MAX];
		for (int i = 0; i < count; i++)
			polled[i] = (struct pollfd){ own[i], POLLIN, 0 };
		CHECK(poll(polled, (nfds_t)count, -1) > 0);
		for (int i = 0; i < count; i++) {
			int number;
			if (polled[i].revents == 0)
				continue;
			ssize_t bytes = read(own[i], &number, sizeof number);
			if (bytes == 0)
				_exit(EXIT_SERVED);
			CHECK(bytes == sizeof number);
			number *= 2;
			CHECK(write(own[i], &number, sizeof number) == sizeof number);
		}
	}
}
#endif
