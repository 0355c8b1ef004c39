//! What an administrator does to a target by commands, from a start without a file on, while
//! an unmodified Linux kernel reads and writes.

use interop::default_target::DefaultTarget;
use interop::guest::{Config, Guest};
use interop::initramfs::HOST_NQN;
use interop::scripts::{ISCSI, ISCSI_STORY, MACHINE, STORY, script};
use interop::weft::NQN;
use needs::needs;
use std::time::Duration;

/// Three times what it takes on a machine with much else to do.
const LIMIT: Duration = Duration::from_secs(480);

/// A host that is shut out.
const OTHER: &str = "nqn.2026-01.org.example:other";

/// Of all that were refused something, this is the one.
fn refused_alone(target: &DefaultTarget, name: &str) {
    let refusals = target.run(&["refusals"]);
    let names = refusals
        .lines()
        .filter_map(|line| line.strip_prefix("  name "));
    let names: Vec<&str> = names.map(str::trim).collect();
    assert!(!names.is_empty(), "{refusals}");
    assert!(names.iter().all(|known| *known == name), "{refusals}");
}

/// Volumes grow and listeners move, a host is shut out and another evicted, and the
/// configuration goes back, under loads that must not see an error. What is cut is what the
/// commands have said before.
#[needs(guest, network_namespace)]
#[test]
fn an_nvme_host_sees_what_commands_say_and_loses_nothing() {
    let target = DefaultTarget::start();
    target.run(&["add", "volume", "data", "kind=ram", "size=64MiB"]);
    let volumes = "volumes=[\"data\"]";
    target.run(&["add", "subsystem", NQN, "allow_any_host=true", volumes]);

    let settings = [
        ("ADDR", MACHINE),
        ("PORT", "4420"),
        ("SECOND", "4421"),
        ("NQN", NQN),
        ("OTHER", OTHER),
    ];
    let mut config = Config::new("story", &script(&settings, &[STORY]));
    config.cpus = 2;
    config.limit = LIMIT;
    target.reach_from(&mut config);
    let guest = Guest::start(&config).expect("a guest, as everything for it is there");

    let guest = guest.until("MARK grow");
    let said = target.run(&["set", "volume", "data", "size=128MiB"]);
    assert!(said.contains("grows from 64MiB to 128MiB: its hosts are told"));

    let guest = guest.until("MARK mask");
    let hosts = format!("hosts=[\"{HOST_NQN}\"]");
    target.run_disconnecting(
        &["set", "subsystem", NQN, &hosts, "allow_any_host="],
        &format!("subsystem {NQN}: {HOST_NQN} may connect, controllers of other hosts end"),
    );
    let before_the_move = target.generation();

    let guest = guest.until("MARK listener");
    target.run(&["add", "listener", "127.0.0.1:4421"]);
    let guest = guest.until("MARK listener moved");
    // What is built in has NVMe's listener in the portal group too, so that states are one.
    let said = target.refused(&["rm", "listener", "127.0.0.1:4420"]);
    assert!(said.contains("portal_group/1 names it"), "{said}");
    let listeners = "listeners=[\"127.0.0.1:4421\", \"127.0.0.1:3260\"]";
    target.run(&["set", "portal_group", "1", listeners, "--disconnect"]);
    target.run_disconnecting(
        &["rm", "listener", "127.0.0.1:4420"],
        "listener 127.0.0.1:4420 (NVMe/TCP) is removed: connections by it end",
    );

    let guest = guest.until("MARK evict");
    let said = target.run(&["evict", "host", HOST_NQN]);
    assert_eq!(said.matches("has ended").count(), 1, "{said}");
    assert!(said.contains("it may come back"), "{said}");

    let guest = guest.until("MARK rollback");
    target.run_disconnecting(
        &["rollback", &before_the_move],
        "listener 127.0.0.1:4421 (NVMe/TCP) is removed: connections by it end",
    );
    println!("{}", guest.finish().expect_success());

    refused_alone(&target, OTHER);
    target.expect_orderly_end();
}

const IQN: &str = "iqn.2026-01.org.example:story";
const INITIATOR: &str = "iqn.2026-01.org.example:guest";
const OTHER_INITIATOR: &str = "iqn.2026-01.org.example:other";

/// The same for an initiator of one portal, which comes back by a login.
#[needs(guest, network_namespace)]
#[test]
fn an_iscsi_initiator_sees_what_commands_say_and_loses_nothing() {
    let target = DefaultTarget::start();
    target.run(&["add", "volume", "data", "kind=ram", "size=64MiB"]);
    let volumes = "volumes=[\"data\"]";
    target.run(&["add", "target", IQN, "allow_any_initiator=true", volumes]);

    let settings = [
        ("ADDR", MACHINE),
        ("PORT", "3260"),
        ("IQN", IQN),
        ("OTHER", OTHER_INITIATOR),
    ];
    let mut config = Config::new("iscsi-story", &script(&settings, &[ISCSI, ISCSI_STORY]));
    config.cpus = 2;
    config.limit = LIMIT;
    target.reach_from(&mut config);
    let guest = Guest::start(&config).expect("a guest, as everything for it is there");

    let guest = guest.until("MARK grow");
    target.run(&["set", "volume", "data", "size=128MiB"]);
    let before_the_mask = target.generation();

    let guest = guest.until("MARK mask");
    let initiators = format!("initiators=[\"{INITIATOR}\"]");
    let cuts = format!("target {IQN} changes: sessions that it would refuse end");
    target.run_disconnecting(
        &["set", "target", IQN, &initiators, "allow_any_initiator="],
        &cuts,
    );

    let guest = guest.until("MARK evict");
    let said = target.run(&["evict", "host", INITIATOR]);
    assert!(said.contains("it may come back"), "{said}");

    let guest = guest.until("MARK rollback");
    target.run_disconnecting(&["rollback", &before_the_mask], &cuts);
    println!("{}", guest.finish().expect_success());

    refused_alone(&target, OTHER_INITIATOR);
    target.expect_orderly_end();
}
