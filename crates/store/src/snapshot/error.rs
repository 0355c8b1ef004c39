//! Why something was not done with snapshots.

use std::io;

use rustix::io::Errno;
use uuid::Uuid;

use super::stream::StreamError;
use crate::problem::remedy;

/// Why something was not done with snapshots, and what to do about it. Volumes come before
/// names of snapshots.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// No snapshot is called so.
    #[error(
        "\"{0}\" is no name of a snapshot: it is 1 to 64 letters, digits, `-`, `_` or `.`, the \
         first a letter or digit"
    )]
    Name(String),
    /// The kind of the volume has none.
    #[error(
        "volume \"{0}\" is of the kind \"{1}\", which has no snapshots: {instead}",
        instead = instead(.1)
    )]
    Kind(String, &'static str),
    /// What hosts write is encrypted on its way to what would be shared.
    #[error(
        "volume \"{0}\" is encrypted, and encrypted volumes have no snapshots: use those of what is \
         below its file (LVM, ZFS, the array), and copy the file with its keys"
    )]
    Encrypted(String),
    /// What is shared would have no checksums.
    #[error(
        "volume \"{0}\" has checksums, and such volumes have no snapshots: use those of what is \
         below its file (LVM, ZFS, the array), which have the file with its checksums, too"
    )]
    Checksummed(String),
    /// One is there already.
    #[error("volume \"{0}\" has a snapshot \"{1}\" already: take another name, or remove that one")]
    Exists(String, String),
    /// There is none of that name.
    #[error(
        "volume \"{0}\" has no snapshot \"{1}\": `weft snapshot list` has those that there are"
    )]
    Unknown(String, String),
    /// There are as many as there may be.
    #[error("volume \"{0}\" has {max} snapshots, as many as there may be: remove one", max = super::SNAPSHOTS_MAX)]
    TooMany(String),
    /// Nothing of the volume is changed.
    #[error("volume \"{0}\" is read only: nothing of it is changed, and so nothing beside it")]
    ReadOnly(String),
    /// A sync of the volume has failed.
    #[error(
        "volume \"{0}\" has lost data that was written, in a sync that failed: check the disk, \
         restart weft, and take the snapshot then"
    )]
    Lost(String),
    /// I/O that is under way takes too long.
    #[error("I/O on volume \"{0}\" does not end: try again when the disk answers")]
    Busy(String),
    /// The file system cannot do it.
    #[error(
        "the file system of volume \"{0}\" cannot share blocks between files ({1}): move the \
         volume's file to one that can: XFS, Btrfs or bcachefs"
    )]
    CannotShare(String, io::Error),
    /// It is not as it was made: why.
    #[error("snapshot \"{1}\" of volume \"{0}\" is damaged: {2}")]
    Damaged(String, String, String),
    /// The volume had another size when it was made.
    #[error(
        "volume \"{volume}\" has {size_bytes} bytes, and had {had_bytes} when its snapshot \
         \"{name}\" was made: set its size to that first (`weft set volume {volume} \
         size={had_bytes}`)"
    )]
    Size {
        /// The volume.
        volume: String,
        /// The snapshot.
        name: String,
        /// What the volume has.
        size_bytes: u64,
        /// What it had.
        had_bytes: u64,
    },
    /// It is a volume of its own.
    #[error(
        "snapshot \"{1}\" of volume \"{0}\" is served as a volume of the kind \"snapshot\": remove \
         that volume first"
    )]
    Served(String, String),
    /// A rollback to it was interrupted.
    #[error(
        "a rollback of volume \"{0}\" to its snapshot \"{1}\" was interrupted: open the volume \
         once without `read_only`, which brings that to its end, or roll it back again"
    )]
    Pending(String, String),
    /// A rollback was interrupted to what is not as it was made: why.
    #[error(
        "a rollback of volume \"{0}\" to its snapshot \"{1}\" was interrupted, and that is damaged: \
         {2}; bring the snapshot back from a backup, or, to have the volume as it is, with something \
         of both, remove the file `.rollback` in the folder of its snapshots"
    )]
    PendingDamaged(String, String, String),
    /// A rollback has failed in its middle.
    #[error(
        "the rollback of volume \"{0}\" to its snapshot \"{1}\" has failed in its middle ({2}{remedy}), \
         and the volume holds something of both: mend what is wrong, then roll it back again or \
         restart weft, which brings it to its end",
        remedy = remedy(.2)
    )]
    HalfRolledBack(String, String, io::Error),
    /// What came is no stream of a snapshot, or of another version.
    #[error("nothing is received for volume \"{0}\": the stream {1}")]
    Stream(String, StreamError),
    /// A stream has ended before its end, up to which byte all was received.
    #[error(
        "snapshot \"{1}\" of volume \"{0}\" is not whole: the stream {3}; what came of it up to byte \
         {2} is kept: `weft snapshot send` of the same with `--from {2}` brings the rest"
    )]
    Cut(String, String, u64, StreamError),
    /// A stream begins behind what was received.
    #[error(
        "the stream of snapshot \"{1}\" begins with byte {2}, and volume \"{0}\" has what comes \
         before byte {3}: send it with `--from {3}`"
    )]
    From(String, String, u64, u64),
    /// A part of another snapshot is there.
    #[error(
        "what volume \"{0}\" has received of a snapshot \"{1}\" is of another one, or since another \
         one: remove that first (`weft snapshot rm {1} {0}`)"
    )]
    OtherPart(String, String),
    /// There are as many as there may be that are not whole.
    #[error(
        "volume \"{0}\" has many snapshots of which a part was received: bring them to their ends, or \
         remove them (`weft snapshot list`)"
    )]
    TooManyParts(String),
    /// Another stream brings it.
    #[error("snapshot \"{1}\" of volume \"{0}\" is being received: let that end first")]
    Receiving(String, String),
    /// The snapshot is not there that a stream holds the changes since.
    #[error(
        "volume \"{0}\" has no whole snapshot with UUID {1}, since which the stream has the changes: \
         receive that first, or send all (without `--since`)"
    )]
    NoBase(String, Uuid),
    /// A stream is of a volume with other blocks.
    #[error(
        "volume \"{0}\" has blocks of {1} bytes, and the volume of snapshot \"{2}\" has blocks of {3}: \
         receive it for a volume with `block_bytes = {3}`"
    )]
    OtherBlocks(String, u32, String, u32),
    /// The operating system refused.
    #[error("cannot {action} of volume \"{volume}\": {source}{}", remedy(source))]
    System {
        /// The volume.
        volume: String,
        /// What was tried, as in "cannot ... of the volume".
        action: String,
        /// Its answer.
        source: io::Error,
    },
}

impl SnapshotError {
    /// Why a snapshot was not made.
    pub(super) fn cannot_make(volume: String, name: &str, error: io::Error) -> SnapshotError {
        match Errno::from_io_error(&error) {
            Some(Errno::OPNOTSUPP | Errno::NOTTY | Errno::XDEV | Errno::NOSYS) => {
                SnapshotError::CannotShare(volume, error)
            }
            _ => SnapshotError::System {
                volume,
                action: format!("make the snapshot \"{name}\""),
                source: error,
            },
        }
    }
}

/// What to do where a kind has no snapshots.
fn instead(kind: &str) -> &'static str {
    match kind {
        "block" => {
            "use those of what is below it (LVM, ZFS, the array), or a `file` volume on XFS, \
             Btrfs or bcachefs"
        }
        "slice" | "concat" | "stripe" | "mirror" | "delay" => {
            "take one of all volumes that it is made of, at once"
        }
        "snapshot" => "it never changes",
        _ => "a `file` volume on XFS, Btrfs or bcachefs has",
    }
}
