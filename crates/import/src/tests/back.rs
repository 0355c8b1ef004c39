//! There and back: what is exported is imported as the same.

use proptest::prelude::*;
use server::Config;

use super::{format, load, loaded, tells};
use crate::{export, import};

/// What hosts see of a configuration, for comparing.
fn seen(config: &Config) -> String {
    let Config {
        volumes,
        subsystems,
        iscsi_targets,
        listeners,
        referrals,
        exports,
        file_systems,
        ..
    } = config;
    format!(
        "{volumes:#?}{subsystems:#?}{iscsi_targets:#?}{listeners:#?}{referrals:#?}{exports:#?}\
         {file_systems:#?}"
    )
}

/// Imports a text, exports what it gives and imports that again.
#[track_caller]
fn there_and_back(name: &str, text: &str) {
    let (_, first) = loaded(name, text);
    let (back, report) = export(format(name), &first, "weft.toml").expect("a format");
    println!("{back}{report}");
    let again = import(format(name), "back", &back, &super::SomeFiles::default());
    let again = load(&again.unwrap_or_else(|report| panic!("{report}")));
    assert_eq!(seen(&again), seen(&first));
}

fn subsystem(nth: usize, seed: u32) -> String {
    let host =
        |nth: u32| format!("\"nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-{nth:012}\"");
    let any = seed.is_multiple_of(3);
    let hosts: Vec<String> = match any {
        true => Vec::new(),
        false => (0..seed % 4).map(host).collect(),
    };
    let namespaces: Vec<String> = (0..seed % 5)
        .map(|unit| {
            let number = nth as u32 * 10 + unit;
            let path = if unit.is_multiple_of(2) {
                "/dev/vg0/disk"
            } else {
                "/srv/disk"
            };
            format!(
                r#"{{"nsid": {}, "enable": 1, "ana_grpid": {}, "device": {{"path": "{path}{number}",
                    "uuid": "d592cdf3-5d1c-44e0-8412-{number:012}",
                    "nguid": "{:032x}"}}}}"#,
                unit * 3 + 1,
                unit % 3 + 1,
                number + 1
            )
        })
        .collect();
    format!(
        r#"{{"nqn": "nqn.2026-01.org.example:s{nth}", "allowed_hosts": [{}],
            "attr": {{"allow_any_host": "{}", "serial": "S{seed}", "model": "M{}",
                      "cntlid_min": "{}", "cntlid_max": "6000"}},
            "namespaces": [{}]}}"#,
        hosts.join(", "),
        u8::from(any),
        seed % 7,
        seed % 100 + 1,
        namespaces.join(", ")
    )
}

/// A file of nvmetcli; every subsystem has a volume of its own for each namespace.
fn nvmet(seeds: &[u32], ports: usize) -> String {
    const STATES: [&str; 3] = ["optimized", "non-optimized", "inaccessible"];
    let subsystems: Vec<String> = seeds
        .iter()
        .enumerate()
        .map(|(nth, seed)| subsystem(nth, seed | 1))
        .collect();
    let ports: Vec<String> = (0..ports)
        .map(|port| {
            let linked = (0..seeds.len()).filter(|nth| port == 0 || (seeds[*nth] >> port) & 1 == 1);
            let linked: Vec<String> = linked
                .map(|nth| format!("\"nqn.2026-01.org.example:s{nth}\""))
                .collect();
            let state = |group: usize| STATES[(seeds[0] as usize + port * group) % 3];
            format!(
                r#"{{"portid": {port}, "addr": {{"traddr": "192.0.2.{}", "trsvcid": "4420",
                    "trtype": "tcp", "adrfam": "ipv4"}}, "subsystems": [{}],
                    "ana_groups": [{{"grpid": 1, "ana": {{"state": "optimized"}}}},
                                   {{"grpid": 2, "ana": {{"state": "{}"}}}},
                                   {{"grpid": 3, "ana": {{"state": "{}"}}}}],
                    "referrals": []}}"#,
                port + 1,
                linked.join(", "),
                state(1),
                state(2)
            )
        })
        .collect();
    let hosts: Vec<String> = (0..4)
        .map(|nth| {
            format!(
                r#"{{"nqn": "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-{nth:012}"}}"#
            )
        })
        .collect();
    format!(
        r#"{{"hosts": [{}], "ports": [{}], "subsystems": [{}]}}"#,
        hosts.join(", "),
        ports.join(",\n"),
        subsystems.join(",\n")
    )
}

/// A file of targetcli without secrets, which have no way back.
fn lio(seeds: &[u32]) -> String {
    let mut objects: Vec<String> = Vec::new();
    let mut targets: Vec<String> = Vec::new();
    for (nth, seed) in seeds.iter().enumerate() {
        let mut luns: Vec<String> = Vec::new();
        let mut mapped: Vec<String> = Vec::new();
        for unit in 0..seed % 5 + 1 {
            let name = format!("disk{nth}x{unit}");
            let (plugin, rest) = match unit % 4 {
                0 => (
                    "block",
                    format!(r#""dev": "/dev/vg0/{name}", "readonly": false"#),
                ),
                1 => (
                    "fileio",
                    format!(r#""dev": "/srv/{name}", "size": 1048576"#),
                ),
                2 => ("ramdisk", r#""size": 4194304, "nullio": false"#.to_owned()),
                _ => ("ramdisk", r#""size": 8388608, "nullio": true"#.to_owned()),
            };
            let group = if unit == 2 {
                "slow"
            } else {
                "default_tg_pt_gp"
            };
            objects.push(format!(
                r#"{{"name": "{name}", "plugin": "{plugin}", {rest},
                    "wwn": "{:08x}-1111-2222-3333-{:012x}",
                    "attributes": {{"block_size": {}, "emulate_model_alias": {}}},
                    "alua_tpgs": [{{"name": "slow", "tg_pt_gp_id": 3, "alua_access_state": 1}}]}}"#,
                nth * 100 + unit as usize,
                seed,
                if unit.is_multiple_of(2) { 512 } else { 4096 },
                seed % 2
            ));
            luns.push(format!(
                r#"{{"index": {}, "storage_object": "/backstores/{plugin}/{name}",
                    "alua_tg_pt_gp_name": "{group}"}}"#,
                unit * 2
            ));
            if (seed >> unit) & 1 == 1 {
                mapped.push(format!(
                    r#"{{"index": {0}, "tpg_lun": {0}, "write_protect": false}}"#,
                    unit * 2
                ));
            }
        }
        let acl = match mapped.is_empty() {
            true => String::new(),
            false => format!(
                r#"{{"node_wwn": "iqn.2026-01.org.example:host{nth}", "mapped_luns": [{}]}}"#,
                mapped.join(", ")
            ),
        };
        targets.push(format!(
            r#"{{"fabric": "iscsi", "wwn": "iqn.2026-01.org.example:t{nth}", "tpgs": [{{
                "enable": true, "tag": 1,
                "attributes": {{"authentication": 0, "generate_node_acls": {},
                                "demo_mode_write_protect": 0}},
                "parameters": {{"FirstBurstLength": "{}", "HeaderDigest": "{}"}},
                "luns": [{}], "node_acls": [{acl}],
                "portals": [{{"ip_address": "192.0.2.{}", "port": 3260}}]}}]}}"#,
            (seed >> 3) & 1,
            131_072 + (seed % 4) * 512,
            ["CRC32C", "None", "CRC32C,None"][*seed as usize % 3],
            luns.join(", "),
            seed % 2 + 1
        ));
    }
    format!(
        r#"{{"storage_objects": [{}], "targets": [{}]}}"#,
        objects.join(",\n"),
        targets.join(",\n")
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn nvmetcli_comes_back(seeds in prop::collection::vec(1u32..1000, 1..6), ports in 1usize..4) {
        let seeds: Vec<u32> = seeds.iter().map(|seed| seed | 1).collect();
        // A volume must be there.
        let mut seeds = seeds;
        seeds.push(4_u32 * 5 + 1);
        there_and_back("nvmetcli", &nvmet(&seeds, ports));
    }

    #[test]
    fn targetcli_comes_back(seeds in prop::collection::vec(1u32..1000, 1..6)) {
        there_and_back("targetcli", &lio(&seeds));
    }
}

#[test]
fn exports_come_back() {
    there_and_back(
        "exports",
        "/srv/a 192.0.2.7(rw,no_root_squash) 192.0.2.0/24(rw,insecure,sec=sys:none) \
         *(ro,all_squash,anonuid=7)\n\
         /srv/my\\040files 2001:db8::/32(ro)\n",
    );
}

#[test]
fn export_leaves_out_and_tells_features_that_the_other_program_lacks() {
    let (_, config) = loaded("spdk", super::spdk::WHOLE);
    let (text, report) = export(format("nvmetcli"), &config, "weft.toml").expect("a format");
    let found = crate::Imported {
        document: String::new(),
        secrets: Vec::new(),
        report,
    };
    assert!(!text.contains("nsid"), "memory is left out");
    tells(&found, &["weft.toml", "ACCESS", "nsid 3", "memory"]);
    let (text, report) = export(format("targetcli"), &config, "weft.toml").expect("a format");
    assert!(
        text.contains("\"authentication\": 1") && !text.contains("alice-secret"),
        "{text}"
    );
    let found = crate::Imported { report, ..found };
    tells(&found, &["ACCESS", "iqn.2016-06.io.spdk:disk1", "secrets"]);
    assert!(export(format("tgt"), &config, "weft.toml").is_none());
}

#[test]
fn export_says_what_it_has_no_form_for_and_makes_nothing_else_of_it() {
    let document = "\
        [[volume]]\nname = \"r{0..1}\"\nkind = \"file\"\npath = \"/srv/r{0..1}\"\nsize = \"8MiB\"\n\
        [[volume]]\nname = \"s\"\nkind = \"stripe\"\nof = [\"r{0..1}\"]\n\
        [[volume]]\nname = \"e\"\nkind = \"file\"\npath = \"/srv/e\"\nsize = \"8MiB\"\n\
        [[iscsi.target]]\nname = \"iqn.2026-01.org.example:a\"\nvolumes = [\"s\", \"e\"]\n\
        initiators = [\"iqn.1993-08.org.debian:01:aaaa\"]\n\
        [[listener]]\naddress = \"127.0.0.1:3260\"\nprotocol = \"iscsi\"\n\
        [[limit]]\nname = \"slow\"\niops = 100\n";
    let origin = control::Origin {
        folder: std::path::Path::new(""),
        access: Some(auth::FileAccess::OWN),
    };
    let config = control::parse(document, &origin, &reactor::affinity()).expect("a configuration");
    let (text, found) = exported("targetcli", &config);
    assert!(
        text.contains("/srv/e") && !text.contains("ramdisk"),
        "{text}"
    );
    assert_eq!(text.matches("\"tpg_lun\"").count(), 1, "{text}");
    tells(&found, &["ACCESS", "s: ", "made of other volumes"]);
    tells(&found, &["limit \"slow\""]);
}

/// Hosts would see ciphertext, and write over it; or the folder of a snapshot; or a RAM disk.
#[test]
fn export_leaves_out_what_is_encrypted_snapshots_and_what_is_elsewhere() {
    let document = "\
        [[volume]]\nname = \"e\"\nkind = \"file\"\npath = \"/srv/e\"\nsize = \"8MiB\"\n\
        key_file = \"/srv/none\"\n\
        [[volume]]\nname = \"s\"\nkind = \"snapshot\"\npath = \"/srv/f.snapshots/s\"\n\
        [[volume]]\nname = \"r\"\nkind = \"remote\"\nurls = [\"nvme-tcp://192.0.2.1/nqn.a\"]\n\
        [[volume]]\nname = \"f\"\nkind = \"file\"\npath = \"/srv/f\"\nsize = \"8MiB\"\n\
        [[nvme.subsystem]]\nnqn = \"nqn.2026-01.org.example:a\"\nallow_any_host = true\n\
        volumes = [\"e\", \"s\", \"r\", \"f\"]\n\
        [[iscsi.target]]\nname = \"iqn.2026-01.org.example:a\"\nvolumes = [\"e\", \"s\", \"r\", \"f\"]\n\
        allow_any_initiator = true\n\
        [[listener]]\naddress = \"127.0.0.1:4420\"\n\
        [[listener]]\naddress = \"127.0.0.1:3260\"\nprotocol = \"iscsi\"\n";
    let origin = control::Origin {
        folder: std::path::Path::new(""),
        access: Some(auth::FileAccess::OWN),
    };
    let config = control::parse(document, &origin, &reactor::affinity()).expect("a configuration");
    for name in ["nvmetcli", "targetcli"] {
        let (text, found) = exported(name, &config);
        let has = |path: &str| text.contains(&format!("\"{path}\""));
        assert!(has("/srv/f") && !has("/srv/e"), "{text}");
        assert!(
            !text.contains("snapshots") && !text.contains("ramdisk"),
            "{text}"
        );
        tells(&found, &["ACCESS", "ciphertext"]);
        tells(&found, &["ACCESS", "no snapshots"]);
        tells(&found, &["ACCESS", "r", "of other machines"]);
    }
}

/// What another program is to serve, and what is told of it.
fn exported(name: &str, config: &Config) -> (String, crate::Imported) {
    let (text, report) = export(format(name), config, "weft.toml").expect("a format");
    let found = crate::Imported {
        document: String::new(),
        secrets: Vec::new(),
        report,
    };
    (text, found)
}
