//! File systems and exports of a file.

use std::net::IpAddr;

use server::Change;
use server::nfs::{
    ClientName, Clients, ConnectedClient, Exported, FileSystemKind, Flavor, Net, Squash,
};
use server::nfs::{RpcProgram, RpcPrograms, Xprtsec, XprtsecModes};

use super::*;

/// A file that serves files: with more in `[nfs]`, in the file system, and in
/// the export.
fn file(nfs: &str, file_system: &str, export: &str) -> String {
    format!(
        "[nfs]\n{nfs}\n\
         [[file_system]]\nname = \"a\"\n{file_system}\n\
         [[export]]\npath = \"/a\"\nfile_system = \"a\"\n{export}\n\
         [[listener]]\naddress = \"127.0.0.1:2049\"\nprotocol = \"nfs\"\n"
    )
}

const MEM: &str = "kind = \"mem\"\nsize = \"1MiB\"";
const ANY: &str = "allow_any_client = true";

fn net(text: &str) -> Net {
    text.parse().expect("a network")
}

#[test]
fn nfs_configuration_needs_no_volume() {
    let config = read(&file("", MEM, ANY)).unwrap();
    assert_eq!((config.volumes.len(), config.subsystems.len()), (0, 0));
    assert_eq!(config.file_systems[0].name, "a");
    let size_bytes = 1 << 20;
    assert_eq!(
        config.file_systems[0].kind,
        FileSystemKind::Mem { size_bytes }
    );
    let export = &config.exports[0];
    assert_eq!(
        (&*export.path, export.what.file_system()),
        ("/a", Some("a"))
    );
    assert_eq!(export.rules, [Default::default()]);
    assert_eq!(config.nfs, Default::default());
    assert_eq!(config.listeners[0].protocol, server::Protocol::Nfs);
}

#[test]
fn the_default_exports_memory_to_this_machine() {
    let config = default_config();
    let rule = &config.exports[0].rules[0];
    assert_eq!(config.exports[0].path, "/");
    assert_eq!((&rule.clients, rule.squash), (&Clients::Any, Squash::None));
    let nfs = config.listeners.iter();
    let nfs: Vec<_> = nfs
        .filter(|spec| spec.protocol == server::Protocol::Nfs)
        .collect();
    assert!(nfs.len() == 1 && nfs[0].address.ip().is_loopback());
    assert_eq!(nfs[0].address.port(), 2049);
}

#[test]
fn every_key_arrives() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("share")).unwrap();
    let state = folder.path().join("st");
    let nfs = "max_io_bytes = \"64KiB\"\nlease_ms = 2000\ngrace_ms = 3000\nstate = \"st\"";
    let export = "clients = [\"10.0.0.0/8\", \"localhost\"]\nread_only = true\nsquash = \"all\"\n\
                  anon_uid = 7\nanon_gid = 8\nsecurity = [\"none\", \"sys\"]\n\
                  [[export.client]]\nclients = [\"10.1.0.0/16\"]\nread_only = false\n\
                  squash = \"none\"\n\
                  [[export.client]]\nclients = [\"fd00::1\"]\nanon_uid = 9\nsecurity = [\"sys\"]";
    let text = file(
        nfs,
        "kind = \"dir\"\npath = \"share\"\ndirect = true",
        export,
    );
    let origin = origin(folder.path().to_str().unwrap());
    let config = parse(&text, &origin, &[0]).unwrap();
    let settings = &config.nfs;
    assert_eq!(settings.io_bytes_max, 65_536);
    assert_eq!((settings.lease_ms, settings.grace_ms), (2000, 3000));
    assert_eq!(settings.state.as_ref(), Some(&state));
    let path = folder.path().canonicalize().unwrap().join("share");
    let kind = FileSystemKind::Dir {
        path,
        state: state.join("a"),
        read_only: false,
        acls: None,
        direct: true,
    };
    assert_eq!(config.file_systems[0].kind, kind);
    let [first, second, rest] = &config.exports[0].rules[..] else {
        panic!("{:?}", config.exports[0].rules);
    };
    assert_eq!(first.clients, Clients::nets(vec![net("10.1.0.0/16")]));
    assert_eq!((first.is_read_only, first.squash), (false, Squash::None));
    assert_eq!((first.anon_uid, first.anon_gid), (7, 8));
    assert_eq!(first.flavors, [Flavor::None, Flavor::Sys]);
    assert_eq!(second.clients, Clients::nets(vec![net("fd00::1")]));
    assert_eq!((second.is_read_only, second.squash), (true, Squash::All));
    assert_eq!((second.anon_uid, second.anon_gid), (9, 8));
    assert_eq!(second.flavors, [Flavor::Sys]);
    let contains = |address: [u8; 4]| {
        let client = ConnectedClient::from(IpAddr::from(address));
        rest.clients.contains(&client)
    };
    assert!(contains([127, 0, 0, 1]), "{:?}", rest.clients);
    assert!(contains([10, 9, 9, 9]));
    assert!(rest.is_read_only && rest.squash == Squash::All);
}

#[test]
fn labels_are_of_an_export_or_of_some_of_its_clients() {
    let text = |kind: &str, keys: &str| {
        format!(
            "[nfs]\nstate = \"state\"\n[[file_system]]\nname = \"fs\"\n{kind}\n\
             [[export]]\npath = \"/a\"\nfile_system = \"fs\"\nallow_any_client = true\n{keys}\n\
             [[listener]]\naddress = \"127.0.0.1:2049\"\nprotocol = \"nfs\"\n"
        )
    };
    let (memory, on) = ("kind = \"mem\"\nsize = \"1MiB\"", "security_label = true");
    let some = "[[export.client]]\nclients = [\"192.0.2.7\"]\nsecurity_label = true";
    for (keys, expected) in [("", &[false][..]), (on, &[true]), (some, &[true, false])] {
        let config = read(&text(memory, keys)).unwrap();
        let rules = config.exports[0].rules.iter();
        assert!(
            rules
                .map(|rule| rule.security_label)
                .eq(expected.iter().copied())
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let directory = format!("kind = \"dir\"\npath = \"{}\"", folder.path().display());
    for keys in [on, some] {
        let refused = read(&text(&directory, keys)).unwrap_err();
        let [problem] = &refused[..] else {
            panic!("{refused:?}");
        };
        let text = format!("{problem:?}");
        assert!(text.contains("no security labels are kept"), "{text}");
    }
    read(&text(&directory, "")).unwrap();
}

#[test]
fn patterns_make_many() {
    let text = "[[file_system]]\nname = \"fs{00..03}\"\nkind = \"mem\"\nsize = \"1MiB\"\n\
                [[export]]\npath = \"/homes/{0..3}\"\nfile_system = \"fs{00..03}\"\n\
                allow_any_client = true\n\
                [[listener]]\naddress = \"127.0.0.1:2049\"\nprotocol = \"nfs\"\n";
    let config = read(text).unwrap();
    let exports = config.exports.iter();
    let exports: Vec<_> = exports
        .map(|export| {
            (
                &*export.path,
                export.what.file_system().expect("a file system"),
            )
        })
        .collect();
    assert_eq!(
        exports,
        [
            ("/homes/0", "fs00"),
            ("/homes/1", "fs01"),
            ("/homes/2", "fs02"),
            ("/homes/3", "fs03")
        ]
    );
}

#[test]
fn impossible_file_systems_are_told() {
    for (file_system, at, parts) in [
        ("kind = \"mem\"", "2:1", &["lacks the key `size`"][..]),
        ("kind = \"mem\"\nsize = \"1KiB\"", "5:8", &["from 1MiB"]),
        (
            "kind = \"men\"",
            "4:8",
            &["\"mem\", \"dir\"", "did you mean `mem`"],
        ),
        (
            "kind = \"dir\"\nstate = \"/x\"",
            "2:1",
            &["lacks the key `path`"],
        ),
        (
            "kind = \"dir\"\npath = \"/tmp\"",
            "2:1",
            &["must outlive a restart", "[nfs]"],
        ),
        (
            "kind = \"dir\"\npath = \"/tmp\"\nstate = \"/tmp/st\"",
            "6:9",
            &["/tmp/st lies in the directory that is served"],
        ),
        (
            "kind = \"mem\"\nsize = \"1MiB\"\npath = \"/tmp\"",
            "6:8",
            &["`path` is for file systems of the kind \"dir\""],
        ),
    ] {
        // The [nfs] table of the file is one line less without keys.
        let text = file("", file_system, ANY).replacen("[nfs]\n\n", "", 1);
        let at = shifted(at);
        expect(&text, &at, parts);
    }
}

/// A place that was counted with the line `[nfs]` before it.
fn shifted(at: &str) -> String {
    let (line, column) = at.split_once(':').unwrap();
    let line: usize = line.parse().unwrap();
    format!("{}:{column}", line - 1)
}

/// A start may do without it.
#[test]
fn directory_that_is_missing_is_no_mistake_of_the_file() {
    for missing in ["/no/such", "/proc/self/status"] {
        let dir = format!("kind = \"dir\"\npath = \"{missing}\"\nstate = \"/x\"");
        let config = read(&file("", &dir, ANY)).unwrap();
        assert_eq!(config.file_systems.len(), 1, "{missing}");
    }
}

#[test]
fn patterns_that_hosts_of_any_domain_would_fit_are_refused() {
    for pattern in [
        "192.168.1.*",
        "192.168.*.1",
        "2001:db8::*",
        "*.*",
        "web*",
        "web?",
        "*.example.org.",
        "*.example.?rg",
    ] {
        let export = format!("clients = [\"{pattern}\"]");
        let parts = [pattern, "\"*.example.org\"", "\"192.0.2.0/24\""];
        expect(&file("", MEM, &export), "10:12", &parts);
    }
    for pattern in [
        "*.example.org",
        "web?.example.org",
        "*.lan",
        "*-1.EXAMPLE.org",
    ] {
        let export = format!("clients = [\"{pattern}\"]");
        let config = read(&file("", MEM, &export)).expect(pattern);
        let names = Clients::Named(vec![ClientName::Pattern(pattern.to_owned())]);
        assert_eq!(config.exports[0].rules[0].clients, names);
    }
}

#[test]
fn netgroups_have_names_that_clients_can_be_told() {
    let longest = "g".repeat(254);
    for (group, is_taken) in [
        (&*longest, true),
        (&*format!("{longest}g"), false),
        ("a\\u0007b", false),
        ("a b", false),
    ] {
        let export = format!("clients = [\"@{group}\"]");
        match (is_taken, read(&file("", MEM, &export))) {
            (true, config) => assert_eq!(config.expect(group).exports.len(), 1),
            (false, config) => {
                let told = &config.expect_err(group)[0].text;
                assert!(told.contains("no netgroup"), "{told}");
            }
        }
    }
}

#[test]
fn exports_are_checked_against_each_other() {
    let two = |path: &str, file_system: &str| {
        file("", MEM, ANY)
            + &format!(
                "[[export]]\npath = \"{path}\"\nfile_system = \"{file_system}\"\n\
                 allow_any_client = true\n"
            )
    };
    for (path, file_system, at, parts) in [
        ("/a", "a", "15:8", &["/a is exported twice", "line 7"][..]),
        ("/a/b", "a", "15:8", &["/a/b would lie within /a", "line 7"]),
        ("/", "a", "15:8", &["/a would lie within /", "line 7"]),
        ("b", "a", "15:8", &["no path to export as", "/a/b"]),
        ("/b/../c", "a", "15:8", &["without . and .."]),
        ("/b", "aa", "16:15", &["no file system \"aa\""]),
    ] {
        expect(&two(path, file_system), at, parts);
    }
}

#[test]
fn rules_of_an_export_are_checked() {
    for (export, at, parts) in [
        (
            "",
            "7:1",
            &["no client may use this export", "allow_any_client"][..],
        ),
        ("clients = [\"10.0.0.0/33\"]", "10:12", &["from 0 to 32"]),
        ("clients = [\"fd00::/x\"]", "10:12", &["from 0 to 128"]),
        (
            "clients = [\"desk/24\"]",
            "10:12",
            &["\"desk\"", "no IP address"],
        ),
        ("clients = [\"*\"]", "10:12", &["allow_any_client = true"]),
        (
            "clients = [\"*.exa mple.org\"]",
            "10:12",
            &["no pattern", "\"*.example.org\""],
        ),
        (
            "clients = [\"web[12].example.org\"]",
            "10:12",
            &["web[12].example.org"],
        ),
        ("clients = [\"@\"]", "10:12", &["no netgroup", "\"@staff\""]),
        ("clients = [\"@-k\"]", "10:12", &["no netgroup"]),
        ("clients = []", "10:11", &["names no client"]),
        (
            "clients = [\"no-such-host.invalid\"]",
            "10:12",
            &["no-such-host.invalid", "cannot be found", "/etc/hosts"],
        ),
        (
            "allow_any_client = true\nclients = [\"10.0.0.1\"]",
            "11:11",
            &["leave `clients` out"],
        ),
        (
            "allow_any_client = true\nsquash = \"rot\"",
            "11:10",
            &["\"root\", \"all\", \"none\"", "did you mean `root`"],
        ),
        (
            "allow_any_client = true\nsecurity = [\"krb5\"]",
            "11:13",
            &["no keys", "\"krb5\"", "[nfs.kerberos]"],
        ),
        (
            "allow_any_client = true\nsecurity = []",
            "11:12",
            &["`security` names how"],
        ),
        (
            "allow_any_client = true\nanon_uid = 4294967295",
            "11:12",
            &["from 0 to 4294967294"],
        ),
        (
            "allow_any_client = true\nread_onyl = true",
            "11:1",
            &["unknown key `read_onyl` in [[export]]", "`read_only`"],
        ),
        (
            "[[export.client]]\nread_only = true",
            "10:1",
            &["lacks the key `clients`"],
        ),
    ] {
        let text = file("", MEM, export);
        let text = text.replacen("[nfs]\n\n", "[nfs]\nlease_ms = 90000\n", 1);
        expect(&text, at, parts);
    }
}

#[test]
fn settings_have_bounds() {
    for (nfs, at, parts) in [
        (
            "max_io_bytes = \"16MiB\"",
            "2:16",
            &["from 4KiB to 8MiB"][..],
        ),
        ("max_io_bytes = 5000", "2:16", &["a multiple of 4096"]),
        (
            "io_bytes_max = \"64KiB\"",
            "2:1",
            &["did you mean `max_io_bytes`"],
        ),
        ("lease_ms = 10", "2:12", &["from 1000"]),
        (
            "lease_ms = 50000\ngrace_ms = 40000",
            "3:12",
            &["`grace_ms` (40000)", "`lease_ms` (50000)"],
        ),
    ] {
        expect(&file(nfs, MEM, ANY), at, parts);
    }
}

#[test]
fn data_of_a_call_is_an_eighth_of_the_memory_at_most() {
    let with = |memory_max: &str| {
        let policy = format!("\n[policy]\nmemory_max = \"{memory_max}\"\n");
        file("max_io_bytes = \"8MiB\"", MEM, ANY) + &policy
    };
    let config = read(&with("64MiB")).unwrap();
    assert_eq!(config.nfs.io_bytes_max, 8 << 20);
    let parts = ["an eighth of `memory_max` (48MiB)", "64MiB in [policy]"];
    expect(&with("48MiB"), "2:16", &parts);
}

#[test]
fn exports_want_a_listener_of_their_own_protocol() {
    let text = file("", MEM, ANY).replace("protocol = \"nfs\"", "");
    let list = read(&text).unwrap_err();
    assert_eq!(list.len(), 1, "{list:#?}");
    assert!(list[0].text.contains("`protocol = \"nfs\"`"), "{list:#?}");
    for (key, part) in [
        ("discovery_only = true", "for NVMe/TCP"),
        ("advertise = \"nas\"", "tells no client an address"),
    ] {
        let text = file("", MEM, ANY) + key + "\n";
        let list = read(&text).unwrap_err();
        assert_eq!(list.len(), 1, "{list:#?}");
        assert!(list[0].text.contains(part), "{list:#?}");
    }
}

#[test]
fn listener_says_what_the_port_mapper_sends_clients_there_for() {
    let with = |key: &str| file("", MEM, ANY) + key + "\n";
    let programs = |key: &str| read(&with(key)).unwrap().listeners[0].programs;
    assert_eq!(programs(""), RpcPrograms::new(&RpcProgram::ALL[1..]));
    let two = RpcPrograms::new(&[RpcProgram::Nfs, RpcProgram::Portmap]);
    assert_eq!(programs("programs = [\"portmap\", \"nfs\"]"), two);
    for (key, part) in [
        ("programs = []", "names what clients"),
        ("programs = [\"nlmm\"]", "did you mean `nlm`?"),
        ("programs = [\"nfs\", \"nfs\"]", "already"),
        ("programs = [\"portmap\"]", "no export could be reached"),
        (
            "[[listener]]\naddress = \"127.0.0.1:4420\"\nprograms = [\"nfs\"]",
            "`programs` is for NFS",
        ),
    ] {
        let list = read(&with(key)).unwrap_err();
        assert_eq!(list.len(), 1, "{list:#?}");
        assert!(list[0].text.contains(part), "{list:#?}");
    }
}

#[test]
fn exports_say_how_connections_are_protected_and_name_clients_by_certificates() {
    let ways = |export: &str| {
        let config = read(&file("", MEM, &format!("{ANY}\n{export}"))).expect(export);
        config.exports[0].rules[0].xprtsec
    };
    assert_eq!(ways(""), XprtsecModes::ALL);
    let both = XprtsecModes::new(&[Xprtsec::Tls, Xprtsec::Mtls]);
    assert_eq!(ways("xprtsec = [\"mtls\", \"tls\"]"), both);
    let own = "clients = [\"10.0.0.0/8\"]\nxprtsec = [\"tls\"]\n[[export.client]]\n\
               clients = [\"DNS:Client.Example.org\", \"192.0.2.7\"]\nxprtsec = [\"mtls\"]\n\
               squash = \"all\"\nanon_uid = 1000";
    let rules = read(&file("", MEM, own)).expect("fine").exports[0]
        .rules
        .clone();
    let named = Clients::Named(vec![
        ClientName::Certificate("DNS:client.example.org".to_owned()),
        ClientName::Net(net("192.0.2.7")),
    ]);
    assert_eq!(rules[0].clients, named);
    assert_eq!(rules[0].xprtsec, XprtsecModes::new(&[Xprtsec::Mtls]));
    assert_eq!(rules[1].xprtsec, XprtsecModes::new(&[Xprtsec::Tls]));
    for (wrong, told) in [
        ("xprtsec = []", "names how connections"),
        ("xprtsec = [\"tsl\"]", "\"tls\""),
        ("xprtsec = [\"tls\", \"tls\"]", "already"),
    ] {
        let problems = read(&file("", MEM, &format!("{ANY}\n{wrong}"))).expect_err(wrong);
        assert!(problems[0].text.contains(told), "{problems:?}");
    }
    let problems = read(&file("", MEM, "clients = [\"DNS:\"]")).expect_err("no name");
    assert!(problems[0].text.contains("subject alternative name"));
}

#[test]
fn certificate_that_clients_refuse_and_name_that_is_no_pattern_are_noted() {
    let folder = tempfile::tempdir().expect("a folder");
    tls_files(folder.path());
    let origin = origin(folder.path().to_str().expect("a path"));
    let told = |server: &str, name: &str| {
        let nfs = format!(
            "state = \"st\"\n[nfs.tls]\ncertificate = \"{server}.pem\"\nkey = \"{server}.key\"\n\
             client_ca = \"clients.pem\"\n"
        );
        let text = file(&nfs, MEM, &format!("clients = [\"{name}\"]"));
        notes(&parse(&text, &origin, &[0]).expect("fine"))
    };
    assert_eq!(told("server", "DNS:a.example.org"), Vec::<String>::new());
    let late = told("old", "DNS:a.example.org");
    assert_eq!(late.len(), 1);
    for part in [
        "[nfs.tls] certificate: ",
        "old.pem has expired",
        "put another",
    ] {
        assert!(late[0].contains(part), "{part}: {late:?}");
    }
    let pattern = told("server", "DNS:*.example.org");
    assert_eq!(pattern.len(), 1);
    for part in [
        "\"DNS:*.example.org\" is no pattern",
        "write the own name of each client",
    ] {
        assert!(pattern[0].contains(part), "{part}: {pattern:?}");
    }
}

#[test]
fn export_that_lets_no_client_in_for_want_of_tls_is_noted() {
    let folder = tempfile::tempdir().expect("a folder");
    tls_files(folder.path());
    let origin = origin(folder.path().to_str().expect("a path"));
    let told = |nfs: &str, way: &str| {
        let text = file(nfs, MEM, &format!("{ANY}\nxprtsec = [\"{way}\"]"));
        notes(&parse(&text, &origin, &[0]).expect(nfs)).concat()
    };
    let state = "state = \"st\"";
    let tls = "[nfs.tls]\ncertificate = \"server.pem\"\nkey = \"server.key\"\n";
    assert!(told(state, "tls").contains("there is no [nfs.tls]"));
    assert!(told(&format!("{state}\n{tls}"), "mtls").contains("no `client_ca`"));
    assert_eq!(told(state, "none"), "");
    assert_eq!(told(&format!("{state}\n{tls}"), "tls"), "");
    let with_ca = format!("{state}\n{tls}client_ca = \"clients.pem\"\n");
    assert_eq!(told(&with_ca, "mtls"), "");
    let other = tls.replace("server.key", "clients.pem");
    let problems = parse(&file(&other, MEM, ANY), &origin, &[0]).expect_err("no key");
    assert!(problems[0].text.contains("`key`"), "{problems:?}");
}

/// A file with referrals at `/r0`, `/r1`, … that name these locations, and an export `/files`.
fn referring(referrals: &[&str], more: &str) -> String {
    let export = |(at, list): (usize, &&str)| {
        format!("[[export]]\npath = \"/r{at}\"\nreferral = [{list}]\n{ANY}\n{more}\n")
    };
    let all: String = referrals.iter().enumerate().map(export).collect();
    format!(
        "[[file_system]]\nname = \"a\"\n{MEM}\n\
         [[export]]\npath = \"/files\"\nfile_system = \"a\"\n{ANY}\n{all}\
         [[listener]]\naddress = \"192.0.2.1:2049\"\nprotocol = \"nfs\"\n"
    )
}

#[test]
fn referral_names_servers_by_name_and_by_address_with_a_port() {
    let list = "\"localhost:/a\", \"192.0.2.7:/\", \"192.0.2.7:20490:/b\", \
                \"[2001:db8::7]:/c\", \"[2001:db8::7]:20490:/d/e\"";
    let config = read(&referring(&[list], "")).expect("fine");
    let Exported::Referral(locations) = &config.exports[1].what else {
        panic!("{:?}", config.exports[1]);
    };
    let told: Vec<String> = locations.iter().map(ToString::to_string).collect();
    let written: Vec<&str> = list
        .split(", ")
        .map(|item| item.trim_matches('"'))
        .collect();
    assert_eq!(told, written);
    let told = notes(&config).concat();
    assert!(
        told.contains("Linux does not follow \"192.0.2.7:20490:/b\""),
        "{told}"
    );
    // To lead to what is exported here by another path is no loop.
    let here = read(&referring(&["\"192.0.2.1:/files\""], "")).expect("fine");
    assert_eq!(notes(&here), [] as [&str; 0]);
}

#[test]
fn referral_that_leads_nowhere_says_what_is_wrong_and_what_to_write() {
    for (list, part) in [
        ("\"server2\"", "write SERVER:/PATH"),
        ("\"server2:files\"", "write SERVER:/PATH"),
        ("\"/files\"", "write SERVER:/PATH"),
        ("\":/files\"", "is no server"),
        ("\"192.0.2.7:99999:/a\"", "\"99999\" in"),
        ("\"localhost:nfs:/a\"", "is no port"),
        ("\"[2001:db8::7]:-1:/a\"", "is no port"),
        ("\"[2001:db8::7:/a\"", "is no"),
        ("\"localhost:/a/../b\"", "no path of an export"),
        ("\"localhost:20490:/a\"", "a port behind a name"),
        (
            "\"2001:db8::7:/a\"",
            "stands in brackets: write \"[2001:db8::7]:/...\"",
        ),
        ("\"192.0.2.777:/a\"", "is no server"),
        ("\"fe80::1%eth0:/a\"", "is no server"),
        ("\"0.0.0.0:/a\"", "no client can connect"),
        ("\"192.0.2.7:0:/a\"", "no client can connect"),
        ("\"192.0.2.7:/a\", \"192.0.2.7:/a\"", "in the list already"),
        ("", "names 1 to 16 servers"),
        ("\"192.0.2.1:/r0/below\"", "go round for ever"),
        ("\"192.0.2.1:/\"", "go round for ever"),
    ] {
        let problems = read(&referring(&[list], "")).expect_err(list);
        assert!(problems[0].text.contains(part), "{list}: {problems:?}");
    }
    let round = [
        "\"192.0.2.1:/r1\"",
        "\"192.0.2.1:/r2/a\"",
        "\"192.0.2.1:/r0\"",
    ];
    assert_eq!(read(&referring(&round, "")).expect_err("a loop").len(), 3);
    let there = ["\"192.0.2.7:/a\""];
    for (more, part) in [
        ("squash = \"none\"", "`squash` is for files"),
        ("file_system = \"a\"", "in place of `file_system`"),
        (
            "[[export.client]]\nclients = [\"192.0.2.9\"]\nread_only = true",
            "`read_only` is for files",
        ),
    ] {
        let problems = read(&referring(&there, more)).expect_err(more);
        assert!(problems[0].text.contains(part), "{more}: {problems:?}");
    }
    let root = referring(&there, "")
        .replace("/files", "/x/y")
        .replace("/r0", "/");
    let problems = read(&root).expect_err("the root");
    let texts: Vec<&str> = problems.iter().map(|problem| &*problem.text).collect();
    assert!(texts.concat().contains("clients begin at"), "{texts:?}");
}

#[test]
fn referral_changes_where_it_stands_and_comes_after_the_export_in_whose_place_it_is() {
    let of = |list: &str| read(&referring(&[list], "")).expect("fine");
    let (one, two) = ("\"192.0.2.7:/a\"", "\"192.0.2.7:/a\", \"192.0.2.8:/a\"");
    let planned = crate::plan(&of(one), &of(two)).expect("it may change");
    let [set] = &planned[..] else {
        panic!("{planned:?}");
    };
    let wanted = Change::SetExport(of(two).exports[1].clone());
    assert_eq!((&set.change, set.disturbs), (&wanted, false));
    assert_eq!(set.text, "export /r0: it refers clients to other servers");
    let text = referring(&[one], "").replace("file_system = \"a\"", "referral = [\"192.0.2.9:/\"]");
    let moved = read(&text).expect("fine");
    let planned = crate::plan(&of(one), &moved).expect("it may change");
    let changes: Vec<_> = planned.iter().map(|step| &step.change).collect();
    let path = "/files".to_owned();
    let remove = Change::RemoveExport { path };
    let add = Change::AddExport(moved.exports[0].clone());
    assert_eq!(changes, [&remove, &add]);
}
