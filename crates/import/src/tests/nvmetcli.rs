use server::Protocol;
use store::Kind;

use super::{imported, loaded, mistakes, path, tells};

/// Two ports of which one is worse for a group, a referral, a list of hosts and one for all.
const WHOLE: &str = r#"{
  "hosts": [
    {"nqn": "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"}
  ],
  "ports": [
    {
      "addr": {"adrfam": "ipv4", "traddr": "192.0.2.1", "treq": "not specified",
               "trsvcid": "4420", "trtype": "tcp"},
      "ana_groups": [
        {"ana": {"state": "optimized"}, "grpid": 1},
        {"ana": {"state": "non-optimized"}, "grpid": 2}
      ],
      "param": {"inline_data_size": "16384", "pi_enable": "0"},
      "portid": 1,
      "referrals": [
        {"name": "other", "enable": "1",
         "addr": {"adrfam": "ipv4", "traddr": "192.0.2.9", "trsvcid": "8009", "trtype": "tcp"}}
      ],
      "subsystems": ["nqn.2026-01.org.example:db", "nqn.2026-01.org.example:scratch"]
    },
    {
      "addr": {"adrfam": "ipv6", "traddr": "2001:db8::1", "trsvcid": "4420", "trtype": "tcp"},
      "ana_groups": [{"ana": {"state": "optimized"}, "grpid": 1}],
      "param": {}, "portid": 2, "referrals": [],
      "subsystems": ["nqn.2026-01.org.example:db"]
    }
  ],
  "subsystems": [
    {
      "allowed_hosts": ["nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"],
      "attr": {"allow_any_host": "0", "cntlid_min": "100", "cntlid_max": "200",
               "model": "Linux", "serial": "0123456789abcdef", "version": "1.3"},
      "namespaces": [
        {"ana_grpid": 2, "enable": 1, "nsid": 7,
         "device": {"path": "/dev/vg0/db",
                    "nguid": "6001405a-b123-4567-0123-456789abcdef",
                    "uuid": "d592cdf3-5d1c-44e0-8412-3fcf7d99df27"}},
        {"enable": 0, "nsid": 8, "device": {"path": "/dev/vg0/off"}}
      ],
      "nqn": "nqn.2026-01.org.example:db"
    },
    {
      "allowed_hosts": [],
      "attr": {"allow_any_host": "1"},
      "namespaces": [
        {"enable": 1, "nsid": 1,
         "device": {"path": "/srv/scratch.img",
                    "nguid": "00000000-0000-0000-0000-000000000000",
                    "uuid": "11111111-2222-3333-4444-000000000001"}}
      ],
      "nqn": "nqn.2026-01.org.example:scratch"
    }
  ]
}"#;

#[test]
fn a_dump_is_carried_over_with_all_identities() {
    let (found, config) = loaded("nvmetcli", WHOLE);
    let db = &config.volumes[0];
    assert_eq!(db.kind, Kind::block(path("/dev/vg0/db")));
    assert_eq!(
        db.uuid.expect("a UUID").to_string(),
        "d592cdf3-5d1c-44e0-8412-3fcf7d99df27"
    );
    let nguid = db.names.nguid.expect("an NGUID");
    assert_eq!(nguid[..4], [0x60, 0x01, 0x40, 0x5a]);
    let scratch = &config.volumes[1];
    assert_eq!(scratch.names.nguid, None, "zeros are none");
    assert_eq!((scratch.size_bytes, scratch.block_bytes), (1 << 30, 4096));
    let [one, any] = &config.subsystems[..] else {
        panic!("two subsystems");
    };
    assert_eq!(one.nqn, "nqn.2026-01.org.example:db");
    assert_eq!(
        (one.serial.as_str(), one.model.as_str()),
        ("0123456789abcdef", "Linux")
    );
    assert_eq!(one.cntlids, Some(100..=200));
    assert_eq!(one.hosts.as_ref().expect("a list").len(), 1);
    assert_eq!(one.listeners, None, "on all");
    assert_eq!(one.namespaces.len(), 1, "what is not enabled is left out");
    assert_eq!(
        (one.namespaces[0].nsid, one.namespaces[0].ana_group),
        (7, 2)
    );
    assert_eq!(one.ana_groups[0].on.len(), 1, "worse on one port");
    assert_eq!(any.hosts, None);
    let at = &config.listeners[usize::from(any.listeners.as_ref().expect("one")[0])];
    assert_eq!(at.address.to_string(), "192.0.2.1:4420");
    assert!(
        config
            .listeners
            .iter()
            .all(|known| known.protocol == Protocol::NvmeTcp)
    );
    assert_eq!(config.referrals.len(), 1);
    assert!(!found.report.changes_access(), "{}", found.report);
    tells(&found, &["source:38", "lost", "enable"]);
}

#[test]
fn keys_that_weft_lacks_are_told_and_widen_no_rights() {
    let text = WHOLE
        .replace(
            r#""treq": "not specified""#,
            r#""treq": "required", "tsas": "tls1.3""#,
        )
        .replace(
            r#"555555555555"}"#,
            r#"555555555555", "dhchap_key": "DHHC-1:00:abc:"}"#,
        )
        .replace(r#""param": {},"#, r#""param": {}, "colour": "green","#);
    let found = imported("nvmetcli", &text);
    assert!(found.report.changes_access());
    tells(&found, &["ACCESS", "treq", "keyring"]);
    tells(&found, &["ACCESS", "dhchap_key", "is let in nowhere"]);
    assert!(found.document.contains("hosts = []"), "it is let in");
    tells(&found, &["ACCESS", "colour", "does not know"]);
    assert!(!found.document.contains("DHHC-1"), "a secret is printed");
    let text = WHOLE.replace(
        r#""trtype": "tcp"},
      "ana_groups": [{"#,
        r#""trtype": "rdma"},
      "ana_groups": [{"#,
    );
    let found = imported("nvmetcli", &text);
    tells(&found, &["ACCESS", "trtype", "rdma"]);
}

/// 32 zeros.
const SECRET: &str = "DHHC-1:00:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAACtVQoZ:";

#[test]
fn secrets_of_hosts_are_asked_for_as_before_and_are_not_printed() {
    let text = WHOLE.replace(
        r#"555555555555"}"#,
        &format!(r#"555555555555", "dhchap_key": "{SECRET}", "dhchap_hash": "hmac(sha256)"}}"#),
    );
    let (found, config) = loaded("nvmetcli", &text);
    let terms = &config.subsystems[0].terms;
    assert!(terms.len() == 1 && terms[0].dhchap.is_some(), "{terms:?}");
    for line in ["[[nvme.subsystem.host]]", "dhchap_secret_file = \""] {
        assert!(found.document.contains(line), "{line}");
    }
    assert!(
        !found.document.contains("\nhosts = "),
        "it is let in by name"
    );
    assert_eq!(found.secrets.len(), 1);
    tells(&found, &["lost", "dhchap_hash", "dhchap_hashes"]);
    assert!(!found.report.changes_access(), "{}", found.report);
}

#[test]
fn undefined_references_are_mistakes_with_their_lines() {
    let text = WHOLE.replace(
        r#""subsystems": ["nqn.2026-01.org.example:db"]"#,
        r#""subsystems": ["nqn.2026-01.org.example:dd"]"#,
    );
    let told = mistakes("nvmetcli", &text);
    assert!(
        told.contains("source:25: the port links to nqn.2026-01.org.example:dd"),
        "{told}"
    );
    let told = mistakes(
        "nvmetcli",
        &WHOLE.replacen("555555555555", "555555555556", 1),
    );
    assert!(told.contains("is not in `hosts`"), "{told}");
    let told = mistakes("nvmetcli", &WHOLE.replace(r#""nsid": 8"#, r#""nsid": 7"#));
    assert!(
        told.contains("source:38: nsid 7 is there already"),
        "{told}"
    );
    let told = mistakes("nvmetcli", &WHOLE.replace(r#""nsid": 8"#, r#""nsid": "x""#));
    assert!(
        told.contains("source:38: a namespace needs an `nsid`"),
        "{told}"
    );
    let told = mistakes(
        "nvmetcli",
        &WHOLE.replace("2001:db8::1", "storage.example.org"),
    );
    assert!(told.contains("is no address"), "{told}");
}

#[test]
fn one_device_in_two_subsystems_is_one_volume() {
    let text = WHOLE.replace("/srv/scratch.img", "/dev/vg0/db");
    let (found, config) = loaded("nvmetcli", &text);
    assert_eq!(config.volumes.len(), 1);
    tells(&found, &["source:47", "lost", "uuid"]);
}

/// configfs as the kernel shows it, of the first subsystem and port above.
#[test]
fn live_configuration_of_the_kernel_is_read_from_configfs() {
    let nqn = "nqn.2026-01.org.example:db";
    let host = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
    let root = "/sys/kernel/config/nvmet";
    let subsystem = format!("{root}/subsystems/{nqn}");
    let port = format!("{root}/ports/1");
    let files: Vec<(String, &str)> = vec![
        (format!("{root}/hosts/{host}/dhchap_key"), "\n"),
        (format!("{subsystem}/attr_allow_any_host"), "0\n"),
        (format!("{subsystem}/attr_serial"), "0123456789abcdef\n"),
        (format!("{subsystem}/attr_model"), "Linux\n"),
        (format!("{subsystem}/attr_version"), "1.3\n"),
        (format!("{subsystem}/allowed_hosts/{host}"), ""),
        (
            format!("{subsystem}/namespaces/7/device_path"),
            "/dev/vg0/db\n",
        ),
        (
            format!("{subsystem}/namespaces/7/device_uuid"),
            "d592cdf3-5d1c-44e0-8412-3fcf7d99df27\n",
        ),
        (
            format!("{subsystem}/namespaces/7/device_nguid"),
            "00000000-0000-0000-0000-000000000000\n",
        ),
        (format!("{subsystem}/namespaces/7/enable"), "1\n"),
        (format!("{subsystem}/namespaces/7/ana_grpid"), "2\n"),
        (format!("{subsystem}/passthru/enable"), "0\n"),
        (format!("{port}/addr_adrfam"), "ipv4\n"),
        (format!("{port}/addr_traddr"), "192.0.2.1\n"),
        (format!("{port}/addr_trsvcid"), "4420\n"),
        (format!("{port}/addr_trtype"), "tcp\n"),
        (format!("{port}/addr_treq"), "not specified\n"),
        (format!("{port}/param_inline_data_size"), "16384\n"),
        (format!("{port}/ana_groups/1/ana_state"), "optimized\n"),
        (format!("{port}/ana_groups/2/ana_state"), "inaccessible\n"),
        (format!("{port}/subsystems/{nqn}"), ""),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, *text)).collect();
    let files = super::SomeFiles::of(&files);
    let found = crate::import_live(root, &files).unwrap_or_else(|report| panic!("{report}"));
    let config = super::load(&found);
    let subsystem = &config.subsystems[0];
    assert_eq!(
        (&*subsystem.nqn, &*subsystem.serial),
        (nqn, "0123456789abcdef")
    );
    assert_eq!(subsystem.hosts.as_deref(), Some(&[host.to_owned()][..]));
    assert_eq!(
        (
            subsystem.namespaces[0].nsid,
            subsystem.namespaces[0].ana_group
        ),
        (7, 2)
    );
    assert_eq!(subsystem.ana_groups.len(), 1);
    let uuid = config.volumes[0].uuid.expect("a UUID").to_string();
    assert_eq!(uuid, "d592cdf3-5d1c-44e0-8412-3fcf7d99df27");
    assert_eq!(config.listeners[0].address.to_string(), "192.0.2.1:4420");
    assert!(!found.report.changes_access(), "{}", found.report);
    let told = crate::import_live("/nowhere", &files)
        .expect_err("not there")
        .to_string();
    assert!(told.contains("is configfs mounted"), "{told}");
}
