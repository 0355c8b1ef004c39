//! Priorities of threads.

/// Gives the calling thread the lowest priority of those that share processors, whatever
/// it has: it runs where no other thread wants to. Where the system refuses, it stays
/// what it is.
pub fn lower_thread_priority() {
    // SAFETY: of the calling thread; the parameter is numbers, more of them with another C
    // library, and lives for the call.
    unsafe {
        let normal: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_OTHER, &normal);
        libc::setpriority(libc::PRIO_PROCESS, 0, 19);
    }
}
