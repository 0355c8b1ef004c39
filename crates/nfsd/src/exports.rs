//! What is exported, and to which clients.
//!
//! [`Exports`] never changes; a change of exports makes new ones and swaps them
//! whole. What one client sees of them is its [`crate::pseudo::View`].

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use nfs::connection::{Credential, Flavor};
use store::fs::{FileSystem, Time, check_name};
use store::meter::IoMeter;

use crate::host_pattern::fits;
use crate::locations::{FsLocation, check_referral};
use crate::xprtsec::{ConnectedClient, XprtsecModes};

/// Exports at most.
pub const EXPORTS_MAX: usize = 1024;
/// Bytes of a path at most (RFC 1813, section 5.1.1, `MNTPATHLEN`).
pub const PATH_BYTES_MAX: usize = 1024;
/// Rules of an export at most.
pub const RULES_MAX: usize = 256;
/// The user and the group that squashing makes of others, unless a rule names them.
pub const ANONYMOUS_ID: u32 = 65_534;

/// Addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    address: IpAddr,
    prefix: u8,
}

impl Net {
    /// The addresses whose first `prefix` bits are those of `address`; `None`
    /// if it has not so many. Bits behind them do not matter. An IPv4 address
    /// written in IPv6 is that IPv4 address.
    pub fn new(address: IpAddr, prefix: u8) -> Option<Net> {
        let mapped = match (address, address.to_canonical()) {
            (IpAddr::V6(_), IpAddr::V4(v4)) if prefix >= 96 => Some((v4, prefix - 96)),
            _ => None,
        };
        let (address, prefix) = match mapped {
            Some((v4, prefix)) => (IpAddr::V4(v4), prefix),
            None => (address, prefix),
        };
        let bits = bits_of(address).1;
        (u32::from(prefix) <= bits).then_some(Net { address, prefix })
    }

    /// One address.
    pub fn host(address: IpAddr) -> Net {
        let address = address.to_canonical();
        let prefix = bits_of(address).1 as u8;
        Net { address, prefix }
    }

    /// Whether an address is one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let ((own, bits), (other, other_bits)) = (bits_of(self.address), bits_of(address));
        let host_bits = bits - u32::from(self.prefix);
        let differs = (own ^ other).checked_shr(host_bits).unwrap_or(0);
        bits == other_bits && differs == 0
    }

    /// Whether an address is one of both.
    pub fn meets(&self, other: &Net) -> bool {
        self.contains(other.address) || other.contains(self.address)
    }
}

/// An address as a number, and how many bits it has.
fn bits_of(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()), 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    }
}

/// `10.0.0.0/8`, `fd00::/8`, `192.0.2.7`.
impl FromStr for Net {
    type Err = NotANet;

    fn from_str(text: &str) -> Result<Net, NotANet> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NotANet)?;
        match prefix {
            None => Ok(Net::host(address)),
            Some(prefix) => {
                let prefix = prefix.parse().map_err(|_| NotANet)?;
                Net::new(address, prefix).ok_or(NotANet)
            }
        }
    }
}

/// A text that names no addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("neither an address nor ADDRESS/BITS")]
pub struct NotANet;

/// Shortest first: `10.0.0.0/8`, or the address alone.
impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match u32::from(self.prefix) == bits_of(self.address).1 {
            true => self.address.fmt(f),
            false => write!(f, "{}/{}", self.address, self.prefix),
        }
    }
}

/// What a rule names clients by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientName {
    /// Their addresses.
    Net(Net),
    /// A host, which has several addresses perhaps.
    Host(Arc<NamedHost>),
    /// A pattern of host names, as `*.example.org`: the names of the address that lead to it count.
    Pattern(String),
    /// The netgroup of this name.
    Netgroup(String),
    /// A subject alternative name of their certificates with its kind, as
    /// `DNS:client.example.org`.
    Certificate(String),
}

/// A host, and the addresses that the name service has told last.
#[derive(Debug)]
pub struct NamedHost {
    name: String,
    addresses: RwLock<Vec<IpAddr>>,
}

impl NamedHost {
    /// One with these addresses.
    pub fn new(name: &str, addresses: Vec<IpAddr>) -> NamedHost {
        let host = NamedHost {
            name: name.to_owned(),
            addresses: RwLock::default(),
        };
        host.set_addresses(addresses);
        host
    }

    /// As the configuration has it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// It has these from now on, in whatever order; whether they are others than before.
    pub(crate) fn set_addresses(&self, mut addresses: Vec<IpAddr>) -> bool {
        for address in &mut addresses {
            *address = address.to_canonical();
        }
        addresses.sort_unstable();
        addresses.dedup();
        let known = self.addresses.write();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        let are_others = *known != addresses;
        *known = addresses;
        are_others
    }

    /// Whether an address that fits is one of it.
    fn has(&self, fits: impl Fn(IpAddr) -> bool) -> bool {
        let known = self.addresses.read();
        let known = known.unwrap_or_else(PoisonError::into_inner);
        known.iter().any(|address| fits(*address))
    }
}

/// Two of one name are the same, whatever addresses that had when they were made.
impl PartialEq for NamedHost {
    fn eq(&self, other: &NamedHost) -> bool {
        self.name == other.name
    }
}

impl Eq for NamedHost {}

impl ClientName {
    fn contains(&self, client: &ConnectedClient) -> bool {
        match self {
            ClientName::Net(net) => net.contains(client.address),
            ClientName::Host(host) => host.has(|address| address == client.address.to_canonical()),
            ClientName::Pattern(pattern) => {
                let mut names = client.host.names.iter();
                names.any(|name| fits(pattern, name))
            }
            ClientName::Netgroup(group) => client.host.netgroups.contains(group),
            ClientName::Certificate(name) => client.names.contains(name),
        }
    }

    /// Whether a client may be one of both.
    fn meets(&self, other: &ClientName) -> bool {
        match (self, other) {
            (ClientName::Net(own), ClientName::Net(other)) => own.meets(other),
            (ClientName::Net(net), ClientName::Host(host))
            | (ClientName::Host(host), ClientName::Net(net)) => {
                host.has(|address| net.contains(address))
            }
            (ClientName::Host(own), ClientName::Host(other)) => {
                own.has(|address| other.has(|too| too == address))
            }
            // A certificate may have several names, and be shown from anywhere; and what the name
            // service says of an address is not known.
            _ => true,
        }
    }
}

impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientName::Net(net) => net.fmt(f),
            ClientName::Host(host) => f.write_str(&host.name),
            ClientName::Netgroup(group) => write!(f, "@{group}"),
            ClientName::Pattern(name) | ClientName::Certificate(name) => f.write_str(name),
        }
    }
}

/// The clients that a rule is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clients {
    /// Every client.
    Any,
    /// Those with one of these names.
    Named(Vec<ClientName>),
}

impl Clients {
    /// Those with one of these addresses.
    pub fn nets(nets: impl IntoIterator<Item = Net>) -> Clients {
        Clients::Named(nets.into_iter().map(ClientName::Net).collect())
    }

    /// What they are named by.
    pub(crate) fn names(&self) -> &[ClientName] {
        match self {
            Clients::Any => &[],
            Clients::Named(names) => names,
        }
    }

    /// Whether a client is one of them.
    pub fn contains(&self, client: &ConnectedClient) -> bool {
        match self {
            Clients::Any => true,
            Clients::Named(names) => names.iter().any(|name| name.contains(client)),
        }
    }

    /// Whether a client may be one of both.
    pub fn meets(&self, other: &Clients) -> bool {
        match (self, other) {
            (Clients::Named(own), Clients::Named(others)) => own
                .iter()
                .any(|name| others.iter().any(|other| name.meets(other))),
            _ => true,
        }
    }
}

/// Which users become anonymous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Squash {
    /// The superuser: user 0 and group 0 become the anonymous ones.
    #[default]
    Root,
    /// Every user.
    All,
    /// No user.
    None,
}

/// What some clients may do with an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Which.
    pub clients: Clients,
    /// Nothing may be changed.
    pub is_read_only: bool,
    /// Which users become anonymous; a call with [`Flavor::None`], and one by a principal
    /// that is no user here, always is.
    pub squash: Squash,
    /// The anonymous user.
    pub anon_uid: u32,
    /// The anonymous group.
    pub anon_gid: u32,
    /// The authentication flavors that it takes, the preferred first.
    pub flavors: Vec<Flavor>,
    /// How connections may be protected.
    pub xprtsec: XprtsecModes,
    /// They come from a port below 1024, which takes a privilege on most clients.
    pub secure: bool,
    /// They see and set security labels, where the file system keeps them.
    pub security_label: bool,
}

impl Default for Rule {
    /// Every client reads and writes with AUTH_SYS, however its connection is protected, and
    /// the superuser becomes anonymous.
    fn default() -> Rule {
        Rule {
            clients: Clients::Any,
            is_read_only: false,
            squash: Squash::Root,
            anon_uid: ANONYMOUS_ID,
            anon_gid: ANONYMOUS_ID,
            flavors: vec![Flavor::Sys],
            xprtsec: XprtsecModes::ALL,
            secure: false,
            security_label: false,
        }
    }
}

impl Rule {
    /// Whether a call may have this authentication flavor (else NFS4ERR_WRONGSEC, or
    /// AUTH_TOOWEAK in NFSv3).
    #[inline]
    pub fn takes(&self, flavor: Flavor) -> bool {
        self.flavors.contains(&flavor)
    }

    /// The credential that a call acts with, where that is another one.
    #[inline]
    pub fn acting_credential(&self, said: &Credential) -> Option<Credential> {
        let is_root = || said.uid == 0 || said.gid == 0 || said.gids().contains(&0);
        let is_anonymous = said.flavor == Flavor::None || said.is_unknown;
        match self.squash {
            Squash::All => Some(self.anonymous()),
            Squash::Root | Squash::None if is_anonymous => Some(self.anonymous()),
            Squash::Root if is_root() => {
                let or = |id: u32, anon: u32| if id == 0 { anon } else { id };
                Some(Credential::sys(
                    or(said.uid, self.anon_uid),
                    or(said.gid, self.anon_gid),
                    said.gids().iter().map(|&gid| or(gid, self.anon_gid)),
                ))
            }
            Squash::None | Squash::Root => None,
        }
    }

    fn anonymous(&self) -> Credential {
        Credential::sys(self.anon_uid, self.anon_gid, [])
    }
}

/// A file system, the path that clients know it by, and the rules for clients; or a referral: where
/// such a file system is that is absent here (RFC 8881, section 11.5.6).
#[derive(Clone)]
pub struct Export {
    path: String,
    /// `None` of a referral.
    fs: Option<Arc<dyn FileSystem>>,
    /// Of a referral.
    locations: Vec<FsLocation>,
    rules: Vec<Rule>,
    id: u32,
    junction: u64,
    /// What came to it.
    meter: Arc<IoMeter>,
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fs = self.fs.as_ref().map(|fs| &fs.info().name);
        let locations = &self.locations;
        write!(f, "{} ({fs:?}) {locations:?} {:?}", self.path, self.rules)
    }
}

impl Export {
    /// `fs` as `path`, `/` or `/a/b`; the first rule whose clients match
    /// decides about a client, and a client that is in none may not see it.
    ///
    /// # Errors
    /// A path that is none, or too many rules.
    pub fn new(
        path: &str,
        fs: Arc<dyn FileSystem>,
        rules: Vec<Rule>,
    ) -> Result<Export, ExportsError> {
        Export::with(path, Some(fs), Vec::new(), rules)
    }

    /// A referral at `path`: the file system is at these locations, of which there is one at
    /// least, the preferred first.
    ///
    /// # Errors
    /// As [`Export::new`]; [`ExportsError::Referral`].
    pub fn referral(
        path: &str,
        locations: Vec<FsLocation>,
        rules: Vec<Rule>,
    ) -> Result<Export, ExportsError> {
        check_referral(path, &locations)?;
        Export::with(path, None, locations, rules)
    }

    fn with(
        path: &str,
        fs: Option<Arc<dyn FileSystem>>,
        locations: Vec<FsLocation>,
        rules: Vec<Rule>,
    ) -> Result<Export, ExportsError> {
        check_path(path)?;
        if rules.len() > RULES_MAX {
            return Err(ExportsError::Rules(path.to_owned()));
        }
        let junction = id_of_path(path);
        Ok(Export {
            path: path.to_owned(),
            fs,
            locations,
            rules,
            // 0 is no export.
            id: ((junction >> 32 ^ junction) as u32).max(1),
            junction,
            meter: Arc::default(),
        })
    }

    /// As clients know it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What is exported; `None` of a referral.
    #[inline]
    pub fn fs(&self) -> Option<&Arc<dyn FileSystem>> {
        self.fs.as_ref()
    }

    /// Where the file system of a referral is.
    pub fn locations(&self) -> &[FsLocation] {
        &self.locations
    }

    /// In order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Of its path, and never 0: what file handles carry.
    #[inline]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The `fileid` of the directory that it is mounted on
    /// (`mounted_on_fileid`).
    pub fn junction(&self) -> u64 {
        self.junction
    }

    /// What came to it.
    #[inline]
    pub fn meter(&self) -> &IoMeter {
        &self.meter
    }

    /// The `fsid` of what lies in it; of a referral one of its own (RFC 8881, section 11.4.1).
    pub fn fsid(&self) -> (u64, u64) {
        let instance = self.fs.as_ref().map(|fs| fs.info().instance);
        (instance.unwrap_or(self.junction), u64::from(self.id))
    }

    /// The rule for a client.
    pub fn rule(&self, client: impl Into<ConnectedClient>) -> Option<&Rule> {
        let client = client.into();
        let mut rules = self.rules.iter();
        rules.find(|rule| rule.clients.contains(&client))
    }
}

/// Whether something can be exported as `path`.
///
/// # Errors
/// [`ExportsError::Path`].
pub fn check_path(path: &str) -> Result<(), ExportsError> {
    let is_whole = path.starts_with('/') && path.len() <= PATH_BYTES_MAX;
    let are_names = names(path).all(|name| check_name(name.as_bytes()).is_ok());
    let is_plain = path == "/" || !path.ends_with('/');
    match is_whole && are_names && is_plain {
        true => Ok(()),
        false => Err(ExportsError::Path(path.to_owned())),
    }
}

/// Why two paths cannot both be exported, if they cannot.
pub fn clash(one: &str, other: &str) -> Option<ExportsError> {
    let is_below = |outer: &str, inner: &str| {
        let rest = inner.strip_prefix(outer.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.starts_with('/'))
    };
    match () {
        () if one == other => Some(ExportsError::Twice(one.to_owned())),
        () if is_below(one, other) => Some(ExportsError::Nested(one.into(), other.into())),
        () if is_below(other, one) => Some(ExportsError::Nested(other.into(), one.into())),
        () => None,
    }
}

/// The names that a path consists of.
pub(crate) fn names(path: &str) -> impl Iterator<Item = &str> {
    path.strip_prefix('/')
        .unwrap_or(path)
        .split('/')
        .filter(move |_| path.len() > 1)
}

/// What a path is known by, the same after every restart: its FNV-1a in 62
/// bits, because it serves as a cookie of directories too.
pub(crate) fn id_of_path(path: &str) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let hash = path.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step);
    // Cookies 0, 1 and 2 mean something else.
    ((hash ^ hash >> 62) & (u64::MAX >> 2)).max(3)
}

/// Why exports cannot be as they are wanted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportsError {
    /// This path is none.
    #[error(
        "{0:?} is no path to export as: use / or /a/b, without . and .., up to {PATH_BYTES_MAX} \
         bytes"
    )]
    Path(String),
    /// Too many rules for this one.
    #[error("{0} has more than {RULES_MAX} rules: use networks")]
    Rules(String),
    /// Two of one path.
    #[error("{0} is exported twice: give one of them another path")]
    Twice(String),
    /// The second lies below the first.
    #[error("{1} would lie within {0}, which is exported too: export {0} under a path beside it")]
    Nested(String, String),
    /// Two paths that are known by the same number.
    #[error("{0} and {1} happen to get the same number: rename one of them")]
    Alike(String, String),
    /// There can be no such referral.
    #[error("{0}: {1}")]
    Referral(String, &'static str),
    /// More than [`EXPORTS_MAX`].
    #[error("more than {EXPORTS_MAX} exports")]
    TooMany,
}

/// All that is exported at a time.
#[derive(Debug)]
pub struct Exports {
    /// By path.
    pub(crate) exports: Vec<Export>,
    /// Ids of exports with their indices, ascending.
    by_id: Vec<(u32, u32)>,
    /// Directories of the pseudo file system, the root first; also where an
    /// export takes its place, for clients that may not see the export.
    pub(crate) directories: Vec<crate::pseudo::Directory>,
    /// Rules name clients by what the name service says of their addresses.
    pub(crate) need_names: bool,
    /// The netgroups in rules, in order.
    pub(crate) netgroups: Arc<[String]>,
    /// When they became so.
    pub(crate) since: Time,
}

impl Default for Exports {
    /// Nothing.
    fn default() -> Exports {
        Exports::new(Vec::new(), Time::default()).expect("nothing stands in the way of nothing")
    }
}

impl Exports {
    /// Exports as they are from `since` on.
    ///
    /// # Errors
    /// Two of them cannot stand beside each other, or they are too many.
    pub fn new(mut exports: Vec<Export>, since: Time) -> Result<Exports, ExportsError> {
        if exports.len() > EXPORTS_MAX {
            return Err(ExportsError::TooMany);
        }
        exports.sort_by(|a, b| names(&a.path).cmp(names(&b.path)));
        for pair in exports.windows(2) {
            if let Some(error) = clash(&pair[0].path, &pair[1].path) {
                return Err(error);
            }
        }
        let by_id = exports.iter().zip(0..).map(|(export, at)| (export.id, at));
        let mut by_id: Vec<(u32, u32)> = by_id.collect();
        by_id.sort_unstable();
        if let Some(pair) = by_id.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let path = |at: u32| exports[at as usize].path.clone();
            return Err(ExportsError::Alike(path(pair[0].1), path(pair[1].1)));
        }
        let directories = crate::pseudo::directories(&exports)?;
        let rules = exports.iter().flat_map(Export::rules);
        let mut netgroups = BTreeSet::new();
        let mut need_names = false;
        for name in rules.flat_map(|rule| rule.clients.names()) {
            match name {
                ClientName::Pattern(_) => need_names = true,
                ClientName::Netgroup(group) => _ = netgroups.insert(group.clone()),
                _ => {}
            }
        }
        need_names |= !netgroups.is_empty();
        Ok(Exports {
            exports,
            by_id,
            directories,
            need_names,
            netgroups: netgroups.into_iter().collect(),
            since,
        })
    }

    /// By path.
    pub fn iter(&self) -> impl Iterator<Item = &Export> {
        self.exports.iter()
    }

    /// The export with this id.
    #[inline]
    pub fn get(&self, id: u32) -> Option<&Export> {
        self.index(id).map(|at| &self.exports[at])
    }

    /// The file system of this instance, if it is exported.
    pub(crate) fn file_system(&self, instance: u64) -> Option<&Arc<dyn FileSystem>> {
        let mut all = self.exports.iter().filter_map(Export::fs);
        all.find(|fs| fs.info().instance == instance)
    }

    #[inline]
    pub(crate) fn index(&self, id: u32) -> Option<usize> {
        let at = self.by_id.binary_search_by_key(&id, |&(id, _)| id).ok()?;
        Some(self.by_id[at].1 as usize)
    }
}

/// The exports of a server, which may be swapped at any time.
#[derive(Debug, Default)]
pub struct Live {
    exports: RwLock<Arc<Exports>>,
    generation: AtomicU64,
}

impl Live {
    /// These.
    pub fn new(exports: Exports) -> Live {
        Live {
            exports: RwLock::new(Arc::new(exports)),
            generation: AtomicU64::new(0),
        }
    }

    /// As they are now. Takes a lock: calls look at [`Live::generation`] first.
    pub fn load(&self) -> Arc<Exports> {
        let exports = self.exports.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&exports)
    }

    /// They become these; calls under way end with what they began with. What stays goes
    /// on counting what comes to it.
    pub fn swap(&self, mut exports: Exports) {
        let mut live = self.exports.write().unwrap_or_else(PoisonError::into_inner);
        for export in &mut exports.exports {
            let before = live
                .get(export.id)
                .filter(|before| before.fsid() == export.fsid());
            if let Some(before) = before {
                export.meter.clone_from(&before.meter);
            }
        }
        *live = Arc::new(exports);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// What clients see of them has changed otherwise.
    pub(crate) fn touch(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Changes whenever exports do.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests;
