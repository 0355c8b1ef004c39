use store::Kind;

use super::{imported, load, loaded, mistakes, path, tells};

const CLASSIC: &str = r#"
pidfile /var/run/ctld.pid
auth-group ag0 {
	chap-mutual "user" "secret-secret-1" "mutualuser" "mutual-secret-1"
	initiator-portal 192.168.1.0/16
}
auth-group ag1 {
	auth-type none
	initiator-name "iqn.2012-06.com.example:host1"
	initiator-name "iqn.2012-06.com.example:host2"
	initiator-portal [2001:db8::de:ef]
}
portal-group pg0 {
	discovery-auth-group no-authentication
	listen 0.0.0.0:3260
	listen [::]:3260
	listen [2001:db8::be:ef]:3261
}
transport-group tg0 {
	discovery-auth-group no-authentication
	listen tcp 192.0.2.1
	listen discovery-tcp 192.0.2.1
}
target iqn.2012-06.com.example:target0 {
	alias "Example target"
	auth-group no-authentication
	lun 0 {
		path /dev/zvol/tank/example_0
		blocksize 4096
		size 4G
	}
}
lun example_1 {
	path /srv/example_1
	size 1G
	serial "ABC001"
	option naa 0x50015178f369f093
	option vendor "ACME"
}
target iqn.2012-06.com.example:target1 {
	auth-group ag0
	portal-group pg0
	lun 0 example_1
	lun 7 {
		backend ramdisk
		size 1M
		option foo bar
	}
}
target iqn.2012-06.com.example:target2 {
	auth-group ag1
	portal-group pg0
	lun 0 example_1
}
target iqn.2012-06.com.example:shut {
	portal-group pg0
	lun 0 example_1
}
target naa.50015178f369f092 {
	port isp0
	lun 0 example_1
}
controller nqn.2012-06.com.example:controller1 {
	auth-group no-authentication
	transport-group tg0
	namespace 3 example_1
	serial "CTRL0001"
}
"#;

#[test]
fn the_classic_form_is_carried_over() {
    let (found, config) = loaded("ctl", CLASSIC);
    let [zero, one, two, shut] = &config.iscsi_targets[..] else {
        panic!("four targets");
    };
    assert_eq!(zero.target.alias.as_deref(), Some("Example target"));
    assert_eq!(zero.target.acl.len(), 1, "everybody");
    assert_eq!(one.target.auth.chap.as_ref().expect("CHAP").user, "user");
    assert!(one.target.auth.mutual.is_some());
    assert_eq!(
        one.luns.iter().map(|lun| lun.lun).collect::<Vec<_>>(),
        [0, 7]
    );
    assert_eq!(two.target.acl.len(), 2);
    assert_eq!(two.target.acl[0].networks.len(), 1);
    assert_eq!(shut.target.acl, [], "who says nothing lets nobody in");
    let example = &config.volumes[0];
    assert_eq!(example.kind, Kind::file(path("/srv/example_1")));
    let naa: String = example
        .names
        .naa
        .iter()
        .flatten()
        .map(|b| format!("{b:02x}"))
        .collect();
    assert_eq!(naa, "50015178f369f093");
    assert_eq!(example.names.serial.as_deref(), Some("ABC001"));
    assert_eq!(example.names.vendor.as_deref(), Some("ACME"));
    let subsystem = &config.subsystems[0];
    assert_eq!(
        (subsystem.namespaces[0].nsid, &*subsystem.serial),
        (3, "CTRL0001")
    );
    assert_eq!(subsystem.hosts, None);
    assert!(
        config
            .listeners
            .iter()
            .any(|listener| listener.discovery_only)
    );
    tells(&found, &["ACCESS", "port", "left out"]);
    tells(&found, &["lost", "option", "foo"]);
    tells(
        &found,
        &[
            "default",
            "0.0.0.0:3260",
            "[::]:3260 takes this address too",
        ],
    );
}

#[test]
fn rights_that_weft_cannot_say_let_nobody_in() {
    let text = CLASSIC.replace("secret-secret-1", "short");
    let found = imported("ctl", &text);
    assert_eq!(load(&found).iscsi_targets[1].target.acl, []);
    tells(&found, &["source:4", "ACCESS", "5 bytes"]);
    let text = CLASSIC.replace(
        "auth-group no-authentication\n\ttransport",
        "host-address 192.0.2.0/24\n\ttransport",
    );
    let found = imported("ctl", &text);
    assert_eq!(load(&found).subsystems[0].hosts.as_deref(), Some(&[][..]));
    tells(&found, &["ACCESS", "auth-group", "by their NQN"]);
}

#[test]
fn mistakes_of_ctl_conf_have_lines() {
    for (from, to, part) in [
        (
            "lun 7 {",
            "lun 0 {",
            "source:44: lun 0 or 0 is there already",
        ),
        (
            "portal-group pg0\n\tlun 0 example_1\n\tlun",
            "portal-group pg9\n\tlun 0 example_1\n\tlun",
            "source:42: there is no portal-group \"pg9\"",
        ),
        (
            "auth-group ag1\n\tportal",
            "auth-group ag9\n\tportal",
            "source:51: there is no auth-group \"ag9\"",
        ),
        (
            "namespace 3 example_1",
            "namespace 3 example_2",
            "there is no lun \"example_2\"",
        ),
        (
            "listen [::]:3260",
            "listen nowhere",
            "source:16: \"nowhere\" is no address",
        ),
        (
            "auth-group ag1 {",
            "auth-group ag0 {",
            "source:7: auth-group ag0 is there already",
        ),
        (
            "serial \"CTRL0001\"\n}",
            "serial \"CTRL0001\"\n",
            "is not closed",
        ),
    ] {
        assert!(CLASSIC.contains(from), "{from}");
        let told = mistakes("ctl", &CLASSIC.replacen(from, to, 1));
        assert!(told.contains(part), "{to}: {told}");
    }
}

const UCL: &str = r#"
/* The same
   in another form. */
auth-group {
    ag0 {
        chap-mutual [
            { user = "user", secret = "secret-secret-1", mutual-user = "mutualuser", mutual-secret = "mutual-secret-1" }
        ]
        initiator-portal = [ "192.168.1.0/16" ]
    }
}
portal-group "pg0" {
    discovery-auth-group: no-authentication
    listen: [ "0.0.0.0:3260", "[2001:db8::1]:3260" ]
}
lun {
    example_1 {
        path = "/srv/example_1";
        size = 1G; serial = "ABC001"
        options { naa = "0x50015178f369f093"; vendor = ACME }
    }
}
target {
    "iqn.2012-06.com.example:target1" {
        alias = "Example target"
        portal-group { name = pg0, auth-group-name = ag0 }
        lun {
            0 = example_1
            1 { path = "/dev/zvol/tank/example_2", blocksize = 4096 }
        }
    }
}
target "iqn.2012-06.com.example:target2" {
    auth-group = no-authentication
    portal-group = [ "pg0" ]
    lun [
        { number = 4, name = "example_1" }
    ]
}
"#;

#[test]
fn ucl_is_carried_over() {
    let (found, config) = loaded("ctl-ucl", UCL);
    let [one, two] = &config.iscsi_targets[..] else {
        panic!("two targets");
    };
    assert_eq!(one.target.alias.as_deref(), Some("Example target"));
    assert!(one.target.auth.mutual.is_some());
    assert_eq!(
        one.luns.iter().map(|lun| lun.lun).collect::<Vec<_>>(),
        [0, 1]
    );
    assert_eq!((two.luns[0].lun, &*two.luns[0].volume), (4, "example_1"));
    let example = &config.volumes[0];
    assert_eq!(example.names.vendor.as_deref(), Some("ACME"));
    assert_eq!(example.size_bytes, 1 << 30);
    assert_eq!(config.listeners.len(), 2);
    tells(&found, &["ACCESS", "portal-group", "one set of rights"]);
    let told = mistakes(
        "ctl-ucl",
        ".include \"other.conf\"\nlun { a { path = \"/srv/a\" } }\n",
    );
    assert!(told.contains("source:1: `.include`"), "{told}");
    let told = mistakes("ctl-ucl", "lun { a { path = \"/srv/a\" ] }\n");
    assert!(told.contains("source:1: `]` does not close `a`"), "{told}");
    let told = mistakes("ctl-ucl", "/* never closed\n");
    assert!(told.contains("a comment is not closed"), "{told}");
}
