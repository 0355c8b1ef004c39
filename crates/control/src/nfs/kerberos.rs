//! By which keys users of NFS clients prove who they are, and who they are here.

use std::path::{Path, PathBuf};
use tls::SecretPlace;

use server::check;
use server::nfs::KerberosSettings;

use super::owners;
use crate::schema::{KERBEROS, NFS, SCHEMA};
use crate::source::{At, Section, Sink};

/// Bytes of a file of keys that are looked at: one of a host has a few hundred.
const KEYTAB_BYTES_MAX: usize = 64 << 10;

/// The service that clients of NFS ask for (RFC 7530, section 3.2.1).
const SERVICE: &str = "nfs";

/// Bytes of a realm's name at most.
const REALM_BYTES_MAX: usize = 255;

/// `general`: the domain of owners for all clients.
pub(super) fn read(
    sink: &mut Sink,
    nfs: &Section,
    folder: &Path,
    general: Option<&str>,
) -> Option<KerberosSettings> {
    let section = nfs.table(sink, SCHEMA, "kerberos", KERBEROS)?;
    section.missing(sink, "keytab", "keytab = \"/etc/krb5.keytab\"");
    let keytab = section.text(sink, "keytab");
    let keytab = keytab.and_then(|path| checked_keytab(sink, &path, folder));
    let domain = owners::domain(sink, &section);
    match general {
        None => section.missing(sink, "domain", "domain = \"example.org\""),
        Some(other) if domain.as_ref().is_some_and(|domain| domain != other) => {
            let text =
                format!("{NFS} has the `domain` \"{other}\" for all clients: leave this one out");
            sink.add(&section.span_of("domain"), text);
        }
        Some(_) => {}
    }
    let realm = section.text(sink, "realm");
    if let Some(realm) = &realm
        && !is_realm(realm.value)
    {
        let text = format!(
            "\"{}\" is no realm: write it as `klist` shows it behind the @, \"EXAMPLE.ORG\"",
            realm.value
        );
        sink.add(&realm.span, text);
    }
    let service = section.text(sink, "service");
    if let Some(service) = &service {
        check_service(sink, service);
    }
    let named = domain.as_deref().or(general)?;
    let default_realm = || named.to_ascii_uppercase();
    Some(KerberosSettings {
        keytab: keytab?,
        service: service.map_or(SERVICE, |service| service.value).to_owned(),
        realm: realm.map_or_else(default_realm, |realm| realm.value.to_owned()),
        domain,
    })
}

/// The file is looked at now, as other files of keys are.
fn checked_keytab(sink: &mut Sink, path: &At<&str>, folder: &Path) -> Option<PathBuf> {
    let mut wrong = |why: String| {
        sink.add(&path.span, format!("`keytab`: {why}"));
        None
    };
    let place = SecretPlace::parse(path.value, folder);
    // MIT's library has no keytabs in keyrings.
    let file = place.and_then(|place| Ok((place.file()?, place)));
    let (file, place) = match file {
        Ok(file) => file,
        Err(why) => return wrong(why),
    };
    let read = place.read(
        KEYTAB_BYTES_MAX,
        "`ktadd -k FILE nfs/HOST` of `kadmin` makes one",
    );
    let shown = file.display();
    let why = match read.map(|keytab| has_key(keytab.bytes())) {
        Ok(Some(true)) => return Some(file),
        Ok(Some(false)) => format!(
            "{shown} has no key of {SERVICE}/HOST: `ktadd -k {shown} {SERVICE}/HOST` of `kadmin` \
             adds one"
        ),
        Ok(None) => format!(
            "{shown} is no keytab: move it away, and `ktadd -k {shown} {SERVICE}/HOST` of `kadmin` \
             makes one"
        ),
        Err(why) => why,
    };
    wrong(why)
}

/// How a version of keytabs writes its numbers, and the components of a principal that it counts
/// before the first that is one of the name.
struct KeytabVersion {
    size_of: fn([u8; 4]) -> i32,
    count_of: fn([u8; 2]) -> u16,
    components_before: u16,
}

/// Numbers are in the machine's order, and the realm counts.
const FIRST: KeytabVersion = KeytabVersion {
    size_of: i32::from_ne_bytes,
    count_of: u16::from_ne_bytes,
    components_before: 1,
};
/// Numbers are in network order.
const SECOND: KeytabVersion = KeytabVersion {
    size_of: i32::from_be_bytes,
    count_of: u16::from_be_bytes,
    components_before: 0,
};

/// Whether a keytab has an entry of the service (MIT's "Keytab file format"). `None`: it is none.
/// What was removed is left as a hole, whose size is negative.
fn has_key(keytab: &[u8]) -> Option<bool> {
    let version = match keytab {
        [5, 1, ..] => FIRST,
        [5, 2, ..] => SECOND,
        _ => return None,
    };
    let mut rest = &keytab[2..];
    while let Some((size, behind)) = rest.split_first_chunk() {
        let size = (version.size_of)(*size);
        let len = size.unsigned_abs() as usize;
        let Some((entry, next)) = behind.split_at_checked(len).filter(|_| len > 0) else {
            break;
        };
        if size > 0 && version.service(entry) == Some(SERVICE.as_bytes()) {
            return Some(true);
        }
        rest = next;
    }
    Some(false)
}

impl KeytabVersion {
    /// The first component of an entry's principal.
    fn service<'e>(&self, entry: &'e [u8]) -> Option<&'e [u8]> {
        let (components, entry) = entry.split_first_chunk()?;
        let (_realm, entry) = self.text(entry)?;
        let (first, _) = self.text(entry)?;
        let is_there = (self.count_of)(*components) > self.components_before;
        is_there.then_some(first)
    }

    /// A text with its length before it, and what follows.
    fn text<'e>(&self, bytes: &'e [u8]) -> Option<(&'e [u8], &'e [u8])> {
        let (len, rest) = bytes.split_first_chunk()?;
        rest.split_at_checked((self.count_of)(*len).into())
    }
}

fn is_realm(text: &str) -> bool {
    let is_fine = |c: char| !c.is_whitespace() && !c.is_control() && !"@/\\\"".contains(c);
    !text.is_empty() && text.len() <= REALM_BYTES_MAX && text.chars().all(is_fine)
}

fn check_service(sink: &mut Sink, service: &At<&str>) {
    let host = match service.value.split_once('@') {
        None if service.value == SERVICE => return,
        Some((SERVICE, host)) => check::host(host).err(),
        _ => Some(format!("\"{}\" is another service", service.value)),
    };
    if let Some(why) = host {
        let text = format!(
            "{why}: `service` is \"nfs\", for every host that the keytab has keys of, or \
             \"nfs@HOST\" for one of them"
        );
        sink.add(&service.span, text);
    }
}
