//! What an administrator is told of volumes that will not do as they are.

use server::Config;
use store::{MirrorStatus, PathStatus, Volume};

/// A note of each leg of a mirror that has not all of it.
pub(crate) fn notes_of_mirror((volume, mirror): &(String, MirrorStatus)) -> Vec<String> {
    let legs = mirror.legs.iter().filter(|leg| leg.word() != "in-sync");
    let notes = legs.map(|leg| {
        let bytes = leg.missing_bytes;
        let what = match (leg.is_out, mirror.resync_rate) {
            (true, _) => "is out: see to its disk; it is copied to when it answers again",
            (false, 0) => "waits: `resync_rate` is 0",
            (false, _) => "is being copied to",
        };
        format!(
            "volume \"{volume}\": the leg \"{}\" lacks {bytes} bytes and {what}",
            leg.name
        )
    });
    notes.collect()
}

/// What is wrong with the blocks of a volume that has checksums, a line.
pub(crate) fn note_of_mismatches((volume, count): &(String, u64)) -> Option<String> {
    (*count > 0).then(|| {
        format!(
            "volume \"{volume}\": {count} I/Os found a block whose checksum is another than what \
             was written: see to its disk; the log has the first block, with \
             event=checksum-mismatch"
        )
    })
}

/// A note of a way to a volume that another machine keeps, where it is down.
pub(crate) fn note_of_path((volume, path): &(String, PathStatus)) -> Option<String> {
    let why = path.reason.as_deref().unwrap_or("it is not connected");
    (!path.is_live).then(|| {
        format!(
            "volume \"{volume}\": the path {} is down: {why}; it is tried again and again",
            path.address
        )
    })
}

/// Why the keys of volumes cannot be read that a document names, a line each.
pub(crate) fn unread_keys(config: &Config) -> Vec<String> {
    let volumes = config.volumes.iter();
    let lines = volumes.filter_map(|spec| {
        let why = spec.encryption.as_ref()?.unread()?;
        Some(format!("volume \"{}\": {why}", spec.name))
    });
    lines.collect()
}

/// A note of a volume that is locked.
pub(crate) fn note_of_locked(volume: &dyn Volume) -> String {
    format!(
        "volume \"{}\" is locked, and hosts are told that it is not ready: give it its key, or \
         what it is made of, and reload",
        volume.info().name
    )
}
