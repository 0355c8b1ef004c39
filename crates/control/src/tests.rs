//! Files in, configuration or problems out.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use auth::FileAccess;
use auth::psk::PskCompat;
use nvmf::command::AnaState;
use nvmf::{Advertise, AnaGroup, HostTerms, NSID_MAX, Referral};
use reactor::Choice;
use server::{AdminListen, AdminRole, Limits, ListenerSpec, NamespaceSpec, Placement, Start};
use store::Kind;

use super::*;

mod connection_policy;
mod dhchap;
mod document;
mod encryption;
mod identity;
mod iscsi;
mod json_schema;
mod kerberos;
mod limit;
mod nbd;
mod nfs;
mod patterns;
mod plan;
mod quota;
mod rdma;
mod remote;
mod secrets;
mod secrets_again;
mod snapshot_schedule;
mod volumes;

const EXAMPLE: &str = include_str!("../../../weft.example.toml");

/// A file with one mistake or none: `$volume` etc. are replaced by the test.
fn file(volume: &str, nvme: &str, subsystem: &str, listener: &str, policy: &str) -> String {
    format!(
        "[[volume]]\nname = \"a\"\nkind = \"ram\"\n{volume}\n\
         [nvme]\n{nvme}\n\
         [[nvme.subsystem]]\nnqn = \"nqn.2026-01.io.weft:a\"\n{subsystem}\n\
         [[nvme.subsystem.namespace]]\nnsid = 1\nvolume = \"a\"\n\
         [[listener]]\n{listener}\n\
         [policy]\n{policy}\n"
    )
}

const SIZE: &str = "size = \"1MiB\"";
const ANY: &str = "allow_any_host = true";
const LOCAL: &str = "address = \"127.0.0.1:4420\"";

/// As a process reads it that may run on CPUs 0 to 4.
fn read(text: &str) -> Result<Config, Vec<Problem>> {
    parse(text, &origin(""), &[0, 1, 2, 3, 4])
}

/// A file that only its owner may read.
fn origin(folder: &str) -> Origin<'_> {
    Origin {
        folder: Path::new(folder),
        access: Some(FileAccess::OWN),
    }
}

/// The one problem of a file as a user sees it.
fn only(text: &str) -> String {
    let list = read(text).expect_err(text);
    assert_eq!(list.len(), 1, "{list:#?}");
    let file = "f".to_owned();
    Problems { file, list }.to_string()
}

#[track_caller]
fn expect(text: &str, at: &str, parts: &[&str]) {
    let shown = only(text);
    assert!(shown.starts_with(&format!("f:{at}: ")), "{shown}");
    for part in parts {
        assert!(shown.contains(part), "{part:?} is not in: {shown}");
    }
}

#[test]
fn a_plain_file_says_what_it_says() {
    let text = file(SIZE, "", ANY, LOCAL, "");
    let config = read(&text).unwrap();
    let default = default_config();
    assert_eq!(config.volumes[0].size_bytes, 1 << 20);
    assert_eq!(config.volumes[0].kind, Kind::RAM);
    assert_eq!(config.volumes[0].block_bytes, 4096);
    assert_eq!(config.subsystems[0].hosts, None);
    assert_eq!(config.subsystems[0].model, default.subsystems[0].model);
    assert_eq!(
        config.subsystems[0].serial,
        nvme::serial_of("nqn.2026-01.io.weft:a")
    );
    assert_eq!(config.subsystems[0].serial.len(), 20);
    assert_ne!(config.subsystems[0].serial, default.subsystems[0].serial);
    assert_eq!(config.listeners, default.listeners[..1]);
    assert_eq!(config.cpus, reactor::available_cpus());
    same_numbers(&config, &default);
}

fn same_numbers(a: &Config, b: &Config) {
    assert_eq!(a.limits, b.limits);
    assert_eq!(a.backend, b.backend);
    assert_eq!(a.placement, b.placement);
    assert_eq!(a.spin_us_max, b.spin_us_max);
    assert_eq!(a.memory_max, b.memory_max);
    assert_eq!(a.zero_copy_min_bytes, b.zero_copy_min_bytes);
    assert_eq!(a.registered_min_bytes, b.registered_min_bytes);
    assert_eq!(a.fast_path, b.fast_path);
}

#[test]
fn spin_us_max_always_never_sleeps() {
    let text = file(SIZE, "", ANY, LOCAL, "spin_us_max = \"always\"");
    assert_eq!(read(&text).unwrap().spin_us_max, u64::MAX);
    let list = read(&text.replace("always", "ever")).unwrap_err();
    assert_eq!(list.len(), 1, "{list:#?}");
    assert!(list[0].text.contains("a whole number or \"always\""));
}

#[test]
fn a_problem_points_at_its_place() {
    let excerpt = |text: &str| read(text).expect_err(text)[0].excerpt.clone();
    let text = file("\tsize = \"1XiB\" # \u{1b}[2J", "", ANY, LOCAL, "");
    assert_eq!(
        excerpt(&text),
        "  4 |  size = \"1XiB\" #  [2J\n    |         ^\n"
    );
    // Far to the right, in a long line, with letters of several bytes.
    let hosts = "\"nqn.2026-01.a:\u{f6}\", ".repeat(40);
    let text = file(SIZE, "", &format!("hosts = [{hosts}\"\u{f6}\"]"), LOCAL, "");
    for problem in read(&text).expect_err("the same again") {
        let (line, mark) = problem.excerpt.trim_end().split_once('\n').expect("two");
        assert!(line.chars().count() <= 110, "{line}");
        let place = mark.chars().position(|c| c == '^').expect("a mark");
        assert_eq!(line.chars().nth(place), Some('"'), "{}", problem.excerpt);
    }
    // No TOML.
    assert!(excerpt("[nvme\n").starts_with("  1 | [nvme\n    | "));
}

#[test]
fn a_line_that_may_hold_a_secret_is_not_shown() {
    let sound = file(SIZE, "", ANY, LOCAL, "");
    for chap in [
        "chap = { user = 3, secret = \"not a good one\" }",
        "[iscsi.discovery.chap]\nsercet = \"not a good one\"",
        "[iscsi.discovery.chap]\n# It is:\npassword = \"not a good one\"",
        "[iscsi.discovery.chap]\npassword = \"not a good one",
        "chap = { user = \"a\", password = \"not a good one\", }",
        "\"ch\\u0061p\" = { user = 3, \"s\\u0065cret\" = \"not a good one\" }",
        "secret = \"not a good one",
        "[nvme.discovery]\nuser = \"\"\"\nnot a good one\n\\z\"\"\"",
    ] {
        let list = read(&format!("{sound}[iscsi.discovery]\n{chap}\n")).expect_err(chap);
        let excerpts = list.iter().map(|problem| &*problem.excerpt);
        let excerpts = excerpts.collect::<String>();
        assert!(!excerpts.contains("good one"), "{chap}: {excerpts}");
    }
    let keys = "[iscsi.discovery]\nchap_algorithms = 3\n[iscsi]\nsecret_file = 3\n";
    for problem in read(&format!("{sound}{keys}")).expect_err("keys of others") {
        assert_ne!(problem.excerpt, "", "{problem:?}");
    }
}

#[test]
fn no_more_comes_with_a_command_than_a_command_has() {
    let in_capsule = |nvme: &str| {
        let text = file(SIZE, nvme, ANY, LOCAL, "");
        read(&text).unwrap().limits.in_capsule_bytes_max
    };
    assert_eq!(in_capsule("io_bytes_max = \"4KiB\""), 4096);
    assert_eq!(in_capsule("io_bytes_max = \"64KiB\""), 16 << 10);
}

#[test]
fn every_key_arrives() {
    let nvme = "io_queues_max = 3\nqueue_entries_max = 32\nio_bytes_max = \"128KiB\"\n\
                in_capsule_bytes = 4096\nmaxh2cdata_bytes = \"64KiB\"\ndigests = [\"header\"]\n\
                psk_compat = \"off\"\nconnections_max = 5\nconnections_of_address_max = 4\n\
                tls_handshakes_max = 6\n\
                controllers_of_host_max = 3";
    let policy = "start = \"degraded\"\ncpus = \"1,3-4\"\nio = \"epoll\"\nplacement = \"incoming-cpu\"\n\
                  spin_us_max = 7\nmemory_max = \"64MiB\"\nzero_copy_min_bytes = \"16KiB\"\n\
                  registered_min_bytes = \"256KiB\"\n\
                  fast_path = false";
    let subsystem = "hosts = [\"nqn.2026-01.io.weft:h\"]\nserial = \"S1\"\nmodel = \"M 1\"\n\
                     cntlids = \"7-900\"";
    let text = file(SIZE, nvme, subsystem, "address = \"[::1]:9\"", policy);
    let config = read(&text).unwrap();
    let limits = Limits {
        io_queues_max: 3,
        queue_entries_max: 32,
        io_bytes_max: 131_072,
        in_capsule_bytes_max: 4096,
        h2c_data_bytes_max: 65_536,
        connections_max: 5,
        connections_of_address_max: 4,
        tls_handshakes_max: 6,
        controllers_of_host_max: 3,
        header_digest: true,
        data_digest: false,
        ..Limits::default()
    };
    assert_eq!(config.limits, limits);
    assert_eq!(config.psk_compat, PskCompat::Off);
    assert_eq!(config.start, Start::Degraded);
    assert_eq!(config.cpus, [1, 3, 4]);
    assert_eq!(config.backend, Choice::Epoll);
    assert_eq!(config.placement, Placement::IncomingCpu);
    assert_eq!(config.spin_us_max, 7);
    assert_eq!(config.memory_max, 64 << 20);
    assert_eq!(config.zero_copy_min_bytes, Some(16_384));
    assert_eq!(config.registered_min_bytes, Some(262_144));
    assert!(!config.fast_path);
    let subsystem = &config.subsystems[0];
    assert_eq!(
        subsystem.hosts.as_deref(),
        Some(&["nqn.2026-01.io.weft:h".to_owned()][..])
    );
    assert_eq!((&*subsystem.serial, &*subsystem.model), ("S1", "M 1"));
    assert_eq!(subsystem.cntlids, Some(7..=900));
    assert_eq!(subsystem.namespaces[0].nsid, 1);
    assert_eq!(subsystem.namespaces[0].volume, "a");
    let address: SocketAddr = "[::1]:9".parse().unwrap();
    assert_eq!(config.listeners, [ListenerSpec::from(address)]);
}

#[test]
fn hosts_with_a_table_of_their_own_arrive() {
    let table = "[[nvme.subsystem.host]]\nnqn = \"nqn.2026-01.io.weft:i\"\n\
                 networks = [\"192.0.2.0/24\"]";
    let with = |listed: &str| file(SIZE, "", &format!("{listed}\n{table}"), LOCAL, "");
    let h = "nqn.2026-01.io.weft:h".to_owned();
    let terms = HostTerms {
        networks: vec!["192.0.2.0/24".parse().unwrap()],
        ..HostTerms::new("nqn.2026-01.io.weft:i")
    };
    let i = terms.nqn.clone();
    for (listed, hosts) in [
        ("", Some(vec![i.clone()])),
        ("hosts = [\"nqn.2026-01.io.weft:h\"]", Some(vec![h, i])),
        ("allow_any_host = true", None),
    ] {
        let subsystem = &read(&with(listed)).unwrap().subsystems[0];
        assert_eq!(subsystem.hosts, hosts, "{listed}");
        assert_eq!(subsystem.terms, std::slice::from_ref(&terms), "{listed}");
    }
    expect(
        &with("hosts = [\"nqn.2026-01.io.weft:i\"]"),
        "11:7",
        &["is there already in this subsystem"],
    );
    let no_network = with("").replace("192.0.2.0/24", "192.0.2.0/33");
    expect(&no_network, "12:13", &["a network is an address"]);
    let no_name = with("").replace("nqn = \"nqn.2026-01.io.weft:i\"\n", "");
    expect(&no_name, "10:1", &["`nqn`"]);
}

#[test]
fn paths_to_a_subsystem_arrive() {
    let subsystem = "allow_any_host = true\nlisteners = [\"127.0.0.1:4420\"]\n\
                     [[nvme.subsystem.ana]]\ngroup = 3\nstate = \"inaccessible\"\n\
                     [[nvme.subsystem.ana]]\ngroup = 3\nstate = \"optimized\"\n\
                     listener = \"127.0.0.1:4420\"";
    let listener = "address = \"127.0.0.1:4420\"\nadvertise = \"nas:4421\"\n\
                    [[listener]]\naddress = \"[::1]:8009\"\ndiscovery_only = true\n\
                    [[nvme.referral]]\naddress = \"192.0.2.7\"";
    let namespace = "ana_group = 3\nhosts = [\"nqn.2026-01.io.weft:h\"]\nvolume = \"a\"";
    let text = file(SIZE, "", subsystem, listener, "").replace("volume = \"a\"", namespace);
    let config = read(&text).unwrap();
    let subsystem = &config.subsystems[0];
    assert_eq!(subsystem.listeners, Some(vec![0]));
    let group = AnaGroup {
        id: 3,
        state: AnaState::Inaccessible,
        on: vec![(0, AnaState::Optimized)],
    };
    assert_eq!(subsystem.ana_groups, [group]);
    let namespace = NamespaceSpec {
        nsid: 1,
        volume: "a".to_owned(),
        ana_group: 3,
        hosts: Some(vec!["nqn.2026-01.io.weft:h".to_owned()]),
    };
    assert_eq!(subsystem.namespaces, [namespace]);
    let advertise = Advertise {
        host: "nas".to_owned(),
        port: Some(4421),
    };
    assert_eq!(config.listeners[0].advertise, Some(advertise));
    let flags: Vec<_> = config.listeners.iter().map(|l| l.discovery_only).collect();
    assert_eq!(flags, [false, true]);
    assert_eq!(config.referrals, [Referral::new("192.0.2.7", 8009)]);
}

#[test]
fn paths_to_a_subsystem_are_checked() {
    let with = |text: &str| file(SIZE, "", &format!("{ANY}\n{text}"), LOCAL, "");
    expect(
        &with("listeners = [\"127.0.0.1:4421\"]"),
        "10:14",
        &["no [[listener]]", "did you mean `127.0.0.1:4420`?"],
    );
    expect(
        &with("listeners = [\"127.0.0.1:4420\", \"127.0.0.1:4420\"]"),
        "10:32",
        &["in the list already"],
    );
    let ana = |text: &str| with(&format!("[[nvme.subsystem.ana]]\n{text}"));
    expect(
        &ana("group = 1\nstate = \"inacessible\""),
        "12:9",
        &["\"non-optimized\"", "did you mean `inaccessible`?"],
    );
    expect(
        &ana("group = 0\nstate = \"change\""),
        "11:9",
        &["from 1 to 128, not 0"],
    );
    expect(
        &ana("group = 2\nstate = \"change\""),
        "11:9",
        &["no namespace", "`ana_group = 2`"],
    );
    expect(
        &ana("group = 1"),
        "10:1",
        &["lacks the key `state`", "non-optimized"],
    );
    let twice = "group = 1\nstate = \"change\"\n[[nvme.subsystem.ana]]\ngroup = 1\n\
                 state = \"change\"";
    expect(&ana(twice), "14:9", &["group 1 is said already"]);
    let text = with("").replace("nsid = 1", "nsid = 1\nhosts = [\"h\"]");
    expect(&text, "13:10", &["starts with \"nqn.\""]);
    let text = with("").replace("nsid = 1", "nsid = 1\nana_group = 129");
    expect(&text, "13:13", &["from 1 to 128, not 129"]);
}

#[test]
fn fields_that_discovery_tells_are_checked() {
    let listener = |text: &str| file(SIZE, "", ANY, &format!("{LOCAL}\n{text}"), "");
    expect(
        &listener("advertise = \"0.0.0.0\""),
        "15:13",
        &["no host can connect to 0.0.0.0"],
    );
    expect(
        &listener("advertise = \"nas:http\""),
        "15:13",
        &["\"http\" in \"nas:http\" is no port"],
    );
    expect(
        &listener("discovery_only = true"),
        "7:1",
        &["no subsystem could be reached"],
    );
    let only = "[[listener]]\naddress = \"127.0.0.1:8009\"\ndiscovery_only = true";
    let text = listener(only).replace(ANY, &format!("{ANY}\nlisteners = [\"127.0.0.1:8009\"]"));
    expect(&text, "10:14", &["`discovery_only`"]);
    expect(
        &listener("[[nvme.referral]]\naddress = \"a b\""),
        "16:11",
        &["no host name"],
    );
    expect(
        &listener("[[nvme.referral]]\nadress = \"a\"\naddress = \"b\""),
        "16:1",
        &["unknown key `adress` in [[nvme.referral]]", "`address`?"],
    );
}

#[test]
fn a_block_device_is_served_whole() {
    let text = file("", "", ANY, LOCAL, "")
        .replace("\"ram\"", "\"block\"\npath = \"/dev/sdz\"\nstate = \"s\"");
    let config = parse(&text, &origin("conf"), &[0]).unwrap();
    let path = PathBuf::from("/dev/sdz");
    assert_eq!(config.volumes[0].kind, Kind::block(path));
    assert_eq!(config.volumes[0].size_bytes, 0);
    assert_eq!(config.volumes[0].state, Some(PathBuf::from("conf/s")));
    let text = file("", "", ANY, LOCAL, "").replace("\"ram\"", "\"block\"");
    expect(&text, "1:1", &["lacks the key `path`", "/dev/sdb"]);
    let text = file("size = 1000", "", ANY, LOCAL, "")
        .replace("\"ram\"", "\"block\"\npath = \"/dev/sdz\"");
    expect(&text, "5:8", &["no multiple"]);
}

#[test]
fn a_file_volume_lies_beside_its_configuration() {
    let text = file(SIZE, "", ANY, LOCAL, "").replace("\"ram\"", "\"file\"\npath = \"x/y.img\"");
    let config = parse(&text, &origin("conf"), &[0]).unwrap();
    let path = PathBuf::from("conf/x/y.img");
    assert_eq!(config.volumes[0].kind, Kind::file(path));
}

#[test]
fn unknown_keys_name_the_nearest() {
    expect(
        &file("sise = \"1MiB\"\nsize = 4096", "", ANY, LOCAL, ""),
        "4:1",
        &["unknown key `sise` in [[volume]]", "did you mean `size`?"],
    );
    expect(
        &file(SIZE, "spin_us_max = 1", ANY, LOCAL, ""),
        "6:1",
        &["unknown key `spin_us_max` in [nvme]", "belongs in [policy]"],
    );
    expect(
        &file(SIZE, "memory_maxx = 1", ANY, LOCAL, ""),
        "6:1",
        &["did you mean `memory_max` in [policy]?"],
    );
    expect(
        &file(SIZE, "", ANY, LOCAL, "zzz = 1"),
        "16:1",
        &["it knows cpus, io, placement"],
    );
    let text = file(SIZE, "", ANY, LOCAL, "") + "[polici]\n";
    expect(&text, "17:2", &["unknown key `polici`", "`policy`?"]);
}

#[test]
fn impossible_values_say_what_is_possible() {
    let volume = |text: &str| file(text, "", ANY, LOCAL, "");
    expect(&volume("size = \"512M\""), "4:8", &["\"512MiB\"?"]);
    expect(&volume("size = 0"), "4:8", &["from one block to 1PiB"]);
    expect(&volume("size = 5000"), "4:8", &["4096 and 8192"]);
    expect(&volume("size = -1"), "4:8", &["not -1"]);
    expect(
        &volume("size = true"),
        "4:8",
        &["\"1GiB\"", "not true or false"],
    );
    expect(
        &volume("size = 8192\nblock_bytes = 1024"),
        "5:15",
        &["512 or 4096"],
    );
    expect(&volume("size = 8192\nuuid = \"f81d\""), "5:8", &["no UUID"]);
    expect(
        &volume("size = 8192\nread_only = 1"),
        "5:13",
        &["true or false"],
    );
    expect(
        &volume("size = 8192\npath = \"x\""),
        "5:8",
        &["\"ram\" volume has no `path`"],
    );
    expect(&volume(""), "1:1", &["[[volume]] lacks the key `size`"]);
    let text = volume(SIZE).replace("kind = \"ram\"", "kind = \"rma\"");
    expect(
        &text,
        "3:8",
        &["\"null\", \"ram\", \"file\"", "did you mean `ram`?"],
    );
    let text = volume(SIZE).replace("name = \"a\"\n", "name = \"a b\"\n");
    let list = read(&text).unwrap_err();
    assert!(list[0].text.contains("letters"), "{list:?}");
}

#[test]
fn numbers_have_bounds() {
    let nvme = |text: &str| file(SIZE, text, ANY, LOCAL, "");
    expect(
        &nvme("io_queues_max = 0"),
        "6:17",
        &["from 1 to 1024, not 0"],
    );
    expect(
        &nvme("io_bytes_max = \"16MiB\""),
        "6:16",
        &["from 4KiB to 2MiB"],
    );
    expect(
        &nvme("io_bytes_max = 5000"),
        "6:16",
        &["a power of two: 4KiB or 8KiB, not 5000"],
    );
    expect(
        &nvme("in_capsule_bytes = 4100"),
        "6:20",
        &["a multiple of 16"],
    );
    expect(
        &nvme("io_bytes_max = \"4KiB\"\nin_capsule_bytes = \"8KiB\""),
        "7:20",
        &["no command could use it"],
    );
    expect(&nvme("maxh2cdata_bytes = 1024"), "6:20", &["from 4KiB"]);
    expect(
        &nvme("digests = [\"head\"]"),
        "6:12",
        &["did you mean `header`?"],
    );
    expect(&nvme("digests = true"), "6:11", &["takes a list"]);
    expect(
        &nvme("psk_compat = \"of\""),
        "6:14",
        &["`psk_compat`", "\"off\""],
    );
    let policy = |text: &str| file(SIZE, "", ANY, LOCAL, text);
    expect(&policy("memory_max = 1"), "16:14", &["from 16MiB"]);
    expect(
        &policy("registered_min_bytes = \"1MiB\""),
        "16:24",
        &["does nothing without `zero_copy_min_bytes`"],
    );
    expect(
        &policy("io = \"uring\""),
        "16:6",
        &["did you mean `io_uring`?"],
    );
    expect(&policy("cpus = \"1-0\""), "16:8", &["backwards"]);
    expect(
        &policy("cpus = \"1,5\""),
        "16:8",
        &["may not run on CPU 5, only on 0-4"],
    );
    let few = "cpus = \"0-4\"\nmemory_max = \"79MiB\"";
    expect(
        &file(SIZE, "", ANY, LOCAL, few),
        "17:14",
        &["79MiB", "5 reactors", "80MiB"],
    );
}

#[test]
fn subsystems_are_checked_against_the_rest() {
    let subsystem = |text: &str| file(SIZE, "", text, LOCAL, "");
    let good = subsystem(ANY);
    expect(
        &subsystem(""),
        "7:1",
        &["no host could connect", "allow_any_host"],
    );
    expect(
        &subsystem("allow_any_host = true\nhosts = []"),
        "10:9",
        &["contradict"],
    );
    expect(&subsystem("hosts = [\"host1\"]"), "9:10", &["starts with"]);
    expect(
        &subsystem("hosts = [\"nqn.2026-01.a:b\", \"nqn.2026-01.a:b\"]"),
        "9:29",
        &["in the list already"],
    );
    let long = format!("{ANY}\nserial = \"123456789012345678901\"");
    expect(&subsystem(&long), "10:10", &["1 to 20 printable"]);
    for (range, why) in [
        ("900-7", "900 to 7"),
        ("0-9", "from 1"),
        ("all", "write \"1-1000\""),
    ] {
        let text = format!("{ANY}\ncntlids = \"{range}\"");
        expect(&subsystem(&text), "10:11", &[why]);
    }
    expect(
        &good.replace("nqn = \"nqn.2026-01.io.weft:a\"", "nqn = \"weft\""),
        "8:7",
        &["starts with \"nqn.\""],
    );
    let discovery = "nqn = \"nqn.2014-08.org.nvmexpress.discovery\"";
    expect(
        &good.replace("nqn = \"nqn.2026-01.io.weft:a\"", discovery),
        "8:7",
        &["discovery"],
    );
    expect(
        &good.replace("volume = \"a\"", "volume = \"b\""),
        "12:10",
        &["there is no volume \"b\""],
    );
    expect(
        &good.replace("nsid = 1", "nsid = 0"),
        "11:8",
        &[&format!("from 1 to {NSID_MAX}")],
    );
    let more = "[[nvme.subsystem.namespace]]\nnsid = 2\nvolume = \"a\"\n[[listener]]";
    expect(
        &good.replace("[[listener]]", more),
        "15:10",
        &["volume \"a\" is there already"],
    );
    let more = "[[volume]]\nname = \"b\"\nkind = \"null\"\nsize = 4096\n\
                [[nvme.subsystem.namespace]]\nnsid = 1\nvolume = \"b\"\n[[listener]]";
    expect(
        &good.replace("[[listener]]", more),
        "18:8",
        &["nsid 1 is there already"],
    );
    let more = "[[nvme.subsystem]]\nnqn = \"nqn.2026-01.io.weft:a\"\nallow_any_host = true\n\
                [[nvme.subsystem.namespace]]\nnsid = 1\nvolume = \"a\"\n[[listener]]";
    expect(
        &good.replace("[[listener]]", more),
        "14:7",
        &["there already, in line 7"],
    );
}

#[test]
fn a_misspelt_volume_is_suggested_and_a_broken_one_told_once() {
    let text = file(SIZE, "", ANY, LOCAL, "")
        .replace("name = \"a\"", "name = \"disk0\"")
        .replace("volume = \"a\"", "volume = \"disk\"");
    expect(
        &text,
        "12:10",
        &["no volume \"disk\"", "did you mean `disk0`?"],
    );
    // The namespace refers to a volume that is there, if broken: one problem.
    expect(&file("size = 0", "", ANY, LOCAL, ""), "4:8", &["one block"]);
}

#[test]
fn volumes_do_not_share_names_or_files() {
    let more = "[[volume]]\nname = \"a\"\nkind = \"ram\"\nsize = 4096\n";
    let text = file(SIZE, "", ANY, LOCAL, "") + more;
    expect(&text, "18:8", &["volume \"a\" is there already, in line 1"]);
    let one = |name: &str| {
        format!("[[volume]]\nname = \"{name}\"\nkind = \"file\"\npath = \"i\"\nsize = 4096\n")
    };
    let text = file(SIZE, "", ANY, LOCAL, "") + &one("b") + &one("c");
    expect(&text, "25:8", &["volume in line 17", "/i already"]);
    // What one keeps its reservations in, said or not, is not another's.
    let state = one("c").replace("path = \"i\"", "path = \"j\"\nstate = \"i.weft\"");
    let text = file(SIZE, "", ANY, LOCAL, "") + &one("b") + &state;
    expect(&text, "26:9", &["volume in line 17", "/i.weft already"]);
    // Nor is what is made beside that.
    for beside in ["i.weft.new", "i.weft.lock"] {
        let other = one("c").replace("\"i\"", &format!("\"{beside}\""));
        let text = file(SIZE, "", ANY, LOCAL, "") + &one("b") + &other;
        let already = format!("/{beside} already");
        expect(&text, "25:8", &["volume in line 17", &already]);
    }
}

#[test]
fn listeners_do_not_clash() {
    let listener = |text: &str| file(SIZE, "", ANY, text, "");
    expect(
        &listener("address = \"127.0.0.1\""),
        "14:11",
        &["with port"],
    );
    expect(
        &listener("address = \"localhost:4420\""),
        "14:11",
        &["no IP address"],
    );
    expect(&listener("address = \"127.0.0.1:0\""), "14:11", &["port 0"]);
    let two = |second: &str| format!("{LOCAL}\n[[listener]]\naddress = \"{second}\"");
    expect(
        &listener(&two("127.0.0.1:4420")),
        "16:11",
        &["already, in line 13"],
    );
    expect(&listener(&two("0.0.0.0:4420")), "16:11", &["cover each"]);
    expect(&listener(&two("[::]:4420")), "16:11", &["cover each"]);
    for fine in ["[::]:4421", "[::1]:4420", "127.0.0.2:4420"] {
        let config = read(&listener(&two(fine))).unwrap();
        assert_eq!(config.listeners.len(), 2, "{fine}");
    }
}

#[test]
fn all_problems_come_at_once_in_the_files_order() {
    let text = file(
        "size = 5000",
        "digests = 1",
        "hosts = [1]",
        "adress = 1",
        "io = 2",
    );
    let list = read(&text).unwrap_err();
    let lines: Vec<_> = list.iter().map(|problem| problem.line).collect();
    assert_eq!(lines, [4, 6, 9, 13, 14, 16], "{list:#?}");
    let empty = read("").unwrap_err();
    assert_eq!(empty.len(), 3, "{empty:#?}");
}

#[test]
fn broken_toml_has_a_line() {
    let text = file(SIZE, "", ANY, LOCAL, "").replace("kind = \"ram\"", "kind = \"ram");
    let list = read(&text).unwrap_err();
    assert_eq!(list[0].line, 3, "{list:#?}");
    let single = file(SIZE, "", ANY, LOCAL, "").replace("[[volume]]", "[volume]");
    let list = read(&single).unwrap_err();
    assert!(
        list.iter().any(|p| p.text.contains("write [[volume]]")),
        "{list:#?}"
    );
}

#[test]
fn file_that_is_too_large_is_not_read_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("weft.toml");
    let file = std::fs::File::create(&path).expect("a file");
    file.set_len(1 << 40).expect("sparse");
    let shown = load(&path).expect_err("too large").to_string();
    assert!(shown.contains("it has more than 16MiB"), "{shown}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let problems = load(Path::new("no/such.toml")).unwrap_err();
    let shown = problems.to_string();
    assert!(
        shown.starts_with("no/such.toml: cannot be read: "),
        "{shown}"
    );
}

/// Lines such as `# key = value`, made live.
fn uncommented(text: &str) -> String {
    let is_key = |line: &str| {
        let key = line.split(" = ").next().unwrap_or_default();
        line.starts_with('[')
            || line.contains(" = ")
                && key
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || "_0123456789".contains(c))
    };
    text.lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest) if is_key(rest) => format!("{rest}\n"),
            _ => format!("{line}\n"),
        })
        .collect()
}

#[test]
fn the_example_loads_as_it_is_and_with_everything_in_it_live() {
    let plain = read(EXAMPLE).unwrap();
    // What it gives as defaults are the defaults.
    same_numbers(&plain, &default_config());
    let folder = tempfile::tempdir().unwrap();
    for name in ["alice", "finder", "weft"] {
        secret_file(folder.path(), name, &format!("a secret of {name}\n"), 0o600);
    }
    let psk = "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    secret_file(folder.path(), "psk", psk, 0o600);
    std::fs::rename(
        folder.path().join("psk.secret"),
        folder.path().join("host.psk"),
    )
    .unwrap();
    for (name, secret) in [("host", dhchap::KEY), ("ctrl", dhchap::OWN)] {
        secret_file(folder.path(), name, secret, 0o600);
    }
    secret_file(
        folder.path(),
        "clients",
        &format!("vm1:{}", "0a".repeat(16)),
        0o600,
    );
    std::fs::rename(
        folder.path().join("clients.secret"),
        folder.path().join("clients.psk"),
    )
    .unwrap();
    std::fs::create_dir(folder.path().join("share")).unwrap();
    tls_files(folder.path());
    let keytab = folder.path().join("weft.keytab");
    std::fs::write(&keytab, kerberos::keytab(&[&kerberos::entry("nfs")])).unwrap();
    std::fs::set_permissions(keytab, PermissionsExt::from_mode(0o600)).unwrap();
    let origin = origin(folder.path().to_str().unwrap());
    let config = parse(&uncommented(EXAMPLE), &origin, &[0, 1]).unwrap();
    assert_eq!(config.cpus, [0, 1]);
    assert_eq!(config.zero_copy_min_bytes, Some(16_384));
    assert_eq!(config.registered_min_bytes, Some(262_144));
    assert!(config.volumes[1].read_only && config.volumes[1].uuid.is_some());
}

#[test]
fn the_example_holds_every_key_of_the_schema() {
    let live: toml::Table = uncommented(EXAMPLE).parse().unwrap();
    let mut seen = std::collections::BTreeSet::new();
    collect("the file", &live, &mut seen);
    for (section, keys) in SCHEMA {
        for key in keys.iter().map(|key| key.name) {
            // Those of CHAP are the same everywhere.
            let section = match section.ends_with("chap]") {
                true if key == "secret" => "[iscsi.target.initiator.chap]",
                true => "[iscsi.target.chap]",
                false => section,
            };
            // What may be said of one target is shown for all.
            let general = ("[iscsi]".to_owned(), key.to_string());
            if section == "[[iscsi.target]]" && seen.contains(&general) {
                continue;
            }
            let key = (section.to_string(), key.to_string());
            assert!(seen.contains(&key), "{key:?} is not in weft.example.toml");
        }
    }
}

/// A secret in a file of its own.
fn secret_file(folder: &Path, name: &str, text: &str, mode: u32) {
    let path = folder.join(format!("{name}.secret"));
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
}

/// What `[admin.tls]` of the example names.
fn tls_files(folder: &Path) {
    for (name, of) in [
        ("server.pem", "server.pem"),
        ("server.key", "server.key"),
        ("clients.pem", "ca.pem"),
        ("clients.crl", "crl.pem"),
        ("old.pem", "old.pem"),
        ("old.key", "old.key"),
    ] {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tls/testdata");
        std::fs::copy(data.join(of), folder.join(name)).unwrap();
        let mode = PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(folder.join(name), mode).unwrap();
    }
}

fn collect(
    title: &str,
    table: &toml::Table,
    seen: &mut std::collections::BTreeSet<(String, String)>,
) {
    for (key, value) in table {
        seen.insert((title.to_owned(), key.clone()));
        let path = match title {
            "the file" => key.clone(),
            _ => format!("{}.{key}", title.trim_matches(['[', ']'])),
        };
        match value {
            toml::Value::Table(table) => collect(&format!("[{path}]"), table, seen),
            toml::Value::Array(array) => array
                .iter()
                .filter_map(toml::Value::as_table)
                .for_each(|table| collect(&format!("[[{path}]]"), table, seen)),
            _ => {}
        }
    }
}

#[test]
fn admin_listens_on_this_machine_alone_by_names_of_machines() {
    let with = |admin: &str| file(SIZE, "", ANY, LOCAL, &format!("[admin]\n{admin}"));
    let admin = read(&with("listen = \"[::1]:4480\"\nnames = [\"A.example\"]")).expect("fine");
    let address = "[::1]:4480".parse().expect("an address");
    assert_eq!(admin.admin.listen, AdminListen::At(address));
    assert_eq!(admin.admin.names, ["a.example"]);
    let digest = "0123456789abcdef".repeat(4);
    let token = |name: &str, role: &str, sha256: &str| {
        format!("[[admin.token]]\nname = \"{name}\"\nrole = \"{role}\"\nsha256 = \"{sha256}\"\n")
    };
    let group =
        |name: &str, role: &str| format!("[[admin.group]]\nname = \"{name}\"\nrole = \"{role}\"\n");
    let admin = read(&with(&group("storage", "operator"))).expect("fine");
    assert_eq!(admin.admin.groups[0].role, AdminRole::Operator);
    let open = "listen = \"0.0.0.0:4480\"\n".to_owned() + &token("a", "viewer", &digest);
    let admin = read(&with(&open)).expect("fine");
    assert_eq!(admin.admin.tokens[0].role, AdminRole::Viewer);
    assert!(
        notes(&admin)
            .concat()
            .contains("0.0.0.0:4480 is not encrypted")
    );
    for (line, part) in [
        ("listen = \"0.0.0.0:4480\"", "this machine alone"),
        ("listen = \"[::]:4480\"", "this machine alone"),
        ("listen = \"192.0.2.1:4480\"", "this machine alone"),
        ("listen = \"127.0.0.1:0\"", "port 0"),
        ("listen = \"127.0.0.1\"", "with port"),
        ("listen = 4480", "a text in quotes"),
        ("names = [\"a.example:80\"]", "without port"),
        ("names = [\"\"]", "without port"),
        ("names = \"a.example\"", "takes a list"),
        ("lisen = \"off\"", "did you mean `listen`?"),
        (
            "[[admin.token]]\nname = \"a\"\nrole = \"viewer\"",
            "`sha256`",
        ),
        (&token("a", "root", &digest), "one of \"viewer\""),
        (&token("", "viewer", &digest), "1 to 64 bytes"),
        (&token("a", "viewer", "weft_00"), "64 hexadecimal digits"),
        (
            &(token("a", "viewer", &digest) + &token("a", "admin", &digest)),
            "already",
        ),
        ("[[admin.group]]\nname = \"a\"", "`role`"),
        (&group("a", "root"), "one of \"viewer\""),
        (&group("", "viewer"), "1 to 64 bytes"),
        (&(group("a", "viewer") + &group("a", "admin")), "already"),
    ] {
        let told = only(&with(line));
        assert!(told.contains(part), "{line}: {told}");
    }
}

#[test]
fn admin_speaks_tls_by_files_that_do_and_knows_clients_by_names_of_a_kind() {
    let folder = tempfile::tempdir().unwrap();
    tls_files(folder.path());
    let origin = origin(folder.path().to_str().unwrap());
    let read = |admin: &str| {
        let text = file(SIZE, "", ANY, LOCAL, &format!("[admin]\n{admin}"));
        parse(&text, &origin, &[0])
    };
    let tls = "listen = \"0.0.0.0:4480\"\n[admin.tls]\ncertificate = \"server.pem\"\n\
               key = \"server.key\"\n";
    let plain = read(tls).expect("fine");
    assert_eq!(notes(&plain), [] as [&str; 0]);
    let with_ca = format!("{tls}client_ca = \"clients.pem\"\nclient_crl = \"clients.crl\"\n");
    let client = |name: &str, role: &str| {
        format!("[[admin.client]]\nname = \"{name}\"\nrole = \"{role}\"\n")
    };
    let known = client("DNS:Ops.example.org", "admin") + &client("email:A@example.org", "viewer");
    let clients = read(&(with_ca.clone() + &known))
        .expect("fine")
        .admin
        .clients;
    assert_eq!(clients[0].name, "DNS:ops.example.org");
    assert_eq!(clients[1].name, "email:A@example.org");
    let old = tls.replace("server.", "old.");
    let told = notes(&read(&old).expect("fine")).concat();
    assert!(told.contains("old.pem has expired"), "{told}");
    let old_ca = format!("{tls}client_ca = \"old.pem\"\n");
    let told = notes(&read(&old_ca).expect("fine")).concat();
    let part = "[admin.tls] client_ca: an authority in ";
    assert!(
        told.contains(part) && told.contains("old.pem has expired"),
        "{told}"
    );
    assert!(told.contains("put its successor in its place"), "{told}");
    for (text, part) in [
        (
            tls.replace("server.pem", "none.pem"),
            "none.pem cannot be read",
        ),
        (
            tls.replace("server.key", "old.key"),
            "not that of the certificate",
        ),
        (tls.replace("server.key", "server.pem"), "no private key"),
        (tls.replace("key =", "# key ="), "lacks the key `key`"),
        (
            format!("{tls}client_ca = \"server.key\"\n"),
            "no certificate",
        ),
        (
            format!("{tls}client_crl = \"clients.crl\"\n"),
            "no `client_ca`",
        ),
        (
            with_ca.replace("clients.crl", "clients.pem"),
            "no certificate revocation list",
        ),
        (
            tls.to_owned() + &client("email:a", "viewer"),
            "no `client_ca`",
        ),
        (
            with_ca.clone() + &client("alice", "viewer"),
            "with its kind, DNS:, URI:, email:",
        ),
        (
            with_ca.clone() + &client("dns:a", "viewer"),
            "with its kind",
        ),
        (
            with_ca.clone() + &client("IP:192.0.2.1", "viewer"),
            "with its kind",
        ),
        (with_ca.clone() + &client("URI:", "viewer"), "with its kind"),
        (
            with_ca.clone() + &client("URI:a", "root"),
            "one of \"viewer\"",
        ),
        (
            with_ca.clone() + &client("DNS:a", "viewer") + &client("DNS:A", "admin"),
            "already",
        ),
    ] {
        let list = read(&text).expect_err(&text);
        assert_eq!(list.len(), 1, "{text}: {list:#?}");
        assert!(list[0].text.contains(part), "{text}: {}", list[0].text);
    }
    let key = folder.path().join("server.key");
    std::fs::set_permissions(key, PermissionsExt::from_mode(0o644)).unwrap();
    let list = read(tls).expect_err("everybody may read the key");
    assert!(list[0].text.contains("chmod 600"), "{}", list[0].text);
}
