//! Tasks that wait for a limit: what is behind them on their connection goes on.

use needs::each_driver;
use reactor::Choice;

use wire::iscsi::{TaskFunction, TaskResponse};

use crate::client::{Client, InitiatorPort, read_16, write_16};
use crate::common::{BLOCK, pattern, portal, until, with_gate_and};
use crate::limited::{held_back, one_of, set};

#[each_driver]
fn tasks_that_wait_for_a_limit_keep_no_ping_and_no_task_management_waiting(backend: Choice) {
    let mut limit = one_of(BLOCK as u64);
    limit.volumes = vec!["ram".to_owned()];
    let limited = |config: &mut server::Config| config.rate_limits = vec![limit.clone()];
    with_gate_and(backend, limited, |running, _| {
        let initiator = InitiatorPort::new(1);
        let mut client = Client::login(portal(running), &initiator)
            .expect("in")
            .calm(&[0, 1]);
        assert!(client.command(0, &read_16(0, 1), BLOCK as u32).is_good());
        // Data with its command, data that is asked for, and no data.
        let data = pattern(1, 64 * BLOCK);
        let small = client.start_write(0, &write_16(0, 1), &data[..BLOCK], BLOCK);
        let read = client.start_read(0, &read_16(0, 1), BLOCK as u32);
        let last = client.start_read(0, &read_16(0, 1), BLOCK as u32);
        let large = client.start_write(0, &write_16(8, 64), &data, 0);
        until("they wait", || held_back(running) == 4);
        assert_eq!(client.ping(b"alive"), b"alive");
        let other = client.command(1, &read_16(0, 1), BLOCK as u32);
        assert!(other.is_good(), "another volume: {other:?}");
        let response = client.function(TaskFunction::AbortTask, 0, last);
        assert_eq!(response, TaskResponse::Complete);
        assert_eq!(held_back(running), 3);
        set(running, &[]);
        assert!(client.end_of(small, &data[..BLOCK]).is_good());
        let ended = client.end_of(read, &[]);
        assert!(ended.is_good());
        assert_eq!(ended.data, data[..BLOCK], "after the write before it");
        assert!(client.end_of(large, &data).is_good());
        let written = client.command(0, &read_16(8, 64), data.len() as u32);
        assert_eq!(written.data, data);
    });
}

/// An initiator that resets its unit is rid of what waits there.
#[each_driver]
fn a_reset_of_a_unit_ends_what_waits_there_for_a_limit(backend: Choice) {
    let limited = |config: &mut server::Config| config.rate_limits = vec![one_of(BLOCK as u64)];
    with_gate_and(backend, limited, |running, _| {
        let initiator = InitiatorPort::new(1);
        let mut client = Client::login(portal(running), &initiator)
            .expect("in")
            .calm(&[0]);
        assert!(client.command(0, &read_16(0, 1), BLOCK as u32).is_good());
        for n in 0..4 {
            client.start_write(0, &write_16(n, 1), &pattern(1, BLOCK), BLOCK);
        }
        until("they wait", || held_back(running) == 4);
        let response = client.function(TaskFunction::LogicalUnitReset, 0, u32::MAX);
        assert_eq!(response, TaskResponse::Complete);
        assert_eq!(held_back(running), 0);
    });
}
