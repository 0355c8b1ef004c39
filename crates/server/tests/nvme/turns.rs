//! Hosts take turns at what there is little of.

use machine::work::{OPERATION_UNITS_MAX, TURN_UNITS_MAX};
use needs::each_driver;
use nvmf::NSID_MAX;
use reactor::Choice;
use server::{Limits, NamespaceSpec};
use store::Kind;
use wire::nvme::log::lid;
use wire::nvme::{Sqe, Status, io as opcode};

use crate::commands::wait_for;
use crate::common::{BLOCK, Host, Queue, config, ram, stop};
use crate::report::report;

/// Of 30 commands each.
const QUEUES: u16 = 40;
/// Blocks of a Verify, which is done in pieces of 128 KiB: 8 of them.
const BLOCKS: u32 = 256;
/// Some times what is under way on a disk: half of what waits.
const AHEAD_MAX: u64 = 600;

/// Two files on one disk: hundreds of long commands to one delay a read of the other by
/// what is under way, and not by what waits.
#[each_driver]
fn read_waits_for_its_turn_at_a_disk_and_not_for_all_that_another_host_asked_for(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(backend, Limits::default(), 512 << 20);
    config.cpus.truncate(1);
    config.volumes = ["busy", "beside"].map(|name| ram(name, 1 << 14)).into();
    for volume in &mut config.volumes {
        let path = folder.path().join(volume.name.as_str());
        volume.kind = Kind::file(path);
    }
    config.subsystems[0].namespaces = [(1, "busy"), (2, "beside")]
        .map(|(nsid, volume)| NamespaceSpec {
            nsid,
            volume: volume.into(),
            ..NamespaceSpec::default()
        })
        .into();
    let running = server::start(config).expect("starts");
    let host = Host::at(running.addresses()[0]);
    let other = Host {
        hostnqn: "nqn.2026-01.org.example:other",
        ..host
    };
    let (_other_admin, mut beside) = other.pair();
    assert_eq!(beside.write(2, 0, 7), Status::SUCCESS);
    let (_admin, cntlid) = host.admin();
    let mut queues: Vec<Queue> = (1..=QUEUES)
        .map(|qid| host.queue(qid, cntlid).expect("admitted").0)
        .collect();
    let before = report(&running).driver.file_ops;
    for (n, queue) in queues.iter_mut().enumerate() {
        for at in 0..30 {
            let mut verify = Sqe::new(opcode::VERIFY);
            verify.nsid = 1.into();
            let slba = (n * 30 + at) as u64 * 33 % (1 << 14) / 256 * 256;
            verify.set_blocks(slba, BLOCKS);
            queue.send(verify, &[]);
        }
    }
    wait_for(|| report(&running).driver.file_ops > before);
    let least = (0..4).map(|_| {
        let before = report(&running).driver.file_ops;
        assert_eq!(beside.read(2, 0), Ok(vec![7; BLOCK]));
        report(&running).driver.file_ops - before
    });
    let least = least.min().expect("some reads");
    assert!(
        least <= AHEAD_MAX,
        "{least} operations of another host came first"
    );
    for queue in &mut queues {
        for cid in 1..=30 {
            assert_eq!(
                queue.pdu()[0],
                wire::nvme_tcp::pdu_type::CAPSULE_RESP,
                "{cid}"
            );
        }
    }
    stop(running);
}

/// The counters of every namespace there may be are looked at for one log page.
#[test]
fn log_page_about_all_namespaces_costs_its_host_what_they_cost() {
    let mut config = config(Choice::Auto, Limits::default(), 64 << 20);
    let names = Vec::from_iter((1..=NSID_MAX).map(|nsid| (nsid, format!("null{nsid}"))));
    let null = |name: &str| store::Spec::new(name, Kind::NULL, 1 << 20, BLOCK as u32);
    config.volumes = names.iter().map(|(_, name)| null(name)).collect();
    let namespaces = names.into_iter().map(|(nsid, volume)| NamespaceSpec {
        nsid,
        volume,
        ..NamespaceSpec::default()
    });
    config.subsystems[0].namespaces = namespaces.collect();
    let running = server::start(config).expect("starts");
    let (mut admin, _) = Host::at(running.addresses()[0]).admin();
    admin.log_page(lid::SMART, 512);
    let units = report(&running).turn_units_max;
    assert!(units >= u64::from(NSID_MAX), "{units} units");
    assert!(
        units <= TURN_UNITS_MAX + OPERATION_UNITS_MAX,
        "{units} units"
    );
    stop(running);
}
