//! NFSv3 and MOUNT, driven as a client drives them: records in, records out.

#![forbid(unsafe_code)]

mod acls;
mod attributes;
mod content;
mod mounting;
mod naming;
mod portmap;
mod pseudo;
mod quotas;
mod twice;

use std::net::SocketAddr;
use std::sync::Arc;

use doubles::nfsd::NfsdDouble;
use nfs::connection::Flavor;
use nfsd::exports::{ClientName, Clients, Export, Exports, Rule, Squash};
use nfsd::handle::Handle;
use nfsd::{Nfsd, NfsdSettings};
use proptest::prelude::*;
use store::fs::{FileSystem, Memory, Time};
use testkit::nfs::call::{call_header, write3};
use wire::mount3::{MOUNT_PROGRAM, dirpath, mount_proc3, mountres3, mountstat3};
use wire::nfs3::*;
use wire::nfs4::NFS4_PROGRAM;
use wire::rpc::{AUTH_NONE, AUTH_SYS, accept_stat, auth_stat, authsys_parms};
use wire::xdr::{Decode, Encode, List, Opaque, Payload, Reader};

type Fh = Vec<u8>;

const MIB: u64 = 1 << 20;

/// A server of one file system with several exports, and a client of it.
struct World {
    server: NfsdDouble,
    fs: Arc<dyn FileSystem>,
    conn: usize,
    xid: u32,
    /// The user and group that call; `None` calls with AUTH_NONE.
    caller: Option<(u32, u32)>,
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn memory(bytes: u64, instance: u64) -> Arc<dyn FileSystem> {
    let now = Time {
        seconds: 77,
        nanos: 5,
    };
    Arc::new(Memory::new("m", bytes, instance, now).unwrap())
}

fn rule(change: impl FnOnce(&mut Rule)) -> Vec<Rule> {
    let mut rule = Rule {
        squash: Squash::None,
        ..Rule::default()
    };
    change(&mut rule);
    vec![rule]
}

fn world() -> World {
    let fs = memory(256 * MIB, 9);
    let net = ClientName::Net("10.0.0.0/8".parse().unwrap());
    let certificate = ClientName::Certificate(format!("URI:{}", "x".repeat(1000)));
    let exports = vec![
        Export::new("/pub", fs.clone(), rule(|_| {})),
        Export::new("/in/ro", fs.clone(), rule(|rule| rule.is_read_only = true)),
        Export::new(
            "/in/root",
            fs.clone(),
            rule(|rule| rule.squash = Squash::Root),
        ),
        Export::new(
            "/in/all",
            fs.clone(),
            rule(|rule| {
                rule.squash = Squash::All;
                rule.flavors = vec![Flavor::Sys, Flavor::None];
            }),
        ),
        Export::new(
            "/closed",
            fs.clone(),
            rule(|rule| rule.clients = Clients::Named(vec![net, certificate])),
        ),
    ];
    let exports = exports.into_iter().map(Result::unwrap).collect();
    let exports = Exports::new(exports, Time::default()).unwrap();
    let nfsd = Nfsd::new(NfsdSettings::default(), 3, [], exports, 0);
    let mut server = NfsdDouble::new(nfsd, 64 << 20);
    let conn = server.connect(address("192.0.2.1:700"));
    World {
        server,
        fs,
        conn,
        xid: 100,
        caller: Some((0, 0)),
    }
}

fn decoded<T: for<'a> Decode<'a>>(bytes: &[u8]) -> T {
    let mut from = Reader::new(bytes);
    let value = T::decode(&mut from).expect("a result");
    assert!(from.rest().is_empty(), "nothing behind the results");
    value
}

impl World {
    /// The bytes of a call without its arguments.
    fn header(&mut self, (program, procedure): (u32, u32)) -> Vec<u8> {
        self.xid += 1;
        let mut sys = Vec::new();
        let (uid, gid) = self.caller.unwrap_or_default();
        authsys_parms {
            stamp: 0,
            machinename: Opaque(b"client"),
            uid,
            gid,
            gids: List::Of(&[]),
        }
        .encode(&mut sys);
        let body = match self.caller {
            Some(_) => sys,
            None => Vec::new(),
        };
        let flavor = if self.caller.is_some() {
            AUTH_SYS
        } else {
            AUTH_NONE
        };
        testkit::nfs::call::call_header_as(self.xid, &body, |call| {
            (call.prog, call.vers, call.proc) = (program, 3, procedure);
            call.cred.flavor = flavor;
        })
    }

    fn record(&mut self, procedure: nfs_proc3, args: &impl Encode) -> Vec<u8> {
        let mut record = self.header((NFS4_PROGRAM, procedure as u32));
        args.encode(&mut record);
        record
    }

    /// Sends a record, and cuts the header off its answer, which must say that
    /// the call was accepted and succeeded.
    fn results(&mut self, record: &[u8]) -> Vec<u8> {
        let answer = self.server.call(self.conn, record);
        let header: Vec<u8> = [
            u32::from_be_bytes(record[..4].try_into().unwrap()),
            1,
            0,
            0,
            0,
            0,
        ]
        .iter()
        .flat_map(|word| word.to_be_bytes())
        .collect();
        assert_eq!(answer[..24], header);
        answer[24..].to_vec()
    }

    /// A call and the bytes of its results.
    fn raw(&mut self, procedure: nfs_proc3, args: &impl Encode) -> Vec<u8> {
        let record = self.record(procedure, args);
        self.results(&record)
    }

    fn call<T: for<'a> Decode<'a>>(&mut self, procedure: nfs_proc3, args: &impl Encode) -> T {
        decoded(&self.raw(procedure, args))
    }

    fn mount_raw(&mut self, procedure: mount_proc3, args: &impl Encode) -> Vec<u8> {
        let mut record = self.header((MOUNT_PROGRAM, procedure as u32));
        args.encode(&mut record);
        self.results(&record)
    }

    fn mount(&mut self, path: &str) -> Result<Fh, mountstat3> {
        let path: dirpath<'_> = Opaque(path.as_bytes());
        let bytes = self.mount_raw(mount_proc3::MOUNTPROC3_MNT, &path);
        match mountres3::decode(&mut Reader::new(&bytes)).unwrap() {
            mountres3::MNT3_OK(info) => Ok(info.fhandle.0.to_vec()),
            mountres3::default(status) => Err(status),
        }
    }

    fn root(&mut self) -> Fh {
        self.mount("/pub").expect("exported")
    }

    fn getattr(&mut self, file: &Fh) -> Result<fattr3, nfsstat3> {
        let object = Opaque(&file[..]);
        match self.call(nfs_proc3::NFSPROC3_GETATTR, &GETATTR3args { object }) {
            GETATTR3res::NFS3_OK(attr) => Ok(attr),
            GETATTR3res::default(status) => Err(status),
        }
    }

    fn lookup(&mut self, dir: &Fh, name: &str) -> Result<Fh, nfsstat3> {
        let what = named(dir, name);
        let bytes = self.raw(nfs_proc3::NFSPROC3_LOOKUP, &LOOKUP3args { what });
        match LOOKUP3res::decode(&mut Reader::new(&bytes)).unwrap() {
            LOOKUP3res::NFS3_OK(found) => {
                let object = found.object.0.to_vec();
                assert_eq!(found.obj_attributes, self.getattr(&object).ok());
                assert_eq!(found.dir_attributes, self.getattr(dir).ok());
                Ok(object)
            }
            LOOKUP3res::default(status, dir_attributes) => {
                assert_eq!(dir_attributes, self.getattr(dir).ok());
                Err(status)
            }
        }
    }

    /// CREATE, MKDIR, SYMLINK or MKNOD. What it answers of the directory is
    /// checked.
    fn make(&mut self, procedure: nfs_proc3, dir: &Fh, args: &impl Encode) -> Result<Fh, nfsstat3> {
        let before = self.getattr(dir).ok();
        let bytes = self.raw(procedure, args);
        match CREATE3res::decode(&mut Reader::new(&bytes)).unwrap() {
            CREATE3res::NFS3_OK(made) => {
                let object = made.obj.expect("a handle").0.to_vec();
                assert_eq!(made.obj_attributes, self.getattr(&object).ok());
                self.check_wcc(&made.dir_wcc, before, dir, true);
                Ok(object)
            }
            CREATE3res::default(status, wcc) => {
                self.check_wcc(&wcc, before, dir, false);
                Err(status)
            }
        }
    }

    /// The `wcc_data` of an object, which was so before, must be right; all of it,
    /// where the call succeeded.
    fn check_wcc(&mut self, wcc: &wcc_data, before: Option<fattr3>, file: &Fh, is_ok: bool) {
        let told = before.map(|attr| wcc_attr {
            size: attr.size,
            mtime: attr.mtime,
            ctime: attr.ctime,
        });
        assert!(!is_ok || wcc.before.is_some());
        assert!(wcc.before.is_none() || wcc.before == told);
        assert!(!is_ok || wcc.after.is_some());
        assert!(wcc.after.is_none() || wcc.after == self.getattr(file).ok());
    }

    fn create(&mut self, dir: &Fh, name: &str, how: createhow3) -> Result<Fh, nfsstat3> {
        let where_ = named(dir, name);
        let args = CREATE3args { where_, how };
        self.make(nfs_proc3::NFSPROC3_CREATE, dir, &args)
    }

    /// A new file that all users may read and write.
    fn file(&mut self, dir: &Fh, name: &str) -> Fh {
        let how = createhow3::GUARDED(with_mode(0o666));
        self.create(dir, name, how).expect("a new file")
    }

    fn mkdir(&mut self, dir: &Fh, name: &str, mode: u32) -> Result<Fh, nfsstat3> {
        let args = MKDIR3args {
            where_: named(dir, name),
            attributes: with_mode(mode),
        };
        self.make(nfs_proc3::NFSPROC3_MKDIR, dir, &args)
    }

    /// REMOVE or RMDIR.
    fn remove(&mut self, procedure: nfs_proc3, dir: &Fh, name: &str) -> nfsstat3 {
        let before = self.getattr(dir).ok();
        let object = named(dir, name);
        let res: WCC3res = self.call(procedure, &REMOVE3args { object });
        self.check_wcc(&res.wcc, before, dir, res.status == nfsstat3::NFS3_OK);
        res.status
    }

    fn setattr(&mut self, file: &Fh, set: sattr3, guard: Option<nfstime3>) -> nfsstat3 {
        let before = self.getattr(file).ok();
        let args = SETATTR3args {
            object: Opaque(file),
            new_attributes: set,
            guard,
        };
        let res: WCC3res = self.call(nfs_proc3::NFSPROC3_SETATTR, &args);
        self.check_wcc(&res.wcc, before, file, res.status == nfsstat3::NFS3_OK);
        res.status
    }

    fn write(&mut self, file: &Fh, offset: u64, data: &[u8]) -> Result<u32, nfsstat3> {
        let before = self.getattr(file).ok();
        let mut record = self.header((NFS4_PROGRAM, 7));
        let (wire, _) = write3(0, file, offset, data);
        record.extend(&wire[call_header(0, |_| {}).len()..]);
        match decoded(&self.results(&record)) {
            WRITE3res::NFS3_OK(res) => {
                assert_eq!(res.committed, stable_how::FILE_SYNC);
                self.check_wcc(&res.file_wcc, before, file, true);
                Ok(res.count)
            }
            WRITE3res::default(status, wcc) => {
                self.check_wcc(&wcc, before, file, false);
                Err(status)
            }
        }
    }

    /// The data, and whether the file ends there.
    fn read(&mut self, file: &Fh, offset: u64, count: u32) -> Result<(Vec<u8>, bool), nfsstat3> {
        let args = READ3args {
            file: Opaque(file),
            offset,
            count,
        };
        let bytes = self.raw(nfs_proc3::NFSPROC3_READ, &args);
        let mut from = Reader::new(&bytes);
        match READ3res::decode(&mut from).unwrap() {
            READ3res::NFS3_OK(res) => {
                assert_eq!(res.data, Payload { len: res.count });
                assert_eq!(res.file_attributes, self.getattr(file).ok());
                let data = from.opaque(res.count as usize).unwrap().to_vec();
                assert!(from.rest().is_empty());
                Ok((data, res.eof))
            }
            READ3res::default(status, attr) => {
                assert_eq!(attr, self.getattr(file).ok());
                Err(status)
            }
        }
    }
}

fn named<'a>(dir: &'a Fh, name: &'a str) -> diropargs3<'a> {
    diropargs3 {
        dir: Opaque(dir),
        name: Opaque(name.as_bytes()),
    }
}

fn nothing() -> sattr3 {
    sattr3 {
        mode: None,
        uid: None,
        gid: None,
        size: None,
        atime: set_atime::DONT_CHANGE,
        mtime: set_mtime::DONT_CHANGE,
    }
}

fn with_mode(mode: u32) -> sattr3 {
    sattr3 {
        mode: Some(mode),
        ..nothing()
    }
}

fn with_size(size: u64) -> sattr3 {
    sattr3 {
        size: Some(size),
        ..nothing()
    }
}

#[test]
fn malformed_arguments_are_refused() {
    let mut world = world();
    let root = world.root();
    for procedure in (1..=21).filter(|procedure| *procedure != 7) {
        for args in [&[][..], &[0, 0, 0, 65], &[0, 0, 0, 24, 1]] {
            let mut record = world.header((NFS4_PROGRAM, procedure));
            record.extend(args);
            let answer = world.server.call(world.conn, &record);
            let words = [1, 0, 0, 0, accept_stat::GARBAGE_ARGS as u32];
            let expected: Vec<u8> = words
                .iter()
                .flat_map(|word: &u32| word.to_be_bytes())
                .collect();
            assert_eq!(answer[4..], expected, "procedure {procedure}");
        }
    }
    // A WRITE that says that there is more data than comes.
    let mut record = world.header((NFS4_PROGRAM, 7));
    let (wire, _) = write3(0, &root, 0, &[1; 40]);
    record.extend(&wire[call_header(0, |_| {}).len()..wire.len() - 20]);
    let answer = world.server.call(world.conn, &record);
    assert_eq!(answer[20..], [0, 0, 0, accept_stat::GARBAGE_ARGS as u8]);
    // MOUNT too.
    let record = world.header((MOUNT_PROGRAM, 1));
    let answer = world.server.call(world.conn, &record);
    assert_eq!(answer[20..], [0, 0, 0, accept_stat::GARBAGE_ARGS as u8]);
}

#[test]
fn stale_handles_and_bad_handles_are_told_apart() {
    let mut world = world();
    let root = world.root();
    let Some(Handle::File {
        export,
        instance,
        file,
        ..
    }) = Handle::decode(&root)
    else {
        panic!("a handle");
    };
    let exports = world.server.nfsd.exports.load();
    let key = (exports.iter().next().unwrap().fs().unwrap().info()).handle_key;
    let other = |export, instance, file| {
        let file = store::fs::FileId(file);
        let handle = Handle::file(export, instance, file, key);
        handle.encode().to_vec()
    };
    let pseudo = Handle::Pseudo(store::fs::FileId(3)).encode().to_vec();
    let closed = Export::new("/closed", memory(MIB, 9), Vec::new())
        .unwrap()
        .id();
    let cases = [
        (vec![], nfsstat3::NFS3ERR_BADHANDLE),
        (vec![7; 24], nfsstat3::NFS3ERR_BADHANDLE),
        (root[..23].to_vec(), nfsstat3::NFS3ERR_BADHANDLE),
        (pseudo, nfsstat3::NFS3ERR_STALE),
        (
            other(export, instance, file.0 + 999),
            nfsstat3::NFS3ERR_STALE,
        ),
        (other(export, instance + 1, file.0), nfsstat3::NFS3ERR_STALE),
        (other(export ^ 1, instance, file.0), nfsstat3::NFS3ERR_STALE),
        // The same file by an export that this client may not use.
        (other(closed, instance, file.0), nfsstat3::NFS3ERR_STALE),
    ];
    for (handle, status) in cases {
        assert_eq!(world.getattr(&handle), Err(status), "{handle:?}");
        assert_eq!(
            world.remove(nfs_proc3::NFSPROC3_REMOVE, &handle, "x"),
            status
        );
        assert_eq!(world.read(&handle, 0, 10), Err(status));
        assert_eq!(world.write(&handle, 0, b"x"), Err(status));
    }
    let gone = world.file(&root, "f");
    assert_eq!(
        world.remove(nfs_proc3::NFSPROC3_REMOVE, &root, "f"),
        nfsstat3::NFS3_OK
    );
    assert_eq!(world.getattr(&gone), Err(nfsstat3::NFS3ERR_STALE));
    // A client that the rule names may use the export.
    world.conn = world.server.connect(address("10.1.2.3:700"));
    assert!(world.getattr(&other(closed, instance, file.0)).is_ok());
}

#[test]
fn access_follows_the_user_the_squash_and_the_flavor() {
    let mut world = world();
    let root = world.root();
    let file = world.file(&root, "f");
    world.setattr(&file, with_mode(0o600), None);
    let by_all = world.mount("/in/all").unwrap();
    let by_root = world.mount("/in/root").unwrap();
    let by_ro = world.mount("/in/ro").unwrap();
    let private = world.mkdir(&root, "private", 0o700).unwrap();
    let open = world.mkdir(&root, "open", 0o777).unwrap();
    drop(private);
    // As user 0, where the rule does not squash, and where it does.
    for (dir, expected) in [
        (&root, true),
        (&by_root, false),
        (&by_all, false),
        (&by_ro, true),
    ] {
        let found = world.lookup(dir, "private").unwrap();
        assert_eq!(
            world.lookup(&found, "x").err(),
            Some(match expected {
                true => nfsstat3::NFS3ERR_NOENT,
                false => nfsstat3::NFS3ERR_ACCES,
            })
        );
        let file = world.lookup(dir, "f").unwrap();
        assert_eq!(world.read(&file, 0, 1).is_ok(), expected);
    }
    // What is made belongs to the user after squashing.
    let owner = |world: &mut World, by: &Fh, name: &str| {
        let dir = world.lookup(by, "open").unwrap();
        let file = world.file(&dir, name);
        let attr = world.getattr(&file).unwrap();
        (attr.uid, attr.gid)
    };
    assert_eq!(owner(&mut world, &root, "a"), (0, 0));
    assert_eq!(owner(&mut world, &by_root, "b"), (65_534, 65_534));
    world.caller = Some((7, 8));
    assert_eq!(owner(&mut world, &by_root, "c"), (7, 8));
    assert_eq!(owner(&mut world, &by_all, "d"), (65_534, 65_534));
    // The owner writes whatever the mode says; others do not.
    let own = world.lookup(&open, "c").unwrap();
    assert_eq!(world.setattr(&own, with_mode(0), None), nfsstat3::NFS3_OK);
    assert_eq!(world.write(&own, 0, b"mine"), Ok(4));
    assert_eq!(world.read(&own, 0, 9), Ok((b"mine".to_vec(), true)));
    world.caller = Some((9, 9));
    assert_eq!(world.write(&own, 0, b"x"), Err(nfsstat3::NFS3ERR_ACCES));
    assert_eq!(world.read(&own, 0, 9), Err(nfsstat3::NFS3ERR_ACCES));
    // AUTH_NONE, where the export takes it.
    world.caller = None;
    assert_eq!(owner(&mut world, &by_all, "e"), (65_534, 65_534));
    let object = Opaque(&root[..]);
    let record = world.record(nfs_proc3::NFSPROC3_GETATTR, &GETATTR3args { object });
    let answer = world.server.call(world.conn, &record);
    let words = [1, 1, 1, auth_stat::AUTH_TOOWEAK as u32];
    let expected: Vec<u8> = words
        .iter()
        .flat_map(|word: &u32| word.to_be_bytes())
        .collect();
    assert_eq!(answer[4..], expected);
}

#[test]
fn a_read_only_export_refuses_every_change() {
    let mut world = world();
    let root = world.root();
    world.file(&root, "f");
    world.mkdir(&root, "d", 0o777).unwrap();
    let ro = world.mount("/in/ro").unwrap();
    let file = world.lookup(&ro, "f").unwrap();
    let status = nfsstat3::NFS3ERR_ROFS;
    assert_eq!(
        world.create(&ro, "g", createhow3::UNCHECKED(nothing())),
        Err(status)
    );
    assert_eq!(world.mkdir(&ro, "g", 0o777), Err(status));
    assert_eq!(world.remove(nfs_proc3::NFSPROC3_REMOVE, &ro, "f"), status);
    assert_eq!(world.remove(nfs_proc3::NFSPROC3_RMDIR, &ro, "d"), status);
    assert_eq!(world.setattr(&file, with_mode(0), None), status);
    assert_eq!(world.write(&file, 0, b"x"), Err(status));
    let (from, to) = (named(&ro, "f"), named(&ro, "g"));
    let res: RENAME3res = world.call(nfs_proc3::NFSPROC3_RENAME, &RENAME3args { from, to });
    assert_eq!(res.status, status);
    let args = LINK3args {
        file: Opaque(&file),
        link: named(&ro, "g"),
    };
    let res: LINK3res = world.call(nfs_proc3::NFSPROC3_LINK, &args);
    assert_eq!(res.status, status);
    let args = SYMLINK3args {
        where_: named(&ro, "g"),
        symlink_attributes: nothing(),
        symlink_data: Opaque(b"x"),
    };
    assert_eq!(
        world.make(nfs_proc3::NFSPROC3_SYMLINK, &ro, &args),
        Err(status)
    );
    let args = MKNOD3args {
        where_: named(&ro, "g"),
        what: mknoddata3::NF3FIFO(nothing()),
    };
    assert_eq!(
        world.make(nfs_proc3::NFSPROC3_MKNOD, &ro, &args),
        Err(status)
    );
    // Reading it is another matter.
    assert_eq!(world.read(&file, 0, 10), Ok((vec![], true)));
    // A file is of one export as to others.
    let (from, to) = (named(&root, "f"), named(&ro, "g"));
    let res: RENAME3res = world.call(nfs_proc3::NFSPROC3_RENAME, &RENAME3args { from, to });
    assert_eq!(res.status, nfsstat3::NFS3ERR_XDEV);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Any arguments are answered, and the answer is one.
    #[test]
    fn any_arguments_are_answered(
        calls in proptest::collection::vec(
            (1u32..=21, proptest::collection::vec(any::<u8>(), 0..80), any::<bool>(), any::<bool>()),
            1..40,
        ),
    ) {
        let mut world = world();
        let root = world.root();
        world.file(&root, "f");
        for (procedure, tail, has_handle, is_mount) in calls {
            let which = match is_mount {
                true => (MOUNT_PROGRAM, 1 + procedure % 5),
                false => (NFS4_PROGRAM, procedure),
            };
            let mut record = world.header(which);
            if has_handle {
                Opaque::<64>(&root).encode(&mut record);
            }
            record.extend(tail.iter().map(|byte| byte & 3));
            let answer = world.server.call(world.conn, &record);
            prop_assert_eq!(&answer[..4], &record[..4]);
            prop_assert!(answer.len().is_multiple_of(4) && answer.len() >= 24);
        }
    }
}
