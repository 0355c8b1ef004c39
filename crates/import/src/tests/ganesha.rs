use server::nfs::{Clients, Flavor, Squash};

use super::{SomeFiles, format, imported, loaded, mistakes, tells};
use crate::import;

const WHOLE: &str = r#"
# What all exports have.
EXPORT_DEFAULTS {
    Access_Type = RO;
    SecType = sys, krb5;
}
NFS_CORE_PARAM { NFS_Port = 2050; Bind_addr = 192.0.2.1; Enable_NLM = false; }
NFSv4 { Lease_Lifetime = 60; Grace_Period = 120; Minor_Versions = 1, 2; }
EXPORT
{
    Export_Id = 12;
    Path = /srv/homes;
    Pseudo = "/homes";
    Protocols = 3, 4;
    Squash = No_Root_Squash;
    CLIENT { Clients = 192.0.2.7, "2001:db8::7"; Access_Type = RW; Squash = None; }
    client { clients = *.lab.example.org; access_type = RO; }
    CLIENT { Clients = 198.51.100.0/24; Access_Type = RW; SecType = none; Anonymous_Uid = 99; }
    FSAL { Name = VFS; }
}
EXPORT {
    Export_Id = 13; Path = /ceph; Pseudo = /ceph; Access_Type = RW;
    FSAL { Name = CEPH; User_Id = "secret-user"; }
}
LOG { Default_Log_Level = WARN; }
"#;

#[test]
fn exports_clients_and_defaults_are_carried_over() {
    let (found, config) = loaded("ganesha", WHOLE);
    let [homes] = &config.exports[..] else {
        panic!("one export");
    };
    assert_eq!((&*homes.path, config.exports.len()), ("/homes", 1));
    let [first, any] = &homes.rules[..] else {
        panic!("two rules: {:#?}", homes.rules);
    };
    assert_eq!((first.is_read_only, first.squash), (false, Squash::None));
    // The pattern before it may only read, by AUTH_SYS: nothing is left of the network's rights.
    assert_eq!((any.is_read_only, any.squash), (true, Squash::None));
    assert_eq!(
        (&any.clients, &any.flavors[..]),
        (&Clients::Any, &[Flavor::Sys][..])
    );
    assert_eq!(
        (config.nfs.lease_ms, config.nfs.grace_ms),
        (60_000, 120_000)
    );
    assert_eq!(config.listeners[0].address.to_string(), "192.0.2.1:2050");
    tells(&found, &["source:22", "ACCESS", "fsal"]);
    tells(&found, &["source:12", "lost", "NFSv3 mounted /srv/homes"]);
    tells(&found, &["ACCESS", "sectype", "krb5"]);
    assert!(!found.document.contains("secret-user"));
}

#[test]
fn a_client_that_may_do_nothing_stays_out() {
    let text = "EXPORT { Export_Id = 1; Path = /a; Pseudo = /a; Access_Type = RW;\n\
                CLIENT { Clients = 192.0.2.9; Access_Type = None; }\n\
                CLIENT { Clients = 10.0.0.0/8; Access_Type = RO; }\n\
                FSAL { Name = VFS; } }";
    let (found, config) = loaded("ganesha", text);
    assert_eq!(
        config.exports[0].rules.len(),
        1,
        "{:#?}",
        config.exports[0].rules
    );
    assert!(config.exports[0].rules[0].is_read_only);
    tells(
        &found,
        &[
            "ACCESS",
            "among everybody are clients that must not be let in",
        ],
    );
}

#[test]
fn files_are_included_once_and_not_in_circles() {
    let files = SomeFiles::of(&[
        (
            "/etc/ganesha/one.conf",
            "EXPORT { Export_Id = 1; Path = /srv/a; Pseudo = /a;\n Access_Type = RO; FSAL { Name = VFS; } }\n%include more/two.conf\n",
        ),
        (
            "/etc/ganesha/more/two.conf",
            "EXPORT { Export_Id = 2; Path = /srv/b; Pseudo = /b; Colour = 1;\n Access_Type = RO; FSAL { Name = VFS; } }\n",
        ),
        ("/etc/ganesha/circle.conf", "\n%include circle.conf\n"),
    ]);
    let import = |text: &str| import(format("ganesha"), "/etc/ganesha/ganesha.conf", text, &files);
    let found = import("%include \"one.conf\"\n").expect("fine");
    assert!(found.document.contains("/srv/a") && found.document.contains("/srv/b"));
    let told = found.report.to_string();
    assert!(
        told.contains("/etc/ganesha/more/two.conf:1: ACCESS: colour"),
        "{told}"
    );
    let told = import("%include circle.conf\n")
        .expect_err("a circle")
        .to_string();
    assert!(
        told.contains("/etc/ganesha/circle.conf:2: /etc/ganesha/circle.conf includes itself"),
        "{told}"
    );
    let told = import("\n%include gone.conf\n")
        .expect_err("not there")
        .to_string();
    assert!(
        told.contains("ganesha.conf:2: /etc/ganesha/gone.conf cannot be read"),
        "{told}"
    );
    let told = import("%url rados://pool/object\n")
        .expect_err("not here")
        .to_string();
    assert!(told.contains("fetch it"), "{told}");
}

#[test]
fn blocks_that_are_not_closed_have_their_line() {
    for (text, part) in [
        (
            "EXPORT {\n Path = /a;\n",
            "source:1: `export` is not closed",
        ),
        ("EXPORT { Path = /a; }\n}\n", "source:2: `}` closes nothing"),
        ("EXPORT {\n Path = \"/a;\n }", "source:2: \" is not closed"),
        ("EXPORT {\n Path;\n }", "source:2: `Path` has no value"),
        (
            "EXPORT { Export_Id = 1; }",
            "source:1: an EXPORT has no Path",
        ),
        ("LOG { }", "nothing in it that weft could serve"),
    ] {
        let told = mistakes("ganesha", text);
        assert!(told.contains(part), "{text:?}: {told}");
    }
    let deep = "A {\n".repeat(40) + &"}\n".repeat(40);
    assert!(mistakes("ganesha", &deep).contains("nested more than 32 deep"));
    let found = imported(
        "ganesha",
        "EXPORT { Path = /a; Access_Type = MDONLY; Protocols = 4; FSAL { Name = VFS; } }",
    );
    tells(&found, &["ACCESS", "access_type", "mdonly"]);
}
