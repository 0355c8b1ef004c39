//! By which keys users of NFS clients prove who they are, and who they are here.

use std::path::{Path, PathBuf};

use server::check;
use server::nfs::KerberosSettings;

use crate::schema::{KERBEROS, SCHEMA};
use crate::secret_place::SecretPlace;
use crate::source::{At, Section, Sink};

/// Bytes of a file of keys that are looked at: one of a host has a few hundred.
const KEYTAB_BYTES_MAX: usize = 64 << 10;

/// The service that clients of NFS ask for (RFC 7530, section 3.2.1).
const SERVICE: &str = "nfs";

/// Bytes of a realm's name at most.
const REALM_BYTES_MAX: usize = 255;

pub(super) fn read(sink: &mut Sink, nfs: &Section, folder: &Path) -> Option<KerberosSettings> {
    let section = nfs.table(sink, SCHEMA, "kerberos", KERBEROS)?;
    section.missing(sink, "keytab", "keytab = \"/etc/krb5.keytab\"");
    section.missing(sink, "domain", "domain = \"example.org\"");
    let keytab = section.text(sink, "keytab");
    let keytab = keytab.and_then(|path| checked_keytab(sink, &path, folder));
    let domain = section.text(sink, "domain");
    if let Some(domain) = &domain
        && let Err(why) = check::host(domain.value)
    {
        let text = format!("{why}: `domain` is as in \"example.org\"");
        sink.add(&domain.span, text);
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
    let domain = domain?.value.to_owned();
    let default_realm = || domain.to_ascii_uppercase();
    Some(KerberosSettings {
        keytab: keytab?,
        service: service.map_or(SERVICE, |service| service.value).to_owned(),
        realm: realm.map_or_else(default_realm, |realm| realm.value.to_owned()),
        domain,
    })
}

/// The file is looked at now, as other files of keys are.
fn checked_keytab(sink: &mut Sink, path: &At<&str>, folder: &Path) -> Option<PathBuf> {
    let file = folder.join(path.value);
    let place = SecretPlace::File(file.clone());
    let read = place.read(
        KEYTAB_BYTES_MAX,
        "`ktadd -k FILE nfs/HOST` of `kadmin` makes one",
    );
    let shown = file.display();
    let wrong = match read.map(|keytab| has_keys(keytab.bytes())) {
        Ok(Some(true)) => return Some(file),
        Ok(Some(false)) => {
            format!("{shown} has no keys: `ktadd -k {shown} nfs/HOST` of `kadmin` adds one")
        }
        Ok(None) => format!(
            "{shown} is no keytab: move it away, and `ktadd -k {shown} nfs/HOST` of `kadmin` makes one"
        ),
        Err(why) => why,
    };
    sink.add(&path.span, format!("`keytab`: {wrong}"));
    None
}

/// Whether a keytab has an entry. `None`: it is none. Of the versions of its format the second is
/// written today, with numbers in network order; those of the first are in the machine's own. What
/// was removed is left as a hole, whose size is negative.
fn has_keys(keytab: &[u8]) -> Option<bool> {
    let size_of: fn([u8; 4]) -> i32 = match keytab {
        [5, 2, ..] => i32::from_be_bytes,
        [5, 1, ..] => i32::from_ne_bytes,
        _ => return None,
    };
    let mut rest = &keytab[2..];
    while let Some((size, behind)) = rest.split_first_chunk() {
        let size = size_of(*size);
        if size > 0 {
            return Some(true);
        }
        let hole = size.unsigned_abs() as usize;
        let Some(next) = behind.get(hole..).filter(|_| hole > 0) else {
            break;
        };
        rest = next;
    }
    Some(false)
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
