//! NFSv3 and MOUNT (RFC 1813): each procedure, and each way in which it may be
//! refused.

use testkit::nfs::client::unique;
use testkit::nfs::compound::{Credential, ServerUnderTest, Wire};
use wire::mount3::*;
use wire::nfs3::*;
use wire::nfs4::NFS4_PROGRAM;
use wire::xdr::{Decode, Encode, Opaque, Payload, Reader, XdrError, pad};

use mount_proc3::*;
use nfs_proc3::*;
use nfsstat3::*;

/// A client of version 3.
struct Client {
    wire: Wire,
}

/// What came back, and its first word.
struct Answer {
    status: nfsstat3,
    body: Vec<u8>,
}

impl Answer {
    #[track_caller]
    fn is(self, status: nfsstat3) -> Answer {
        assert_eq!(self.status, status);
        self
    }

    #[track_caller]
    fn get<T: for<'a> Decode<'a>>(&self) -> T {
        self.read(|from| T::decode(from))
    }

    #[track_caller]
    fn read<T>(&self, decode: impl FnOnce(&mut Reader<'_>) -> Result<T, XdrError>) -> T {
        let mut from = Reader::new(&self.body);
        nfsstat3::decode(&mut from).expect("a status");
        decode(&mut from).expect("a body")
    }
}

/// Arguments one after the other.
fn args(parts: &[&dyn Encode]) -> Vec<u8> {
    let mut to = Vec::new();
    for part in parts {
        part.encode(&mut to);
    }
    to
}

fn fh(handle: &[u8]) -> Opaque<'_, { NFS3_FHSIZE as usize }> {
    Opaque(handle)
}

fn name(name: &str) -> filename3<'_> {
    Opaque(name.as_bytes())
}

const UNSET: sattr3 = sattr3 {
    mode: None,
    uid: None,
    gid: None,
    size: None,
    atime: set_atime::DONT_CHANGE,
    mtime: set_mtime::DONT_CHANGE,
};

impl Client {
    fn call(&mut self, procedure: nfs_proc3, args: Vec<u8>) -> Answer {
        let body = self.wire.call(
            |call| (call.prog, call.vers, call.proc) = (NFS4_PROGRAM, NFS_V3, procedure as u32),
            &args,
        );
        let status = nfsstat3::decode(&mut Reader::new(&body)).expect("a status");
        Answer { status, body }
    }

    fn mount(&mut self, procedure: mount_proc3, args: &[u8]) -> Vec<u8> {
        self.wire.call(
            |call| (call.prog, call.vers, call.proc) = (MOUNT_PROGRAM, MOUNT_V3, procedure as u32),
            args,
        )
    }

    fn mkdir(&mut self, dir: &[u8], to: &str) -> Answer {
        let what = args(&[&fh(dir), &name(to), &UNSET]);
        self.call(NFSPROC3_MKDIR, what)
    }

    /// The handle of what was made.
    #[track_caller]
    fn made(answer: Answer) -> Vec<u8> {
        answer.is(NFS3_OK).read(|from| {
            let handle = Option::<nfs_fh3<'_>>::decode(from)?.expect("a handle");
            Ok(handle.0.to_vec())
        })
    }

    fn lookup(&mut self, dir: &[u8], to: &str) -> Answer {
        self.call(NFSPROC3_LOOKUP, args(&[&fh(dir), &name(to)]))
    }

    fn attributes(&mut self, handle: &[u8]) -> fattr3 {
        let answer = self.call(NFSPROC3_GETATTR, args(&[&fh(handle)]));
        answer.is(NFS3_OK).get::<fattr3>()
    }

    fn write(&mut self, file: &[u8], offset: u64, how: stable_how, data: &[u8]) -> Answer {
        let len = data.len() as u32;
        let mut what = args(&[&fh(file), &offset, &len, &how, &Payload { len }]);
        what.extend(data);
        what.extend(&[0; 3][..pad(data.len())]);
        self.call(NFSPROC3_WRITE, what)
    }

    fn read(&mut self, file: &[u8], offset: u64, count: u32) -> Answer {
        self.call(NFSPROC3_READ, args(&[&fh(file), &offset, &count]))
    }

    fn create(&mut self, dir: &[u8], to: &str, how: createhow3) -> Answer {
        self.call(NFSPROC3_CREATE, args(&[&fh(dir), &name(to), &how]))
    }
}

/// The data of a READ, and whether it ends there.
fn data(answer: &Answer) -> (Vec<u8>, bool) {
    answer.read(|from| {
        let told = READ3resok::decode(from)?;
        let bytes = from.opaque(told.data.len as usize)?;
        assert_eq!(told.count, told.data.len);
        Ok((bytes.to_vec(), told.eof))
    })
}

fn begin(server: &ServerUnderTest) -> (Client, Vec<u8>) {
    let wire = Wire::new(server);
    let mut client = Client { wire };
    let path = format!("/{}", server.base.join("/"));
    let told = client.mount(MOUNTPROC3_MNT, &args(&[&dirpath_of(&path)]));
    let mountres3::MNT3_OK(told) = mountres3::decode(&mut Reader::new(&told)).expect("mountres3")
    else {
        panic!("not mounted");
    };
    assert!(
        told.auth_flavors.iter().any(|flavor| flavor == 1),
        "AUTH_SYS"
    );
    let root = told.fhandle.0.to_vec();
    let folder = format!("v3-{}-{}", std::process::id(), unique());
    let dir = Client::made(client.mkdir(&root, &folder));
    (client, dir)
}

fn dirpath_of(path: &str) -> Opaque<'_, { MNTPATHLEN as usize }> {
    Opaque(path.as_bytes())
}

pub fn mounts(server: &ServerUnderTest) {
    let (mut client, _) = begin(server);
    client.mount(MOUNTPROC3_NULL, &[]);
    let told = client.mount(MOUNTPROC3_MNT, &args(&[&dirpath_of("/no such thing")]));
    let status = mountstat3::decode(&mut Reader::new(&told)).expect("a status");
    assert!(
        [mountstat3::MNT3ERR_NOENT, mountstat3::MNT3ERR_ACCES].contains(&status),
        "{status:?}"
    );
    let listed = client.mount(MOUNTPROC3_EXPORT, &[]);
    assert!(listed.starts_with(&[0, 0, 0, 1]), "there is an export");
    let listed = client.mount(MOUNTPROC3_DUMP, &[]);
    assert!(listed.starts_with(&[0, 0, 0, 1]), "it has been mounted");
    let path = format!("/{}", server.base.join("/"));
    assert!(
        client
            .mount(MOUNTPROC3_UMNT, &args(&[&dirpath_of(&path)]))
            .is_empty()
    );
    assert!(client.mount(MOUNTPROC3_UMNTALL, &[]).is_empty());
}

pub fn names(server: &ServerUnderTest) {
    let (mut client, dir) = begin(server);
    let sub = Client::made(client.mkdir(&dir, "sub"));
    client.mkdir(&dir, "sub").is(NFS3ERR_EXIST);
    assert_eq!(client.attributes(&sub).type_, ftype3::NF3DIR);
    let file = Client::made(client.create(&dir, "file", createhow3::UNCHECKED(UNSET)));
    client
        .create(&dir, "file", createhow3::UNCHECKED(UNSET))
        .is(NFS3_OK);
    client
        .create(&dir, "file", createhow3::GUARDED(UNSET))
        .is(NFS3ERR_EXIST);
    let first = Client::made(client.create(&dir, "only", createhow3::EXCLUSIVE([5; 8])));
    let again = Client::made(client.create(&dir, "only", createhow3::EXCLUSIVE([5; 8])));
    assert_eq!(first, again);
    client
        .create(&dir, "only", createhow3::EXCLUSIVE([6; 8]))
        .is(NFS3ERR_EXIST);
    let text = Opaque::<{ NFSPATH_BYTES_MAX as usize }>(b"to/there");
    let link = args(&[&fh(&dir), &name("link"), &UNSET, &text]);
    let link = Client::made(client.call(NFSPROC3_SYMLINK, link));
    let told = client
        .call(NFSPROC3_READLINK, args(&[&fh(&link)]))
        .is(NFS3_OK);
    told.read(|from| {
        let told = READLINK3resok::decode(from)?;
        assert_eq!(told.data.0, b"to/there");
        Ok(())
    });
    client
        .call(NFSPROC3_READLINK, args(&[&fh(&file)]))
        .is(NFS3ERR_INVAL);
    let device = devicedata3 {
        dev_attributes: UNSET,
        spec: specdata3 {
            specdata1: 8,
            specdata2: 1,
        },
    };
    for (to, what, kind) in [
        ("fifo", mknoddata3::NF3FIFO(UNSET), ftype3::NF3FIFO),
        ("sock", mknoddata3::NF3SOCK(UNSET), ftype3::NF3SOCK),
        ("chr", mknoddata3::NF3CHR(device), ftype3::NF3CHR),
        ("blk", mknoddata3::NF3BLK(device), ftype3::NF3BLK),
    ] {
        let asked = args(&[&fh(&dir), &name(to), &what]);
        let made = Client::made(client.call(NFSPROC3_MKNOD, asked));
        assert_eq!(client.attributes(&made).type_, kind, "{to}");
    }
    let file_of_mknod = mknoddata3::default(ftype3::NF3REG);
    let asked = args(&[&fh(&dir), &name("x"), &file_of_mknod]);
    client.call(NFSPROC3_MKNOD, asked).is(NFS3ERR_BADTYPE);
    for (dir, to, status) in [
        (&dir, "nothing", NFS3ERR_NOENT),
        (&file, "x", NFS3ERR_NOTDIR),
        (&dir, "", NFS3ERR_INVAL),
        (&dir, &"x".repeat(256), NFS3ERR_NAMETOOLONG),
        (&b"no handle".to_vec(), "x", NFS3ERR_BADHANDLE),
    ] {
        let found = client.lookup(dir, to).status;
        let may = found == status || (to.is_empty() && found != NFS3_OK);
        assert!(may, "LOOKUP {to:.9}: {found:?}");
    }
    assert!(client.lookup(&dir, "..").status == NFS3_OK, "the parent");
    let here = client.lookup(&dir, ".");
    here.is(NFS3_OK);
    let linked = |client: &mut Client, to: &str| {
        client.call(NFSPROC3_LINK, args(&[&fh(&file), &fh(&dir), &name(to)]))
    };
    linked(&mut client, "second").is(NFS3_OK);
    linked(&mut client, "sub").is(NFS3ERR_EXIST);
    assert_eq!(client.attributes(&file).nlink, 2);
    let asked = args(&[&fh(&sub), &fh(&dir), &name("x")]);
    let refused = client.call(NFSPROC3_LINK, asked).status;
    assert!(
        [NFS3ERR_ISDIR, NFS3ERR_INVAL, NFS3ERR_PERM].contains(&refused),
        "{refused:?}"
    );
    let rename = |client: &mut Client, from: &str, to: &str| {
        let asked = args(&[&fh(&dir), &name(from), &fh(&dir), &name(to)]);
        client.call(NFSPROC3_RENAME, asked).status
    };
    assert_eq!(rename(&mut client, "second", "third"), NFS3_OK);
    assert_eq!(rename(&mut client, "nothing", "x"), NFS3ERR_NOENT);
    let kinds = [NFS3ERR_ISDIR, NFS3ERR_EXIST, NFS3ERR_NOTDIR];
    assert!(kinds.contains(&rename(&mut client, "file", "sub")));
    assert!(kinds.contains(&rename(&mut client, "sub", "file")));
    client.mkdir(&sub, "in").is(NFS3_OK);
    let remove = |client: &mut Client, how, what: &str| {
        client.call(how, args(&[&fh(&dir), &name(what)])).status
    };
    assert_eq!(remove(&mut client, NFSPROC3_RMDIR, "sub"), NFS3ERR_NOTEMPTY);
    assert_eq!(remove(&mut client, NFSPROC3_RMDIR, "file"), NFS3ERR_NOTDIR);
    assert_eq!(
        remove(&mut client, NFSPROC3_RMDIR, "nothing"),
        NFS3ERR_NOENT
    );
    let folder = remove(&mut client, NFSPROC3_REMOVE, "sub");
    assert!(
        [NFS3ERR_ISDIR, NFS3ERR_PERM].contains(&folder),
        "{folder:?}"
    );
    assert_eq!(remove(&mut client, NFSPROC3_REMOVE, "third"), NFS3_OK);
    assert_eq!(remove(&mut client, NFSPROC3_REMOVE, "third"), NFS3ERR_NOENT);
    listings(&mut client, &dir);
}

fn listings(client: &mut Client, dir: &[u8]) {
    let mut whole = Vec::new();
    for (plus, count) in [(false, 4096u32), (false, 300), (true, 8192), (true, 600)] {
        let (mut cookie, mut verifier, mut found) = (0u64, [0u8; 8], Vec::new());
        for _ in 0..100 {
            let head = args(&[&fh(dir), &cookie, &Raw(&verifier)]);
            let (procedure, rest) = match plus {
                false => (NFSPROC3_READDIR, args(&[&count])),
                true => (NFSPROC3_READDIRPLUS, args(&[&count, &count])),
            };
            let told = client.call(procedure, [head, rest].concat()).is(NFS3_OK);
            assert!(
                told.body.len() <= count as usize + 8,
                "{} of {count}",
                told.body.len()
            );
            let eof = told.read(|from| {
                Ok(match plus {
                    false => {
                        let told = READDIR3resok::decode(from)?;
                        verifier = told.cookieverf;
                        for entry in told.entries.iter() {
                            found.push(entry.name.0.to_vec());
                            cookie = entry.cookie;
                        }
                        told.eof
                    }
                    true => {
                        let told = READDIRPLUS3resok::decode(from)?;
                        verifier = told.cookieverf;
                        for entry in told.entries.iter() {
                            found.push(entry.name.0.to_vec());
                            cookie = entry.cookie;
                        }
                        told.eof
                    }
                })
            });
            if eof {
                break;
            }
        }
        found.retain(|name| name != b"." && name != b"..");
        found.sort();
        assert!(found.len() >= 7, "{found:?}");
        if whole.is_empty() {
            whole.clone_from(&found);
        }
        assert_eq!(found, whole, "READDIRPLUS: {plus}, {count}");
    }
    let asked = args(&[&fh(dir), &0u64, &Raw(&[0; 8]), &8u32]);
    client.call(NFSPROC3_READDIR, asked).is(NFS3ERR_TOOSMALL);
    let asked = args(&[&fh(dir), &(u64::MAX / 3), &Raw(&[9; 8]), &4096u32]);
    let status = client.call(NFSPROC3_READDIR, asked).status;
    assert!(
        [NFS3ERR_BAD_COOKIE, NFS3ERR_NOT_SYNC].contains(&status),
        "{status:?}"
    );
}

struct Raw<'a>(&'a [u8]);

impl Encode for Raw<'_> {
    fn encode(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(self.0);
    }
}

pub fn content(server: &ServerUnderTest) {
    let (mut client, dir) = begin(server);
    let file = Client::made(client.create(&dir, "file", createhow3::UNCHECKED(UNSET)));
    let mut verifiers = Vec::new();
    for (how, offset) in [
        (stable_how::UNSTABLE, 0),
        (stable_how::DATA_SYNC, 3),
        (stable_how::FILE_SYNC, 6),
    ] {
        let told = client.write(&file, offset, how, b"abc").is(NFS3_OK);
        let told = told.get::<WRITE3resok>();
        assert_eq!(told.count, 3);
        assert!(told.committed as u32 >= how as u32);
        verifiers.push(told.verf);
    }
    let told = client
        .call(NFSPROC3_COMMIT, args(&[&fh(&file), &0u64, &0u32]))
        .is(NFS3_OK);
    verifiers.push(told.get::<COMMIT3resok>().verf);
    assert!(verifiers.windows(2).all(|pair| pair[0] == pair[1]));
    assert_eq!(
        data(&client.read(&file, 0, 99).is(NFS3_OK)),
        (b"abcabcabc".to_vec(), true)
    );
    assert_eq!(
        data(&client.read(&file, 2, 4).is(NFS3_OK)),
        (b"cabc".to_vec(), false)
    );
    assert_eq!(
        data(&client.read(&file, 9, 4).is(NFS3_OK)),
        (Vec::new(), true)
    );
    let large: Vec<u8> = (0..150_000u32).map(|n| (n % 253) as u8).collect();
    client
        .write(&file, 70_001, stable_how::UNSTABLE, &large)
        .is(NFS3_OK);
    assert!(data(&client.read(&file, 70_001, 150_000).is(NFS3_OK)).0 == large);
    client.read(&dir, 0, 1).is(NFS3ERR_ISDIR);
    client
        .write(&dir, 0, stable_how::UNSTABLE, b"x")
        .is(NFS3ERR_ISDIR);
    let far = client
        .write(&file, u64::MAX - 4, stable_how::UNSTABLE, b"x")
        .status;
    assert!([NFS3ERR_FBIG, NFS3ERR_INVAL].contains(&far), "{far:?}");
    let before = client.attributes(&file);
    let set = |client: &mut Client, change: sattr3, guard: Option<nfstime3>| {
        let asked = args(&[&fh(&file), &change, &guard]);
        client.call(NFSPROC3_SETATTR, asked).status
    };
    let mode = sattr3 {
        mode: Some(0o640),
        size: Some(5),
        ..UNSET
    };
    let other = nfstime3 {
        seconds: 1,
        nseconds: 1,
    };
    assert_eq!(set(&mut client, mode, Some(other)), NFS3ERR_NOT_SYNC);
    assert_eq!(set(&mut client, mode, Some(before.ctime)), NFS3_OK);
    let after = client.attributes(&file);
    assert_eq!((after.mode & 0o7777, after.size), (0o640, 5));
    client.wire.credential = Credential::user(1000);
    let status = set(&mut client, mode, None);
    assert!(
        [NFS3ERR_PERM, NFS3ERR_ACCES].contains(&status),
        "{status:?}"
    );
    client.read(&file, 0, 1).is(NFS3ERR_ACCES);
    let told = client
        .call(NFSPROC3_ACCESS, args(&[&fh(&file), &0x3fu32]))
        .is(NFS3_OK);
    assert_eq!(told.get::<ACCESS3resok>().access, 0);
    client.wire.credential = Credential::user(0);
    let told = client.call(NFSPROC3_FSSTAT, args(&[&fh(&dir)])).is(NFS3_OK);
    let told = told.get::<FSSTAT3resok>();
    assert!(told.tbytes >= told.fbytes && told.fbytes >= told.abytes && told.abytes > 0);
    let told = client.call(NFSPROC3_FSINFO, args(&[&fh(&dir)])).is(NFS3_OK);
    let told = told.get::<FSINFO3resok>();
    assert!(told.rtmax >= 65_536 && told.wtmax >= 65_536 && told.maxfilesize > 1 << 32);
    let told = client
        .call(NFSPROC3_PATHCONF, args(&[&fh(&dir)]))
        .is(NFS3_OK);
    let told = told.get::<PATHCONF3resok>();
    assert!(told.name_max == 255 && told.no_trunc && told.case_preserving);
    let asked = args(&[&fh(&dir), &name("file")]);
    client.call(NFSPROC3_REMOVE, asked).is(NFS3_OK);
    client.read(&file, 0, 1).is(NFS3ERR_STALE);
}
