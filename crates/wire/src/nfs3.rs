//! NFS version 3 (RFC 1813), as generated from descriptions in
//! `crates/wire/xdr/nfs3`. Names are the standard's.

described!("nfs3");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::{Decode, Encode, Opaque, Payload, Reader};

    fn words(value: &impl Encode) -> Vec<u32> {
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        let word = |word: &[u8]| u32::from_be_bytes(word.try_into().unwrap());
        bytes.chunks(4).map(word).collect()
    }

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn attributes_lie_as_the_standard_has_them() {
        let time = |seconds| nfstime3 {
            seconds,
            nseconds: seconds + 1,
        };
        let attr = fattr3 {
            type_: ftype3::NF3LNK,
            mode: 2,
            nlink: 3,
            uid: 4,
            gid: 5,
            size: 6 << 32 | 7,
            used: 8 << 32 | 9,
            rdev: specdata3 {
                specdata1: 10,
                specdata2: 11,
            },
            fsid: 12 << 32 | 13,
            fileid: 14 << 32 | 15,
            atime: time(16),
            mtime: time(18),
            ctime: time(20),
        };
        let mut expected: Vec<u32> = (1..=21).collect();
        expected[0] = 5;
        assert_eq!(words(&attr), expected);
        let wcc = wcc_data {
            before: None,
            after: Some(attr),
        };
        assert_eq!(words(&wcc)[..3], [0, 1, 5]);
    }

    #[test]
    fn attributes_to_set_are_each_marked() {
        let set = sattr3 {
            mode: Some(7),
            uid: None,
            gid: Some(9),
            size: Some(1 << 32),
            atime: set_atime::SET_TO_SERVER_TIME,
            mtime: set_mtime::SET_TO_CLIENT_TIME(nfstime3 {
                seconds: 5,
                nseconds: 6,
            }),
        };
        let expected = [1, 7, 0, 1, 9, 1, 1, 0, 1, 2, 5, 6];
        assert_eq!(words(&set), expected);
        let read = sattr3::decode(&mut Reader::new(&bytes(&expected)));
        assert_eq!(read, Ok(set));
    }

    #[test]
    fn a_write_ends_before_its_data() {
        let sent = bytes(&[4, 0x0102_0304, 0, 77, 3, 2, 3]);
        let mut from = Reader::new(&sent);
        let args = WRITE3args {
            file: Opaque(&[1, 2, 3, 4]),
            offset: 77,
            count: 3,
            stable: stable_how::FILE_SYNC,
            data: Payload { len: 3 },
        };
        assert_eq!(WRITE3args::decode(&mut from), Ok(args));
        assert!(from.rest().is_empty());
        let long = bytes(&[65]);
        assert!(GETATTR3args::decode(&mut Reader::new(&long)).is_err());
    }

    #[test]
    fn entries_follow_each_other_until_there_are_no_more() {
        // No attributes, a verifier, one entry, no more, the end.
        let sent = bytes(&[0, 0, 8, 1, 0, 9, 1, 0x6100_0000, 0, 3, 0, 1]);
        let res = READDIR3resok::decode(&mut Reader::new(&sent)).unwrap();
        let entries: Vec<entry3<'_>> = res.entries.iter().collect();
        let entry = entry3 {
            fileid: 9,
            name: Opaque(b"a"),
            cookie: 3,
        };
        assert_eq!((entries, res.eof), (vec![entry], true));
        assert_eq!(res.cookieverf, [0, 0, 0, 0, 0, 0, 0, 8]);
    }
}
