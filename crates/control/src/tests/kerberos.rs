//! Keys by which users of NFS clients prove who they are.

use server::Change;
use server::nfs::KerberosSettings;

use super::*;
use crate::plan::{at_restart, plan, until_restart};

/// An entry of this service on a host, of the realm R, behind its size.
pub(super) fn entry(service: &str) -> Vec<u8> {
    let mut entry = vec![0, 2, 0, 1, b'R'];
    for text in [service, "host"] {
        entry.extend((text.len() as u16).to_be_bytes());
        entry.extend(text.as_bytes());
    }
    // Name type, time, version, and a key of two bytes.
    entry.extend([0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 18, 0, 2, 7, 7]);
    [&(entry.len() as u32).to_be_bytes()[..], &entry].concat()
}

/// A keytab of the second version.
pub(super) fn keytab(entries: &[&[u8]]) -> Vec<u8> {
    [&[5, 2][..], &entries.concat()].concat()
}

/// One of the first, whose numbers are in the machine's order and whose realm counts.
fn old_keytab() -> Vec<u8> {
    let mut entry = 3u16.to_ne_bytes().to_vec();
    for text in ["R", "nfs", "host"] {
        entry.extend((text.len() as u16).to_ne_bytes());
        entry.extend(text.as_bytes());
    }
    let size = (entry.len() as u32).to_ne_bytes();
    [&[5, 1][..], &size, &entry].concat()
}

/// What was removed leaves a hole.
const HOLE: &[u8] = &[255, 255, 255, 254, 0, 0];

/// A folder with files of keys.
fn keys() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let (of_nfs, of_host) = (entry("nfs"), entry("host"));
    let mut removed = entry("nfs");
    let size = -(removed.len() as i32 - 4);
    removed[..4].copy_from_slice(&size.to_be_bytes());
    for (name, bytes, mode) in [
        ("weft.keytab", keytab(&[&of_nfs]), 0o600),
        ("old.keytab", keytab(&[&of_nfs]), 0o600),
        ("open.keytab", keytab(&[&of_nfs]), 0o644),
        ("text.keytab", b"keys".to_vec(), 0o600),
        ("empty.keytab", keytab(&[]), 0o600),
        ("holes.keytab", keytab(&[HOLE, &removed]), 0o600),
        ("host.keytab", keytab(&[&of_host, &of_host]), 0o600),
        ("short.keytab", keytab(&[&of_nfs[..9]]), 0o600),
        ("first.keytab", old_keytab(), 0o600),
        ("behind.keytab", keytab(&[HOLE, &of_host, &of_nfs]), 0o600),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
    folder
}

fn with_text(kerberos: &str) -> String {
    format!(
        "[nfs]\n{kerberos}\n\
         [[file_system]]\nname = \"a\"\nkind = \"mem\"\nsize = \"1MiB\"\n\
         [[export]]\npath = \"/a\"\nfile_system = \"a\"\nallow_any_client = true\n\
         [[listener]]\naddress = \"127.0.0.1:2049\"\nprotocol = \"nfs\"\n"
    )
}

fn with(folder: &Path, kerberos: &str) -> Result<Config, Vec<Problem>> {
    parse(
        &with_text(kerberos),
        &origin(folder.to_str().unwrap()),
        &[0],
    )
}

const LEAST: &str = "[nfs.kerberos]\nkeytab = \"weft.keytab\"\ndomain = \"example.org\"\n";

#[test]
fn kerberos_takes_its_realm_of_the_domain_and_every_name_of_the_service_by_default() {
    let folder = keys();
    let least = with(folder.path(), LEAST).unwrap();
    let settings = KerberosSettings {
        keytab: folder.path().join("weft.keytab"),
        service: "nfs".to_owned(),
        realm: "EXAMPLE.ORG".to_owned(),
        domain: Some("example.org".to_owned()),
    };
    assert_eq!(least.nfs.kerberos.as_ref(), Some(&settings));
    let more = format!("{LEAST}realm = \"Lab\"\nservice = \"nfs@files.example.org\"\n");
    let more = with(folder.path(), &more).unwrap();
    let settings = KerberosSettings {
        service: "nfs@files.example.org".to_owned(),
        realm: "Lab".to_owned(),
        ..settings
    };
    assert_eq!(more.nfs.kerberos, Some(settings));
    assert_eq!(with(folder.path(), "").unwrap().nfs.kerberos, None);
    // A key behind a hole and others, and one of the first version.
    for keytab in ["behind.keytab", "first.keytab"] {
        let text = LEAST.replace("weft.keytab", keytab);
        assert!(with(folder.path(), &text).is_ok(), "{keytab}");
    }
}

#[test]
fn kerberos_without_its_keys_or_with_names_that_are_none_is_refused() {
    let folder = keys();
    for (from, to, parts) in [
        (
            "weft.keytab",
            "none.keytab",
            &["`keytab`", "none.keytab cannot be read"][..],
        ),
        (
            "weft.keytab",
            "empty.keytab",
            &["empty.keytab has no key of nfs/HOST", "`kadmin` adds one"],
        ),
        ("weft.keytab", "holes.keytab", &["has no key of nfs/HOST"]),
        ("weft.keytab", "host.keytab", &["has no key of nfs/HOST"]),
        ("weft.keytab", "short.keytab", &["has no key of nfs/HOST"]),
        (
            "weft.keytab",
            "open.keytab",
            &["(mode 0644); `chmod 600` it"],
        ),
        ("weft.keytab", "text.keytab", &["is no keytab", "ktadd -k"]),
        (
            "weft.keytab",
            "keyring:weft",
            &["`keytab`: a file is needed, not a key of the kernel; name a path"],
        ),
        (
            "weft.keytab",
            "credential:weft",
            &[
                "`keytab`: weft has no credential weft",
                "LoadCredential=weft:FILE",
            ],
        ),
        ("keytab =", "# keytab =", &["lacks the key `keytab`"]),
        ("keytab =", "keytaab =", &["did you mean `keytab`"]),
        ("domain =", "# domain =", &["lacks the key `domain`"]),
        (
            "example.org",
            "example org",
            &["no host name", "\"example.org\""],
        ),
        (
            "domain =",
            "realm = \"A@B\"\ndomain =",
            &["\"A@B\" is no realm", "klist"],
        ),
        ("domain =", "realm = \"\"\ndomain =", &["is no realm"]),
        (
            "domain =",
            "service = \"host\"\ndomain =",
            &["another service", "nfs@HOST"],
        ),
        (
            "domain =",
            "service = \"nfs@a b\"\ndomain =",
            &["no host name", "nfs@HOST"],
        ),
    ] {
        let list = with(folder.path(), &LEAST.replacen(from, to, 1)).unwrap_err();
        // A key that is called otherwise is also one that lacks.
        for part in parts {
            let is_told = list.iter().any(|problem| problem.text.contains(part));
            assert!(is_told, "{to}: {part}: {list:#?}");
        }
    }
}

#[test]
fn domain_for_all_clients_is_that_of_kerberos_too_and_stands_once() {
    let folder = keys();
    let naming = "domain = \"example.org\"\nuser_ids = [\"alice=7\", \"bob=8\"]\n";
    let without = LEAST.replace("domain =", "# domain =");
    let nfs = with(folder.path(), &format!("{naming}{without}"))
        .unwrap()
        .nfs;
    let ids = [("alice".to_owned(), 7), ("bob".to_owned(), 8)];
    assert_eq!(nfs.owners.domain.as_deref(), Some("example.org"));
    assert_eq!(nfs.owners.user_ids, ids);
    let kerberos = nfs.kerberos.expect("there are keys");
    assert_eq!((kerberos.domain, &*kerberos.realm), (None, "EXAMPLE.ORG"));
    for (text, part) in [
        (
            format!("{naming}{LEAST}").replacen("example.org", "example.net", 1),
            "leave this one out",
        ),
        ("user_ids = [\"alice=7\"]\n".to_owned(), "`domain ="),
        (
            format!("{naming}group_ids = [\"staff\"]\n"),
            "not \"staff\"",
        ),
        (
            format!("{naming}group_ids = [\"a@b=1\"]\n"),
            "not \"a@b=1\"",
        ),
        (
            format!("{naming}group_ids = [\"a=1\", \"a=2\"]\n"),
            "in the list already",
        ),
        (
            format!("{naming}group_ids = [\"a=4294967295\"]\n"),
            "names with their numbers",
        ),
    ] {
        let list = with(folder.path(), &text).unwrap_err();
        let is_told = list.iter().any(|problem| problem.text.contains(part));
        assert!(is_told, "{text}: {list:#?}");
    }
}

#[test]
fn export_by_kerberos_is_fine_with_keys() {
    let folder = keys();
    let text = |kerberos: &str| {
        let of_export = "allow_any_client = true";
        let security = format!("{of_export}\nsecurity = [\"krb5p\", \"krb5i\", \"krb5\", \"sys\"]");
        let config = with_text(kerberos).replacen(of_export, &security, 1);
        parse(&config, &origin(folder.path().to_str().unwrap()), &[0])
    };
    assert_eq!(text(LEAST).unwrap().exports[0].rules[0].flavors.len(), 4);
    let list = text("").unwrap_err();
    assert_eq!(list.len(), 3, "{list:#?}");
    assert!(
        list.iter()
            .all(|problem| problem.text.contains("[nfs.kerberos]"))
    );
}

#[test]
fn kerberos_changes_while_clients_are_connected_and_cuts_them_only_when_it_goes() {
    let folder = keys();
    let [without, first, second] = ["", LEAST, &LEAST.replace("weft.keytab", "old.keytab")]
        .map(|text| with(folder.path(), text).unwrap());
    for (from, to, cuts) in [
        (&without, &first, false),
        (&first, &second, false),
        (&first, &without, true),
    ] {
        assert_eq!(at_restart(from, to), Vec::<String>::new());
        assert_eq!(until_restart(to.clone(), from).nfs, to.nfs);
        let planned = plan(from, to).unwrap();
        let [step] = &planned[..] else {
            panic!("{planned:#?}");
        };
        assert_eq!(step.change, Change::SetKerberos(to.nfs.kerberos.clone()));
        assert_eq!(
            step.undo,
            Some(Change::SetKerberos(from.nfs.kerberos.clone()))
        );
        assert!(step.text.contains("Kerberos"), "{}", step.text);
        assert_eq!(step.disturbs, cuts, "{}", step.text);
    }
}
