//! Access control lists as clients of NFSv4 and of NFSACL send them: whatever they are, the list
//! that is told goes with the mode, and is taken again as it was told.

use testkit::nfs::compound::{
    Attributes, CompoundAnswer, Credential, Ops, compound_args, header, ops,
};
use wire::nfs3::{
    GETACL3args, GETACL3res, NFS_ACL, NFS_ACL_PROGRAM, NFS_ACL_V3, NFS_DFACL, nfsacl_proc3,
};
use wire::nfs4::{
    ACES_MAX, FATTR4_ACL, FATTR4_MODE, OWNER_BYTES_MAX, createtype4, nfsace4, nfsstat4, stateid4,
};
use wire::xdr::{Decode, Encode, List, Opaque, Reader};

use super::nfs_compounds::served;
use super::records;
use crate::nfsd::NfsdDouble;

/// The record is about the directory, not the file.
const DIRECTORY: u8 = 1 << 2;
/// Bytes of an entry that is made of an input.
const ENTRY_BYTES: usize = 6;
const ENTRIES_MAX: usize = 128;

struct AclClient {
    server: NfsdDouble,
    conn: usize,
    xid: u32,
    /// The file and the directory.
    objects: [Vec<u8>; 2],
}

struct Raw<'a>(&'a [u8]);

impl Encode for Raw<'_> {
    fn encode(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(self.0);
    }
}

const ANONYMOUS: stateid4 = stateid4 {
    seqid: 0,
    other: [0; 12],
};

impl AclClient {
    fn new() -> AclClient {
        let mut server = served();
        let conn = server.connect("192.0.2.1:700".parse().expect("an address"));
        let mut client = AclClient {
            server,
            conn,
            xid: 0,
            objects: Default::default(),
        };
        for (at, kind) in [createtype4::NF4FIFO, createtype4::NF4DIR]
            .into_iter()
            .enumerate()
        {
            let name = ["file", "dir"][at];
            let made = ops().root().create(kind, name, &Attributes::mode(0o750));
            client.objects[at] = client.compound(&made.getfh()).ok().handle();
        }
        client
    }

    /// The results of a call, or nothing where its arguments are none.
    fn call(&mut self, (program, version, procedure): (u32, u32, u32), args: &[u8]) -> Vec<u8> {
        self.xid += 1;
        let head = header(self.xid, &Credential::user(0), |call| {
            (call.prog, call.vers, call.proc) = (program, version, procedure);
        });
        let answer = self.server.call(self.conn, &[&head[..], args].concat());
        assert_eq!(answer[..4], self.xid.to_be_bytes());
        // A reply that was accepted, without a verifier, and succeeded.
        let succeeded = [1, 0, 0, 0, 0].map(|last| [0, 0, 0, last]).concat();
        match answer[4..24] == succeeded {
            true => answer[24..].to_vec(),
            false => Vec::new(),
        }
    }

    fn compound(&mut self, asked: &Ops) -> CompoundAnswer {
        let args = compound_args(0, asked);
        CompoundAnswer::read(&self.call((100_003, 4, 1), &args))
    }

    fn set(&mut self, object: &[u8], list: &[u8]) -> nfsstat4 {
        let attributes = Attributes::of(FATTR4_ACL, &Raw(list));
        let asked = ops().fh(object).setattr(ANONYMOUS, &attributes);
        self.compound(&asked).status
    }

    /// The mode and the list that an object has.
    fn told(&mut self, object: &[u8]) -> (u32, Vec<u8>) {
        let asked = ops().fh(object).getattr(&[FATTR4_MODE]);
        let mode = self.compound(&asked).ok().attribute();
        let asked = ops().fh(object).getattr(&[FATTR4_ACL]);
        (mode, self.compound(&asked).ok().attributes().1)
    }

    fn check(&mut self, object: &[u8]) {
        let (mode, list) = self.told(object);
        let mut from = Reader::new(&list);
        let aces = List::<'_, nfsace4<'_>, { ACES_MAX as usize }>::decode(&mut from);
        let aces = aces.expect("a list that is told");
        assert!(from.rest().is_empty() && mode <= 0o7777);
        if aces.len() <= ENTRIES_MAX {
            assert_eq!(self.set(object, &list), nfsstat4::NFS4_OK);
            assert_eq!(self.told(object), (mode, list));
        }
        let args = GETACL3args {
            fh: Opaque(object),
            mask: NFS_ACL | NFS_DFACL,
        };
        let mut bytes = Vec::new();
        args.encode(&mut bytes);
        let procedure = nfsacl_proc3::ACLPROC3_GETACL as u32;
        let results = self.call((NFS_ACL_PROGRAM, NFS_ACL_V3, procedure), &bytes);
        let told = GETACL3res::decode(&mut Reader::new(&results));
        assert!(matches!(told, Ok(GETACL3res::NFS3_OK(_))), "{told:?}");
    }
}

/// Entries that are most often right.
fn entries(bytes: &[u8]) -> Vec<u8> {
    const NAMES: [&[u8]; 8] = [
        b"OWNER@",
        b"GROUP@",
        b"EVERYONE@",
        b"1000",
        b"0",
        b"4294967295",
        b"nobody@here",
        b"",
    ];
    let ace = |bytes: &[u8]| nfsace4 {
        type_: u32::from(bytes[0] & 1) + u32::from(bytes[0] >> 7),
        flag: u32::from(bytes[1] & 0x4f),
        access_mask: u32::from_be_bytes([0, bytes[2] & 0x1f, bytes[3] & 1, bytes[4]]),
        who: Opaque::<{ OWNER_BYTES_MAX as usize }>(NAMES[usize::from(bytes[5] % 8)]),
    };
    let aces: Vec<nfsace4<'_>> = bytes.chunks_exact(ENTRY_BYTES).map(ace).collect();
    let mut list = Vec::new();
    List::<'_, _, { ACES_MAX as usize }>::Of(&aces).encode(&mut list);
    list
}

/// Each record sets a list, as its bytes are or of entries that are made of them, by NFSv4 or
/// NFSACL, or a mode; and it makes something in the directory.
pub fn nfs_acls(input: &[u8]) {
    let mut client = AclClient::new();
    for (at, (mode, bytes)) in records(input).take(64).enumerate() {
        let object = client.objects[usize::from(mode & DIRECTORY != 0)].clone();
        match mode & 3 {
            0 => drop(client.set(&object, bytes)),
            1 => drop(client.set(&object, &entries(bytes))),
            2 => {
                let mut args = Vec::new();
                Opaque::<64>(&object).encode(&mut args);
                args.extend_from_slice(bytes);
                let procedure = nfsacl_proc3::ACLPROC3_SETACL as u32;
                client.call((NFS_ACL_PROGRAM, NFS_ACL_V3, procedure), &args);
            }
            _ => {
                let bits = bytes
                    .iter()
                    .fold(0, |bits, &byte| bits << 8 | u32::from(byte));
                let attributes = Attributes::mode(bits & 0o7777);
                let asked = ops().fh(&object).setattr(ANONYMOUS, &attributes);
                client.compound(&asked).ok();
            }
        }
        client.check(&object);
        let below = ops().fh(&client.objects[1].clone());
        let (name, attributes) = (format!("{at}"), Attributes::mode(u32::from(mode)));
        let kind = if mode & 8 == 0 {
            createtype4::NF4DIR
        } else {
            createtype4::NF4SOCK
        };
        let made = client.compound(&below.create(kind, &name, &attributes).getfh());
        let made = made.ok().handle();
        client.check(&made);
    }
}
