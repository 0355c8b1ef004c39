//! What an operator does to a target, from a start without a file on, by commands, by a program
//! over the API and in the console, while an unmodified Linux kernel reads and writes.

use interop::default_target::DefaultTarget;
use interop::guest::{Config, Guest};
use interop::initramfs::HOST_NQN;
use interop::scripts::{ISCSI, ISCSI_STORY, MACHINE, STORY, script};
use interop::ways::{Commands, Console, Deed, OperatorWay, Program};
use interop::weft::NQN;
use needs::needs;
use serde_json::json;
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

/// How often each story is gone through: `cargo xtask lab story` asks for more.
const TIMES: &str = "WEFT_STORY_TIMES";

/// A step of the story.
struct StoryStep {
    /// Where the guest is then; empty: where it was at the step before.
    mark: &'static str,
    deed: Deed,
    /// What is announced as cut, in part or whole, and nothing else is.
    cuts: Vec<String>,
    /// What is said to be done.
    done: String,
}

/// What the steps before the listener moves have made.
const BEFORE_THE_MOVE: &str = "5";

/// A volume is made and grows, a host is shut out, the listener moves, the other host is evicted,
/// weft is drained, and the configuration goes back.
fn story() -> Vec<StoryStep> {
    let step = |mark, verb, (kind, name): (_, &str), fields, cuts: &[&str], done: &str| StoryStep {
        mark,
        deed: Deed {
            verb,
            kind,
            name: name.to_owned(),
            fields,
        },
        cuts: cuts.iter().map(|line| (*line).to_owned()).collect(),
        done: done.to_owned(),
    };
    let (first, second) = ("127.0.0.1:4420", "127.0.0.1:4421");
    let (volume, subsystem) = (("volume", "data"), ("subsystem", NQN));
    let masked = format!("subsystem {NQN}: {HOST_NQN} may connect, controllers of other hosts end");
    let drained = format!(
        "{HOST_NQN}: 1 path to {NQN} give no access: it goes on by those of another target, or waits"
    );
    let gone =
        |address: &str| format!("listener {address} (NVMe/TCP) is removed: connections by it end");
    let open = json!({"allow_any_host": true, "volumes": ["data"]});
    let closed = json!({"allow_any_host": null, "hosts": [HOST_NQN]});
    // What is built in has NVMe's listener in the portal group too, so that states are one.
    let group = json!({"listeners": [second, "127.0.0.1:3260"]});
    vec![
        step(
            "",
            "add",
            volume,
            json!({"kind": "ram", "size": "64MiB"}),
            &[],
            "\"data\" is added",
        ),
        step("", "add", subsystem, open, &[], "is added"),
        step(
            "MARK grow",
            "set",
            volume,
            json!({"size": "128MiB"}),
            &[],
            "grows from 64MiB to 128MiB: its hosts are told",
        ),
        step("MARK mask", "set", subsystem, closed, &[&masked], &masked),
        step(
            "MARK listener",
            "add",
            ("listener", second),
            json!({}),
            &[],
            second,
        ),
        step(
            "MARK listener moved",
            "set",
            ("portal_group", "1"),
            group,
            // The target that is built in: no initiator has a session there.
            &["changes: sessions that it would refuse end"],
            "changes: sessions that it would refuse end",
        ),
        step(
            "",
            "rm",
            ("listener", first),
            json!({}),
            &[&gone(first)],
            &gone(first),
        ),
        step(
            "MARK evict",
            "evict",
            ("host", HOST_NQN),
            json!({}),
            &[],
            HOST_NQN,
        ),
        step(
            "MARK drain",
            "drain",
            ("", ""),
            json!({}),
            &[&drained],
            "no host is let in any more",
        ),
        step(
            "MARK drained",
            "end-drain",
            ("", ""),
            json!({}),
            &[],
            "hosts are let in again",
        ),
        step(
            "MARK rollback",
            "rollback",
            ("", BEFORE_THE_MOVE),
            json!({}),
            &[&gone(second)],
            &gone(second),
        ),
    ]
}

/// Goes through the story with a guest as the host, whose loads must not see an error. What is cut
/// is what was announced before.
fn is_gone_through(way: &dyn OperatorWay, target: &DefaultTarget) {
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
    let mut guest: Option<Guest> = None;
    for step in story() {
        if !step.mark.is_empty() {
            let up = guest.take().unwrap_or_else(|| {
                Guest::start(&config).expect("a guest, as everything for it is there")
            });
            guest = Some(up.until(step.mark));
        }
        let told = way.act(&step.deed);
        let are_all = told.cuts.len() == step.cuts.len();
        let mut both = told.cuts.iter().zip(&step.cuts);
        let are_same = are_all && both.all(|(told, cut)| told.contains(cut));
        assert!(are_same, "{:?}: {told:?}", step.deed);
        let is_done = told.done.iter().any(|line| line.contains(&step.done));
        assert!(is_done, "{:?}: {told:?}", step.deed);
    }
    println!("{}", guest.expect("a guest").finish().expect_success());
    refused_alone(target, OTHER);
}

/// As often as is asked for, each time with a target of its own.
fn goes_well(way: impl Fn(&DefaultTarget) -> Box<dyn OperatorWay + '_>) {
    let times = std::env::var(TIMES).map_or(1, |times| times.parse().expect("a number"));
    for _ in 0..times {
        let target = DefaultTarget::start();
        is_gone_through(&*way(&target), &target);
        target.expect_orderly_end();
    }
}

#[needs(guest, network_namespace)]
#[test]
fn an_nvme_host_sees_what_commands_say_and_loses_nothing() {
    goes_well(|target| Box::new(Commands(target)));
}

#[needs(guest, network_namespace, program("python3"))]
#[test]
#[ignore = "another test has one such guest: cargo xtask lab story"]
fn an_nvme_host_sees_what_a_program_over_the_api_is_told_and_loses_nothing() {
    goes_well(|target| Box::new(Program::of(target)));
}

#[needs(guest, network_namespace, browser)]
#[test]
fn an_nvme_host_sees_what_the_console_shows_and_loses_nothing() {
    goes_well(|target| Box::new(Console::of(target)));
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
    // It lets more in than before, which cuts no session.
    target.run(&["rollback", &before_the_mask]);
    println!("{}", guest.finish().expect_success());

    refused_alone(&target, OTHER_INITIATOR);
    target.expect_orderly_end();
}
