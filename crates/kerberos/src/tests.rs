//! What needs no KDC: files, their modes, and tokens that are none.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use auth::gss_acceptor::{AcceptStep, GssAcceptor};
use needs::needs;

use crate::{Acceptor, KerberosError, Users};

/// A keytab with one key of `nfs/host@TEST` (MIT's "Keytab file format", version 2).
fn keytab(folder: &Path) -> PathBuf {
    let counted = |text: &str| [&(text.len() as u16).to_be_bytes(), text.as_bytes()].concat();
    let mut entry = vec![0, 2];
    for text in ["TEST", "nfs", "host"] {
        entry.extend(counted(text));
    }
    // A name of a service; the time; the key's version; AES-256 with SHA-1 (RFC 3962).
    entry.extend([0, 0, 0, 3, 0, 0, 0, 0, 2, 0, 18, 0, 32]);
    entry.extend([7; 32]);
    let mut bytes = vec![5, 2];
    bytes.extend((entry.len() as u32).to_be_bytes());
    bytes.extend(entry);
    let path = folder.join("keytab");
    fs::write(&path, bytes).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
    path
}

fn open(keytab: &Path, service: &str) -> Result<Acceptor, KerberosError> {
    Acceptor::open(keytab, service, Users::new("TEST"))
}

fn refusal(keytab: &Path, service: &str) -> String {
    match open(keytab, service) {
        Ok(_) => panic!("it opened"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn keytab_that_is_missing_open_to_all_or_no_file_is_refused_with_the_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = refusal(&folder.path().join("none"), "nfs");
    assert!(
        missing.contains("none cannot be read") && missing.contains("ktadd -k"),
        "{missing}"
    );
    let no_file = refusal(folder.path(), "nfs");
    assert!(no_file.contains("is no file"), "{no_file}");
    let path = keytab(folder.path());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("a mode");
    let open = refusal(&path, "nfs");
    assert!(open.contains("(mode 0644): `chmod 600` it"), "{open}");
}

#[needs(library("libgssapi_krb5.so.2"))]
#[test]
fn keytab_opens_for_its_service_of_any_host_and_of_that_host_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = keytab(folder.path());
    for service in ["nfs", "nfs@host"] {
        assert!(open(&path, service).is_ok(), "{service}");
    }
    for service in ["nfs@other", "host", "host@host"] {
        let text = refusal(&path, service);
        assert!(text.starts_with(&format!("{}: ", path.display())), "{text}");
    }
}

#[needs(library("libgssapi_krb5.so.2"))]
#[test]
fn keytab_without_keys_or_of_another_format_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = keytab(folder.path());
    for content in [&b""[..], &[5, 2], &[5, 2, 0, 0, 0, 1], b"NVMeTLSkey-1:01:"] {
        fs::write(&path, content).expect("written");
        let text = refusal(&path, "nfs");
        assert!(
            text.contains(&path.display().to_string()),
            "{content:?}: {text}"
        );
    }
}

#[needs(library("libgssapi_krb5.so.2"))]
#[test]
fn tokens_that_are_none_fail_and_say_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let acceptor = open(&keytab(folder.path()), "nfs").expect("an acceptor");
    // The frame of a token (RFC 2743, section 3.1) of Kerberos around nothing, cut short, and of
    // a mechanism that is not Kerberos.
    let krb5: &[u8] = b"\x60\x0d\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01\x00";
    let spnego: &[u8] = b"\x60\x08\x06\x06\x2b\x06\x01\x05\x05\x02";
    for token in [&b""[..], b"\x60", &krb5[..9], krb5, spnego, &[0xff; 4096]] {
        match acceptor.step(None, token) {
            AcceptStep::Failed { major, why, .. } => {
                assert_ne!(major & 0xffff_0000, 0, "{token:?}");
                assert!(!why.is_empty(), "{token:?}");
            }
            _ => panic!("{token:?} was taken"),
        }
    }
}
