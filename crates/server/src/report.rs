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
    /// How long reactors have run, looked for work in vain without sleeping, and slept.
    pub times: reactor::LoopTimes,
    /// Bytes of `memory_max` that are taken now.
    pub pool_bytes: u64,
    /// I/Os of volumes and files that succeeded, see [`store::counters`].
    pub ios: u64,
    /// Bytes of those.
    pub io_bytes: u64,
    /// NFS calls that were begun.
    pub nfs_calls: u64,
    /// Queues of NVMe hosts that have authenticated, each time.
    pub authentications: u64,
    /// What connections by RDMA have moved.
    pub rdma: nvmf::rdma::QpCounts,
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
            times: reactor::loop_times(),
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

/// How a count is to be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountKind {
    /// Since the start of its reactor.
    Counter,
    /// The same of nanoseconds: the name ends with `_ns`.
    Seconds,
    /// As of now.
    Gauge,
}

/// A count that a reactor keeps.
#[derive(Clone, Copy)]
pub struct Count {
    /// Its name, that of metrics behind `weft_reactor_`.
    pub name: &'static str,
    /// How it is to be understood.
    pub kind: CountKind,
    /// What it counts.
    pub help: &'static str,
    place: fn(&mut Report) -> &mut u64,
}

impl Count {
    /// What a report says of it.
    pub fn of(&self, mut report: Report) -> u64 {
        *(self.place)(&mut report)
    }
}

macro_rules! count {
    ($name:literal, $kind:ident, $($field:ident).+, $help:literal) => {
        Count {
            name: $name,
            kind: CountKind::$kind,
            help: $help,
            place: |report| &mut report.$($field).+,
        }
    };
}

/// What reactors count: the sum of them, the JSON of SIGUSR1 and of the admin socket, and
/// the metrics of each are made of these lines.
pub const COUNTS: &[Count] = &[
    count!(
        "ios",
        Counter,
        ios,
        "I/Os of volumes and files that succeeded"
    ),
    count!(
        "io_bytes",
        Counter,
        io_bytes,
        "Bytes of I/Os of volumes and files that succeeded"
    ),
    count!("nfs_calls", Counter, nfs_calls, "NFS calls that were begun"),
    count!(
        "authentications",
        Counter,
        authentications,
        "Queues of NVMe hosts that have authenticated, each time"
    ),
    count!(
        "rdma_fpdus_received",
        Counter,
        rdma.fpdus_received,
        "FPDUs of iWARP that have come"
    ),
    count!(
        "rdma_fpdus_sent",
        Counter,
        rdma.fpdus_sent,
        "FPDUs of iWARP that were sent"
    ),
    count!(
        "rdma_reads",
        Gauge,
        rdma.reads,
        "RDMA Reads whose response has not come"
    ),
    count!(
        "syscalls",
        Counter,
        driver.syscalls,
        "System calls on the data path"
    ),
    count!(
        "wakeups",
        Counter,
        driver.wakeups,
        "Sleeps in the kernel that ended"
    ),
    count!("receives", Counter, driver.recvs, "Receives that ended"),
    count!(
        "received_bytes",
        Counter,
        driver.recv_bytes,
        "Bytes received"
    ),
    count!("sends", Counter, driver.sends, "Batches sent"),
    count!("sent_bytes", Counter, driver.send_bytes, "Bytes sent"),
    count!(
        "partial_sends",
        Counter,
        driver.partial_sends,
        "Sends that the kernel took only a part of"
    ),
    count!(
        "zero_copy_sends",
        Counter,
        driver.zero_copy_sends,
        "Batches sent zero-copy"
    ),
    count!(
        "zero_copy_registered",
        Counter,
        driver.zero_copy_registered,
        "Batches sent zero-copy from a registered buffer"
    ),
    count!(
        "zero_copy_copied",
        Counter,
        driver.zero_copy_copied,
        "Zero-copy sends that the kernel copied after all"
    ),
    count!(
        "zero_copy_refused",
        Counter,
        driver.zero_copy_refused,
        "Zero-copy sends that the kernel refused for want of locked memory"
    ),
    count!(
        "zero_copy_given_up",
        Counter,
        driver.zero_copy_given_up,
        "Connections that went back to plain sends"
    ),
    count!(
        "buffers_registered",
        Counter,
        driver.buffers_registered,
        "Buffers that were registered with the kernel"
    ),
    count!(
        "starved_receives",
        Counter,
        driver.starved_recvs,
        "Receives that found less memory than they wanted"
    ),
    count!(
        "file_operations",
        Counter,
        driver.file_ops,
        "File operations that ended"
    ),
    count!(
        "copied_bytes",
        Counter,
        memory.copied_bytes,
        "Payload bytes copied in user space"
    ),
    count!(
        "digested_bytes",
        Counter,
        memory.digested_bytes,
        "Payload bytes over which a CRC32C was computed"
    ),
    count!(
        "allocations",
        Counter,
        memory.allocations,
        "Allocations, in builds that count them"
    ),
    count!(
        "buffer_bytes",
        Gauge,
        pool_bytes,
        "Bytes of memory_max that are taken"
    ),
    count!(
        "run_ns",
        Seconds,
        times.run_ns,
        "Time since the loop of the reactor began"
    ),
    count!(
        "spun_ns",
        Seconds,
        times.spun_ns,
        "Time spent looking for work in vain without sleeping"
    ),
    count!(
        "slept_ns",
        Seconds,
        times.slept_ns,
        "Time asleep in the kernel"
    ),
    count!(
        "connections",
        Gauge,
        connections,
        "Connections that are open or about to end"
    ),
    count!(
        "ticks",
        Counter,
        ticks,
        "Times that a connection was told the time"
    ),
    count!(
        "orphans",
        Gauge,
        orphans,
        "I/Os that no host waits for any more and that their volume still works on"
    ),
];

/// What is so of all reactors together stays as it is.
impl AddAssign for Report {
    fn add_assign(&mut self, mut other: Report) {
        for count in COUNTS {
            *(count.place)(self) += *(count.place)(&mut other);
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
