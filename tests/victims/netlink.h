/* Talking to the kernel through a netlink socket. */
#ifndef NETLINK_H
#define NETLINK_H

#include "victim.h"
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

/* A socket for questions about the network. */
static inline int open_netlink(void)
{
	struct sockaddr_nl name = { .nl_family = AF_NETLINK };
	int netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	CHECK(netlink >= 0 && bind(netlink, (struct sockaddr *)&name, sizeof name) == 0);
	return netlink;
}

/* Asks the kernel for something that is not there, which it answers before the call has returned. */
static inline void ask_kernel(int netlink)
{
	struct {
		struct nlmsghdr head;
		struct rtmsg what;
	} question = { .head = { .nlmsg_len = sizeof question, .nlmsg_type = RTM_NEWROUTE + 100, .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK } };
	CHECK(send(netlink, &question, sizeof question, 0) == sizeof question);
}

static inline void hear_kernel(int netlink)
{
	char answer[4096];
	CHECK(recv(netlink, answer, sizeof answer, 0) > 0);
}

#endif
