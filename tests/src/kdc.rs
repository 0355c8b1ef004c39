//! A realm of a test's own: MIT's KDC on this machine's loopback, by a system's packages.

use std::fmt::Write as _;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::child::{Owned, output};
use crate::guest::prepare;
use crate::packages::Sysroot;
use crate::systems::FORKY;
use crate::weft::free_address;

/// The realm's name.
pub const REALM: &str = "TEST";

/// How long the KDC may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A KDC that runs.
#[derive(Debug)]
pub struct Realm {
    folder: TempDir,
    packages: Sysroot,
    address: SocketAddr,
    _process: Owned,
}

impl Realm {
    /// Starts a KDC that knows nobody. `more` is for `[libdefaults]` of `krb5.conf`.
    ///
    /// # Errors
    /// What is missing, or what its programs say.
    pub fn start(more: &str) -> Result<Realm, String> {
        let (packages, _) = prepare(&FORKY).map_err(|missing| missing.to_string())?;
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let (address, at) = (free_address(), folder.path());
        write(&at.join("krb5.conf"), &client_config(address, more))?;
        write(&at.join("kdc.conf"), &kdc_config(&packages, at, address))?;
        let run = |program, arguments: &[&str]| command(&packages, at, program, arguments);
        let words = ["create", "-s", "-r", REALM, "-P", "secret"];
        output(&mut run("usr/sbin/kdb5_util", &words))?;
        let mut kdc = run("usr/sbin/krb5kdc", &["-n"]);
        kdc.stdin(Stdio::null()).stdout(Stdio::null());
        let process = Owned::spawn(kdc.stderr(Stdio::null())).map_err(|e| e.to_string())?;
        let realm = Realm {
            folder,
            packages,
            address,
            _process: process,
        };
        realm.await_kdc()?;
        Ok(realm)
    }

    fn await_kdc(&self) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect(self.address).is_err() {
            if Instant::now() > end {
                let log = fs::read_to_string(self.folder().join("kdc.log"));
                return Err(format!("no KDC: {}", log.unwrap_or_default()));
            }
            sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Where all files of it are, `krb5.conf` among them.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where the KDC listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes a principal with a key that only the KDC knows.
    ///
    /// # Errors
    /// What the KDC says.
    pub fn add(&self, principal: &str) -> Result<(), String> {
        self.administer(&["addprinc", "-randkey", principal])
    }

    /// Makes new keys of a principal, and adds them to the keytab of that name in the folder.
    ///
    /// # Errors
    /// What the KDC says.
    pub fn add_keys(&self, principal: &str, keytab: &str) -> Result<PathBuf, String> {
        let path = self.folder().join(keytab);
        let shown = path.display().to_string();
        self.administer(&["ktadd", "-k", &shown, principal])?;
        Ok(path)
    }

    fn administer(&self, words: &[&str]) -> Result<(), String> {
        let program = "usr/sbin/kadmin.local";
        output(&mut command(&self.packages, self.folder(), program, words)).map(drop)
    }

    /// Writes tickets of a principal by the keys in a keytab to the file of that name in the
    /// folder; `more` are words for `kinit`.
    ///
    /// # Errors
    /// What `kinit` says.
    pub fn get_tickets(
        &self,
        principal: &str,
        keytab: &Path,
        to: &str,
        more: &[&str],
    ) -> Result<PathBuf, String> {
        let path = self.folder().join(to);
        let (keytab, cache) = (keytab.display().to_string(), path.display().to_string());
        let words = [&["-k", "-t", &keytab, "-c", &cache], more, &[principal]].concat();
        output(&mut command(
            &self.packages,
            self.folder(),
            "usr/bin/kinit.mit",
            &words,
        ))?;
        Ok(path)
    }
}

/// What clients and servers read: no name is looked up anywhere. `more` is for `[libdefaults]`.
pub fn client_config(kdc: SocketAddr, more: &str) -> String {
    format!(
        "[libdefaults]\ndefault_realm = {REALM}\ndns_canonicalize_hostname = false\nrdns = false\n\
         dns_lookup_kdc = false\ndns_lookup_realm = false\n{more}\n\
         [realms]\n{REALM} = {{\nkdc = {kdc}\n}}\n"
    )
}

fn kdc_config(packages: &Sysroot, folder: &Path, address: SocketAddr) -> String {
    let mut text = format!("[realms]\n{REALM} = {{\n");
    for (key, value) in [
        ("database_name", "principal"),
        ("key_stash_file", "stash"),
        ("acl_file", "acl"),
    ] {
        let _ = writeln!(text, "{key} = {}", folder.join(value).display());
    }
    let modules = packages
        .root
        .join("usr/lib/x86_64-linux-gnu/krb5/plugins/kdb");
    let log = folder.join("kdc.log");
    let _ = write!(
        text,
        "kdc_listen = {address}\nkdc_tcp_listen = {address}\n}}\n\
         [dbmodules]\ndb_module_dir = {}\n[logging]\nkdc = FILE:{}\n",
        modules.display(),
        log.display()
    );
    text
}

fn command(packages: &Sysroot, folder: &Path, program: &str, words: &[&str]) -> Command {
    let mut command = packages.command(program);
    command.args(words);
    command.env("KRB5_CONFIG", folder.join("krb5.conf"));
    command.env("KRB5_KDC_PROFILE", folder.join("kdc.conf"));
    command
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
