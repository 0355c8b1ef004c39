//! What a configuration and a live change both have to keep to. An error says
//! what is wrong and what would be right.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use auth::Secret;
use iscsi::{Auth, InitiatorAcl};
use nvmf::{ANA_GROUPS_MAX, CNTLID_MAX, NSID_MAX};
use serve_nbd::NbdExportSpec;
use store::{Info, Names, Spec};

/// The largest logical unit number that flat space addressing has (SAM-5,
/// section 4.7.7.3).
pub const LUN_MAX: u16 = 0x3fff;

/// Bytes of a target's alias at most (RFC 7143, section 6.1: a text value).
const ALIAS_BYTES_MAX: usize = 255;

/// Listeners at a time.
pub const LISTENERS_MAX: usize = 64;

/// Bytes of a volume's name at most.
const VOLUME_NAME_BYTES_MAX: usize = 64;

/// Bytes of the description of an NBD export at most: a list of many is told at once.
const NBD_DESCRIPTION_BYTES_MAX: usize = 256;

/// Bytes of a schedule's name at most: a time follows it.
const SCHEDULE_NAME_BYTES_MAX: usize = 40;

/// Bytes of SN and MN in Identify Controller.
pub const SERIAL_BYTES: usize = 20;
/// Bytes of a logical unit's serial number at most.
pub const UNIT_SERIAL_BYTES_MAX: usize = 64;
/// Bytes of the T10 vendor identification (SPC-4, section 6.6.2).
pub const VENDOR_BYTES: usize = 8;
/// Bytes of the product identification (SPC-4, section 6.6.2).
pub const PRODUCT_BYTES: usize = 16;
/// Bytes of the product revision level (SPC-4, section 6.6.2).
pub const REVISION_BYTES: usize = 4;
/// What an NAA designator is, in words.
pub const NAA: &str = "16 hexadecimal digits of which the first is 2, 3 or 5, or 32 with a 6";

/// Bytes of MN in Identify Controller.
pub const MODEL_BYTES: usize = 40;

/// Characters of a host name or address (TRADDR of a discovery log entry).
const HOST_BYTES_MAX: usize = 255;

/// A volume's name.
///
/// # Errors
/// What it may be.
pub fn volume_name(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > VOLUME_NAME_BYTES_MAX || !name.chars().all(is_plain) {
        return Err(format!(
            "a volume's name is 1 to {VOLUME_NAME_BYTES_MAX} letters, digits, `-`, `_` or `.`"
        ));
    }
    Ok(())
}

/// A file system's name.
///
/// # Errors
/// What it may be.
pub fn file_system_name(name: &str) -> Result<(), String> {
    volume_name(name).map_err(|why| why.replacen("a volume's", "a file system's", 1))
}

/// What is exported over NBD: its name is like a volume's, and its description is a string.
///
/// # Errors
/// What it may be.
pub fn nbd_export(spec: &NbdExportSpec) -> Result<(), String> {
    nbd_export_name(&spec.name)?;
    nbd_description(&spec.description)
}

/// What NBD clients call an export.
///
/// # Errors
/// What it may be.
pub fn nbd_export_name(name: &str) -> Result<(), String> {
    volume_name(name).map_err(|why| why.replacen("a volume's", "an NBD export's", 1))
}

/// What an NBD export says to people.
///
/// # Errors
/// What it may be.
pub fn nbd_description(description: &str) -> Result<(), String> {
    match description.len() > NBD_DESCRIPTION_BYTES_MAX || description.contains('\0') {
        true => Err(format!(
            "a description is at most {NBD_DESCRIPTION_BYTES_MAX} bytes without zeros"
        )),
        false => Ok(()),
    }
}

/// The name of a schedule of snapshots, behind which their names have a time.
///
/// # Errors
/// What it may be.
pub fn snapshot_schedule_name(name: &str) -> Result<(), String> {
    match name.len() <= SCHEDULE_NAME_BYTES_MAX && store::snapshot::check_name(name).is_ok() {
        true => Ok(()),
        false => Err(format!(
            "a schedule's name is 1 to {SCHEDULE_NAME_BYTES_MAX} letters, digits, `-`, `_` or `.`, \
             the first a letter or digit"
        )),
    }
}

/// A limit's name.
///
/// # Errors
/// What it may be.
pub fn limit_name(name: &str) -> Result<(), String> {
    volume_name(name).map_err(|why| why.replacen("a volume's", "a limit's", 1))
}

/// A quota's name.
///
/// # Errors
/// What it may be.
pub fn quota_name(name: &str) -> Result<(), String> {
    volume_name(name).map_err(|why| why.replacen("a volume's", "a quota's", 1))
}

/// A connection policy's name.
///
/// # Errors
/// What it may be.
pub fn connection_policy_name(name: &str) -> Result<(), String> {
    volume_name(name).map_err(|why| why.replacen("a volume's", "a connection policy's", 1))
}

/// The files that a volume needs for itself, and the keys that name them; paths
/// without links and `..`, so that equal ones are one file. Blocks.
#[must_use]
pub fn files(volume: &Spec) -> Vec<(&'static str, PathBuf)> {
    let mut files = Vec::new();
    if let Some(path) = volume.kind.path() {
        files.push(("path", without_links(path)));
    }
    let key = if volume.state.is_some() {
        "state"
    } else {
        "path"
    };
    let state = store::state_files(volume).into_iter();
    files.extend(state.map(|path| (key, without_links(&path))));
    files
}

/// A file that does not exist yet has a path by its folder; one whose folder does
/// not exist is refused when the volume is opened.
fn without_links(path: &Path) -> PathBuf {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let by_folder = || Some(folder.canonicalize().ok()?.join(path.file_name()?));
    let found = path.canonicalize().ok().or_else(by_folder);
    found.unwrap_or_else(|| path.to_owned())
}

/// A text that stands in a field of fixed width, padded with spaces: `serial`
/// or `model`.
///
/// # Errors
/// What it may be.
pub fn fixed_text(key: &str, text: &str, bytes_max: usize) -> Result<(), String> {
    let is_ascii = text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    if text.trim().is_empty() || text.len() > bytes_max || !is_ascii {
        return Err(format!(
            "`{key}` is 1 to {bytes_max} printable ASCII characters"
        ));
    }
    Ok(())
}

/// Whether it is an NAA designator (SPC-4, section 7.8.6.6).
#[must_use]
pub fn is_naa(bytes: &[u8]) -> bool {
    match bytes.first().map(|first| first >> 4) {
        Some(2 | 3 | 5) => bytes.len() == 8,
        Some(6) => bytes.len() == 16,
        _ => false,
    }
}

/// What hosts know a volume by.
///
/// # Errors
/// What it may be.
pub fn names(names: &Names) -> Result<(), String> {
    let texts = [
        ("serial", &names.serial, UNIT_SERIAL_BYTES_MAX),
        ("vendor", &names.vendor, VENDOR_BYTES),
        ("product", &names.product, PRODUCT_BYTES),
        ("revision", &names.revision, REVISION_BYTES),
    ];
    for (key, text, bytes_max) in texts {
        text.as_ref()
            .map_or(Ok(()), |text| fixed_text(key, text, bytes_max))?;
    }
    match names.naa.as_ref().is_none_or(|naa| is_naa(naa)) {
        true => Ok(()),
        false => Err(format!("`naa` is {NAA}")),
    }
}

/// By what hosts, of either protocol, would take two volumes for one.
#[must_use]
pub fn shared_identity(a: &Info, b: &Info) -> Option<&'static str> {
    let unit = |info: &Info| (info.vendor.clone(), info.serial.clone());
    let same = [
        ("UUID", a.uuid == b.uuid),
        ("NGUID", a.nguid == b.nguid),
        ("EUI-64", a.eui64.is_some() && a.eui64 == b.eui64),
        ("NAA designator", a.naa == b.naa),
        ("serial number", unit(a) == unit(b)),
    ];
    same.into_iter()
        .find(|(_, is_same)| *is_same)
        .map(|(name, _)| name)
}

/// A namespace identifier.
///
/// # Errors
/// What it may be.
pub fn nsid(nsid: u64) -> Result<u32, String> {
    match u32::try_from(nsid) {
        Ok(nsid @ 1..=NSID_MAX) => Ok(nsid),
        _ => Err(format!("an nsid is from 1 to {NSID_MAX}, not {nsid}")),
    }
}

/// Controller identifiers to give out.
///
/// # Errors
/// What they may be.
pub fn cntlids(range: &RangeInclusive<u16>) -> Result<(), String> {
    let (first, last) = (*range.start(), *range.end());
    if 1 <= first && first <= last && last <= CNTLID_MAX {
        return Ok(());
    }
    Err(format!(
        "controller identifiers are from 1 to {CNTLID_MAX}, the first not behind the last, as \
         in \"1-1000\", not {first} to {last}"
    ))
}

/// The identifier of an ANA group.
///
/// # Errors
/// What it may be.
pub fn ana_group(group: u64) -> Result<u32, String> {
    match u32::try_from(group) {
        Ok(group @ 1..=ANA_GROUPS_MAX) => Ok(group),
        _ => Err(format!(
            "an ANA group is from 1 to {ANA_GROUPS_MAX}, not {group}"
        )),
    }
}

/// A logical unit number.
///
/// # Errors
/// What it may be.
pub fn lun(lun: u64) -> Result<u16, String> {
    match u16::try_from(lun) {
        Ok(lun @ 0..=LUN_MAX) => Ok(lun),
        _ => Err(format!("a LUN is from 0 to {LUN_MAX}, not {lun}")),
    }
}

/// The bounds of an iSCSI target's limits (RFC 7143, section 13, where the target
/// sets no narrower ones).
pub mod iscsi_bounds {
    use std::ops::RangeInclusive;

    /// Commands of one session.
    pub const QUEUE_DEPTH: RangeInclusive<u64> = 1..=1024;
    /// MaxRecvDataSegmentLength, FirstBurstLength and MaxBurstLength, bytes.
    pub const LENGTH: RangeInclusive<u64> = iscsi::LENGTH_MIN as u64..=iscsi::LENGTH_MAX as u64;
    /// MaxOutstandingR2T.
    pub const R2TS_MAX: RangeInclusive<u64> = 1..=16;
    /// ErrorRecoveryLevel.
    pub const ERROR_RECOVERY_LEVEL: RangeInclusive<u64> = 0..=1;
    /// MaxConnections.
    pub const CONNECTIONS_MAX: RangeInclusive<u64> = 1..=64;
    /// Sessions of a target.
    pub const SESSIONS_MAX: RangeInclusive<u64> = 1..=u16::MAX as u64;
    /// Milliseconds.
    pub const NOP_IN_INTERVAL_MS: RangeInclusive<u64> = 0..=3_600_000;
}

/// The limits of an iSCSI target.
///
/// # Errors
/// What they may be.
pub fn iscsi_limits(limits: &iscsi::SessionLimits) -> Result<(), String> {
    use iscsi_bounds::*;
    let numbers = [
        ("queue_depth", limits.queue_depth.into(), QUEUE_DEPTH),
        (
            "max_recv_data_segment_bytes",
            limits.max_recv_data_segment_bytes.into(),
            LENGTH,
        ),
        ("first_burst_bytes", limits.first_burst_bytes.into(), LENGTH),
        ("max_burst_bytes", limits.max_burst_bytes.into(), LENGTH),
        ("r2ts_max", limits.r2ts_max.into(), R2TS_MAX),
        (
            "error_recovery_level",
            limits.error_recovery_level.into(),
            ERROR_RECOVERY_LEVEL,
        ),
        (
            "connections_max",
            limits.connections_max.into(),
            CONNECTIONS_MAX,
        ),
        ("sessions_max", limits.sessions_max.into(), SESSIONS_MAX),
        (
            "sessions_of_initiator_max",
            limits.sessions_of_initiator_max.into(),
            SESSIONS_MAX,
        ),
        (
            "nop_in_interval_ms",
            limits.nop_in_interval_ms.into(),
            NOP_IN_INTERVAL_MS,
        ),
    ];
    for (key, value, range) in numbers {
        if !range.contains(&value) {
            let (first, last) = (range.start(), range.end());
            return Err(format!("`{key}` is from {first} to {last}, not {value}"));
        }
    }
    match limits.first_burst_bytes > limits.max_burst_bytes {
        true => Err("`first_burst_bytes` is more than `max_burst_bytes`".to_owned()),
        false => Ok(()),
    }
}

/// Initiators that may use a target: each named once for a portal group, in the
/// form in which names are compared.
///
/// # Errors
/// What is wrong with them.
pub fn acl(acl: &[InitiatorAcl]) -> Result<Vec<InitiatorAcl>, String> {
    let mut checked: Vec<InitiatorAcl> = Vec::new();
    for entry in acl {
        let mut entry = entry.clone();
        if let Some(name) = &entry.name {
            let name = iscsi::check_initiator_name(name).map_err(|why| why.to_string())?;
            let is_same = |known: &InitiatorAcl| known.name.as_ref() == Some(&name);
            if checked
                .iter()
                .any(|known| is_same(known) && known.meets(&entry))
            {
                return Err(format!("the initiator {name} is named twice"));
            }
            entry.name = Some(name);
        }
        if let Some(own) = &entry.auth {
            auth(own)?;
        }
        checked.push(entry);
    }
    Ok(checked)
}

/// What is proved at login.
///
/// # Errors
/// What is wrong with it.
pub fn auth(auth: &Auth) -> Result<(), String> {
    for credentials in auth.chap.iter().chain(&auth.mutual) {
        chap_user(&credentials.user)?;
        chap_secret(&credentials.secret)?;
    }
    match (&auth.chap, &auth.mutual) {
        (None, Some(_)) => Err("mutual CHAP is of use only with CHAP".to_owned()),
        (Some(theirs), Some(own)) if theirs.secret == own.secret => {
            Err("both sides prove themselves by one secret: each needs its own".to_owned())
        }
        _ => Ok(()),
    }
}

/// What people call a target (TargetAlias).
///
/// # Errors
/// What it may be.
pub fn alias(alias: &str) -> Result<(), String> {
    match alias.is_empty() || alias.len() > ALIAS_BYTES_MAX || alias.contains(char::is_control) {
        true => Err(format!(
            "`alias` is 1 to {ALIAS_BYTES_MAX} bytes without control characters"
        )),
        false => Ok(()),
    }
}

/// A name by which a side of CHAP is known (CHAP_N).
///
/// # Errors
/// What it may be.
pub fn chap_user(user: &str) -> Result<(), String> {
    let most = auth::chap::NAME_LEN_MAX;
    match user.is_empty() || user.len() > most || user.contains(char::is_control) {
        true => Err(format!(
            "a CHAP user has 1 to {most} bytes without control characters"
        )),
        false => Ok(()),
    }
}

/// A secret for CHAP.
///
/// # Errors
/// How long it may be.
pub fn chap_secret(secret: &Secret) -> Result<(), String> {
    match secret.len() {
        Secret::LEN_MIN..=Secret::LEN_MAX => Ok(()),
        len => Err(format!(
            "a CHAP secret has {} to {} bytes, not {len}; some initiators take 16 at most",
            Secret::LEN_MIN,
            Secret::LEN_MAX
        )),
    }
}

/// A host name or IP address, without a port, that discovery is to name.
///
/// # Errors
/// What it may be.
pub fn host(host: &str) -> Result<(), String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let fits = !host.is_empty() && host.len() <= HOST_BYTES_MAX;
    match host.parse::<IpAddr>() {
        Ok(ip) if ip.is_unspecified() => Err(format!("no host can connect to {ip}")),
        Ok(_) => Ok(()),
        Err(_) if fits && host.chars().all(is_name) => Ok(()),
        Err(_) => Err(format!("\"{host}\" is no IP address and no host name")),
    }
}

/// Whether the kernel would refuse to bind both: `0.0.0.0` takes every IPv4
/// address, `[::]` every IPv6 and every IPv4 address.
#[must_use]
pub fn clash(a: SocketAddr, b: SocketAddr) -> bool {
    let covers = |any: SocketAddr, other: SocketAddr| {
        any.ip().is_unspecified() && (any.is_ipv6() || other.is_ipv4())
    };
    let is_port_shared = a.port() == b.port() && a.port() != 0;
    is_port_shared && (a.ip() == b.ip() || covers(a, b) || covers(b, a))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_of_a_volume_has_one_path_whatever_way_is_given_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("x")).unwrap();
        std::os::unix::fs::symlink(at("x"), at("link")).unwrap();
        let state_of = |name: &str| {
            let spec = Spec {
                state: Some(at(name)),
                ..Spec::new("disk", store::Kind::RAM, 4096, 512)
            };
            files(&spec).remove(0).1
        };
        // There is no such file, then there is one.
        for _ in 0..2 {
            let path = state_of("x/state");
            for name in ["x/../x/state", "./x/state", "link/state", "link/../x/state"] {
                assert_eq!(state_of(name), path, "{name}");
            }
            assert_ne!(state_of("x/other"), path);
            std::fs::write(at("x/state"), "").unwrap();
        }
        // A folder that is not there is found missing when the volume is opened.
        assert_eq!(state_of("no/state"), at("no/state"));
    }
}
