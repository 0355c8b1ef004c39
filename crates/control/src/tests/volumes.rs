//! Volumes that are made of others.

use server::Change;
use store::{Latency, Settings};

use super::*;

const REST: &str = "[[nvme.subsystem]]\nnqn = \"nqn.2026-01.io.weft:a\"\nallow_any_host = true\n\
                    [[listener]]\naddress = \"127.0.0.1:4420\"\n";

/// A volume of a kind with these keys.
fn volume(name: &str, kind: &str, keys: &str) -> String {
    format!("[[volume]]\nname = \"{name}\"\nkind = \"{kind}\"\n{keys}\n")
}

fn ram(name: &str) -> String {
    volume(name, "ram", "size = \"1GiB\"")
}

fn with_rest(volumes: &[String]) -> String {
    volumes.concat() + REST
}

/// 32 volumes of 1 GiB on a stripe of five.
fn many() -> String {
    let drives = "size = \"8GiB\"\npath = \"d{0..4}.img\"";
    let slices = "of = [\"pool\"]\noffset_bytes = \"{0..31}GiB\"\nsize = \"1GiB\"";
    with_rest(&[
        // In any order.
        volume("v{0..31}", "slice", slices),
        volume(
            "pool",
            "stripe",
            "of = [\"d{0..4}\"]\nchunk_bytes = \"128KiB\"",
        ),
        volume("d{0..4}", "file", drives),
    ])
}

#[test]
fn volumes_stand_behind_those_that_they_are_made_of() {
    let config = read(&many()).unwrap();
    let names: Vec<&str> = config.volumes.iter().map(|spec| &*spec.name).collect();
    assert_eq!(names[..7], ["d0", "d1", "d2", "d3", "d4", "pool", "v0"]);
    let pool = &config.volumes[5];
    assert_eq!(pool.kind.of(), ["d0", "d1", "d2", "d3", "d4"]);
    let chunk_bytes = 128 << 10;
    assert_eq!(pool.kind.settings(), Settings::Stripe { chunk_bytes });
    assert_eq!(pool.size_bytes, 0, "all that there is");
    let last = &config.volumes[37];
    let offset_bytes = 31 << 30;
    assert_eq!(last.kind, Kind::slice("pool", offset_bytes));
    assert_eq!(last.size_bytes, 1 << 30);
}

#[test]
fn parts_that_are_not_there_or_are_others_already_are_told_with_their_place() {
    let of = |names: &str| format!("of = [{names}]");
    let slice = |from: &str| format!("of = [\"a\"]\noffset_bytes = \"{from}\"\nsize = \"4KiB\"");
    let cases: [(&[String], &str, &[&str]); 11] = [
        (
            &[ram("disk"), volume("s", "slice", &of("\"disc\""))],
            "8:6",
            &["there is no volume \"disc\"", "did you mean `disk`?"],
        ),
        (
            &[volume("s", "slice", &of("\"s\""))],
            "4:6",
            &["the volume \"s\" is made of itself"],
        ),
        (
            &[
                ram("a"),
                ram("b"),
                volume("s", "stripe", &of("\"a\", \"a\"")),
            ],
            "12:6",
            &["is part of \"s\" already"],
        ),
        (
            &[
                ram("a"),
                volume("s", "slice", &slice("0")),
                volume("t", "slice", &slice("2KiB")),
            ],
            "15:16",
            &["`offset_bytes` (2048) is no multiple of the block size (4096)"],
        ),
        (
            &[
                ram("a"),
                volume("s", "slice", &slice("0")),
                volume("t", "slice", &slice("0")),
            ],
            "14:6",
            &["what \"t\" takes of it, is part of \"s\" already"],
        ),
        (
            &[ram("a"), volume("s", "stripe", &of("\"a\""))],
            "8:6",
            &["2 to 32 others, not of 1"],
        ),
        (
            &[
                ram("a"),
                volume("s", "ram", "size = \"1GiB\"\nof = [\"a\"]"),
            ],
            "9:6",
            &[
                "a \"ram\" volume has no `of`",
                "set `kind` to \"slice\", \"concat\", \"stripe\"",
            ],
        ),
        (
            &[volume("a", "ram", "size = \"1GiB\"\nadopt = true")],
            "5:9",
            &["a \"ram\" volume has no `adopt`", "\"file\""],
        ),
        (
            &[volume(
                "a",
                "file",
                "size = \"1GiB\"\npath = \"a\"\ndirect = \"yes\"",
            )],
            "6:10",
            &["`direct` takes true, false or \"auto\", not \"yes\""],
        ),
        (
            &[
                ram("a"),
                volume("s", "slice", "of = [\"a\"]\nchunk_bytes = 4096"),
            ],
            "9:15",
            &["a \"slice\" volume has no `chunk_bytes`", "\"stripe\""],
        ),
        (
            &[
                ram("a"),
                ram("b"),
                volume("s", "stripe", "of = [\"a\", \"b\"]\nchunk_bytes = 0"),
            ],
            "13:15",
            &["`chunk_bytes` is from one block"],
        ),
    ];
    for (volumes, at, parts) in cases {
        expect(&with_rest(volumes), at, parts);
    }
    // Slices beside each other, and all of one in the end.
    let beside = [
        ram("a"),
        volume("s", "slice", &slice("0")),
        volume("t", "slice", &slice("4KiB")),
    ];
    read(&with_rest(&beside)).unwrap();
    let to_the_end = volume("u", "slice", "of = [\"a\"]\noffset_bytes = \"8KiB\"");
    read(&with_rest(&[&beside[..], &[to_the_end]].concat())).unwrap();
}

#[test]
fn circle_of_volumes_is_told_of_each_of_them() {
    let made = |name: &str, of: &str| volume(name, "slice", &format!("of = [\"{of}\"]"));
    let text = with_rest(&[made("a", "b"), made("b", "c"), made("c", "a")]);
    let problems = read(&text).unwrap_err();
    assert_eq!(problems.len(), 3);
    assert!(
        problems[2]
            .text
            .contains("the volume \"c\" is made of itself")
    );
    // So is what lies too deep.
    let levels = |count: usize| {
        let others = (1..count).map(|n| made(&format!("v{n}"), &format!("v{}", n - 1)));
        let volumes: Vec<String> = [ram("v0")].into_iter().chain(others).collect();
        read(&with_rest(&volumes))
    };
    levels(9).unwrap();
    let problems = levels(10).unwrap_err();
    assert!(
        problems[0].text.contains("more than 8 deep"),
        "{problems:?}"
    );
}

#[test]
fn hosts_are_served_no_part_of_another_volume() {
    let text = many().replace(
        "allow_any_host = true",
        "allow_any_host = true\nvolumes = [\"d1\"]",
    );
    let told = only(&text);
    let expected = "the volume \"d1\" is part of \"pool\", and hosts are served that one alone";
    assert!(told.contains(expected), "{told}");
    let target = "[[iscsi.target]]\nname = \"iqn.2026-01.io.weft:a\"\nallow_any_initiator = true\n\
                  volumes = [\"pool\"]\n[[listener]]\naddress = \"127.0.0.1:3260\"\n\
                  protocol = \"iscsi\"\n";
    let told = only(&format!("{}{target}", many()));
    assert!(
        told.contains("the volume \"pool\" is part of \"v0\""),
        "{told}"
    );
    let whole = many().replace(
        "allow_any_host = true",
        "allow_any_host = true\nvolumes = [\"v5\"]",
    );
    read(&whole).unwrap();
}

#[test]
fn volumes_are_opened_from_the_bottom_and_closed_from_the_top() {
    let made = read(&many()).unwrap();
    let nothing = read(&with_rest(&[ram("else")])).unwrap();
    let names = |from: &Config, to: &Config| -> Vec<String> {
        let changes = plan(from, to).expect("it may change").into_iter();
        let names = changes.filter_map(|planned| match planned.change {
            Change::AddVolume(spec) => Some(format!("+{}", spec.name)),
            Change::RemoveVolume { name } => Some(format!("-{name}")),
            _ => None,
        });
        names.collect()
    };
    let opened = names(&nothing, &made);
    assert_eq!(
        opened[..7],
        ["+d0", "+d1", "+d2", "+d3", "+d4", "+pool", "+v0"]
    );
    assert_eq!(opened[38], "-else", "what is in memory goes last");
    let closed = names(&made, &nothing);
    assert_eq!(closed[0], "-v31");
    assert_eq!(
        closed[31..38],
        ["-v0", "-pool", "-d4", "-d3", "-d2", "-d1", "-d0"]
    );
    assert_eq!(closed[38], "+else");
    // Where its data lies does not change while it is served.
    let other = read(&many().replace("128KiB", "64KiB")).unwrap();
    let refused = plan(&made, &other).expect_err("another chunk").join("\n");
    assert!(
        refused.contains("volume \"pool\": nothing but its size, keys and rates changes"),
        "{refused}"
    );
}

#[test]
fn times_of_a_delay_are_those_of_reads_and_of_all_else() {
    let delay = |keys: &str| {
        let keys = format!("of = [\"a\"]\n{keys}");
        with_rest(&[ram("a"), volume("slow", "delay", &keys)])
    };
    let keys = "read_fixed_us = 80\nread_mean_us = 100\nread_tail_us = 2000\nwrite_fixed_us = 20";
    let config = read(&delay(keys)).unwrap();
    let read_times = Latency {
        fixed_us: 80,
        mean_us: 100,
        tail_us: 2000,
    };
    let write_times = Latency {
        fixed_us: 20,
        mean_us: 20,
        tail_us: 0,
    };
    let kind = Kind::delay("a", read_times, write_times);
    assert_eq!(config.volumes[1].kind, kind);
    let wrong = delay("write_fixed_us = 30\nwrite_mean_us = 20");
    expect(
        &wrong,
        "10:17",
        &["`write_mean_us` is less than `write_fixed_us`"],
    );
    let wrong = delay("read_tail_us = 5000000000");
    expect(&wrong, "9:16", &["`read_tail_us` is less than 2^32"]);
    let wrong = with_rest(&[volume("b", "null", "size = \"1MiB\"\nread_fixed_us = 1")]);
    expect(
        &wrong,
        "5:17",
        &["a \"null\" volume has no `read_fixed_us`"],
    );
}

/// Files of a mirror, and a mirror of some of them.
fn mirror(files: &[&str], legs: &str, keys: &str) -> String {
    let files = files.iter().map(|name| {
        let keys = format!("size = \"1GiB\"\npath = \"{name}.img\"");
        volume(name, "file", &keys)
    });
    let keys = format!("of = [{legs}]\nstate = \"m.state\"\n{keys}");
    let mirror = volume("m", "mirror", &keys);
    with_rest(&files.chain([mirror]).collect::<Vec<_>>())
}

#[test]
fn mirror_has_its_legs_and_a_rate_and_nothing_else() {
    let config = read(&mirror(&["a", "b"], "\"a\", \"b\"", "")).unwrap();
    assert_eq!(config.volumes[2].kind, Kind::mirror(&["a", "b"]));
    let slow = mirror(&["a", "b"], "\"a\", \"b\"", "resync_rate = \"1MiB\"");
    let resync_rate = 1 << 20;
    let settings = Settings::Mirror { resync_rate };
    assert_eq!(read(&slow).unwrap().volumes[2].kind.settings(), settings);
    expect(
        &mirror(&["a"], "\"a\"", ""),
        "9:6",
        &["2 to 3 others, not of 1"],
    );
    let wrong = with_rest(&[
        ram("a"),
        volume("s", "slice", "of = [\"a\"]\nresync_rate = 5"),
    ]);
    expect(
        &wrong,
        "9:15",
        &["a \"slice\" volume has no `resync_rate`", "\"mirror\""],
    );
}

#[test]
fn legs_of_a_mirror_that_serves_are_replaced_between_their_opening_and_closing() {
    let config = |text: &str| read(text).unwrap();
    let before = config(&mirror(&["a", "b"], "\"a\", \"b\"", ""));
    let after = config(&mirror(&["a", "c"], "\"a\", \"c\"", ""));
    let steps = plan(&before, &after).expect("it may change");
    assert!(steps.iter().all(|step| !step.disturbs), "hosts see nothing");
    let steps: Vec<Change> = steps.into_iter().map(|step| step.change).collect();
    let set = Change::SetMirror {
        name: "m".into(),
        of: vec!["a".into(), "c".into()],
        resync_rate: store::RESYNC_RATE_DEFAULT,
    };
    assert!(matches!(&steps[0], Change::AddVolume(spec) if spec.name == "c"));
    assert_eq!(steps[1], set);
    assert_eq!(steps[2..], [Change::RemoveVolume { name: "b".into() }]);
    // The rate alone.
    let paused = config(&mirror(&["a", "b"], "\"a\", \"b\"", "resync_rate = 0"));
    let steps = plan(&before, &paused).expect("it may change");
    let set = Change::SetMirror {
        name: "m".into(),
        of: vec!["a".into(), "b".into()],
        resync_rate: 0,
    };
    assert_eq!(steps.len(), 1);
    assert_eq!(steps[0].change, set);
}

#[test]
fn volume_has_checksums_where_its_section_says_so_and_keeps_that() {
    let with = |keys: &str| with_rest(&[volume("a", "ram", &format!("size = \"1GiB\"\n{keys}"))]);
    let checksum = |keys| read(&with(keys)).map(|config| config.volumes[0].checksum);
    assert!(!checksum("").unwrap());
    assert!(!checksum("checksum = false").unwrap());
    assert!(checksum("checksum = true").unwrap());
    let told = read(&with("checksum = \"crc32c\"")).expect_err("it is no flag");
    assert!(format!("{told:?}").contains("`checksum`"), "{told:?}");
    let (before, after) = (
        read(&with("")).unwrap(),
        read(&with("checksum = true")).unwrap(),
    );
    let refused = plan(&before, &after).expect_err("it has none").join("\n");
    assert!(refused.contains("nothing but its size"), "{refused}");
}

#[test]
fn scrub_rate_is_of_volumes_with_checksums_and_changes_while_they_are_served() {
    let with = |keys: &str| with_rest(&[volume("a", "ram", &format!("size = \"1GiB\"\n{keys}"))]);
    let rate = |keys| read(&with(keys)).map(|config| config.volumes[0].scrub_rate);
    assert_eq!(rate("checksum = true").unwrap(), store::SCRUB_RATE_DEFAULT);
    let slow = "checksum = true\nscrub_rate = \"1MiB\"";
    assert_eq!(rate(slow).unwrap(), 1 << 20);
    let told = rate("scrub_rate = 0").expect_err("it has no checksums");
    assert!(
        format!("{told:?}").contains("`checksum = true`"),
        "{told:?}"
    );
    let (before, after) = (
        read(&with("checksum = true")).unwrap(),
        read(&with(slow)).unwrap(),
    );
    let steps = plan(&before, &after).expect("it may change");
    let set = |rate| Change::SetScrubRate {
        name: "a".into(),
        rate,
    };
    assert_eq!(steps.len(), 1);
    assert_eq!(steps[0].change, set(1 << 20));
    assert_eq!(steps[0].undo, Some(set(store::SCRUB_RATE_DEFAULT)));
}
