//! The groups that a user acts with, where the server looks them up.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use auth::user::{AccountKind, Accounts, AccountsUnavailable};
use doubles::nfsd::NfsdDouble;
use nfsd::exports::{Clients, Export, Exports, Rule, Squash};
use nfsd::{Nfsd, NfsdSettings};
use store::fs::{FileSystem, Memory, Time};
use testkit::nfs::compound::*;
use wire::nfs3::{ACCESS3args, ACCESS3res, NFS_V3, nfs_proc3};
use wire::nfs4::*;
use wire::xdr::{Decode, Encode, Opaque, Reader};

const MANY: u32 = 500;
const USER: u32 = 1000;

/// A database in which one user is in many groups.
#[derive(Clone, Default)]
struct Database(Arc<AtomicUsize>);

impl Accounts for Database {
    fn name(&self, _: AccountKind, _: u32) -> Result<Option<String>, AccountsUnavailable> {
        Ok(None)
    }

    fn number(&self, _: AccountKind, _: &str) -> Result<Option<u32>, AccountsUnavailable> {
        Ok(None)
    }

    fn groups(&self, uid: u32) -> Result<Vec<u32>, AccountsUnavailable> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let has_some = uid == USER;
        Ok((0..MANY).filter(|_| has_some).collect())
    }
}

struct World {
    server: NfsdDouble,
    conn: usize,
    xid: u32,
    database: Database,
}

fn world(manage_gids: bool, squash: Squash) -> World {
    let time = Time::default();
    let fs: Arc<dyn FileSystem> = Arc::new(Memory::new("m", 64 << 20, 9, time).expect("memory"));
    let exports = [("/files", squash), ("/open", Squash::None)].map(|(path, squash)| {
        let rule = Rule {
            squash,
            ..Rule::default()
        };
        Export::new(path, fs.clone(), vec![rule]).expect("an export")
    });
    let exports = Exports::new(exports.into(), time).expect("exports");
    let settings = NfsdSettings {
        manage_gids,
        ..NfsdSettings::default()
    };
    let mut server = NfsdDouble::new(Nfsd::new(settings, 3, [], exports, 0), 128 << 20);
    let database = Database::default();
    server.accounts = Some(Box::new(database.clone()));
    let conn = server.connect("192.0.2.1:700".parse().expect("an address"));
    World {
        server,
        conn,
        xid: 0,
        database,
    }
}

impl World {
    fn compound(&mut self, by: &Credential, ops: &Ops) -> CompoundAnswer {
        self.xid += 1;
        let mut record = header(self.xid, by, |_| {});
        record.extend(compound_args(0, ops));
        let answer = self.server.call(self.conn, &record);
        CompoundAnswer::read(&answer[24..])
    }

    /// A directory that root gives to a group, which may all do in it.
    fn dir_of(&mut self, gid: u32) -> Vec<u8> {
        let (name, group) = (format!("of{gid}"), gid.to_string());
        let group = Opaque::<8>(group.as_bytes());
        let attributes = Attributes::mode(0o070).and(FATTR4_OWNER_GROUP, &group);
        let made = ops().root().lookup("open").mkdir(&name);
        let made = made.setattr(ANONYMOUS, &attributes).getfh();
        self.compound(&Credential::user(0), &made).ok();
        let found = ops().root().lookup("files").lookup(&name).getfh();
        self.compound(&Credential::user(0), &found).ok().handle()
    }

    /// Whether a user may read a directory, as versions 4 and 3 say; they agree.
    fn may_read(&mut self, by: &Credential, dir: &[u8]) -> bool {
        let asked = ops().fh(dir).access(ACCESS4_READ);
        let told = self.compound(by, &asked).ok();
        let granted = told.get::<ACCESS4resok>(nfs_opnum4::OP_ACCESS).access;
        self.xid += 1;
        let mut record = header(self.xid, by, |call| {
            (call.vers, call.proc) = (NFS_V3, nfs_proc3::NFSPROC3_ACCESS as u32);
        });
        ACCESS3args {
            object: Opaque(dir),
            access: ACCESS4_READ,
        }
        .encode(&mut record);
        let answer = self.server.call(self.conn, &record);
        let told = ACCESS3res::decode(&mut Reader::new(&answer[24..])).expect("results");
        let ACCESS3res::NFS3_OK(told) = told else {
            panic!("{told:?}");
        };
        assert_eq!(granted, told.access);
        granted == ACCESS4_READ
    }

    fn asked(&self) -> usize {
        self.database.0.load(Ordering::Relaxed)
    }
}

fn user(uid: u32, gids: Vec<u32>) -> Credential {
    let gid = 5000;
    Credential::Sys { uid, gid, gids }
}

#[test]
fn groups_of_the_server_count_whatever_the_client_says_where_it_looks_them_up() {
    let mut world = world(true, Squash::None);
    let [last, other, own] = [MANY - 1, MANY, 5000].map(|gid| world.dir_of(gid));
    let before = world.asked();
    for said in [vec![], vec![MANY]] {
        assert!(world.may_read(&user(USER, said.clone()), &last));
        assert!(!world.may_read(&user(USER, said.clone()), &other));
        assert!(world.may_read(&user(USER, said), &own), "the call's first");
    }
    assert_eq!(world.asked(), before + 1, "it is known then");
    for _ in 0..2 {
        assert!(!world.may_read(&user(USER + 1, vec![MANY]), &other));
    }
    assert_eq!(world.asked(), before + 2, "so is that there is none");
}

#[test]
fn groups_of_the_call_count_where_none_are_looked_up() {
    let mut world = world(false, Squash::None);
    let [last, other] = [MANY - 1, MANY].map(|gid| world.dir_of(gid));
    let by = user(USER, vec![MANY]);
    assert!(!world.may_read(&by, &last));
    assert!(world.may_read(&by, &other));
    assert_eq!(world.asked(), 0);
}

#[test]
fn group_of_root_is_squashed_among_groups_that_are_looked_up() {
    let mut world = world(true, Squash::Root);
    let [root, last, anonymous] = [0, MANY - 1, 65_534].map(|gid| world.dir_of(gid));
    let by = user(USER, vec![]);
    assert!(!world.may_read(&by, &root));
    assert!(world.may_read(&by, &last));
    assert!(world.may_read(&by, &anonymous));
}

#[test]
fn client_that_may_use_no_export_asks_the_database_nothing() {
    let mut world = world(true, Squash::None);
    let time = Time::default();
    let fs: Arc<dyn FileSystem> = Arc::new(Memory::new("o", 1 << 20, 9, time).expect("memory"));
    let net = "198.51.100.0/24".parse().expect("a network");
    let rule = Rule {
        clients: Clients::nets([net]),
        ..Rule::default()
    };
    let export = Export::new("/others", fs, vec![rule]).expect("an export");
    let exports = Exports::new(vec![export], time).expect("exports");
    world.server.nfsd.set_exports(exports);
    world.compound(&user(USER, vec![]), &ops().root());
    assert_eq!(world.asked(), 0);
}
