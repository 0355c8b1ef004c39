//! Addresses of logical units, and the identity of this initiator.

use std::io;
use std::net::SocketAddr;

use ::iscsi::check_target_name;
use ::iscsi::initiator::RANDOM_LEN;
use reactor::fill_random;
use wire::iscsi::PORT;

use crate::resolve;

/// A logical unit of a target behind a portal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IscsiAddress {
    /// Where to connect.
    pub portal: SocketAddr,
    /// TargetName, normalized.
    pub target: String,
    /// Logical unit number, below 16,384.
    pub lun: u16,
    /// It is reached by RDMA (iSER).
    pub is_rdma: bool,
}

impl IscsiAddress {
    /// Reads `iscsi://host[:port]/target[/lun]`, and `iser://` of the same.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn parse(url: &str) -> Result<Self, String> {
        let by_rdma = url.strip_prefix("iser://");
        let rest = by_rdma.or(url.strip_prefix("iscsi://")).ok_or_else(|| {
            format!("`{url}` is no iSCSI target: write iscsi://host:port/iqn.../lun")
        })?;
        let (authority, path) = rest
            .split_once('/')
            .ok_or_else(|| format!("`{url}` names no target: add /iqn.../lun"))?;
        if authority.contains(['@', '%']) && !authority.starts_with('[') {
            return Err(format!(
                "`{authority}`: a secret has no place in a URL, where others can read it: \
                 use --chap-user and --chap-secret-file"
            ));
        }
        let (target, lun) = match path.split_once('/') {
            None => (path, 0),
            Some((target, lun)) => {
                let number = lun.parse().ok().filter(|lun| *lun < 1 << 14);
                let number =
                    number.ok_or_else(|| format!("`{lun}` is no LUN: it is 0 to 16383"))?;
                (target, number)
            }
        };
        Ok(IscsiAddress {
            portal: resolve(authority, PORT)?,
            target: check_target_name(target).map_err(|error| format!("`{target}`: {error}"))?,
            lun,
            is_rdma: by_rdma.is_some(),
        })
    }
}

/// The identity of this initiator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Initiator {
    /// InitiatorName.
    pub name: String,
    /// Tells this process from others of the same name: part of each ISID.
    random: [u8; 3],
}

impl Initiator {
    /// An initiator with a given name or a random one.
    ///
    /// # Errors
    /// Where the system has no random bytes.
    pub fn new(name: Option<&str>) -> io::Result<Self> {
        let mut random = [0; 3 + 6];
        fill_random(&mut random)?;
        let (isid, unique) = random.split_at(3);
        let unique: String = unique.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Initiator {
            name: name.map_or_else(
                || format!("iqn.2026-01.io.weft.initiator:{unique}"),
                str::to_owned,
            ),
            random: isid.try_into().expect("three bytes"),
        })
    }

    /// The ISID of session `number` of this process: of the random type (RFC
    /// 7143, section 11.12.5).
    #[must_use]
    pub fn isid(&self, number: u16) -> [u8; 6] {
        let ([a, b, c], [high, low]) = (self.random, number.to_be_bytes());
        [0x80, a, b, c, high, low]
    }
}

/// Random bytes for one login.
///
/// # Errors
/// Where the system has none.
pub(super) fn login_random() -> io::Result<[u8; RANDOM_LEN]> {
    let mut bytes = [0; RANDOM_LEN];
    fill_random(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_portal_target_and_unit() {
        let full = IscsiAddress::parse("iscsi://127.0.0.1:3261/iqn.2026-01.io.weft:Disks/300");
        let full = full.expect("a URL");
        assert_eq!(full.portal, "127.0.0.1:3261".parse().expect("address"));
        assert_eq!(
            (full.target.as_str(), full.lun),
            ("iqn.2026-01.io.weft:disks", 300)
        );
        let short = IscsiAddress::parse("iscsi://[::1]/iqn.2026-01.io.weft:a").expect("a URL");
        assert_eq!(short.portal, "[::1]:3260".parse().expect("address"));
        assert_eq!((short.lun, short.is_rdma), (0, false));
        let by_rdma = IscsiAddress::parse("iser://[::1]/iqn.2026-01.io.weft:a").expect("a URL");
        assert!(by_rdma.is_rdma && by_rdma.portal == short.portal);
    }

    #[test]
    fn urls_that_mean_nothing_are_refused() {
        for (url, why) in [
            ("127.0.0.1/iqn.2026-01.io.weft:a", "iscsi://host:port"),
            ("iscsi://127.0.0.1", "add /iqn"),
            ("iscsi://127.0.0.1/", ""),
            ("iscsi://127.0.0.1/disks/0", ""),
            (
                "iscsi://127.0.0.1/iqn.2026-01.io.weft:a/16384",
                "0 to 16383",
            ),
            ("iscsi://127.0.0.1/iqn.2026-01.io.weft:a/x", "0 to 16383"),
            (
                "iscsi://me%secret@127.0.0.1/iqn.2026-01.io.weft:a/0",
                "--chap-secret-file",
            ),
            ("iscsi://127.0.0.1:99999/iqn.2026-01.io.weft:a", ""),
        ] {
            let error = IscsiAddress::parse(url).expect_err(url);
            assert!(error.contains(why), "{url}: {error}");
        }
    }

    #[test]
    fn sessions_of_a_process_are_told_apart() {
        let (a, b) = (Initiator::new(None), Initiator::new(Some("iqn.x:y")));
        let (a, b) = (a.expect("random"), b.expect("random"));
        assert_ne!(a.name, b.name);
        assert_eq!(b.name, "iqn.x:y");
        assert_ne!(a.isid(1), a.isid(2));
        assert_ne!(a.isid(1)[..4], b.isid(1)[..4]);
        assert_eq!(a.isid(0x0102)[4..], [1, 2]);
        assert_eq!(a.isid(0)[0] >> 6, 0b10, "the random type");
        assert!(::iscsi::check_initiator_name(&a.name).is_ok());
    }
}
