//! Names of the kernel's numbers.

/// The calls that threads wait in.
const WAITING_CALLS: &[(i64, &str)] = &[
    (libc::SYS_read, "read"),
    (libc::SYS_write, "write"),
    (libc::SYS_readv, "readv"),
    (libc::SYS_writev, "writev"),
    (libc::SYS_pread64, "pread64"),
    (libc::SYS_pwrite64, "pwrite64"),
    (libc::SYS_poll, "poll"),
    (libc::SYS_ppoll, "ppoll"),
    (libc::SYS_select, "select"),
    (libc::SYS_pselect6, "pselect6"),
    (libc::SYS_epoll_wait, "epoll_wait"),
    (libc::SYS_epoll_pwait, "epoll_pwait"),
    (libc::SYS_epoll_pwait2, "epoll_pwait2"),
    (libc::SYS_futex, "futex"),
    (libc::SYS_futex_waitv, "futex_waitv"),
    (449 + 6, "futex_wait"),
    (libc::SYS_nanosleep, "nanosleep"),
    (libc::SYS_clock_nanosleep, "clock_nanosleep"),
    (libc::SYS_pause, "pause"),
    (libc::SYS_wait4, "wait4"),
    (libc::SYS_waitid, "waitid"),
    (libc::SYS_accept, "accept"),
    (libc::SYS_accept4, "accept4"),
    (libc::SYS_connect, "connect"),
    (libc::SYS_recvfrom, "recvfrom"),
    (libc::SYS_recvmsg, "recvmsg"),
    (libc::SYS_recvmmsg, "recvmmsg"),
    (libc::SYS_sendto, "sendto"),
    (libc::SYS_sendmsg, "sendmsg"),
    (libc::SYS_rt_sigsuspend, "rt_sigsuspend"),
    (libc::SYS_rt_sigtimedwait, "rt_sigtimedwait"),
    (libc::SYS_restart_syscall, "restart_syscall"),
    (libc::SYS_semop, "semop"),
    (libc::SYS_semtimedop, "semtimedop"),
    (libc::SYS_msgrcv, "msgrcv"),
    (libc::SYS_msgsnd, "msgsnd"),
    (libc::SYS_mq_timedreceive, "mq_timedreceive"),
    (libc::SYS_mq_timedsend, "mq_timedsend"),
    (libc::SYS_io_getevents, "io_getevents"),
    (libc::SYS_io_uring_enter, "io_uring_enter"),
    (libc::SYS_fsync, "fsync"),
    (libc::SYS_fdatasync, "fdatasync"),
    (libc::SYS_flock, "flock"),
    (libc::SYS_fcntl, "fcntl"),
    (libc::SYS_ioctl, "ioctl"),
    (libc::SYS_openat, "openat"),
    (libc::SYS_sched_yield, "sched_yield"),
    (libc::SYS_vfork, "vfork"),
    (libc::SYS_getrandom, "getrandom"),
    (libc::SYS_splice, "splice"),
];

/// The name of system call `number`, or `call N`.
pub fn system_call(number: i64) -> String {
    match WAITING_CALLS.iter().find(|(known, _)| *known == number) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("call {number}"),
    }
}

/// Status flags of an open file besides its access mode. O_SYNC contains O_DSYNC, so it comes first.
const STATUS_FLAGS: &[(i32, &str)] = &[
    (libc::O_APPEND, "O_APPEND"),
    (libc::O_NONBLOCK, "O_NONBLOCK"),
    (libc::O_SYNC, "O_SYNC"),
    (libc::O_DSYNC, "O_DSYNC"),
    (libc::O_DIRECT, "O_DIRECT"),
    (libc::O_DIRECTORY, "O_DIRECTORY"),
    (libc::O_NOATIME, "O_NOATIME"),
    (libc::O_NOFOLLOW, "O_NOFOLLOW"),
    (libc::O_ASYNC, "O_ASYNC"),
    (libc::O_PATH, "O_PATH"),
];

/// The names of the flags of an open file, its access mode first.
pub fn open_flags(flags: i32) -> Vec<&'static str> {
    let mut names = vec![match flags & libc::O_ACCMODE {
        libc::O_RDONLY => "O_RDONLY",
        libc::O_WRONLY => "O_WRONLY",
        _ => "O_RDWR",
    }];
    let mut rest = flags;
    for &(flag, name) in STATUS_FLAGS {
        if rest & flag == flag {
            names.push(name);
            rest &= !flag;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_calls_have_names_and_others_numbers() {
        assert_eq!(system_call(libc::SYS_futex), "futex");
        assert_eq!(system_call(455), "futex_wait");
        assert_eq!(system_call(9999), "call 9999");
    }

    #[test]
    fn flags_are_named_once() {
        assert_eq!(open_flags(libc::O_WRONLY | libc::O_APPEND), ["O_WRONLY", "O_APPEND"]);
        assert_eq!(open_flags(libc::O_RDWR | libc::O_SYNC), ["O_RDWR", "O_SYNC"]);
        assert_eq!(open_flags(libc::O_DSYNC), ["O_RDONLY", "O_DSYNC"]);
    }
}
