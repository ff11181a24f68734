//! The thread that traces: ptrace belongs to a thread, and the kernel lets go of everything that the thread still holds when it ends.

/// Does `take` on a new thread, which then ends.
pub fn on_tracer_thread<T: Send>(take: impl FnOnce() -> T + Send) -> T {
    // A panic aborts the process (see Cargo.toml), so a thread that ended has a result.
    std::thread::scope(|scope| scope.spawn(take).join().unwrap_or_else(|_| std::process::abort()))
}
