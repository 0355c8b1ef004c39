//! Who a volume is, so that a host knows it again.
//!
//! The UUID is the root: NGUID and serial follow from it. It is, in this order,
//!
//! 1. what the configuration says;
//! 2. for a file, what stands in its extended attribute [`ATTRIBUTE`]: a file
//!    that weft creates is given a random one, so the identity follows the file
//!    when it is renamed or moved. A copy made with its attributes is the same
//!    volume to a host: remove the attribute or configure a `uuid` for it;
//! 3. for a block device, derived from its world wide name, if it has one: so
//!    machines that share the disk tell hosts that it is the same;
//! 4. derived (RFC 9562, version 5) from this machine, the kind and the name.
//!    An existing file without the attribute is given that one to keep.

use std::fs::{self, File};
use std::io;

use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};
use tracing::warn;
use uuid::Uuid;

/// Where a file keeps its UUID, as text.
pub(crate) const ATTRIBUTE: &str = "user.weft.uuid";

/// Chosen once at random; every derived identity hangs on it.
const NAMESPACE: Uuid = Uuid::from_u128(0x3a6b_91f2_5c0e_4d17_9e84_b7d2_60fc_a835);

/// Derived from the machine, the kind of volume and its name.
pub(crate) fn derive(kind: &str, name: &str) -> Uuid {
    derive_on(&machine_id(), kind, name)
}

/// Follows from the name of a device that no other device has.
pub(crate) fn of_device(id: &str) -> Uuid {
    Uuid::new_v5(&NAMESPACE, format!("block\n{id}").as_bytes())
}

fn derive_on(machine: &str, kind: &str, name: &str) -> Uuid {
    // A machine's id is one line and a kind one word: the parts cannot run
    // into each other.
    Uuid::new_v5(&NAMESPACE, format!("{machine}\n{kind}\n{name}").as_bytes())
}

/// machine-id(5), or the host's name where there is none (a container).
fn machine_id() -> String {
    for path in ["/etc/machine-id", "/var/lib/dbus/machine-id"] {
        if let Ok(text) = fs::read_to_string(path)
            && Uuid::try_parse(text.trim()).is_ok()
        {
            return text.trim().to_owned();
        }
    }
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    warn!(
        host = host.trim(),
        "no /etc/machine-id: identities of volumes follow from the host's name; \
         give each volume a uuid in the configuration to keep them"
    );
    host.trim().to_owned()
}

/// The UUID of an open file; writes it into the file where it may, which is
/// durable after the next sync of the file.
pub(crate) fn of_file(file: &File, created: bool, read_only: bool, name: &str) -> io::Result<Uuid> {
    if let Some(uuid) = stored(file)? {
        return Ok(uuid);
    }
    let derived = derive("file", name);
    if read_only {
        return Ok(derived);
    }
    let uuid = if created { random()? } else { derived };
    let text = uuid.to_string();
    match fsetxattr(file, ATTRIBUTE, text.as_bytes(), XattrFlags::CREATE) {
        Ok(()) => Ok(uuid),
        // No extended attributes here, or no room or permission for one.
        Err(_) => Ok(derived),
    }
}

/// What the file's attribute says. Another text than a UUID is an error: to
/// take another identity quietly would make it a new disk to every host.
fn stored(file: &File) -> io::Result<Option<Uuid>> {
    let mut text = [0; 64];
    let Ok(len) = fgetxattr(file, ATTRIBUTE, &mut text) else {
        return Ok(None);
    };
    Uuid::try_parse_ascii(&text[..len]).map(Some).map_err(|_| {
        let text = String::from_utf8_lossy(&text[..len]).into_owned();
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("its attribute {ATTRIBUTE} is no UUID but '{text}'"),
        )
    })
}

/// Version 4, from the kernel.
fn random() -> io::Result<Uuid> {
    let text = fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    Uuid::try_parse(text.trim()).map_err(io::Error::other)
}

/// 128 bits with an EUI-64 at their end whose OUI says "locally administered"
/// and "individual", since weft has no OUI of its own.
pub(crate) fn nguid(uuid: Uuid) -> [u8; 16] {
    let mut nguid = Uuid::new_v5(&uuid, b"nguid").into_bytes();
    nguid[8] = nguid[8] & 0xfc | 0x02;
    nguid
}

/// The first 20 hexadecimal digits of the UUID.
pub(crate) fn serial(uuid: Uuid) -> String {
    let mut text = uuid.simple().to_string();
    text.truncate(20);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pinned: a change here would make every volume a new disk to its hosts.
    #[test]
    fn derived_identity_never_changes() {
        let uuid = derive_on("0123456789abcdef0123456789abcdef", "ram", "disk0");
        assert_eq!(uuid.to_string(), "8a2f1ab9-fb97-5a34-8df3-18c00abc4010");
        assert_eq!(serial(uuid), "8a2f1ab9fb975a348df3");
        assert_eq!(
            Uuid::from_bytes(nguid(uuid)).simple().to_string(),
            "3065392ecc3a5cfe8ad661fe2eeec61e"
        );
    }

    #[test]
    fn machine_kind_and_name_all_matter() {
        let base = derive_on("a", "ram", "x");
        assert_ne!(base, derive_on("b", "ram", "x"));
        assert_ne!(base, derive_on("a", "null", "x"));
        assert_ne!(base, derive_on("a", "ram", "y"));
        assert_eq!(base.get_version_num(), 5);
    }

    #[test]
    fn nguid_is_locally_administered_and_serial_fits() {
        for n in 0..64 {
            let uuid = derive_on("m", "ram", &n.to_string());
            assert_eq!(nguid(uuid)[8] & 0x03, 0x02);
            assert_eq!(serial(uuid).len(), 20);
            assert!(serial(uuid).bytes().all(|b| b.is_ascii_alphanumeric()));
        }
    }

    #[test]
    fn the_machine_has_a_name() {
        assert!(!machine_id().is_empty());
        assert!(!machine_id().contains('\n'));
    }
}
