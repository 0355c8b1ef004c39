use iscsi::InitiatorAcl;
use store::Kind;

use super::{imported, load, loaded, mistakes, path, tells};

/// CHAP both ways, ALUA groups, a LUN that is only read by one, a disk in memory.
const WHOLE: &str = r#"{
  "fabric_modules": [
    {"discovery_enable_auth": true, "discovery_userid": "finder",
     "discovery_password": "finder-secret-1", "discovery_mutual_userid": "",
     "discovery_mutual_password": "", "name": "iscsi"}
  ],
  "storage_objects": [
    {
      "attributes": {"block_size": 512, "emulate_model_alias": 1, "emulate_tpu": 1},
      "dev": "/dev/vg0/db", "name": "db", "plugin": "block", "readonly": false,
      "write_back": false, "wwn": "ab123456-7012-3456-789a-bcdef0123456"
    },
    {
      "alua_tpgs": [
        {"alua_access_state": 0, "name": "default_tg_pt_gp", "tg_pt_gp_id": 0},
        {"alua_access_state": 1, "name": "slow", "tg_pt_gp_id": 4, "preferred": 0}
      ],
      "attributes": {"block_size": 4096, "emulate_model_alias": 0},
      "dev": "/srv/logs.img", "name": "logs", "plugin": "fileio", "size": 2147483648,
      "write_back": true, "wwn": "00000000-1111-2222-3333-444444444444"
    },
    {"attributes": {"block_size": 512}, "name": "ram", "nullio": false, "plugin": "ramdisk",
     "size": 629145600, "wwn": "99999999-1111-2222-3333-444444444444"}
  ],
  "targets": [
    {
      "fabric": "iscsi",
      "tpgs": [
        {
          "attributes": {"authentication": 1, "generate_node_acls": 0,
                         "demo_mode_write_protect": 1, "default_cmdsn_depth": 128},
          "enable": true,
          "luns": [
            {"alias": "a1", "alua_tg_pt_gp_name": "default_tg_pt_gp", "index": 0,
             "storage_object": "/backstores/block/db"},
            {"alias": "a2", "alua_tg_pt_gp_name": "slow", "index": 3,
             "storage_object": "/backstores/fileio/logs"}
          ],
          "node_acls": [
            {"attributes": {"nopin_timeout": 15},
             "chap_mutual_password": "the-target-says", "chap_mutual_userid": "weft",
             "chap_password": "alice-secret-1", "chap_userid": "alice",
             "mapped_luns": [
               {"alias": "m1", "index": 0, "tpg_lun": 0, "write_protect": false},
               {"alias": "m2", "index": 1, "tpg_lun": 3, "write_protect": false}
             ],
             "node_wwn": "iqn.1993-08.org.debian:01:aaaa"},
            {"chap_password": "robert-secret", "chap_userid": "bob",
             "mapped_luns": [{"alias": "m3", "index": 3, "tpg_lun": 3, "write_protect": false}],
             "node_wwn": "iqn.1993-08.org.debian:01:bbbb"}
          ],
          "parameters": {"HeaderDigest": "CRC32C", "MaxBurstLength": "262144",
                         "FirstBurstLength": "131072", "IFMarker": "No",
                         "TargetAlias": "LIO Target"},
          "portals": [{"ip_address": "0.0.0.0", "iser": false, "offload": false, "port": 3260}],
          "tag": 1
        }
      ],
      "wwn": "iqn.2003-01.org.linux-iscsi.nas:db"
    },
    {
      "fabric": "iscsi",
      "tpgs": [
        {
          "attributes": {"authentication": 0, "generate_node_acls": 1,
                         "demo_mode_write_protect": 0, "cache_dynamic_acls": 1},
          "enable": true,
          "luns": [{"index": 0, "storage_object": "/backstores/ramdisk/ram"}],
          "node_acls": [], "parameters": {},
          "portals": [{"ip_address": "0.0.0.0", "port": 3260}],
          "tag": 1
        }
      ],
      "wwn": "iqn.2003-01.org.linux-iscsi.nas:ram"
    }
  ]
}"#;

#[test]
fn a_configuration_is_carried_over_with_all_identities() {
    let (found, config) = loaded("targetcli", WHOLE);
    let [db, logs, ram] = &config.volumes[..] else {
        panic!("three volumes");
    };
    assert_eq!(db.kind, Kind::block(path("/dev/vg0/db")));
    let naa = db.names.naa.as_ref().expect("a designator");
    let hex: String = naa.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "6001405ab12345670123456789abcdef");
    let names = &db.names;
    assert_eq!(
        names.serial.as_deref(),
        Some("ab123456-7012-3456-789a-bcdef0123456")
    );
    assert_eq!(names.vendor.as_deref(), Some("LIO-ORG"));
    assert_eq!(names.product.as_deref(), Some("db"));
    assert_eq!(names.revision.as_deref(), Some("4.0"));
    assert_eq!(logs.names.product.as_deref(), Some("FILEIO"));
    assert_eq!((logs.block_bytes, logs.size_bytes), (4096, 2 << 30));
    assert_eq!((ram.kind.clone(), ram.size_bytes), (Kind::RAM, 600 << 20));
    let [db, ram] = &config.iscsi_targets[..] else {
        panic!("two targets");
    };
    assert_eq!(db.target.name, "iqn.2003-01.org.linux-iscsi.nas:db");
    let luns: Vec<_> = db.luns.iter().map(|lun| (lun.lun, &*lun.volume)).collect();
    assert_eq!(luns, [(0, "db"), (3, "logs")]);
    assert_eq!(db.luns[1].ana_group, 5);
    let [alice, bob] = &db.target.acl[..] else {
        panic!("two initiators");
    };
    assert_eq!(
        alice.name.as_deref(),
        Some("iqn.1993-08.org.debian:01:aaaa")
    );
    let auth = alice.auth.as_ref().expect("CHAP");
    assert_eq!(auth.chap.as_ref().expect("CHAP").user, "alice");
    assert_eq!(auth.mutual.as_ref().expect("both ways").user, "weft");
    assert_eq!(bob.luns, Some(vec![3]));
    assert_eq!(db.target.limits.first_burst_bytes, 131_072);
    assert_eq!(db.target.header_digest, iscsi::DigestPolicy::Required);
    assert_eq!(ram.target.acl, [InitiatorAcl::default()], "all");
    assert!(config.iscsi_discovery.chap.is_some());
    tells(&found, &["source:45", "lost", "LUN 1"]);
    assert!(!found.report.changes_access(), "{}", found.report);
    assert_eq!(found.secrets.len(), 4);
}

#[test]
fn initiator_that_may_only_read_never_gets_a_writable_unit() {
    // One reads, another writes: the one does not see it.
    let text = WHOLE.replace(
        r#""index": 3, "tpg_lun": 3, "write_protect": false"#,
        r#""index": 3, "tpg_lun": 3, "write_protect": true"#,
    );
    let (found, config) = loaded("targetcli", &text);
    assert_eq!(
        config.iscsi_targets[0].target.acl.len(),
        1,
        "bob would see nothing"
    );
    tells(&found, &["ACCESS", "bbbb does not see LUN 3"]);
    // All read: the volume is for reading.
    let text = text.replace(
        r#""index": 1, "tpg_lun": 3, "write_protect": false"#,
        r#""index": 1, "tpg_lun": 3, "write_protect": true"#,
    );
    let (found, config) = loaded("targetcli", &text);
    assert!(config.volumes[1].read_only && !config.volumes[0].read_only);
    assert_eq!(config.iscsi_targets[0].target.acl.len(), 2);
    assert!(!found.report.changes_access(), "{}", found.report);
    // Demo mode is read-only unless it says otherwise.
    let text = WHOLE.replace(r#""demo_mode_write_protect": 0,"#, "");
    let (_, config) = loaded("targetcli", &text);
    assert!(config.volumes[2].read_only);
}

#[test]
fn without_its_secret_nobody_is_let_in() {
    let text = WHOLE.replace("robert-secret", "short");
    let found = imported("targetcli", &text);
    assert_eq!(load(&found).iscsi_targets[0].target.acl.len(), 1);
    tells(&found, &["ACCESS", "secret", "5 bytes"]);
    let text = WHOLE.replace(r#""authentication": 0, "#, "");
    let found = imported("targetcli", &text);
    assert_eq!(load(&found).iscsi_targets[1].target.acl, []);
    tells(&found, &["ACCESS", "generate_node_acls"]);
}

#[test]
fn chap_of_an_acl_goes_before_that_of_its_portal_group() {
    let nodes = |group: u8, node: i8, password: &str| {
        let acl = format!(
            r#""attributes": {{"authentication": {node}}}, {password} "chap_userid": "bob""#
        );
        WHOLE
            .replace(
                r#"{"chap_password": "robert-secret", "chap_userid": "bob""#,
                &format!("{{{acl}"),
            )
            .replace(
                r#""authentication": 1, "generate"#,
                &format!(r#""authentication": {group}, "generate"#),
            )
    };
    let secret = r#""chap_password": "robert-secret","#;
    for (group, node, password, proves) in [
        (1, -1, secret, Some(true)),
        (0, -1, secret, Some(false)),
        (1, 0, secret, Some(false)),
        (0, 1, secret, Some(true)),
        (1, 0, "", Some(false)),
        // It has no secret and needs one.
        (0, 1, "", None),
    ] {
        let found = imported("targetcli", &nodes(group, node, password));
        let config = load(&found);
        let mut acl = config.iscsi_targets[0].target.acl.iter();
        let bob = acl.find(|acl| acl.name.as_deref() == Some("iqn.1993-08.org.debian:01:bbbb"));
        let told = bob.map(|bob| bob.auth.as_ref().is_some_and(|auth| auth.chap.is_some()));
        assert_eq!(told, proves, "{group} {node} {password}");
        assert_eq!(
            found.report.changes_access(),
            proves.is_none(),
            "{}",
            found.report
        );
    }
}

#[test]
fn configuration_of_current_targetcli_changes_no_rights() {
    let text = WHOLE
        .replace(
            r#""fabric": "iscsi","#,
            r#""fabric": "iscsi", "parameters": {"cmd_completion_affinity": "-1"},"#,
        )
        .replace(
            r#"{"nopin_timeout": 15}"#,
            r#"{"authentication": -1, "nopin_timeout": 15}"#,
        );
    let (found, _) = loaded("targetcli", &text);
    assert!(!found.report.changes_access(), "{}", found.report);
    tells(&found, &["default", "cmd_completion_affinity"]);
}

#[test]
fn undefined_storage_objects_are_mistakes() {
    let told = mistakes(
        "targetcli",
        &WHOLE.replace("/backstores/block/db", "/backstores/block/dd"),
    );
    assert!(
        told.contains("source:35: /backstores/block/dd is not in `storage_objects`"),
        "{told}"
    );
    let told = mistakes(
        "targetcli",
        &WHOLE.replace(r#""index": 3,"#, r#""index": 0,"#),
    );
    assert!(told.contains("a LUN needs an `index` of its own"), "{told}");
}

/// The configuration of the papers: 32 targets of one volume each, for everybody.
#[test]
fn thirty_two_targets_and_thirty_two_luns_are_carried_over() {
    let object = |nth: u32| {
        format!(
            r#"{{"name": "ram{nth}", "plugin": "ramdisk", "size": 629145600, "nullio": false,
                "attributes": {{"block_size": 512}}, "wwn": "{nth:032x}"}}"#
        )
    };
    let lun = |index: u32, nth: u32| {
        format!(r#"{{"index": {index}, "storage_object": "/backstores/ramdisk/ram{nth}"}}"#)
    };
    let target = |name: &str, port: u32, luns: &[String]| {
        format!(
            r#"{{"fabric": "iscsi", "wwn": "iqn.2026-01.org.example:{name}", "tpgs": [{{"enable": true,
                "attributes": {{"authentication": 0, "generate_node_acls": 1,
                                "demo_mode_write_protect": 0}},
                "luns": [{}], "portals": [{{"ip_address": "10.1.1.{port}", "port": 3260}}]}}]}}"#,
            luns.join(", ")
        )
    };
    let objects: Vec<String> = (1..=64).map(object).collect();
    let mut targets: Vec<String> = (1..=32)
        .map(|nth| target(&format!("ram{nth}"), 41 + nth % 2, &[lun(0, nth)]))
        .collect();
    let luns: Vec<String> = (0..32).map(|index| lun(index, index + 33)).collect();
    targets.push(target("many", 41, &luns));
    let text = format!(
        r#"{{"storage_objects": [{}], "targets": [{}]}}"#,
        objects.join(",\n"),
        targets.join(",\n")
    );
    let (_, config) = loaded("targetcli", &text);
    assert_eq!((config.volumes.len(), config.iscsi_targets.len()), (64, 33));
    assert_eq!(config.iscsi_targets[32].luns.len(), 32);
    let groups = |target: usize| config.iscsi_targets[target].target.portal_groups.len();
    assert_eq!((groups(0), groups(1), config.listeners.len()), (1, 1, 2));
}
