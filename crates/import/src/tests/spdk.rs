use store::Kind;

use super::{imported, load, loaded, mistakes, tells};

pub(super) const WHOLE: &str = r#"{
  "subsystems": [
    {"subsystem": "sock", "config": [
      {"method": "sock_impl_set_options", "params": {"impl_name": "posix", "recv_buf_size": 2097152}}
    ]},
    {"subsystem": "bdev", "config": [
      {"method": "bdev_malloc_create",
       "params": {"name": "Malloc0", "num_blocks": 131072, "block_size": 512,
                  "uuid": "25eb230b-a9e4-4abb-a3db-a2f507d7b563"}},
      {"method": "bdev_null_create",
       "params": {"name": "Null0", "num_blocks": 262144, "block_size": 4096}},
      {"method": "bdev_aio_create",
       "params": {"name": "AIO0", "filename": "/srv/aio.img", "block_size": 4096}},
      {"method": "bdev_lvol_create", "params": {"lvol_name": "lv0", "size": 1048576}}
    ]},
    {"subsystem": "nvmf", "config": [
      {"method": "nvmf_create_transport", "params": {"trtype": "TCP", "max_queue_depth": 128}},
      {"method": "nvmf_create_subsystem",
       "params": {"nqn": "nqn.2016-06.io.spdk:cnode1", "allow_any_host": false,
                  "serial_number": "SPDK00000000000001", "model_number": "weft to be",
                  "max_namespaces": 32, "min_cntlid": 1, "max_cntlid": 65519}},
      {"method": "nvmf_subsystem_add_host",
       "params": {"nqn": "nqn.2016-06.io.spdk:cnode1", "host": "nqn.2016-06.io.spdk:init"}},
      {"method": "nvmf_subsystem_add_ns",
       "params": {"nqn": "nqn.2016-06.io.spdk:cnode1",
                  "namespace": {"nsid": 3, "bdev_name": "Malloc0", "anagrpid": 2,
                                "nguid": "ABCDEF0123456789ABCDEF0123456789",
                                "eui64": "ABCDEF0123456789",
                                "uuid": "25eb230b-a9e4-4abb-a3db-a2f507d7b563"}}},
      {"method": "nvmf_subsystem_add_listener",
       "params": {"nqn": "nqn.2016-06.io.spdk:cnode1",
                  "listen_address": {"trtype": "TCP", "adrfam": "IPv4", "traddr": "192.0.2.1",
                                     "trsvcid": "4420"}}},
      {"method": "nvmf_subsystem_listener_set_ana_state",
       "params": {"nqn": "nqn.2016-06.io.spdk:cnode1", "ana_state": "non_optimized", "anagrpid": 2,
                  "listen_address": {"trtype": "TCP", "adrfam": "IPv4", "traddr": "192.0.2.1",
                                     "trsvcid": "4420"}}}
    ]},
    {"subsystem": "iscsi", "config": [
      {"method": "iscsi_set_options", "params": {"node_base": "iqn.2016-06.io.spdk", "max_sessions": 128}},
      {"method": "iscsi_create_auth_group",
       "params": {"tag": 2, "secrets": [{"user": "alice", "secret": "alice-secret-1",
                                         "muser": "weft", "msecret": "weft-secret-11"}]}},
      {"method": "iscsi_create_portal_group",
       "params": {"tag": 1, "private": false, "portals": [{"host": "192.0.2.1", "port": "3260"}]}},
      {"method": "iscsi_create_initiator_group",
       "params": {"tag": 1, "initiators": ["ANY"], "netmasks": ["192.0.2.0/24"]}},
      {"method": "iscsi_create_target_node",
       "params": {"name": "disk1", "alias_name": "Data Disk1", "queue_depth": 64,
                  "luns": [{"bdev_name": "AIO0", "lun_id": 0}],
                  "pg_ig_maps": [{"pg_tag": 1, "ig_tag": 1}],
                  "require_chap": true, "mutual_chap": true, "disable_chap": false,
                  "chap_group": 2, "header_digest": true, "data_digest": false}}
    ]}
  ]
}"#;

#[test]
fn calls_are_followed_and_identities_stay() {
    let (found, config) = loaded("spdk", WHOLE);
    let [malloc, null, aio] = &config.volumes[..] else {
        panic!("three volumes");
    };
    assert_eq!(
        (malloc.kind.clone(), malloc.size_bytes),
        (Kind::RAM, 64 << 20)
    );
    assert_eq!(
        malloc.names.eui64,
        Some([0xab, 0xcd, 0xef, 1, 0x23, 0x45, 0x67, 0x89])
    );
    assert_eq!((null.kind.clone(), null.block_bytes), (Kind::NULL, 4096));
    // "AIO0": 0xa, 'i' (69h) shifted out to 90h, then 'o' (6fh) and 0.
    let naa = aio.names.naa.as_ref().expect("a designator");
    let hex: String = naa.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "2000000347006f9a");
    assert_eq!(aio.names.serial.as_deref(), Some("AIO0"));
    assert_eq!(aio.names.vendor.as_deref(), Some("INTEL"));
    let subsystem = &config.subsystems[0];
    assert_eq!(subsystem.serial, "SPDK00000000000001");
    assert_eq!(
        subsystem.hosts.as_deref(),
        Some(&["nqn.2016-06.io.spdk:init".to_owned()][..])
    );
    assert_eq!(
        (
            subsystem.namespaces[0].nsid,
            subsystem.namespaces[0].ana_group
        ),
        (3, 2)
    );
    assert_eq!(subsystem.ana_groups[0].on.len(), 1);
    let target = &config.iscsi_targets[0].target;
    assert_eq!(target.name, "iqn.2016-06.io.spdk:disk1");
    assert_eq!(target.alias.as_deref(), Some("Data Disk1"));
    assert!(target.auth.chap.is_some() && target.auth.mutual.is_some());
    assert_eq!(target.acl.len(), 1);
    assert_eq!(target.acl[0].networks.len(), 1);
    assert_eq!(target.header_digest, iscsi::DigestPolicy::Required);
    tells(&found, &["ACCESS", "bdev_lvol_create"]);
    tells(&found, &["default", "sock_impl_set_options"]);
}

/// Keys in files, of the kernel's keyring, and one that no call adds.
#[test]
fn keys_of_hosts_stay_where_they_are_and_a_host_without_its_key_is_left_out() {
    let host = |name: &str, keys: &str| {
        format!(
            r#"{{"method": "nvmf_subsystem_add_host", "params": {{
               "nqn": "nqn.2016-06.io.spdk:keys", "host": "nqn.2016-06.io.spdk:{name}"{keys}}}}}"#
        )
    };
    let file = |name: &str| {
        format!(
            r#"{{"method": "keyring_file_add_key",
                 "params": {{"name": "{name}", "path": "/srv/{name}"}}}}"#
        )
    };
    let calls = [
        r#"{"method": "bdev_malloc_create",
            "params": {"name": "M0", "num_blocks": 8192, "block_size": 512}}"#
            .to_owned(),
        r#"{"method": "nvmf_create_subsystem",
            "params": {"nqn": "nqn.2016-06.io.spdk:keys"}}"#
            .to_owned(),
        host("tls", r#", "psk": "k0""#),
        host(
            "both",
            r#", "dhchap_key": "k1", "dhchap_ctrlr_key": ":kernel""#,
        ),
        host("unknown", r#", "psk": "k2""#),
        host("plain", ""),
    ];
    let text = format!(
        r#"{{"subsystems": [
            {{"subsystem": "keyring", "config": [{}, {}]}},
            {{"subsystem": "nvmf", "config": [{}]}}]}}"#,
        file("k0"),
        file("k1"),
        calls.join(", ")
    );
    let found = imported("spdk", &text);
    for line in [
        "hosts = [\"nqn.2016-06.io.spdk:plain\"]",
        "nqn = \"nqn.2016-06.io.spdk:tls\"",
        "psk_file = \"/srv/k0\"",
        "dhchap_secret_file = \"/srv/k1\"",
        "dhchap_ctrl_secret_file = \"keyring::kernel\"",
    ] {
        assert!(found.document.contains(line), "{line}");
    }
    assert!(!found.document.contains("spdk:unknown\""), "it is let in");
    tells(&found, &["ACCESS", "psk", "k2", "is let in nowhere"]);
    assert!(found.secrets.is_empty());
}

#[test]
fn order_matters_as_it_does_to_spdk() {
    let text = WHOLE.replace(r#""bdev_name": "AIO0""#, r#""bdev_name": "Nvme0n1""#);
    let found = imported("spdk", &text);
    tells(
        &found,
        &["ACCESS", "Nvme0n1 is found by a driver or by metadata"],
    );
    let told = mistakes(
        "spdk",
        &text.replace("bdev_lvol_create", "bdev_set_options"),
    );
    assert!(
        told.contains("there is no block device \"Nvme0n1\""),
        "{told}"
    );
    let told = mistakes("spdk", &WHOLE.replace(r#""ig_tag": 1}"#, r#""ig_tag": 4}"#));
    assert!(told.contains("there is no initiator group 4"), "{told}");
    let text = WHOLE.replace(r#""bdev_name": "AIO0""#, r#""bdev_name": "lv0""#);
    let found = imported("spdk", &text);
    tells(&found, &["ACCESS", "the block device lv0 is left out"]);
}

#[test]
fn initiator_group_without_a_secret_is_not_let_in() {
    let text = WHOLE.replace(r#""chap_group": 2"#, r#""chap_group": 7"#);
    let found = imported("spdk", &text);
    assert_eq!(load(&found).iscsi_targets[0].target.acl, []);
    tells(&found, &["ACCESS", "chap_group", "nobody is let in"]);
}

/// As the papers print it: null devices, two subsystems, every host.
const INI: &str = "\
[Global]
  ReactorMask 0xFFF
[Transport]
  Type TCP
[Null]
  Dev Null0 1024 4096
  Dev Null1 1024 4096
[Malloc]
  NumberOfLuns 2
  LunSizeInMB 64
[AIO]
  AIO /srv/aio0.img AIO0 512   # a file
[Nvmf]
  AcceptorPollRate 10000
[Subsystem1]
  NQN nqn.2016-06.io.spdk:cnode1
  Listen TCP 10.1.1.163:4420
  AllowAnyHost Yes
  Host nqn.2016-06.io.spdk:init
  SN SPDK00000000000001
  MN SPDK_Controller1
  Namespace Null0 1
  Namespace \\
    Malloc1
[Subsystem2]
  NQN nqn.2016-06.io.spdk:cnode2
  Listen TCP [2001:db8::2]:4420
  AllowAnyHost No
  Host nqn.2016-06.io.spdk:init
  SN SPDK00000000000002
  Namespace Null1 1
[iSCSI]
  NodeBase \"iqn.2016-06.io.spdk\"
[PortalGroup1]
  Portal DA1 192.168.2.21:3260
[InitiatorGroup1]
  InitiatorName ANY
  Netmask 192.168.2.0/24
[TargetNode1]
  TargetName disk1
  TargetAlias \"Data Disk1\"
  Mapping PortalGroup1 InitiatorGroup1
  AuthMethod None
  UseDigest Auto
  LUN0 Malloc0
  LUN1 AIO0
  QueueDepth 128
";

#[test]
fn the_papers_ini_is_carried_over() {
    let (found, config) = loaded("spdk-ini", INI);
    assert_eq!(config.volumes.len(), 5);
    assert_eq!(config.subsystems[0].hosts, None);
    assert_eq!(config.subsystems[0].model, "SPDK_Controller1");
    let nsids: Vec<u32> = config.subsystems[0]
        .namespaces
        .iter()
        .map(|namespace| namespace.nsid)
        .collect();
    assert_eq!(nsids, [1, 2]);
    assert_eq!(
        config.subsystems[1].hosts.as_ref().expect("a list").len(),
        1
    );
    let target = &config.iscsi_targets[0];
    assert_eq!(target.target.name, "iqn.2016-06.io.spdk:disk1");
    assert_eq!((target.luns.len(), target.target.acl.len()), (2, 1));
    assert!(!found.report.changes_access(), "{}", found.report);
    let text = INI
        .replace("Mode Virtual", "")
        .replace("AllowAnyHost No", "Colour green");
    tells(
        &imported("spdk-ini", &text),
        &["source:", "ACCESS", "Colour"],
    );
    let told = mistakes(
        "spdk-ini",
        &INI.replace("Namespace Null1 1", "Namespace Nul1 1"),
    );
    assert!(
        told.contains("source:31: there is no block device \"Nul1\""),
        "{told}"
    );
}
