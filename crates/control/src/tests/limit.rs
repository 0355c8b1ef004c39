//! `[[limit]]`.

use server::{Change, RateLimit, Rates};

use super::*;
use crate::plan::at_restart;

fn limits(text: &str) -> String {
    let sound = file(SIZE, "", ANY, LOCAL, "");
    let files = "[[file_system]]\nname = \"f\"\nkind = \"mem\"\nsize = \"16MiB\"\n\
                 [[export]]\npath = \"/f\"\nfile_system = \"f\"\nallow_any_client = true\n\
                 [[listener]]\naddress = \"127.0.0.1:2049\"\nprotocol = \"nfs\"\n";
    format!("{sound}{files}{text}")
}

fn limit(text: &str) -> String {
    limits(&format!("[[limit]]\n{text}"))
}

#[test]
fn a_limit_says_how_much_for_which() {
    let all = "name = \"a\"\nvolumes = [\"a\"]\nexports = [\"/f\"]\n\
               hosts = [\"nqn.2026-01.io.weft:h\", \"iqn.2026-01.io.weft:i\", \"192.0.2.7\"]\n\
               listeners = [\"127.0.0.1:2049\", \"127.0.0.1:4420\"]\n\
               iops = 100\nread_iops = 1\nwrite_iops = 1000000000\n\
               bytes = \"64GiB\"\nread_bytes = 1\nwrite_bytes = \"1MB\"\nburst_s = 3600\n\
               floor_iops = 100\nfloor_bytes = \"1KiB\"\n";
    let plain = "[[limit]]\nname = \"b\"\niops = 1\n";
    let config = read(&limit(&format!("{all}{plain}"))).expect("sound");
    let texts = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
    let expected = RateLimit {
        name: "a".to_owned(),
        volumes: texts(&["a"]),
        exports: texts(&["/f"]),
        hosts: texts(&[
            "nqn.2026-01.io.weft:h",
            "iqn.2026-01.io.weft:i",
            "192.0.2.7",
        ]),
        listeners: vec![1, 0],
        rates: Rates {
            iops: Some(100),
            read_iops: Some(1),
            write_iops: Some(1_000_000_000),
            bytes: Some(64 << 30),
            read_bytes: Some(1),
            write_bytes: Some(1_000_000),
            burst_s: 3600,
            floor_iops: Some(100),
            floor_bytes: Some(1024),
        },
    };
    assert_eq!(config.rate_limits[0], expected);
    let about_all = RateLimit {
        name: "b".to_owned(),
        rates: Rates {
            iops: Some(1),
            ..Rates::default()
        },
        ..RateLimit::default()
    };
    assert_eq!(config.rate_limits[1], about_all);
}

#[test]
fn mistakes_of_limits_are_told_where_they_are() {
    // The first key of the limit is in line 29.
    for (more, at, parts) in [
        ("iops = 1", "28:1", &["lacks the key `name`"][..]),
        ("name = \"a b\"\niops = 1", "29:8", &["a limit's name is"]),
        (
            "name = \"a\"",
            "28:1",
            &["limits nothing", "`read_iops`", "`floor_bytes`"],
        ),
        (
            "name = \"a\"\niops = 0",
            "30:8",
            &["1 at least", "leave it out"],
        ),
        (
            "name = \"a\"\niops = 1000000001",
            "30:8",
            &["1000000000 at most"],
        ),
        (
            "name = \"a\"\nbytes = \"65GiB\"",
            "30:9",
            &["64GiB at most"],
        ),
        (
            "name = \"a\"\niops = \"many\"",
            "30:8",
            &["`iops` takes a whole number"],
        ),
        (
            "name = \"a\"\niops = 1\nburst_s = 3601",
            "31:11",
            &["from 0 to 3600 seconds"],
        ),
        (
            "name = \"a\"\niops = 5\nfloor_iops = 6",
            "31:14",
            &["`floor_iops` (6) is more than `iops` (5)"],
        ),
        (
            "name = \"a\"\niops = 1\nvolumes = [\"b\"]",
            "31:12",
            &["there is no volume \"b\""],
        ),
        (
            "name = \"a\"\niops = 1\nvolumes = [\"a\", \"a\"]",
            "31:17",
            &["a is in the list already"],
        ),
        (
            "name = \"a\"\niops = 1\nvolumes = []",
            "31:11",
            &["`volumes` is empty", "about all"],
        ),
        (
            "name = \"a\"\niops = 1\nexports = [\"/g\"]",
            "31:12",
            &["no [[export]] with the path \"/g\"", "`/f`"],
        ),
        (
            "name = \"a\"\niops = 1\nlisteners = [\"127.0.0.1:4421\"]",
            "31:14",
            &["no [[listener]]", "127.0.0.1:4421"],
        ),
        (
            "name = \"a\"\niops = 1\nhosts = [\"somewhere\"]",
            "31:10",
            &["\"somewhere\" is no host", "NQN", "iSCSI", "NFS client"],
        ),
        (
            "name = \"a\"\niops = 1\nhosts = [\"nqn.x\"]",
            "31:10",
            &["nqn"],
        ),
        (
            "name = \"a\"\niops_max = 1",
            "30:1",
            &["unknown key `iops_max`"],
        ),
    ] {
        if more.ends_with("iops_max = 1") {
            let list = read(&limit(more)).expect_err("unknown");
            assert!(
                list.iter().any(|one| one.text.contains(parts[0])),
                "{list:#?}"
            );
            continue;
        }
        expect(&limit(more), at, parts);
    }
    let twice = "name = \"a\"\niops = 1\n[[limit]]\nname = \"a\"\niops = 2";
    expect(
        &limit(twice),
        "32:8",
        &["a limit \"a\" is there already, in line 28"],
    );
}

/// Limits change while hosts are connected, and disturb none.
#[test]
fn limits_change_by_one_change_that_can_be_taken_back() {
    let one = read(&limit("name = \"a\"\niops = 1")).expect("sound");
    let two = read(&limit(
        "name = \"a\"\niops = 2\n[[limit]]\nname = \"b\"\nbytes = 9",
    ))
    .expect("sound");
    let none = read(&limits("")).expect("sound");
    for (from, to, told) in [
        (&none, &one, "\"a\" comes"),
        (&one, &two, "\"a\" changes, \"b\" comes"),
        (&two, &none, "\"a\" goes, \"b\" goes"),
    ] {
        assert!(at_restart(from, to).is_empty());
        let steps = plan(from, to).expect("while hosts are connected");
        assert_eq!(steps.len(), 1);
        assert_eq!(
            steps[0].change,
            Change::SetRateLimits(to.rate_limits.clone())
        );
        assert_eq!(
            steps[0].undo,
            Some(Change::SetRateLimits(from.rate_limits.clone()))
        );
        assert!(
            !steps[0].disturbs && steps[0].text.contains(told),
            "{}",
            steps[0].text
        );
        assert!(plan(to, to).expect("nothing").is_empty());
    }
}

/// The places of listeners are those of their document.
#[test]
fn limits_of_listeners_that_have_other_places_in_the_next_document_stay() {
    let text =
        limit("name = \"a\"\niops = 1\nlisteners = [\"127.0.0.1:4420\", \"127.0.0.1:2049\"]");
    let first =
        "[[listener]]\naddress = \"127.0.0.1:4419\"\n[[listener]]\naddress = \"127.0.0.1:4420\"";
    let moved = text.replacen("[[listener]]\naddress = \"127.0.0.1:4420\"", first, 1);
    let (running, desired) = (read(&text).expect("sound"), read(&moved).expect("sound"));
    assert_ne!(running.rate_limits, desired.rate_limits);
    let steps = plan(&running, &desired).expect("while hosts are connected");
    let changes: Vec<_> = steps.iter().map(|step| &step.change).collect();
    assert!(
        matches!(changes[..], [Change::AddListener(_)]),
        "{changes:?}"
    );
    let steps = plan(&desired, &running).expect("while hosts are connected");
    assert_eq!(steps.len(), 1);
}
