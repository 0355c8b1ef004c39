//! MOUNT version 3 (RFC 1813, section 5), as generated from a description in
//! `crates/wire/xdr/mount3`. Names are the standard's.

described!("mount3");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::{Decode, Encode, List, Opaque, Reader};

    #[test]
    fn results_lie_as_the_standard_has_them() {
        let res = mountres3::MNT3_OK(mountres3_ok {
            fhandle: Opaque(&[1, 2, 3, 4, 5]),
            auth_flavors: List::Of(&[1, 0]),
        });
        let mut bytes = Vec::new();
        res.encode(&mut bytes);
        let mut expected = vec![0, 0, 0, 0, 0, 0, 0, 5, 1, 2, 3, 4, 5, 0, 0, 0];
        expected.extend([0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(bytes, expected);
        assert_eq!(mountres3::decode(&mut Reader::new(&bytes)), Ok(res));
        let denied = mountres3::default(mountstat3::MNT3ERR_ACCES);
        let mut bytes = Vec::new();
        denied.encode(&mut bytes);
        assert_eq!(bytes, [0, 0, 0, 13]);
    }

    #[test]
    fn exports_are_a_chain_of_chains() {
        // `/a` for `b` and `c`, and `/d` for all.
        let words: [u32; 17] = [
            1,
            2,
            0x2f61_0000,
            1,
            1,
            0x6200_0000,
            1,
            1,
            0x6300_0000,
            0,
            1,
            2,
            0x2f64_0000,
            0,
            0,
            7,
            7,
        ];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let mut from = Reader::new(&bytes);
        let list = exports::decode(&mut from).unwrap();
        assert_eq!(from.rest().len(), 8);
        let node = |node: exportnode<'_>| {
            let groups = node.ex_groups.iter().map(|group| group.gr_name.0.to_vec());
            (node.ex_dir.0.to_vec(), groups.collect::<Vec<_>>())
        };
        let nodes: Vec<_> = list.nodes.iter().map(node).collect();
        let of = |path: &[u8], groups: &[&[u8]]| {
            (path.to_vec(), groups.iter().map(|g| g.to_vec()).collect())
        };
        assert_eq!(nodes, [of(b"/a", &[b"b", b"c"]), of(b"/d", &[])]);
    }
}
