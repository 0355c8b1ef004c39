//! iSCSI targets: every key arrives, every mistake is told.

use ::iscsi::{
    Auth, Credentials, DigestPolicy, InitiatorAcl, PortalGroup, Redirect, SessionLimits as Terms,
    Target,
};
use auth::{Algorithm, Secret};
use server::{Ana, IscsiTargetSpec, LunSpec, Protocol};

use super::*;

/// A file with two volumes and one target: `$iscsi`, `$target` and what follows
/// it are the test's.
fn file(iscsi: &str, target: &str, more: &str) -> String {
    format!(
        "[[volume]]\nname = \"{{a}}\"\nkind = \"null\"\nsize = 4096\n\
         [[volume]]\nname = \"b\"\nkind = \"null\"\nsize = 4096\n\
         [[listener]]\naddress = \"127.0.0.1:3260\"\nprotocol = \"iscsi\"\n\
         [iscsi]\n{iscsi}\n\
         [[iscsi.target]]\nname = \"iqn.2026-01.io.weft:a\"\n{target}\n{more}\n"
    )
    .replace("{a}", "a")
}

const ANY: &str = "allow_any_initiator = true";
const VOLUMES: &str = "volumes = [\"a\", \"b\"]";

/// A target that any initiator may use, with two logical units.
fn with(target: &str, more: &str) -> String {
    file("", &format!("{ANY}\n{VOLUMES}\n{target}"), more)
}

fn only_target(text: &str) -> IscsiTargetSpec {
    let config = read(text).unwrap();
    let [target] = &*config.iscsi_targets else {
        panic!("{:?}", config.iscsi_targets);
    };
    target.clone()
}

#[test]
fn a_plain_target_is_the_default_one() {
    let text = file("", &format!("{ANY}\n{VOLUMES}"), "");
    let expected = IscsiTargetSpec {
        luns: vec![LunSpec::new(0, "a"), LunSpec::new(1, "b")],
        ..IscsiTargetSpec::new("iqn.2026-01.io.weft:a")
    };
    assert_eq!(only_target(&text), expected);
    let config = read(&text).unwrap();
    assert_eq!(config.listeners[0].protocol, Protocol::Iscsi);
    assert!(config.subsystems.is_empty());
    assert_eq!(config.iscsi_discovery, Auth::default());
}

#[test]
fn the_default_serves_one_volume_by_all_protocols_of_volumes() {
    let config = default_config();
    let target = &config.iscsi_targets[0];
    assert_eq!(target.luns, [LunSpec::new(0, &*config.volumes[0].name)]);
    assert_eq!(target.ana, Ana::Subsystem(config.subsystems[0].nqn.clone()));
    assert_eq!(config.nbd_exports[0].volume, config.volumes[0].name);
    let listeners = config
        .listeners
        .iter()
        .map(|l| (l.address.port(), l.protocol));
    let expected = [
        (4420, Protocol::NvmeTcp),
        (3260, Protocol::Iscsi),
        (2049, Protocol::Nfs),
        (10809, Protocol::Nbd),
    ];
    assert!(listeners.eq(expected));
    assert!(
        config
            .listeners
            .iter()
            .all(|l| l.address.ip().is_loopback())
    );
}

#[test]
fn every_limit_holds_for_all_targets_or_one() {
    let limits = Terms {
        queue_depth: 7,
        max_recv_data_segment_bytes: 4096,
        first_burst_bytes: 8192,
        max_burst_bytes: 16_384,
        r2ts_max: 3,
        initial_r2t: true,
        immediate_data: false,
        error_recovery_level: 0,
        connections_max: 2,
        sessions_max: 5,
        sessions_of_initiator_max: 4,
        nop_in_interval_ms: 0,
        target_cold_reset: true,
        ..Terms::default()
    };
    let words = "queue_depth = 7\nmax_recv_data_segment_bytes = \"4KiB\"\n\
                 first_burst_bytes = 8192\nmax_burst_bytes = \"16KiB\"\nr2ts_max = 3\n\
                 initial_r2t = true\nimmediate_data = false\nerror_recovery_level = 0\n\
                 session_connections_max = 2\nsessions_max = 5\nnop_in_interval_ms = 0\n\
                 sessions_of_initiator_max = 4\n\
                 target_cold_reset = true\nheader_digest = \"required\"\ndata_digest = \"none\"\n\
                 chap_algorithms = [\"md5\", \"sha1\"]\nspace_warning = \"10GiB\"";
    let plain = format!("{ANY}\n{VOLUMES}");
    for text in [
        file(words, &plain, ""),
        file(
            "queue_depth = 9\ndata_digest = \"required\"",
            &format!("{plain}\n{words}"),
            "",
        ),
    ] {
        let spec = only_target(&text);
        assert_eq!(spec.space_warning_bytes, Some(10 << 30));
        let target = spec.target;
        assert_eq!(target.limits, limits);
        assert_eq!(target.header_digest, DigestPolicy::Required);
        assert_eq!(target.data_digest, DigestPolicy::None);
        assert_eq!(target.auth.algorithms, [Algorithm::Md5, Algorithm::Sha1]);
    }
    let config = read(&file("io_bytes_max = \"512KiB\"", &plain, "")).unwrap();
    assert_eq!(config.limits.scsi_io_bytes_max, 512 << 10);
    assert_eq!(config.limits.io_bytes_max, Limits::default().io_bytes_max);
    // What one says does not hold for the others.
    let other = format!("[[iscsi.target]]\nname = \"iqn.2026-01.io.weft:b\"\n{plain}");
    let config = read(&file(
        "queue_depth = 9",
        &format!("{plain}\nqueue_depth = 3"),
        &other,
    ));
    let depths = config.unwrap().iscsi_targets;
    let depths = depths.iter().map(|spec| spec.target.limits.queue_depth);
    assert_eq!(depths.collect::<Vec<_>>(), [3, 9]);
}

#[test]
fn initiators_networks_and_redirect_of_a_target_arrive() {
    let text = file(
        "",
        &format!(
            "{VOLUMES}\nalias = \"two disks\"\n\
             initiators = [\"iqn.1993-08.org.Debian:01:AB\", \"eui.02004567A425678D\"]\n\
             networks = [\"192.0.2.0/24\", \"2001:db8::/32\"]\n\
             redirect = \"[2001:db8::9]:3261\"\nredirect_permanent = true"
        ),
        "[[iscsi.target.initiator]]\nname = \"iqn.1991-05.com.microsoft:desk7\"\n\
         networks = [\"198.51.100.7\"]\nluns = [1]\n\
         [[iscsi.target.initiator]]\nnetworks = [\"203.0.113.0/28\"]\nluns = []",
    );
    let target = only_target(&text).target;
    let entry = |name: Option<&str>, networks: &[&str], luns: Option<Vec<u16>>| InitiatorAcl {
        name: name.map(str::to_owned),
        networks: networks.iter().map(|text| text.parse().unwrap()).collect(),
        luns,
        ..InitiatorAcl::default()
    };
    let all = ["192.0.2.0/24", "2001:db8::/32"];
    let desk = entry(
        Some("iqn.1991-05.com.microsoft:desk7"),
        &["198.51.100.7"],
        Some(vec![1]),
    );
    let expected = Target {
        alias: Some("two disks".to_owned()),
        acl: vec![
            desk,
            entry(None, &["203.0.113.0/28"], Some(Vec::new())),
            entry(Some("iqn.1993-08.org.debian:01:ab"), &all, None),
            entry(Some("eui.02004567a425678d"), &all, None),
        ],
        redirect: Some(Redirect {
            host: "2001:db8::9".to_owned(),
            port: 3261,
            permanent: true,
        }),
        ..Target::new("iqn.2026-01.io.weft:a")
    };
    assert_eq!(target, expected);
    let redirect = only_target(&with("redirect = \"nas\"", "")).target.redirect;
    let expected = Redirect {
        host: "nas".to_owned(),
        port: 3260,
        permanent: false,
    };
    assert_eq!(redirect, Some(expected));
}

#[test]
fn initiators_and_networks_of_a_target_are_checked() {
    let target = |text: &str| file("", &format!("{VOLUMES}\n{text}"), "");
    let initiator = |text: &str| with("", &format!("[[iscsi.target.initiator]]\n{text}"));
    expect(
        &target(""),
        "14:1",
        &["no host could connect", "initiatorname.iscsi"],
    );
    expect(
        &target(&format!("{ANY}\ninitiators = []")),
        "18:14",
        &["contradict"],
    );
    expect(
        &target("initiators = [\"nqn.2026-01.a:b\"]"),
        "17:15",
        &["starts with \"iqn.\", \"eui.\" or \"naa.\""],
    );
    expect(
        &target("initiators = [\"iqn.2026-01.a:b\", \"iqn.2026-01.A:b\"]"),
        "17:34",
        &["there already"],
    );
    expect(
        &target(&format!("{ANY}\nnetworks = [\"192.0.2.0/33\"]")),
        "18:13",
        &["\"192.0.2.0/33\"", "192.0.2.0/24"],
    );
    expect(&initiator("luns = [0]"), "19:1", &["needs `name`"]);
    expect(
        &initiator("name = \"iqn.2026-01.a:b\"\nluns = [2]"),
        "21:9",
        &["no LUN 2"],
    );
    expect(
        &initiator("name = \"iqn.2026-01.a:b\"\nluns = [0, 0]"),
        "21:12",
        &["in the list already"],
    );
    expect(
        &initiator("name = \"iqn.2026-01.a:b\"\nluns = [\"0\"]"),
        "21:9",
        &["whole numbers"],
    );
    let twice =
        "name = \"iqn.2026-01.a:b\"\n[[iscsi.target.initiator]]\nname = \"iqn.2026-01.a:b\"";
    expect(&initiator(twice), "22:8", &["there already"]);
    expect(
        &with("redirect_permanent = true", ""),
        "18:22",
        &["needs `redirect`"],
    );
    expect(&with("redirect = \"a:b\"", ""), "18:12", &["no port"]);
    expect(&with("alias = \"\"", ""), "18:9", &["1 to 255 bytes"]);
}

#[test]
fn names_of_targets_are_checked() {
    let good = with("", "");
    let name = |name: &str| good.replace("iqn.2026-01.io.weft:a", name);
    assert_eq!(
        only_target(&name("IQN.2026-01.io.weft:A")).target.name,
        "iqn.2026-01.io.weft:a"
    );
    expect(&name("disk"), "15:8", &["starts with \"iqn.\""]);
    expect(&name("iqn.2026-13.a"), "15:8", &["iqn.2026-01.org.example"]);
    expect(&name("iqn.2026-01.a:b_c"), "15:8", &["no '_'"]);
    let more = format!("[[iscsi.target]]\nname = \"iqn.2026-01.io.weft:A\"\n{ANY}\n{VOLUMES}");
    expect(&with("", &more), "20:8", &["there already, in line 14"]);
    expect(
        &good.replace("name = \"iqn.2026-01.io.weft:a\"", ""),
        "14:1",
        &["lacks the key `name`"],
    );
}

#[test]
fn logical_units_are_checked() {
    let lun = |text: &str| {
        let text = format!("[[iscsi.target.lun]]\n{text}");
        file("", &format!("{ANY}\nvolumes = [\"a\"]"), &text)
    };
    let fine = lun("lun = 16383\nvolume = \"b\"\nana_group = 3");
    let expected = LunSpec {
        ana_group: 3,
        ..LunSpec::new(16_383, "b")
    };
    assert_eq!(only_target(&fine).luns, [LunSpec::new(0, "a"), expected]);
    expect(&lun("lun = 16384\nvolume = \"b\""), "19:7", &["0 to 16383"]);
    expect(&lun("lun = 0\nvolume = \"b\""), "19:7", &["LUN 0 is there"]);
    expect(&lun("lun = 1\nvolume = \"a\""), "20:10", &["there already"]);
    expect(
        &lun("lun = 1\nvolume = \"c\""),
        "20:10",
        &["no volume \"c\""],
    );
    expect(&lun("volume = \"b\""), "18:1", &["lacks the key `lun`"]);
    expect(
        &lun("lun = 1\nvolume = \"b\"\nana_group = 0"),
        "21:13",
        &["from 1 to 128"],
    );
    // It gets its own later.
    assert_eq!(only_target(&file("", ANY, "")).luns, []);
    let twice = format!("{ANY}\nvolumes = [\"a\", \"a\"]");
    expect(&file("", &twice, ""), "17:17", &["in the list already"]);
    let missing = format!("{ANY}\nvolumes = [\"aa\"]");
    expect(&file("", &missing, ""), "17:12", &["no volume \"aa\""]);
}

#[test]
fn impossible_limits_say_what_is_possible() {
    let iscsi = |text: &str| file(text, &format!("{ANY}\n{VOLUMES}"), "");
    expect(&iscsi("queue_depth = 0"), "13:15", &["from 1 to 1024"]);
    expect(
        &iscsi("io_bytes_max = 65535"),
        "13:16",
        &["from 64KiB to 8MiB"],
    );
    expect(
        &iscsi("io_bytes_max = 66000"),
        "13:16",
        &["a multiple of 4096"],
    );
    expect(
        &iscsi("max_burst_bytes = 511"),
        "13:19",
        &["from 512B to 16777215B"],
    );
    expect(
        &iscsi("max_burst_bytes = \"16KiB\""),
        "13:19",
        &["`first_burst_bytes` (256KiB) is more than `max_burst_bytes` (16KiB)"],
    );
    expect(
        &iscsi("error_recovery_level = 2"),
        "13:24",
        &["from 0 to 1"],
    );
    expect(
        &iscsi("header_digest = \"offered\""),
        "13:17",
        &["\"none\", \"allowed\", \"required\""],
    );
    expect(
        &iscsi("chap_algorithms = [\"sha2\"]"),
        "13:20",
        &["\"sha3-256\", \"sha256\"", "did you mean `sha256`?"],
    );
    expect(&iscsi("chap_algorithms = []"), "13:19", &["is empty"]);
    expect(
        &iscsi("sessions = 1"),
        "13:1",
        &["unknown key `sessions` in [iscsi]", "`sessions_max`?"],
    );
    expect(
        &with("first_burst_bytes = \"2MiB\"", ""),
        "18:21",
        &["is more than `max_burst_bytes` (1MiB)"],
    );
    expect(
        &iscsi("space_warning = \"1KiB\""),
        "13:17",
        &["`space_warning` is from 1MiB to"],
    );
}

/// What holds at some portal groups alone: digests, the initiators that may log
/// in, what they prove and see there.
#[test]
fn policies_of_portal_groups_arrive_and_are_checked() {
    let groups = "[[listener]]\naddress = \"127.0.0.2:3260\"\nprotocol = \"iscsi\"\n\
        [[iscsi.portal_group]]\ntag = 1\nlisteners = [\"127.0.0.1:3260\"]\n\
        header_digest = \"required\"\n\
        [[iscsi.portal_group]]\ntag = 9\nlisteners = [\"127.0.0.2:3260\"]\n\
        data_digest = \"none\"\n";
    let text = |target: &str, tables: &str| {
        let target = format!("{VOLUMES}\n{target}");
        file("", &target, &format!("{tables}{groups}"))
    };
    let table = |lines: &str| format!("[[iscsi.target.initiator]]\n{lines}\n");
    let desk = "name = \"iqn.1991-05.com.microsoft:desk7\"\n";
    let tables = table(&format!("{desk}portal_groups = [9]\nluns = [1]"))
        + &table(&format!("{desk}portal_groups = [1]"))
        + &table("portal_groups = [9, 1]\nluns = [0]");
    let target = only_target(&text("", &tables)).target;
    let digests = target.portal_groups.iter();
    let digests = digests.map(|group| (group.tag, group.header_digest, group.data_digest));
    let required = Some(DigestPolicy::Required);
    let none = Some(DigestPolicy::None);
    let expected = [(1, required, None), (9, None, none)];
    assert_eq!(digests.collect::<Vec<_>>(), expected);
    let desk7 = Some("iqn.1991-05.com.microsoft:desk7".to_owned());
    let entry = |name: &Option<String>, portal_groups: &[u16], luns| InitiatorAcl {
        name: name.clone(),
        portal_groups: portal_groups.to_vec(),
        luns,
        ..InitiatorAcl::default()
    };
    let expected = [
        entry(&desk7, &[9], Some(vec![1])),
        entry(&desk7, &[1], None),
        entry(&None, &[9, 1], Some(vec![0])),
    ];
    assert_eq!(target.acl, expected);

    let wrong = |lines: &str, at: &str, part: &str| expect(&text("", &table(lines)), at, &[part]);
    wrong(
        "portal_groups = [2]",
        "19:18",
        "not reached by a portal group 2",
    );
    wrong("portal_groups = [1, 1]", "19:21", "in the list already");
    wrong("portal_groups = []", "19:17", "no initiator could log in");
    wrong("luns = [1]", "18:1", "needs `name`, or `networks` or");
    let twice = table(&format!("{desk}portal_groups = [9]")) + &table(desk);
    expect(&text("", &twice), "22:8", &["there already in this target"]);
    let listed = "initiators = [\"iqn.1991-05.com.microsoft:desk7\"]";
    let tables = table(&format!("{desk}portal_groups = [9]"));
    let acl = only_target(&text(listed, &tables)).target.acl;
    let expected = [entry(&desk7, &[9], None), entry(&desk7, &[], None)];
    assert_eq!(acl, expected, "what holds everywhere holds elsewhere");
}

#[test]
fn portal_groups_arrive_and_are_checked() {
    let more = "[[listener]]\naddress = \"127.0.0.2:3260\"\nprotocol = \"iscsi\"\n\
                [[listener]]\naddress = \"127.0.0.1:4420\"\n";
    let file = |groups: &str, target: &str| with(target, &format!("{groups}\n{more}"));
    let group = |tag: u16, listener: &str| {
        format!("[[iscsi.portal_group]]\ntag = {tag}\nlisteners = [\"{listener}\"]\n")
    };
    let both = group(1, "127.0.0.1:3260") + &group(9, "127.0.0.2:3260");
    let groups = |portals: &[(u16, u16)]| {
        let groups = portals.iter().map(|(tag, number)| PortalGroup {
            tag: *tag,
            portals: vec![*number],
            ..PortalGroup::default()
        });
        groups.collect::<Vec<_>>()
    };
    let found = |text: &str| only_target(text).target.portal_groups;
    assert_eq!(found(&file("", "")), []);
    assert_eq!(found(&file(&both, "")), groups(&[(1, 0), (9, 1)]));
    assert_eq!(
        found(&file(&both, "portal_groups = [9]")),
        groups(&[(9, 1)])
    );

    expect(
        &file(&both, "portal_groups = [2]"),
        "18:18",
        &["no [[iscsi.portal_group]] with tag = 2"],
    );
    expect(
        &file(&both, "portal_groups = []"),
        "18:17",
        &["no initiator could reach"],
    );
    expect(
        &file(&both, "portal_groups = [1, 1]"),
        "18:21",
        &["already"],
    );
    expect(
        &file(&both, "portal_groups = 1"),
        "18:17",
        &["takes a list"],
    );
    expect(
        &file(&group(0, "127.0.0.1:3260"), ""),
        "20:7",
        &["from 1 to 65535"],
    );
    expect(
        &file(&group(1, "127.0.0.1:4420"), ""),
        "21:13",
        &["no initiator could log in", "name an iSCSI listener"],
    );
    let mixed = found(&file(&group(1, "127.0.0.1:3260\", \"127.0.0.1:4420"), ""));
    assert_eq!(mixed[0].portals, [0, 2]);
    let nfs = more.replace("127.0.0.1:4420\"", "127.0.0.1:4420\"\nprotocol = \"nfs\"");
    expect(
        &file(&group(1, "127.0.0.1:4420"), "").replace(more, &nfs),
        "21:14",
        &["speaks NFS, which has no paths"],
    );
    expect(
        &file(&group(1, "127.0.0.3:3260"), ""),
        "21:14",
        &["no [[listener]] with the address"],
    );
    let again = group(1, "127.0.0.1:3260") + &group(1, "127.0.0.2:3260");
    expect(&file(&again, ""), "23:7", &["tag 1 is there already"]);
    let again = group(1, "127.0.0.1:3260") + &group(2, "127.0.0.1:3260");
    expect(&file(&again, ""), "24:14", &["in portal group 1 already"]);
    let again = group(1, "127.0.0.1:3260\", \"127.0.0.1:3260");
    expect(&file(&again, ""), "21:32", &["in the list already"]);
}

#[test]
fn listeners_are_checked_against_targets_and_subsystems() {
    let text = with("", "");
    expect(
        &text.replace("protocol = \"iscsi\"", ""),
        "14:1",
        &["no [[listener]] has `protocol = \"iscsi\"`"],
    );
    expect(
        &text.replace("\"iscsi\"\n", "\"iscssi\"\n"),
        "11:12",
        &["\"nvme-tcp\", \"iscsi\"", "did you mean `iscsi`?"],
    );
    expect(
        &text.replace(
            "protocol = \"iscsi\"",
            "protocol = \"iscsi\"\ndiscovery_only = true",
        ),
        "12:18",
        &["`discovery_only` is for NVMe/TCP"],
    );
    let subsystem = "[[nvme.subsystem]]\nnqn = \"nqn.2026-01.io.weft:a\"\n\
                     allow_any_host = true\nvolumes = [\"a\"]";
    expect(
        &with("", subsystem),
        "19:1",
        &["no [[listener]] is for NVMe/TCP"],
    );
    let nvme = "\n[[listener]]\naddress = \"127.0.0.1:4420\"";
    read(&with("", &format!("{subsystem}{nvme}"))).unwrap();
    let on = format!("{subsystem}\nlisteners = [\"127.0.0.1:3260\"]{nvme}");
    expect(&with("", &on), "23:14", &["speaks iSCSI, not NVMe/TCP"]);
    let nothing = "[[volume]]\nname = \"a\"\nkind = \"null\"\nsize = 4096\n\
                   [[listener]]\naddress = \"127.0.0.1:4420\"\n[iscsi]\n";
    expect(
        nothing,
        "7:1",
        &["no [[nvme.subsystem]], no [[iscsi.target]], no [[export]] and no [[nbd_export]]"],
    );
}

#[test]
fn own_states_of_paths_arrive_and_are_checked() {
    let ana = |text: &str| with("", &format!("[[iscsi.target.ana]]\n{text}"));
    let group = "[[iscsi.portal_group]]\ntag = 4\nlisteners = [\"127.0.0.1:3260\"]";
    let text = ana(&format!(
        "group = 1\nstate = \"inaccessible\"\n[[iscsi.target.ana]]\ngroup = 1\n\
         state = \"non-optimized\"\nportal_group = 4\n{group}"
    ));
    let expected = AnaGroup {
        id: 1,
        state: AnaState::Inaccessible,
        on: vec![(0, AnaState::NonOptimized)],
    };
    assert_eq!(only_target(&text).ana, Ana::Own(vec![expected]));
    expect(
        &ana("group = 2\nstate = \"change\""),
        "20:9",
        &["no LUN", "`ana_group = 2`"],
    );
    expect(
        &ana("group = 1\nstate = \"optimised\""),
        "21:9",
        &["did you mean `optimized`?"],
    );
    expect(
        &ana("group = 1\nstate = \"change\"\nportal_group = 1"),
        "22:16",
        &["not reached by a portal group 1"],
    );
    let twice =
        "group = 1\nstate = \"change\"\n[[iscsi.target.ana]]\ngroup = 1\nstate = \"change\"";
    expect(&ana(twice), "23:9", &["group 1 is said already"]);
}

#[test]
fn states_are_shared_with_a_subsystem() {
    let nvme = "[[nvme.subsystem]]\nnqn = \"nqn.2026-01.io.weft:a\"\nallow_any_host = true\n\
                [[nvme.subsystem.namespace]]\nnsid = 1\nvolume = \"a\"\nana_group = 5\n\
                [[nvme.subsystem.ana]]\ngroup = 5\nstate = \"inaccessible\"\n\
                listener = \"127.0.0.1:3260\"\n\
                [[listener]]\naddress = \"127.0.0.1:4420\"\n";
    let shares = "subsystem = \"nqn.2026-01.io.weft:a\"";
    let spec = only_target(&with(shares, nvme));
    assert_eq!(spec.ana, Ana::Subsystem("nqn.2026-01.io.weft:a".to_owned()));
    // The namespace of the same volume says which group it is.
    let groups: Vec<_> = spec.luns.iter().map(|lun| lun.ana_group).collect();
    assert_eq!(groups, [5, 1]);
    expect(
        &with("subsystem = \"nqn.2026-01.io.weft:b\"", nvme),
        "18:13",
        &["no subsystem", "did you mean `nqn.2026-01.io.weft:a`?"],
    );
    let own = format!("[[iscsi.target.ana]]\ngroup = 1\nstate = \"change\"\n{nvme}");
    let list = read(&with(shares, &own)).unwrap_err();
    assert!(list[0].text.contains("shares the ANA groups"), "{list:?}");
    let lun = "[[iscsi.target.lun]]\nlun = 3\nvolume = \"a\"\nana_group = 2\n";
    let text = with(shares, &format!("{lun}{nvme}")).replace(VOLUMES, "volumes = [\"b\"]");
    expect(&text, "22:13", &["in ANA group 5: leave `ana_group` out"]);
    // One portal group is one target port group.
    let two = "[[listener]]\naddress = \"127.0.0.2:3260\"\nprotocol = \"iscsi\"\n\
               [[iscsi.portal_group]]\ntag = 7\n\
               listeners = [\"127.0.0.1:3260\", \"127.0.0.2:3260\"]\n";
    expect(
        &with(shares, &format!("{nvme}{two}")),
        "18:13",
        &["ANA group 5", "on 127.0.0.1:3260", "both in portal group 7"],
    );
    let (_, listener) = two.split_once("[[iscsi").unwrap();
    let default = format!("{nvme}{}", two.replace(listener, "").replace("[[iscsi", ""));
    expect(
        &with(shares, &default),
        "18:13",
        &["both in portal group 1"],
    );
}

const SECRET: &str = "secret = \"correct horse\"";

fn credentials(user: &str, secret: &str) -> Credentials {
    Credentials {
        user: user.to_owned(),
        secret: Secret::new(secret.as_bytes()),
    }
}

/// As a process reads it that finds its files in `folder`.
fn read_in(text: &str, folder: &Path, mode: u32) -> Result<Config, Vec<Problem>> {
    let owner = 1000;
    let origin = Origin {
        folder,
        access: Some(FileAccess { owner, mode }),
    };
    parse(text, &origin, &[0])
}

#[test]
fn secrets_arrive_from_files_and_from_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    secret_file(folder.path(), "weft", "battery staple\r\n", 0o400);
    let text = file(
        "chap_algorithms = [\"sha1\"]\n[iscsi.discovery]\n\
         chap = { user = \"finder\", secret = \"who is there?\" }",
        &format!(
            "{ANY}\n{VOLUMES}\nchap = {{ user = \"alice\", {SECRET} }}\n\
             mutual_chap = {{ user = \"weft\", secret_file = \"weft.secret\" }}"
        ),
        "[[iscsi.target.initiator]]\nname = \"iqn.2026-01.a:bob\"\n\
         [iscsi.target.initiator.chap]\nuser = \"bob\"\nsecret = \"{1..3} is taken as it is\"\n\
         [[iscsi.target.initiator]]\nname = \"iqn.2026-01.a:eve\"",
    );
    let config = read_in(&text, folder.path(), 0o100_600).unwrap();
    let algorithms = vec![Algorithm::Sha1];
    let target = &config.iscsi_targets[0].target;
    let general = Auth {
        chap: Some(credentials("alice", "correct horse")),
        mutual: Some(credentials("weft", "battery staple")),
        algorithms: algorithms.clone(),
    };
    let bob = Auth {
        chap: Some(credentials("bob", "{1..3} is taken as it is")),
        ..general.clone()
    };
    assert_eq!(target.auth, general);
    assert_eq!(target.acl[0].auth, Some(bob));
    assert_eq!(target.acl[1].auth, None, "what the target says");
    let discovery = Auth {
        chap: Some(credentials("finder", "who is there?")),
        mutual: None,
        algorithms,
    };
    assert_eq!(config.iscsi_discovery, discovery);
    // Windows takes 16 bytes at most.
    let notes = notes(&config);
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("of bob has 24 bytes"), "{notes:?}");
    // Nothing shows them.
    let shown = format!("{config:?}{notes:?}");
    for secret in ["horse", "battery", "taken", "there?"] {
        assert!(!shown.contains(secret), "{secret} is in {shown}");
    }
}

#[test]
fn secrets_are_checked() {
    let chap = |text: &str| with(&format!("chap = {{ {text} }}"), "");
    expect(&chap(SECRET), "18:8", &["lacks the key `user`"]);
    expect(
        &chap("user = \"alice\""),
        "18:8",
        &["lacks the key `secret_file`"],
    );
    expect(
        &chap("user = \"alice\", secret = \"short\""),
        "18:35",
        &["`secret`: a CHAP secret has 12 to 255 bytes, not 5"],
    );
    expect(
        &chap(&format!("user = \"\", {SECRET}")),
        "18:17",
        &["1 to 255 bytes"],
    );
    let both = format!("user = \"alice\", {SECRET}, secret_file = \"f\"");
    expect(&chap(&both), "18:35", &["contradict"]);
    expect(
        &chap("user = \"alice\", password = \"x\", secret = \"correct horse\""),
        "18:26",
        &["unknown key `password`", "user, secret, secret_file"],
    );
    expect(
        &with(
            &format!("mutual_chap = {{ user = \"weft\", {SECRET} }}"),
            "",
        ),
        "18:15",
        &["give `chap` too"],
    );
    let same =
        format!("chap = {{ user = \"a\", {SECRET} }}\nmutual_chap = {{ user = \"b\", {SECRET} }}");
    expect(
        &with(&same, ""),
        "19:38",
        &["by the same secret, in line 18"],
    );
    // No mistake shows a secret.
    for wrong in [
        same,
        format!("chap = {{ user = \"alice\", {SECRET}, x = 1 }}"),
    ] {
        let shown = only(&with(&wrong, ""));
        assert!(!shown.contains("horse"), "{shown}");
    }
}

#[test]
fn secret_in_a_file_that_other_users_may_read_is_refused() {
    let inline = with(&format!("chap = {{ user = \"alice\", {SECRET} }}"), "");
    let folder = tempfile::tempdir().unwrap();
    for (mode, is_fine) in [
        (0o100_600, true),
        (0o100_640, false),
        (0o100_644, false),
        (0o100_602, false),
    ] {
        match read_in(&inline, folder.path(), mode) {
            Ok(_) => assert!(is_fine, "{mode:o}"),
            Err(list) => {
                assert!(!is_fine && list.len() == 1, "{mode:o}: {list:?}");
                let shown = format!("(mode {:04o}); `chmod 600` it", mode & 0o777);
                assert!(list[0].text.contains(&shown), "{list:?}");
                assert!(list[0].text.contains("use `secret_file`"), "{list:?}");
            }
        }
    }
    // A file without secrets may be read by all.
    read_in(&with("", ""), folder.path(), 0o100_644).unwrap();

    let outside = with(
        "chap = { user = \"alice\", secret_file = \"a.secret\" }",
        "",
    );
    let refused = |part: &str| {
        let list = read_in(&outside, folder.path(), 0o100_644).unwrap_err();
        assert!(list.len() == 1 && list[0].text.contains(part), "{list:?}");
    };
    refused("cannot be read: ");
    std::fs::create_dir(folder.path().join("a.secret")).unwrap();
    refused("is no file");
    std::fs::remove_dir(folder.path().join("a.secret")).unwrap();
    // Opening it would wait for a process that writes into it.
    let pipe = folder.path().join("a.secret");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    refused("is no file");
    std::fs::remove_file(pipe).unwrap();
    secret_file(folder.path(), "a", "correct horse", 0o604);
    refused("(mode 0604)");
    secret_file(folder.path(), "a", "short\n", 0o600);
    refused("not 5");
    secret_file(folder.path(), "a", &"x".repeat(4096), 0o600);
    refused("12 to 255 bytes");
    secret_file(folder.path(), "a", "correct horse\n", 0o600);
    let config = read_in(&outside, folder.path(), 0o100_644).unwrap();
    let chap = &config.iscsi_targets[0].target.auth.chap;
    assert_eq!(*chap, Some(credentials("alice", "correct horse")));
}

#[test]
fn thirty_two_targets_take_a_few_lines() {
    let text = "[[volume]]\nname = \"ram{00..31}\"\nkind = \"ram\"\nsize = \"64MiB\"\n\
                [[iscsi.target]]\nname = \"iqn.2026-01.io.weft:ram{00..31}\"\n\
                allow_any_initiator = true\nvolumes = [\"ram{00..31}\"]\n\
                [[listener]]\naddress = \"127.0.0.1:3260\"\nprotocol = \"iscsi\"\n";
    let config = read(text).unwrap();
    let targets = config.iscsi_targets.iter();
    let names = targets.map(|spec| (spec.target.name.clone(), spec.luns.clone()));
    let expected = (0..32).map(|n| {
        let name = format!("iqn.2026-01.io.weft:ram{n:02}");
        (name, vec![LunSpec::new(0, format!("ram{n:02}"))])
    });
    assert!(names.eq(expected), "{:?}", config.iscsi_targets);
    let one = read(&text.replace("weft:ram{00..31}", "weft:all")).unwrap();
    assert_eq!(one.iscsi_targets[0].luns.len(), 32);
    let again = "[[iscsi.target]]\nname = \"iqn.2026-01.io.weft:ram17\"\n\
                 allow_any_initiator = true\nvolumes = [\"ram17\"]\n";
    expect(
        &format!("{text}{again}"),
        "13:8",
        &["a target iqn.2026-01.io.weft:ram17 is there already, in line 5"],
    );
}
