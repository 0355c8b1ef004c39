//! What a target has done so far, as JSON.

use mem::counters::counts_allocations;
use serde_json::{Value, json};
use server::Report;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// The counters that SIGUSR1 prints and the admin socket answers.
#[must_use]
pub fn counters(report: &Report) -> Value {
    let (driver, memory) = (&report.driver, &report.memory);
    json!({
        "ios": report.ios,
        "io_bytes": report.io_bytes,
        "nfs_calls": report.nfs_calls,
        "syscalls": driver.syscalls,
        "wakeups": driver.wakeups,
        "receives": driver.recvs,
        "received_bytes": driver.recv_bytes,
        "sends": driver.sends,
        "sent_bytes": driver.send_bytes,
        "partial_sends": driver.partial_sends,
        "zero_copy_sends": driver.zero_copy_sends,
        "zero_copy_registered": driver.zero_copy_registered,
        "zero_copy_copied": driver.zero_copy_copied,
        "zero_copy_refused": driver.zero_copy_refused,
        "zero_copy_given_up": driver.zero_copy_given_up,
        "buffers_registered": driver.buffers_registered,
        "starved_receives": driver.starved_recvs,
        "file_operations": driver.file_ops,
        "copied_bytes": memory.copied_bytes,
        "digested_bytes": memory.digested_bytes,
        "allocations": counts_allocations().then_some(memory.allocations),
        "buffer_bytes": report.pool_bytes,
        "spun_ns": report.spun_ns,
        "refusals": report.refusals,
        "orphans": report.orphans,
    })
}

/// The time, as the log writes it.
#[must_use]
pub fn now() -> String {
    let mut text = String::new();
    let written = SystemTime.format_time(&mut Writer::new(&mut text));
    written.expect("a text takes everything");
    text
}
