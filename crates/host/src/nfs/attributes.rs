//! Attributes of an object, as far as this client asks for them.

use wire::nfs4::{
    FATTR4_CHANGE, FATTR4_FILEID, FATTR4_MAXREAD, FATTR4_MAXWRITE, FATTR4_MODE, FATTR4_NUMLINKS,
    FATTR4_RDATTR_ERROR, FATTR4_SIZE, FATTR4_SPACE_AVAIL, FATTR4_TYPE, fattr4, nfs_ftype4,
    nfsstat4,
};
use wire::xdr::{Decode, Reader, XdrError};

/// What is asked for, as a bitmap.
pub(super) const ASKED: &[u32] = &[
    bit(FATTR4_TYPE)
        | bit(FATTR4_CHANGE)
        | bit(FATTR4_SIZE)
        | bit(FATTR4_FILEID)
        | bit(FATTR4_MAXREAD)
        | bit(FATTR4_MAXWRITE),
    bit(FATTR4_MODE) | bit(FATTR4_NUMLINKS) | bit(FATTR4_SPACE_AVAIL),
];
/// The same of each entry of a directory: one that is not shown does not hide the others.
pub(super) const ASKED_OF_ENTRIES: &[u32] =
    &[bit(FATTR4_TYPE) | bit(FATTR4_RDATTR_ERROR) | bit(FATTR4_FILEID)];

const fn bit(number: u32) -> u32 {
    1 << (number % 32)
}

/// Attributes of an object; `None` where the server has none such.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// What it is.
    pub kind: Option<nfs_ftype4>,
    /// Of an entry of a directory: why the server does not show the others (`rdattr_error`).
    pub error: Option<nfsstat4>,
    /// Grows with every change.
    pub change: Option<u64>,
    /// Bytes.
    pub size: Option<u64>,
    /// Unique in its file system.
    pub fileid: Option<u64>,
    /// Bytes of one READ.
    pub read_max: Option<u64>,
    /// Bytes of one WRITE.
    pub write_max: Option<u64>,
    /// Permission bits.
    pub mode: Option<u32>,
    /// Names that it has.
    pub links: Option<u32>,
    /// Bytes that may still be written.
    pub space_avail: Option<u64>,
}

impl Attributes {
    /// Reads what was asked for.
    pub(super) fn read(all: &fattr4<'_>) -> Result<Attributes, XdrError> {
        let mut found = Attributes::default();
        let mut from = Reader::new(all.attr_vals.0);
        let from = &mut from;
        for (word, at) in all.attrmask.iter().zip(0..) {
            for bit in (0..32).filter(|bit| word & 1 << bit != 0) {
                match at * 32 + bit {
                    FATTR4_TYPE => found.kind = Some(nfs_ftype4::decode(from)?),
                    FATTR4_RDATTR_ERROR => {
                        let status = nfsstat4::decode(from)?;
                        found.error = Some(status).filter(|status| *status != nfsstat4::NFS4_OK);
                    }
                    FATTR4_CHANGE => found.change = Some(u64::decode(from)?),
                    FATTR4_SIZE => found.size = Some(u64::decode(from)?),
                    FATTR4_FILEID => found.fileid = Some(u64::decode(from)?),
                    FATTR4_MAXREAD => found.read_max = Some(u64::decode(from)?),
                    FATTR4_MAXWRITE => found.write_max = Some(u64::decode(from)?),
                    FATTR4_MODE => found.mode = Some(u32::decode(from)?),
                    FATTR4_NUMLINKS => found.links = Some(u32::decode(from)?),
                    FATTR4_SPACE_AVAIL => found.space_avail = Some(u64::decode(from)?),
                    _ => return Err(XdrError::Value { what: "attribute" }),
                }
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::xdr::{Encode, List, Opaque};

    #[test]
    fn values_come_in_the_order_of_their_numbers() {
        let mut values = Vec::new();
        nfs_ftype4::NF4REG.encode(&mut values);
        9u64.encode(&mut values);
        0o644u32.encode(&mut values);
        let all = |mask| fattr4 {
            attrmask: List::Of(mask),
            attr_vals: Opaque(&values),
        };
        let mask = [bit(FATTR4_TYPE) | bit(FATTR4_SIZE), bit(FATTR4_MODE)];
        let found = Attributes::read(&all(&mask));
        let expected = Attributes {
            kind: Some(nfs_ftype4::NF4REG),
            size: Some(9),
            mode: Some(0o644),
            ..Attributes::default()
        };
        assert_eq!(found, Ok(expected));
        assert!(
            Attributes::read(&all(&[1])).is_err(),
            "that was not asked for"
        );
        assert!(Attributes::read(&all(ASKED)).is_err(), "more than there is");
    }

    #[test]
    fn entry_that_is_not_shown_has_its_status() {
        for (status, error) in [
            (nfsstat4::NFS4_OK, None),
            (nfsstat4::NFS4ERR_WRONGSEC, Some(nfsstat4::NFS4ERR_WRONGSEC)),
        ] {
            let mut values = Vec::new();
            status.encode(&mut values);
            let all = fattr4 {
                attrmask: List::Of(&[bit(FATTR4_RDATTR_ERROR)]),
                attr_vals: Opaque(&values),
            };
            assert_eq!(Attributes::read(&all).map(|found| found.error), Ok(error));
        }
    }
}
