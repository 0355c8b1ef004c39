//! What needs no KDC: files, their modes, and tokens that are none.

use std::io::Write;
use std::mem::forget;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::{env, fs, thread};

use auth::gss_acceptor::{AcceptError, GssAcceptor};
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
    assert!(open.contains("(mode 0644); `chmod 600` it"), "{open}");
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

/// The frame of a token (RFC 2743, section 3.1) of Kerberos around nothing.
const EMPTY_TOKEN: &[u8] = b"\x60\x0d\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01\x00";

#[needs(library("libgssapi_krb5.so.2"))]
#[test]
fn tokens_that_are_none_fail_and_say_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let acceptor = open(&keytab(folder.path()), "nfs").expect("an acceptor");
    let krb5 = EMPTY_TOKEN;
    // The frame of a mechanism that is not Kerberos.
    let spnego: &[u8] = b"\x60\x08\x06\x06\x2b\x06\x01\x05\x05\x02";
    for token in [&b""[..], b"\x60", &krb5[..9], krb5, spnego, &[0xff; 4096]] {
        match acceptor.step(None, token) {
            Err(AcceptError { major, why, .. }) => {
                assert_ne!(major & 0xffff_0000, 0, "{token:?}");
                assert!(!why.is_empty(), "{token:?}");
            }
            Ok(_) => panic!("{token:?} was taken"),
        }
    }
}

/// Where the keytab is, for a process that ends while threads use the library.
const KEYTAB: &str = "WEFT_TEST_KEYTAB";
/// How that process ends.
const CODE: i32 = 7;

/// Threads use the library while the process ends.
fn end_in_use(keytab: &Path) -> ! {
    let acceptor = Arc::new(open(keytab, "nfs").expect("an acceptor"));
    let (begin, begun) = channel();
    for _ in 0..4 {
        let (acceptor, begin) = (acceptor.clone(), begin.clone());
        thread::spawn(move || {
            loop {
                drop(acceptor.step(None, EMPTY_TOKEN));
                let _ = begin.send(());
            }
        });
    }
    (0..8).for_each(|_| begun.recv().expect("they run"));
    leave_unwritten();
    process::exit(CODE)
}

/// Leaves the C library a byte to write at the end of the process, behind all destructors, to a
/// socket that is full: a process that gets so far goes no further.
fn leave_unwritten() {
    let (read, mut write) = UnixStream::pair().expect("a pair");
    write.set_nonblocking(true).expect("a flag");
    while write.write(&[0; 4096]).is_ok() {}
    write.set_nonblocking(false).expect("no flag");
    forget(read);
    // SAFETY: the descriptor is open and no one else's, the mode ends with a zero, and the byte
    // is there.
    unsafe {
        let stream = libc::fdopen(write.into_raw_fd(), c"w".as_ptr());
        assert_eq!(libc::fwrite([0_u8].as_ptr().cast(), 1, 1, stream), 1);
    }
}

#[needs(library("libgssapi_krb5.so.2"))]
#[test]
fn process_ends_by_its_own_code_while_threads_use_the_library() {
    if let Some(keytab) = env::var_os(KEYTAB) {
        end_in_use(Path::new(&keytab));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = keytab(folder.path());
    let this = env::current_exe().expect("this program");
    let name = "tests::process_ends_by_its_own_code_while_threads_use_the_library";
    let child = Command::new(&this)
        .args([name, "--exact", "--nocapture"])
        .env(KEYTAB, &path)
        .output()
        .expect("a child");
    let wrong = String::from_utf8_lossy(&child.stderr);
    assert_eq!(child.status.code(), Some(CODE), "{wrong}");
}
