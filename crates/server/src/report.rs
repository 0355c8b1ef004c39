//! What a target has done, counted where times are too noisy to compare.

use std::fmt;
use std::ops::AddAssign;

/// Counts of one reactor, or of all together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// What the driver did.
    pub driver: reactor::Counters,
    /// What was copied and allocated.
    pub memory: mem::counters::Counts,
    /// How long reactors looked for work in vain without sleeping, nanoseconds.
    pub spun_ns: u64,
    /// Bytes of `memory_max` that are taken now.
    pub pool_bytes: u64,
    /// I/Os of volumes and files that succeeded, see [`store::counters`].
    pub ios: u64,
    /// Bytes of those.
    pub io_bytes: u64,
    /// NFS calls that were begun.
    pub nfs_calls: u64,
    /// Connections that are open now, or about to end.
    pub connections: u64,
    /// How often a connection was told the time: one on which nothing happens is not.
    pub ticks: u64,
    /// Reactors that have not said in time what they did: nothing of theirs is in
    /// it.
    pub silent: u64,
    /// Volumes that could not be synced at the end.
    pub unsynced: u64,
    /// The most that a connection, or what goes on without one, has spent in one turn, in
    /// units of [`machine::work`].
    pub turn_units_max: u64,
    /// I/Os that no host waits for any more (aborted, or their connection is gone) and
    /// that their volume still works on.
    pub orphans: u64,
    /// Connections, logins, commands and clients that were refused, and
    /// connections that ended because of a mistake of their peers.
    pub refusals: u64,
}

impl Report {
    /// What the calling reactor has done.
    pub(crate) fn of_this_reactor(driver: &impl reactor::Driver) -> Report {
        let store::counters::Counts { ios, io_bytes } = store::counters::of_this_thread();
        Report {
            driver: driver.counters(),
            memory: mem::counters::here(),
            spun_ns: reactor::spun_ns(),
            pool_bytes: driver.pool().reserved_bytes(),
            ios,
            io_bytes,
            ..Report::default()
        }
    }
}

impl Report {
    /// The lines of what was sent from where it lies.
    fn fmt_zero_copy(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.driver.zero_copy_sends > 0 {
            writeln!(
                f,
                "zero-copy sends       {:>14}  {} copied by the kernel after all",
                self.driver.zero_copy_sends, self.driver.zero_copy_copied
            )?;
        }
        for (name, count, what) in [
            (
                "of registered buffers",
                self.driver.zero_copy_registered,
                format!("{} were registered", self.driver.buffers_registered),
            ),
            (
                "zero-copy refused",
                self.driver.zero_copy_refused,
                "for want of locked memory (ulimit -l), sent with a copy".to_owned(),
            ),
            (
                "zero-copy given up",
                self.driver.zero_copy_given_up,
                "of connections where the kernel copied nearly all".to_owned(),
            ),
        ] {
            if count > 0 {
                writeln!(f, "{name:<22}{count:>14}  {what}")?;
            }
        }
        Ok(())
    }
}

impl AddAssign for Report {
    fn add_assign(&mut self, other: Report) {
        let (to, from) = (&mut self.driver, other.driver);
        for (to, from) in [
            (&mut to.syscalls, from.syscalls),
            (&mut to.wakeups, from.wakeups),
            (&mut to.recvs, from.recvs),
            (&mut to.recv_bytes, from.recv_bytes),
            (&mut to.sends, from.sends),
            (&mut to.send_bytes, from.send_bytes),
            (&mut to.partial_sends, from.partial_sends),
            (&mut to.zero_copy_sends, from.zero_copy_sends),
            (&mut to.zero_copy_registered, from.zero_copy_registered),
            (&mut to.zero_copy_copied, from.zero_copy_copied),
            (&mut to.zero_copy_refused, from.zero_copy_refused),
            (&mut to.zero_copy_given_up, from.zero_copy_given_up),
            (&mut to.buffers_registered, from.buffers_registered),
            (&mut to.starved_recvs, from.starved_recvs),
            (&mut to.file_ops, from.file_ops),
            (&mut self.memory.copied_bytes, other.memory.copied_bytes),
            (&mut self.memory.digested_bytes, other.memory.digested_bytes),
            (&mut self.memory.allocations, other.memory.allocations),
            (&mut self.spun_ns, other.spun_ns),
            (&mut self.pool_bytes, other.pool_bytes),
            (&mut self.ios, other.ios),
            (&mut self.io_bytes, other.io_bytes),
            (&mut self.nfs_calls, other.nfs_calls),
            (&mut self.ticks, other.ticks),
            (&mut self.connections, other.connections),
            (&mut self.silent, other.silent),
            (&mut self.unsynced, other.unsynced),
            (&mut self.orphans, other.orphans),
            (&mut self.refusals, other.refusals),
        ] {
            *to += from;
        }
        self.memory.held_bytes += other.memory.held_bytes;
        self.turn_units_max = self.turn_units_max.max(other.turn_units_max);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per = |count: u64, of: u64| count as f64 / of.max(1) as f64;
        writeln!(f, "I/Os                  {:>14}", self.ios)?;
        writeln!(f, "bytes of I/O          {:>14}", self.io_bytes)?;
        for (name, count) in [
            ("syscalls", self.driver.syscalls),
            ("wakeups", self.driver.wakeups),
            ("sends", self.driver.sends),
            ("receives", self.driver.recvs),
            ("allocations", self.memory.allocations),
        ] {
            writeln!(
                f,
                "{name:<22}{count:>14}  {:.4} an I/O",
                per(count, self.ios)
            )?;
        }
        self.fmt_zero_copy(f)?;
        if self.nfs_calls > 0 {
            writeln!(f, "NFS calls             {:>14}", self.nfs_calls)?;
        }
        if self.refusals > 0 {
            writeln!(
                f,
                "refusals              {:>14}  the log has the peer and the reason",
                self.refusals
            )?;
        }
        writeln!(
            f,
            "units in a turn       {:>14}  of one connection, the most",
            self.turn_units_max
        )?;
        if self.silent > 0 {
            writeln!(
                f,
                "silent reactors       {:>14}  that do not answer; theirs is not counted here",
                self.silent
            )?;
        }
        let copied = self.memory.copied_bytes;
        write!(
            f,
            "bytes copied in user space {copied:>9}  {:.4} a byte of I/O",
            per(copied, self.io_bytes)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_copy_sends_are_told_where_there_are_any() {
        let mut report = Report::default();
        assert!(!report.to_string().contains("zero-copy"));
        report.driver.zero_copy_sends = 7;
        report.driver.zero_copy_copied = 3;
        report.driver.zero_copy_given_up = 2;
        let said = report.to_string();
        let line = said
            .lines()
            .find(|line| line.starts_with("zero-copy sends"));
        let words: Vec<&str> = line.expect("a line").split_whitespace().collect();
        assert_eq!((words[2], words[3]), ("7", "3"));
        assert!(said.contains("zero-copy given up                 2  of connections"));
        assert!(!said.contains("refused") && !said.contains("registered"));
    }
}
