//! What of a file a reload changes, and what it refuses.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use ::iscsi::InitiatorAcl;
use nvmf::AnaGroup;
use nvmf::command::AnaState;
use server::{Ana, Change, IscsiTargetSpec, ListenerSpec};
use store::Spec;

use super::*;
use crate::plan::at_restart;

/// Others that may stand in the place of what is behind `key = `.
fn others(value: &str) -> Vec<String> {
    let (value, _) = value.split_once("  #").unwrap_or((value, ""));
    let value = value.trim();
    let number = value.parse::<u64>().ok();
    let mut others: Vec<String> = match value {
        "true" => vec!["false".to_owned()],
        "false" => vec!["true".to_owned()],
        _ => Vec::new(),
    };
    others.extend(number.map(|number| (number + 1).to_string()));
    others.extend(number.map(|number| (number * 2).to_string()));
    others.extend(value.strip_suffix('"').map(|text| format!("{text}2\"")));
    let words = [
        "\"2TiB\"",
        "\"1MiB\"",
        "\"epoll\"",
        "\"least\"",
        "\"inaccessible\"",
        "\"ram\"",
        "\"00f00000-7dec-11d0-a765-00a0c91e6bf6\"",
        "\"6001405ab12345670123456789abcde0\"",
        "\"192.0.2.77:4420\"",
        "\"0-1\"",
        "0",
        "1",
        "4",
        "[1]",
    ];
    others.extend(words.map(str::to_owned));
    others
}

#[test]
fn no_key_of_the_example_that_changes_is_left_out_of_a_plan() {
    let running = read(EXAMPLE).expect("the example");
    let lines: Vec<&str> = EXAMPLE.lines().collect();
    let (mut planned, mut left) = (0, Vec::new());
    for (at, line) in lines.iter().enumerate() {
        let bare = line.strip_prefix("# ").unwrap_or(line);
        let Some((key, value)) = bare.split_once(" = ") else {
            continue;
        };
        let mut variants = vec![String::new(), bare.to_owned()];
        variants.extend(others(value).iter().map(|other| format!("{key} = {other}")));
        for variant in variants {
            let mut text = lines.clone();
            text[at] = &variant;
            let Ok(desired) = read(&text.join("\n")) else {
                continue;
            };
            if format!("{desired:?}") == format!("{running:?}") {
                continue;
            }
            let is_told = !at_restart(&running, &desired).is_empty();
            match plan(&running, &desired) {
                Ok(plan) if plan.is_empty() && !is_told => left.push(variant),
                _ => planned += 1,
            }
        }
    }
    // What a start does is of no meaning afterwards.
    left.retain(|line| !line.starts_with("start"));
    assert!(left.is_empty(), "{left:#?}");
    assert!(planned > 100, "{planned} variants");
}

#[test]
fn line_about_many_hosts_names_the_first_of_them() {
    let of = |hosts: &str| read(&file(SIZE, "", hosts, LOCAL, "")).expect("right");
    let many: Vec<String> = (0..10_000)
        .map(|n| format!("nqn.2026-01.org.example:{n}"))
        .collect();
    let plan = plan(&of(ANY), &of(&format!("hosts = {many:?}"))).expect("it may change");
    let text = &plan[0].text;
    assert!(
        text.contains("example:7 and 9992 others may connect"),
        "{text}"
    );
}

#[test]
fn lists_of_hosts_in_another_order_change_nothing() {
    let host = |name: &str| format!("nqn.2026-01.org.example:{name}");
    let read = |order: [&str; 2]| {
        let [one, two] = order.map(host);
        let of_host = |nqn: &str| {
            format!("[[nvme.subsystem.host]]\nnqn = \"{nqn}\"\nnetworks = [\"10.0.0.0/8\"]\n")
        };
        let hosts = format!("{}{}", of_host(&one), of_host(&two));
        let mut config = read(&file(SIZE, "", &hosts, LOCAL, "")).expect("right");
        config.subsystems[0].namespaces[0].hosts = Some(vec![one, two]);
        config
    };
    let (old, new) = (read(["a", "b"]), read(["b", "a"]));
    assert_ne!(old.subsystems, new.subsystems);
    assert_eq!(plan(&old, &new), Ok(Vec::new()));
    let other = read(["a", "c"]);
    let changes = plan(&old, &other).expect("it may change");
    let [change] = &changes[..] else {
        panic!("{changes:?}");
    };
    for part in ["may connect", "see it", "get other terms"] {
        assert!(change.text.contains(part), "{part}: {}", change.text);
    }
}

#[test]
fn file_that_would_shrink_is_to_be_cut_before_it_is_added_again() {
    let sized = |kind: Kind, size_bytes| {
        let mut config = default_config();
        config.volumes = vec![Spec::new("disk", kind, size_bytes, 512)];
        config
    };
    let refused = |kind: Kind| {
        let lines = plan(&sized(kind.clone(), 8192), &sized(kind, 4096));
        lines.expect_err("it would shrink").join("\n")
    };
    let told = refused(Kind::file("/srv/disk.img"));
    let remedy = "remove it, `truncate -s 4096 /srv/disk.img`, and add it again";
    assert!(told.contains(remedy), "{told}");
    let told = refused(Kind::RAM);
    assert!(told.contains("remove it, and add it again"), "{told}");
}

/// The changes from what is built in to what `edit` makes of it.
fn changes(edit: impl FnOnce(&mut Config)) -> Vec<Change> {
    let running = default_config();
    let mut desired = running.clone();
    edit(&mut desired);
    let plan = plan(&running, &desired).expect("it may change");
    plan.into_iter().map(|planned| planned.change).collect()
}

#[test]
fn file_system_that_is_gone_is_removed_after_its_export() {
    let changes = changes(|desired| {
        desired.exports.clear();
        desired.file_systems.clear();
    });
    let [
        Change::RemoveExport { .. },
        Change::RemoveFileSystem { name },
    ] = &changes[..]
    else {
        panic!("{changes:?}");
    };
    assert_eq!(name, "default");
}

#[test]
fn listeners_of_a_subsystem_change_with_it_alone() {
    let changes = changes(|desired| desired.subsystems[0].listeners = Some(vec![0]));
    let [Change::SetSubsystem { spec, .. }] = &changes[..] else {
        panic!("{changes:?}");
    };
    assert_eq!(spec.listeners, Some(vec![0]));
}

#[test]
fn namespace_of_another_volume_is_removed_and_added() {
    let changes = changes(|desired| {
        let other = Spec::new("other", Kind::RAM, 1 << 20, 512);
        desired.volumes.push(other);
        desired.subsystems[0].namespaces[0].volume = "other".to_owned();
    });
    let at = |is: fn(&Change) -> bool| changes.iter().position(is).expect("planned");
    let removed = at(|change| matches!(change, Change::RemoveNamespace { .. }));
    assert!(removed < at(|change| matches!(change, Change::AddNamespace { .. })));
}

/// A target of two ANA groups, each with access by its listener or without, and the
/// initiators that may use it.
fn target(has_access: [bool; 2], initiators: &[&str]) -> server::Config {
    let groups = (1..).zip(has_access).map(|(id, has_access)| AnaGroup {
        id,
        state: match has_access {
            true => AnaState::Optimized,
            false => AnaState::Inaccessible,
        },
        on: Vec::new(),
    });
    let mut spec = IscsiTargetSpec::new("iqn.2026-01.io.weft:t");
    spec.ana = Ana::Own(groups.collect());
    spec.target.acl = initiators
        .iter()
        .map(|name| InitiatorAcl {
            name: Some((*name).to_owned()),
            ..InitiatorAcl::default()
        })
        .collect();
    server::Config {
        iscsi_targets: vec![spec],
        listeners: vec![ListenerSpec::iscsi(SocketAddr::from((
            [127, 0, 0, 1],
            3260,
        )))],
        ..server::Config::default()
    }
}

/// Which initiators have access to which groups of the target.
fn access(config: &server::Config) -> BTreeSet<(String, u32)> {
    let spec = &config.iscsi_targets[0];
    let Ana::Own(groups) = &spec.ana else {
        panic!("the states are its own");
    };
    let open = groups
        .iter()
        .filter(|group| group.state_on(0).is_accessible());
    let open: Vec<u32> = open.map(|group| group.id).collect();
    let names = spec
        .target
        .acl
        .iter()
        .filter_map(|entry| entry.name.clone());
    names
        .flat_map(|name| open.iter().map(move |id| (name.clone(), *id)))
        .collect()
}

#[test]
fn no_initiator_has_access_meanwhile_that_neither_document_gives() {
    let make = |config: &mut server::Config, change: &Change| match change {
        Change::SetTarget(target) => config.iscsi_targets[0].target = target.clone(),
        Change::SetTargetAna { groups, .. } => {
            config.iscsi_targets[0].ana = Ana::Own(groups.clone());
        }
        change => panic!("{change:?}"),
    };
    let initiators: [&[&str]; 4] = [&[], &["iqn.a"], &["iqn.b"], &["iqn.a", "iqn.b"]];
    let states = [[true, true], [true, false], [false, true], [false, false]];
    let all = || {
        states
            .iter()
            .flat_map(|s| initiators.iter().map(|i| target(*s, i)))
    };
    for (old, new) in all().flat_map(|old| all().map(move |new| (old.clone(), new))) {
        let may: BTreeSet<_> = access(&old).union(&access(&new)).cloned().collect();
        let steps = plan(&old, &new).expect("it can change");
        let mut served = old.clone();
        for step in &steps {
            make(&mut served, &step.change);
            assert!(access(&served).is_subset(&may), "{}: {served:?}", step.text);
        }
        assert_eq!(access(&served), access(&new));
        for step in steps.iter().rev() {
            make(&mut served, step.undo.as_ref().expect("it is taken back"));
            assert!(
                access(&served).is_subset(&may),
                "back: {}: {served:?}",
                step.text
            );
        }
        assert_eq!(access(&served), access(&old));
    }
}
