//! iSCSI through WireGuard, by the lines of docs/security.md.

use std::fs;

use interop::guest::{Config, Guest, prepare};
use interop::scripts::{ISCSI, LAB, STORAGE, TUNNEL, script};
use interop::systems::RELEASE;
use interop::weft::binary;
use needs::needs;

const PAGE: &str = include_str!("../../../docs/security.md");

/// The examples of a section, in their order, without prompts.
fn examples(section: &str) -> Vec<String> {
    let (_, after) = PAGE.split_once(section).expect("the section");
    let text = after.split("\n## ").next().unwrap_or_default();
    let blocks = text.split("```").skip(1).step_by(2).map(|block| {
        let lines = block.lines().skip(1);
        let lines = lines.map(|line| line.strip_prefix("# ").unwrap_or(line));
        lines.map(|line| format!("{line}\n")).collect()
    });
    blocks.collect()
}

/// The storage machine is a network namespace of its own, with weft; the host is the other.
#[needs(guest)]
#[test]
fn initiator_reaches_weft_through_wireguard_by_the_lines_of_the_page_and_no_other_way() {
    let examples = examples("\n### Through WireGuard\n");
    let [storage, host, peer, serves, login] = &examples[..] else {
        panic!("the page has other examples: {examples:#?}");
    };
    let weft = tempfile::tempdir().expect("a folder");
    fs::copy(binary(), weft.path().join("weft")).expect("a copy");
    let (packages, _) = prepare(&RELEASE).expect("packages, as everything for a guest is there");
    let settings = [
        ("ADDR", "10.99.0.1"),
        ("PORT", "3260"),
        ("IQN", "iqn.2026-01.io.weft:disks"),
        ("STORAGE", storage),
        ("HOST", host),
        ("PEER", peer),
        ("SERVES", serves),
        ("LOGIN", login),
    ];
    let pieces = [LAB, STORAGE, ISCSI, TUNNEL];
    let mut config = Config::new("tunnel", &script(&settings, &pieces));
    config.folders = vec![
        ("packages", packages.root),
        ("weft", weft.path().to_path_buf()),
    ];
    let guest = Guest::start(&config).expect("a guest, as everything for it is there");
    let said = guest.finish().expect_success();
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("STEP") && last.ends_with(" end"), "{said}");
}
