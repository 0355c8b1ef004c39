//! NFS: clients, the file system that they use, and what they may see of it.

mod ask;
mod certificates;
mod client;
mod ended;
mod had;
mod kept;
mod left;
mod model;
mod names;
mod user;
mod users;

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

use mem::Pool;
use nfs::connection::Flavor;
use nfsd::exports::{Rule, Squash};
use nfsd::xprtsec::{Xprtsec, XprtsecModes};
use random::Random;
use reactor::Nanos;
use server::nfs::{ExportSpec, Exported, FileSystemKind, FileSystemSpec, NfsSettings};
use server::parts::{self, Journal, Wall};
use store::fs::{Dir, FileSystem, Time};

use crate::checker::Verdict;
use crate::plan::{HOSTS_END, NfsPlan, Plan, USERS};
use crate::posix::Posix;
use crate::world::{MS, SharedWorld};

use ask::{Ask, New, OpenShare, Range4};
pub use client::NfsClient;
use kept::{INSTANCE, Late, Medium};
pub use left::leave_states;
use model::Model;
pub use users::Users;

/// The time of day when a run begins, in seconds since 1970.
const WALL_SECONDS: u64 = 1_700_000_000;
/// Files that all clients have open, and read and write.
const DATA_FILES: usize = 3;
/// Files behind those that are opened so that others may not.
const SHARED_FILES: usize = 2;
/// The file behind those whose openers may be given delegations.
const DELEGATED: usize = DATA_FILES + SHARED_FILES;
/// Locks begin and end at the multiples of so many bytes, a byte before or behind:
/// so many share one byte, or just none.
const LOCK_STEP: u64 = 10;
/// Steps that locks are for; some reach as far as there are bytes.
const LOCK_STEPS: u64 = 5;
/// What one client has at a time, beside the data files.
const HELD_MAX: usize = 3;

/// What clients share.
pub struct Common {
    pub model: Model,
    /// Starts of the target.
    pub boot: u64,
    pub lease: Nanos,
    pub think: Nanos,
    pub blocks: usize,
    /// Names what is made, and owners.
    pub next: u64,
    /// Requests whose outcome is not known.
    pub lost: u64,
    /// Writes that were not safe before a restart, and were made again.
    pub rewritten: u64,
    /// Delegations that were given.
    pub delegations: u64,
    /// Writes come short, and they and COMMITs fail.
    pub may_fail: bool,
    /// Some clients speak TLS.
    pub has_tls: bool,
}

/// The records of the server.
#[derive(Clone, Default)]
struct Records(Arc<Mutex<Option<Vec<u8>>>>);

impl Journal for Records {
    fn load(&mut self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.lock().expect("one thread").clone())
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        *self.0.lock().expect("one thread") = Some(bytes.to_vec());
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut all = self.0.lock().expect("one thread");
        all.get_or_insert_default().extend_from_slice(bytes);
        Ok(())
    }

    fn path(&self) -> &Path {
        Path::new("simulated")
    }
}

/// All of NFS that outlives the target's process.
pub struct Nfs {
    plan: NfsPlan,
    medium: Medium,
    /// In its place, below a `dir`.
    posix: Option<Posix>,
    /// As the target has it that runs.
    dir: Option<Arc<Dir>>,
    records: Records,
    /// Of operations whose answers are late.
    pub late: Late,
    /// Those of them whose time is known.
    pub late_seen: usize,
    pub common: Common,
}

impl Nfs {
    /// With files that were not written yet.
    pub fn new(plan: &NfsPlan, mut random: Random) -> Nfs {
        let mut own = || Random::new(random.next_u64());
        let posix = plan
            .is_dir
            .then(|| Posix::new(own(), plan.block_bytes, plan.full_cuts > 0));
        let late = Late::default();
        let files = DATA_FILES + SHARED_FILES + 1;
        let mut model = Model::new(plan.clients.len(), files, plan.blocks, plan.survives);
        let ms = |ms: u32| u64::from(ms) * MS;
        model.set_times(ms(plan.lease_ms), ms(plan.grace_ms));
        model.set_splits(plan.is_dir || plan.has_limits);
        let memory = kept::memory(INSTANCE, plan.others);
        Nfs {
            plan: plan.clone(),
            medium: Medium::new(memory, random, plan, late.clone()),
            posix,
            dir: None,
            records: Records::default(),
            late,
            late_seen: 0,
            common: Common {
                model,
                boot: 0,
                lease: ms(plan.lease_ms),
                think: plan.think,
                blocks: plan.blocks,
                next: 100,
                lost: 0,
                rewritten: 0,
                delegations: 0,
                may_fail: plan.is_dir || plan.has_limits,
                has_tls: plan.has_tls(),
            },
        }
    }

    /// The target starts now, with this file system.
    pub fn start(&mut self, now: Nanos) -> Arc<dyn FileSystem> {
        self.common.boot += 1;
        self.common.model.start(now);
        if let Some(posix) = &self.posix {
            let dir = Arc::new(posix.open());
            self.dir = Some(dir.clone());
            return dir;
        }
        match self.plan.survives {
            true => Arc::new(self.medium.open()),
            false => Arc::new(kept::memory(self.common.boot, self.plan.others)),
        }
    }

    /// What it keeps, to know it after a restart.
    pub fn records(&self) -> parts::Records {
        let records = parts::Records::open(Box::new(self.records.clone()), WALL_SECONDS as u32);
        records.expect("memory is left")
    }

    /// The time of day.
    pub fn wall() -> Wall {
        Wall::Since(Time {
            seconds: WALL_SECONDS as i64,
            nanos: 0,
        })
    }

    /// What is below a `dir`.
    pub fn posix(&self) -> Option<&Posix> {
        self.posix.as_ref()
    }

    /// The `dir` whose work is to be done.
    pub fn dir(&self) -> Option<&Dir> {
        self.dir.as_deref()
    }

    /// The target's process has ended: what is left counts for quotas, and nothing else.
    pub fn crash(&mut self, now: Nanos) -> Verdict {
        self.dir = None;
        self.late.lock().expect("one thread").clear();
        self.late_seen = 0;
        self.common.model.crash(now);
        self.medium.crash();
        self.medium.check_usage()
    }
}

/// The clients of a plan.
pub fn clients(world: &SharedWorld, plan: &Plan, pools: &[Pool]) -> Vec<NfsClient> {
    let Some(nfs) = &plan.nfs else {
        return Vec::new();
    };
    let clients = nfs.clients.iter().enumerate();
    clients
        .map(|(number, &client)| {
            let id = HOSTS_END + number;
            let driver = (id, pools[id].clone());
            NfsClient::new(world, number, driver, client, nfs.block_bytes)
        })
        .collect()
}

/// The users of a plan who prove who they are.
pub fn users(world: &SharedWorld, plan: &Plan, pools: &[Pool]) -> Option<Users> {
    let users = plan.nfs.as_ref()?.users?;
    let driver = (USERS, pools[USERS].clone());
    Some(Users::new(world, driver, users, !plan.seed))
}

/// What is exported.
pub fn exports() -> Vec<ExportSpec> {
    let rule = Rule {
        squash: Squash::None,
        ..Rule::default()
    };
    let export = |path: &str, rule| ExportSpec {
        path: path.into(),
        what: Exported::FileSystem("kept".into()),
        rules: vec![rule],
    };
    let secured = Rule {
        xprtsec: XprtsecModes::new(&[Xprtsec::Tls]),
        ..rule.clone()
    };
    let proven = Rule {
        flavors: vec![Flavor::Krb5, Flavor::Krb5i, Flavor::Krb5p],
        ..rule.clone()
    };
    vec![
        export("/files", rule),
        export("/secured", secured),
        export("/proven", proven),
    ]
}

/// What is exported, as a document names it: it is open before any target starts.
pub fn file_system() -> FileSystemSpec {
    FileSystemSpec {
        name: "kept".into(),
        kind: FileSystemKind::Mem { size_bytes: 0 },
    }
}

/// How NFS is served.
pub fn settings(plan: &NfsPlan) -> NfsSettings {
    NfsSettings {
        io_bytes_max: 256 << 10,
        lease_ms: plan.lease_ms,
        grace_ms: plan.grace_ms,
        state: None,
        tls: plan.has_tls().then(certificates::shown),
        ..NfsSettings::default()
    }
}

/// A write that is to be made again.
fn repeat_write(client: &NfsClient, file: usize, blocks: Range<usize>, common: &mut Common) -> Ask {
    let value = common.model.write(client.id.number, file, blocks.clone());
    Ask::Write {
        file,
        blocks,
        value,
        is_stable: false,
    }
}

/// Reads and looks at everything, when all that is written is safe.
pub fn verify(client: &mut NfsClient, common: &Common) {
    for file in 0..DATA_FILES {
        client.todo.push_back(Ask::Commit(file));
        client.todo.push_back(Ask::Read(file, 0..common.blocks));
    }
    client.todo.extend((0..names::NAMES).map(Ask::Look));
}

/// What a client asks for next.
fn next(client: &mut NfsClient, random: &mut Random, common: &mut Common) -> Option<Ask> {
    if common.has_tls && random.one_in(16) {
        return Some(Ask::Secured);
    }
    let file = random.below(DATA_FILES as u64) as usize;
    let blocks = |random: &mut Random| {
        let from = random.below(common.blocks as u64) as usize;
        let len = random.between(1, 3) as usize;
        from..(from + len).min(common.blocks)
    };
    match random.below(20) {
        0..4 => Some(Ask::Read(file, blocks(random))),
        4..8 => {
            let blocks = blocks(random);
            let value = common.model.write(client.id.number, file, blocks.clone());
            Some(Ask::Write {
                file,
                blocks,
                value,
                is_stable: random.one_in(4),
            })
        }
        8 => Some(Ask::Commit(file)),
        9..14 => {
            let ask = name(random, common);
            client.names.begin(&ask)
        }
        14..17 => lock(client, random, common),
        _ => share(client, random, common),
    }
}

fn name(random: &mut Random, common: &mut Common) -> Ask {
    let name = random.below(names::NAMES as u64) as usize;
    common.next += 1;
    match random.below(8) {
        0 => Ask::Make(name, New::Guarded),
        1 => Ask::Make(name, New::Exclusive(common.next)),
        2 => Ask::Make(name, New::Directory),
        3 | 4 => Ask::Remove(name),
        5 => Ask::Look(name),
        _ => {
            let by = random.between(1, names::NAMES as u64 - 1) as usize;
            Ask::Rename(name, (name + by) % names::NAMES)
        }
    }
}

fn lock(client: &mut NfsClient, random: &mut Random, common: &mut Common) -> Option<Ask> {
    let held = client.id.locks.iter().flatten().count();
    if held >= HELD_MAX || held > 0 && random.one_in(2) {
        let at = client
            .id
            .locks
            .iter()
            .position(|held| held.as_ref().is_some_and(|it| !it.is_busy))?;
        let held = client.id.locks[at].as_mut()?;
        held.is_busy = true;
        let (first, last) = (held.range.first, held.range.last);
        let keeps = random.one_in(3) && first < last;
        return Some(Ask::Unlock {
            at,
            keeps: keeps.then(|| random.between(first, last.min(first + 2 * LOCK_STEP) - 1)),
        });
    }
    common.next += 1;
    let edge = |random: &mut Random| {
        let at = random.below(LOCK_STEPS) * LOCK_STEP + random.below(3);
        at.saturating_sub(1)
    };
    let (a, b) = (edge(random), edge(random));
    let range = Range4 {
        file: random.below(DATA_FILES as u64) as usize,
        first: a.min(b),
        last: match random.one_in(8) {
            true => u64::MAX,
            false => a.max(b),
        },
        is_exclusive: random.percent(70),
        owner: common.next,
    };
    Some(match random.one_in(16) {
        // No byte, or more than there can be.
        true => Ask::LockWrongly(range, random.pick(&[(a, 0), (u64::MAX - a, a + 2)])),
        false => Ask::Lock(range),
    })
}

/// A client with a write delegation makes the file longer, by itself; one without looks at it.
fn size(client: &mut NfsClient, common: &mut Common) -> Option<Ask> {
    if !client.id.writes_delegated() {
        return Some(Ask::Size);
    }
    common.next += 1;
    let its = client.id.delegations.iter_mut().flatten();
    for delegated in its.filter(|it| it.given.is_some() && !it.is_busy) {
        delegated.size = Some(common.next);
        (common.model).grown(client.id.number, delegated.hold, common.next);
    }
    Some(Ask::Renew)
}

fn share(client: &mut NfsClient, random: &mut Random, common: &mut Common) -> Option<Ask> {
    if random.one_in(3) {
        return size(client, common);
    }
    let is_free = |(at, opened): (usize, &Option<had::OpenFile>)| {
        let is_free = opened.as_ref().is_some_and(|opened| !opened.is_busy);
        (is_free && at >= DATA_FILES).then_some(at)
    };
    let open: Vec<usize> = client
        .id
        .opens
        .iter()
        .enumerate()
        .filter_map(is_free)
        .collect();
    if open.len() >= HELD_MAX || !open.is_empty() && random.one_in(2) {
        let at = random.pick(&open);
        client.id.opens[at].as_mut()?.is_busy = true;
        return Some(Ask::Close(at));
    }
    common.next += 1;
    let file = DATA_FILES + random.below(SHARED_FILES as u64 + 1) as usize;
    Some(Ask::Open(OpenShare {
        file,
        access: random.weighted(&[(3, 1), (1, 2), (1, 3)]),
        deny: match file == DELEGATED {
            true => 0,
            false => random.pick(&[0, 0, 1, 2, 3]),
        },
        wants: file == DELEGATED,
        owner: common.next,
    }))
}
