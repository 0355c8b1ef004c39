//! Quotas: how much room and how many objects a user, a group or a tree of directories has, and
//! how much it may have.
//!
//! A `mem` counts everything all the time, whether it has limits or not, so that a limit that is
//! set later holds at once; a `dir` counts what it has when limits come, in the background. What counts is what is allocated, as in XFS: blocks and not sizes, so
//! holes are free; an object counts for its owner as long as it exists, also without a name, and
//! once however many names it has. Extended attributes and access control lists count too.
//!
//! A hard limit is never passed by what a client asks for. A soft one may be passed for a grace
//! period; after that it is a hard one until there is less again. User 0 and group 0 have no
//! limits.
//!
//! A tree is a directory with all below. Nothing is moved or linked from one into another
//! ([`Error::XDev`]), as in XFS: clients copy instead, and what is copied is checked. Trees do
//! not lie in each other; the tree `/` is the whole file system.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use faults::Fault;

use super::{Error, FileId, Time};

/// What a soft limit may be passed for where nothing else is said: 7 days, as Linux has it.
pub const GRACE_S_DEFAULT: u64 = 7 * 24 * 3600;
/// An account says once in so many seconds that it has refused something, or that a soft limit
/// is passed.
const TOLD_EVERY_S: i64 = 60;
/// Events that are held until they are taken.
const EVENTS_MAX: usize = 32;
/// Accounts without objects are looked for when there are more than these, and twice as many as
/// had to stay.
const ACCOUNTS_MIN: usize = 1024;

/// Whose usage is limited.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuotaSubject {
    /// A user.
    User(u32),
    /// Each user that has no limits of its own.
    EachUser,
    /// A group.
    Group(u32),
    /// A directory, by its path in the file system, with all below.
    Tree(String),
}

impl fmt::Display for QuotaSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QuotaSubject::User(uid) => write!(f, "user {uid}"),
            QuotaSubject::EachUser => f.write_str("each user"),
            QuotaSubject::Group(gid) => write!(f, "group {gid}"),
            QuotaSubject::Tree(path) => write!(f, "tree {path}"),
        }
    }
}

/// How much is allowed; `None` where nothing limits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaLimits {
    /// Bytes at most.
    pub hard_bytes: Option<u64>,
    /// Bytes that may be passed for a while.
    pub soft_bytes: Option<u64>,
    /// Objects at most.
    pub hard_objects: Option<u64>,
    /// Objects that may be passed for a while.
    pub soft_objects: Option<u64>,
    /// That while, in seconds.
    pub grace_s: u64,
}

impl Default for QuotaLimits {
    fn default() -> QuotaLimits {
        QuotaLimits {
            hard_bytes: None,
            soft_bytes: None,
            hard_objects: None,
            soft_objects: None,
            grace_s: GRACE_S_DEFAULT,
        }
    }
}

/// Limits of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Whose.
    pub subject: QuotaSubject,
    /// Which.
    pub limits: QuotaLimits,
}

/// Limits that cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{subject}: {}", why_refused(*.error))]
pub struct QuotaRefused {
    /// The first one.
    pub subject: QuotaSubject,
    /// Why.
    pub error: Error,
}

fn why_refused(error: Error) -> String {
    match error {
        Error::NotDir | Error::Symlink => {
            "what lies there is no directory: choose another path".to_owned()
        }
        Error::NotSupp => "the file system keeps no such quotas".to_owned(),
        other => other.to_string(),
    }
}

/// How an account stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaUsage {
    /// Whose it is.
    pub subject: QuotaSubject,
    /// Bytes that it has.
    pub bytes: u64,
    /// Objects that it has.
    pub objects: u64,
    /// What it may have.
    pub limits: QuotaLimits,
    /// When its grace of bytes ends, in seconds since 1970, if the soft limit is passed.
    pub bytes_until_s: Option<i64>,
    /// Likewise that of objects.
    pub objects_until_s: Option<i64>,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaCount {
    /// Bytes.
    Bytes,
    /// Objects.
    Objects,
}

/// What a limit has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaEvent {
    /// Whose limit.
    pub subject: QuotaSubject,
    /// Of what.
    pub count: QuotaCount,
    /// Whether something was refused; else a soft limit was passed.
    pub is_refused: bool,
    /// What there is of it.
    pub used: u64,
    /// How much there may be of it.
    pub limit: u64,
}

/// How much the owner of an object may still allocate, and has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaRoom {
    /// Bytes until the first hard limit.
    pub avail_hard: u64,
    /// Bytes until the first soft limit.
    pub avail_soft: u64,
    /// Bytes that count against the hard limit that is the smallest.
    pub used: u64,
}

/// One number of an account, and its limits.
struct Gauge {
    count: QuotaCount,
    used: AtomicU64,
    /// [`u64::MAX`] where there is none.
    hard: AtomicU64,
    soft: AtomicU64,
    /// When the soft limit was passed, in seconds; 0 where it is not.
    since: AtomicI64,
    /// When a refusal was told last.
    refused: AtomicI64,
    /// When it was told last that the soft limit is passed.
    passed: AtomicI64,
}

const NO_LIMIT: u64 = u64::MAX;

impl Gauge {
    fn new(count: QuotaCount) -> Gauge {
        Gauge {
            count,
            used: AtomicU64::new(0),
            hard: AtomicU64::new(NO_LIMIT),
            soft: AtomicU64::new(NO_LIMIT),
            since: AtomicI64::new(0),
            refused: AtomicI64::new(i64::MIN),
            passed: AtomicI64::new(i64::MIN),
        }
    }

    fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn hard(&self) -> u64 {
        self.hard.load(Ordering::Relaxed)
    }

    fn soft(&self) -> u64 {
        self.soft.load(Ordering::Relaxed)
    }

    fn set(&self, (hard, soft): (Option<u64>, Option<u64>)) {
        self.hard.store(hard.unwrap_or(NO_LIMIT), Ordering::Relaxed);
        self.soft.store(soft.unwrap_or(NO_LIMIT), Ordering::Relaxed);
        if self.used() <= self.soft() {
            self.since.store(0, Ordering::Relaxed);
        }
    }

    fn until_s(&self, grace_s: u64) -> Option<i64> {
        match self.since.load(Ordering::Relaxed) {
            0 => None,
            since => Some(since.saturating_add_unsigned(grace_s)),
        }
    }

    /// Whether the grace is over.
    fn is_late(&self, account: &Account, now: i64) -> bool {
        let until = self.until_s(account.grace_s.load(Ordering::Relaxed));
        until.is_some_and(|until| now > until)
    }

    /// What may still be taken.
    fn left(&self, account: &Account, now: i64) -> u64 {
        let left = self.hard().saturating_sub(self.used());
        match self.is_late(account, now) {
            true => left.min(self.soft().saturating_sub(self.used())),
            false => left,
        }
    }

    /// All or nothing.
    #[inline]
    fn take(&self, n: u64, account: &Account, quotas: &Quotas) -> Result<(), Error> {
        if n == 0 {
            return Ok(());
        }
        let hard = match faults::is(Fault::NoHardLimit) {
            true => NO_LIMIT,
            false => self.hard(),
        };
        let fits = |used: u64| used.checked_add(n).filter(|&after| after <= hard);
        let taken = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        match taken {
            Ok(before) if before + n <= self.soft() => Ok(()),
            Ok(_) => self.pass_soft(n, account, quotas),
            Err(_) => Err(self.refuse(hard, account, quotas)),
        }
    }

    /// What was taken lies beyond the soft limit.
    #[cold]
    fn pass_soft(&self, n: u64, account: &Account, quotas: &Quotas) -> Result<(), Error> {
        let now = quotas.now();
        let (unset, set) = (0, now.max(1));
        let order = Ordering::Relaxed;
        if self
            .since
            .compare_exchange(unset, set, order, order)
            .is_ok()
        {
            if is_to_be_told(&self.passed, now) {
                quotas.tell(self.event(account, self.soft(), false));
            }
            // Another may have given back between the two.
            if self.used() <= self.soft() {
                self.since.store(unset, order);
            }
        } else if self.is_late(account, now) {
            self.give(n);
            return Err(self.refuse(self.soft(), account, quotas));
        }
        Ok(())
    }

    #[cold]
    fn refuse(&self, limit: u64, account: &Account, quotas: &Quotas) -> Error {
        if is_to_be_told(&self.refused, quotas.now()) {
            quotas.tell(self.event(account, limit, true));
        }
        Error::DQuot
    }

    fn event(&self, account: &Account, limit: u64, is_refused: bool) -> QuotaEvent {
        QuotaEvent {
            subject: account.subject.clone(),
            count: self.count,
            is_refused,
            used: self.used(),
            limit,
        }
    }

    /// Whatever the limits say.
    fn force(&self, n: u64) {
        self.used.fetch_add(n, Ordering::Relaxed);
    }

    #[inline]
    fn give(&self, n: u64) {
        let before = self.used.fetch_sub(n, Ordering::Relaxed);
        assert!(before >= n, "gave more of a quota than was taken");
        if before - n <= self.soft() && self.since.load(Ordering::Relaxed) != 0 {
            self.since.store(0, Ordering::Relaxed);
        }
    }
}

/// Whether what was told at `last` is to be told again now.
fn is_to_be_told(last: &AtomicI64, now: i64) -> bool {
    let is_due = now.saturating_sub(last.load(Ordering::Relaxed)) >= TOLD_EVERY_S;
    if is_due {
        last.store(now, Ordering::Relaxed);
    }
    is_due
}

/// What a subject has and may have.
pub(super) struct Account {
    subject: QuotaSubject,
    /// Of a tree, its uppermost directory.
    root: Option<FileId>,
    bytes: Gauge,
    objects: Gauge,
    grace_s: AtomicU64,
}

impl Account {
    fn new(subject: QuotaSubject, root: Option<FileId>) -> Arc<Account> {
        Arc::new(Account {
            subject,
            root,
            bytes: Gauge::new(QuotaCount::Bytes),
            objects: Gauge::new(QuotaCount::Objects),
            grace_s: AtomicU64::new(GRACE_S_DEFAULT),
        })
    }

    fn limit(&self, limits: &QuotaLimits) {
        self.grace_s.store(limits.grace_s, Ordering::Relaxed);
        self.bytes.set((limits.hard_bytes, limits.soft_bytes));
        self.objects.set((limits.hard_objects, limits.soft_objects));
    }

    fn take(&self, bytes: u64, objects: u64, quotas: &Quotas) -> Result<(), Error> {
        self.bytes.take(bytes, self, quotas)?;
        let taken = self.objects.take(objects, self, quotas);
        if taken.is_err() {
            self.bytes.give(bytes);
        }
        taken
    }

    fn force(&self, bytes: u64, objects: u64) {
        self.bytes.force(bytes);
        self.objects.force(objects);
    }

    fn give(&self, bytes: u64, objects: u64) {
        self.bytes.give(bytes);
        self.objects.give(objects);
    }

    fn usage(&self) -> QuotaUsage {
        let limit = |limit| (limit != NO_LIMIT).then_some(limit);
        let grace_s = self.grace_s.load(Ordering::Relaxed);
        QuotaUsage {
            subject: self.subject.clone(),
            bytes: self.bytes.used(),
            objects: self.objects.used(),
            limits: QuotaLimits {
                hard_bytes: limit(self.bytes.hard()),
                soft_bytes: limit(self.bytes.soft()),
                hard_objects: limit(self.objects.hard()),
                soft_objects: limit(self.objects.soft()),
                grace_s,
            },
            bytes_until_s: self.bytes.until_s(grace_s),
            objects_until_s: self.objects.until_s(grace_s),
        }
    }
}

/// A directory that is a tree, or is in none.
pub(super) type Tree = Option<Arc<Account>>;

/// Whose an object is: the accounts that what it takes counts on.
#[derive(Clone)]
pub(super) struct Charged {
    user: Arc<Account>,
    group: Arc<Account>,
    pub(super) tree: Tree,
}

impl Charged {
    /// Whether it lies in this tree, or in none if this is none.
    pub(super) fn is_in(&self, tree: &Tree) -> bool {
        match (&self.tree, tree) {
            (Some(own), Some(tree)) => Arc::ptr_eq(own, tree),
            (None, None) => true,
            _ => false,
        }
    }

    /// Whether it counts on the same accounts.
    fn is_same(&self, other: &Charged) -> bool {
        Arc::ptr_eq(&self.user, &other.user)
            && Arc::ptr_eq(&self.group, &other.group)
            && self.is_in(&other.tree)
    }

    /// Whether this object is the uppermost directory of its tree.
    pub(super) fn is_root(&self, file: FileId) -> bool {
        self.tree.as_ref().and_then(|tree| tree.root) == Some(file)
    }

    fn all<'a>(&'a self, quotas: &'a Quotas) -> impl Iterator<Item = &'a Arc<Account>> + Clone {
        let own = [&self.user, &self.group];
        own.into_iter().chain(&self.tree).chain([&quotas.whole])
    }
}

/// The accounts of a file system.
pub struct Quotas {
    whole: Arc<Account>,
    accounts: RwLock<Accounts>,
    /// In seconds, of the last operation.
    now: AtomicI64,
    events: Mutex<Vec<QuotaEvent>>,
    is_counting: AtomicBool,
}

struct Accounts {
    list: Vec<Quota>,
    users: HashMap<u32, Arc<Account>>,
    groups: HashMap<u32, Arc<Account>>,
    trees: Vec<Arc<Account>>,
    /// Users and groups when those without objects are looked for.
    look_at: usize,
}

impl Accounts {
    /// What a subject may have.
    fn limits(&self, subject: &QuotaSubject) -> QuotaLimits {
        let of = |subject: &QuotaSubject| {
            let mut list = self.list.iter();
            let found = list.find(|quota| quota.subject == *subject);
            found.map(|quota| quota.limits)
        };
        let found = match subject {
            QuotaSubject::User(0) | QuotaSubject::Group(0) => None,
            QuotaSubject::User(_) => of(subject).or_else(|| of(&QuotaSubject::EachUser)),
            _ => of(subject),
        };
        found.unwrap_or_default()
    }

    fn account(&mut self, subject: QuotaSubject) -> Arc<Account> {
        if self.users.len() + self.groups.len() >= self.look_at {
            let is_used = |_: &u32, account: &mut Arc<Account>| Arc::strong_count(account) > 1;
            self.users.retain(is_used);
            self.groups.retain(is_used);
            self.look_at = (2 * (self.users.len() + self.groups.len())).max(ACCOUNTS_MIN);
        }
        let limits = self.limits(&subject);
        let (map, id) = match subject {
            QuotaSubject::User(id) => (&mut self.users, id),
            QuotaSubject::Group(id) => (&mut self.groups, id),
            QuotaSubject::EachUser | QuotaSubject::Tree(_) => unreachable!("one user or group"),
        };
        let account = map.entry(id).or_insert_with(|| {
            let account = Account::new(subject, None);
            account.limit(&limits);
            account
        });
        Arc::clone(account)
    }
}

impl Default for Quotas {
    /// Without limits.
    fn default() -> Quotas {
        Quotas {
            whole: Account::new(QuotaSubject::Tree("/".to_owned()), None),
            accounts: RwLock::new(Accounts {
                list: Vec::new(),
                users: HashMap::new(),
                groups: HashMap::new(),
                trees: Vec::new(),
                look_at: ACCOUNTS_MIN,
            }),
            now: AtomicI64::new(0),
            events: Mutex::default(),
            is_counting: AtomicBool::new(false),
        }
    }
}

/// Trees that are to be and are not yet, and those that are not to be any more.
pub(super) struct TreeChanges {
    pub(super) come: Vec<Arc<Account>>,
    pub(super) gone: Vec<FileId>,
}

impl Quotas {
    fn read(&self) -> RwLockReadGuard<'_, Accounts> {
        self.accounts.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Accounts> {
        let accounts = self.accounts.write();
        accounts.unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> i64 {
        self.now.load(Ordering::Relaxed)
    }

    /// The time of an operation that may take something.
    #[inline]
    pub(super) fn at(&self, now: Time) {
        if self.now() != now.seconds {
            self.now.store(now.seconds, Ordering::Relaxed);
        }
    }

    fn tell(&self, event: QuotaEvent) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() < EVENTS_MAX {
            events.push(event);
        }
    }

    /// What limits have come to since it was asked last; of more than 32 the first.
    pub fn take_events(&self) -> Vec<QuotaEvent> {
        let events = self.events.lock();
        std::mem::take(&mut *events.unwrap_or_else(PoisonError::into_inner))
    }

    /// The accounts of what belongs to a user and a group and lies in a tree.
    pub(super) fn charged(&self, uid: u32, gid: u32, tree: &Tree) -> Charged {
        let tree = tree.clone();
        {
            let accounts = self.read();
            let found = (accounts.users.get(&uid), accounts.groups.get(&gid));
            if let (Some(user), Some(group)) = found {
                let (user, group) = (Arc::clone(user), Arc::clone(group));
                return Charged { user, group, tree };
            }
        }
        let mut accounts = self.write();
        let user = accounts.account(QuotaSubject::User(uid));
        let group = accounts.account(QuotaSubject::Group(gid));
        Charged { user, group, tree }
    }

    /// All or nothing.
    ///
    /// # Errors
    /// [`Error::DQuot`] where a limit does not allow it.
    #[inline]
    pub(super) fn take(&self, of: &Charged, bytes: u64, objects: u64) -> Result<(), Error> {
        for (at, account) in of.all(self).enumerate() {
            if let Err(error) = account.take(bytes, objects, self) {
                if faults::is(Fault::KeepRefusedCharge) {
                    return Err(error);
                }
                of.all(self)
                    .take(at)
                    .for_each(|account| account.give(bytes, objects));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Takes back what was just given, though others may have come between.
    pub(super) fn force(&self, of: &Charged, bytes: u64, objects: u64) {
        of.all(self)
            .for_each(|account| account.force(bytes, objects));
    }

    #[inline]
    pub(super) fn give(&self, of: &Charged, bytes: u64, objects: u64) {
        of.all(self)
            .for_each(|account| account.give(bytes, objects));
    }

    /// Refuses what cannot be taken now.
    pub(super) fn check(&self, of: &Charged, bytes: u64) -> Result<(), Error> {
        self.take(of, bytes, 0)?;
        self.give(of, bytes, 0);
        Ok(())
    }

    /// An object comes from accounts to others.
    ///
    /// # Errors
    /// [`Error::DQuot`], without `is_forced`.
    pub(super) fn move_to(
        &self,
        (from, to): (&Charged, &Charged),
        bytes: u64,
        is_forced: bool,
    ) -> Result<(), Error> {
        let pairs = [(&from.user, &to.user), (&from.group, &to.group)];
        let changed = || {
            let mut pairs = pairs.into_iter();
            std::iter::from_fn(move || pairs.find(|(from, to)| !Arc::ptr_eq(from, to)))
        };
        for (at, (_, to)) in changed().enumerate() {
            match to.take(bytes, 1, self) {
                Ok(()) => {}
                Err(_) if is_forced => to.force(bytes, 1),
                Err(error) => {
                    changed().take(at).for_each(|(_, to)| to.give(bytes, 1));
                    return Err(error);
                }
            }
        }
        changed().for_each(|(from, _)| from.give(bytes, 1));
        Ok(())
    }

    /// An object comes to lie in another tree, or none, whatever its limits.
    pub(super) fn move_tree(&self, of: &mut Charged, tree: &Tree, bytes: u64) {
        if of.is_in(tree) {
            return;
        }
        if let Some(tree) = tree {
            tree.force(bytes, 1);
        }
        if let Some(left) = std::mem::replace(&mut of.tree, tree.clone()) {
            left.give(bytes, 1);
        }
    }

    /// An object that has taken `bytes`, and what was reserved for it, from now on counts as `to`
    /// does, whatever the limits. Never more than that is taken on the way.
    pub(super) fn recharge(&self, from: &[(Charged, u64, u64)], to: (&Charged, u64)) {
        let is_its = |from: &&(Charged, u64, u64)| from.0.is_same(to.0);
        let sum = |of: fn(&(Charged, u64, u64)) -> u64| from.iter().filter(is_its).map(of).sum();
        let (bytes, objects): (u64, u64) = (sum(|of| of.1), sum(|of| of.2));
        self.force(
            to.0,
            to.1.saturating_sub(bytes),
            1_u64.saturating_sub(objects),
        );
        self.give(to.0, bytes.saturating_sub(to.1), objects.saturating_sub(1));
        for (of, bytes, objects) in from.iter().filter(|from| !is_its(from)) {
            self.give(of, *bytes, *objects);
        }
    }

    /// Whether more is there than a hard limit of bytes allows, as what cannot be foreseen takes
    /// it.
    pub(super) fn is_over(&self, of: &Charged) -> bool {
        let is_over = |account: &Arc<Account>| account.bytes.used() > account.bytes.hard();
        of.all(self).any(is_over)
    }

    /// Whether not all that is there is counted yet.
    pub fn is_counting(&self) -> bool {
        self.is_counting.load(Ordering::Acquire)
    }

    pub(super) fn set_counting(&self, is_counting: bool) {
        self.is_counting.store(is_counting, Ordering::Release);
    }

    /// What may still be allocated to an object.
    pub(super) fn room(&self, of: &Charged) -> QuotaRoom {
        let now = self.now();
        let hard = |account: &Arc<Account>| account.bytes.left(account, now);
        let soft = |account: &Arc<Account>| {
            let left = account.bytes.soft().saturating_sub(account.bytes.used());
            left.min(account.bytes.hard().saturating_sub(account.bytes.used()))
        };
        let smallest = of.all(self).min_by_key(|account| account.bytes.hard());
        QuotaRoom {
            avail_hard: of.all(self).map(hard).min().unwrap_or(NO_LIMIT),
            avail_soft: of.all(self).map(soft).min().unwrap_or(NO_LIMIT),
            used: smallest.map_or(0, |account| account.bytes.used()),
        }
    }

    /// How a user, a group or a tree stands; one that has nothing too, as each user that has
    /// no limits of its own.
    pub fn usage_of(&self, subject: &QuotaSubject) -> QuotaUsage {
        let accounts = self.read();
        let mut trees = accounts.trees.iter().chain([&self.whole]);
        let found = match subject {
            QuotaSubject::User(uid) => accounts.users.get(uid),
            QuotaSubject::Group(gid) => accounts.groups.get(gid),
            QuotaSubject::Tree(_) => trees.find(|tree| tree.subject == *subject),
            QuotaSubject::EachUser => None,
        };
        if let Some(account) = found {
            return account.usage();
        }
        let account = Account::new(subject.clone(), None);
        account.limit(&accounts.limits(subject));
        account.usage()
    }

    /// How all stand that have objects or limits, in the order of subjects.
    pub fn usage(&self) -> Vec<QuotaUsage> {
        let accounts = self.read();
        let ids = accounts.users.values().chain(accounts.groups.values());
        let all = ids.chain(&accounts.trees).chain([&self.whole]);
        let mut usage: Vec<_> = all.map(|account| account.usage()).collect();
        for quota in &accounts.list {
            let is_there = usage.iter().any(|usage| usage.subject == quota.subject);
            if !is_there && quota.subject != QuotaSubject::EachUser {
                let account = Account::new(quota.subject.clone(), None);
                account.limit(&quota.limits);
                usage.push(account.usage());
            }
        }
        usage.retain(|usage| usage.objects > 0 || usage.limits != QuotaLimits::default());
        usage.sort_by(|one, other| one.subject.cmp(&other.subject));
        usage
    }

    /// From now on these are the limits. `roots` are the directories of the trees among them.
    pub(super) fn set(&self, list: &[Quota], roots: &[(String, FileId)]) -> TreeChanges {
        let mut accounts = self.write();
        accounts.list = list.to_vec();
        let mut changes = TreeChanges {
            come: Vec::new(),
            gone: Vec::new(),
        };
        let known = std::mem::take(&mut accounts.trees);
        for (path, root) in roots {
            let subject = QuotaSubject::Tree(path.clone());
            let is_it = |tree: &&Arc<Account>| tree.root == Some(*root) && tree.subject == subject;
            let tree = known.iter().find(is_it).cloned().unwrap_or_else(|| {
                changes
                    .come
                    .push(Account::new(subject.clone(), Some(*root)));
                Arc::clone(&changes.come[changes.come.len() - 1])
            });
            accounts.trees.push(tree);
        }
        let is_left = |tree: &&Arc<Account>| !accounts.trees.iter().any(|t| Arc::ptr_eq(t, tree));
        let gone = known.iter().filter(is_left).filter_map(|tree| tree.root);
        changes.gone.extend(gone);
        let ids = accounts.users.values().chain(accounts.groups.values());
        for account in ids.chain(&accounts.trees).chain([&self.whole]) {
            account.limit(&accounts.limits(&account.subject));
        }
        changes
    }
}

impl Account {
    /// Of a tree, its uppermost directory.
    pub(super) fn root(&self) -> Option<FileId> {
        self.root
    }
}
