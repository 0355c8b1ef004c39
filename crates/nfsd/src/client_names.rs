//! What the name service of this machine says of clients, for rules that name them by patterns of
//! host names and by netgroups (exports(5)).
//!
//! It may block. A call from an address that is not known yet waits until it has answered, and
//! no other call does.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use machine::{Nanos, locked};

use crate::Nfsd;
use crate::exports::{ClientName, Exports, NamedHost};
use crate::xprtsec::KnownHost;

/// For how long what is known counts.
const FRESH: Nanos = 600 * 1_000_000_000;
/// For how long where the name service has no answer.
const RETRY: Nanos = 60 * 1_000_000_000;
/// For how long what it has said last counts where it has no answer since.
const HELD: Nanos = 3_600 * 1_000_000_000;
/// Addresses that are known at most; where there are more, the one goes that counts for the
/// shortest.
const KNOWN_MAX: usize = 16 * 1024;
/// Names of an address that are looked at.
const NAMES_MAX: usize = 4;
/// Addresses that are looked up at a time without a connection that waits.
const ASKED_MAX: usize = 64;

/// The name service of this machine. What it is asked may block; `None`: it has no answer.
pub trait NameService {
    /// The addresses of a host.
    fn addresses(&self, host: &str) -> Option<Vec<IpAddr>>;

    /// The names of an address, which anybody may have written there.
    fn names(&self, address: IpAddr) -> Option<Vec<String>>;

    /// The hosts in a netgroup; an empty one stands for all hosts (netgroup(5)).
    fn members(&self, netgroup: &str) -> Option<Vec<String>>;
}

/// Names, each with when the name service has told last that it is one.
type ToldNames = Vec<(String, Nanos)>;

#[derive(Clone, Default)]
struct HostEntry {
    host: Arc<KnownHost>,
    names: ToldNames,
    netgroups: ToldNames,
    /// Those that were looked at.
    asked: Arc<[String]>,
    /// When it was found.
    at: Nanos,
    until: Nanos,
}

/// The addresses that are known.
#[derive(Default)]
pub struct ClientNames {
    known: Mutex<HashMap<IpAddr, HostEntry>>,
    /// Those that are looked up without a connection that waits, and whether that has begun.
    asked: Mutex<HashMap<IpAddr, bool>>,
    is_asked: AtomicBool,
}

impl ClientNames {
    /// What is known of an address where rules have these netgroups, and until when, for a call
    /// that has asked since then; `None`: it is to be looked up.
    pub(crate) fn find(
        &self,
        address: IpAddr,
        netgroups: &Arc<[String]>,
        (since, now): (Nanos, Nanos),
    ) -> Option<(Arc<KnownHost>, Nanos)> {
        let known = locked(&self.known);
        let of = known.get(&address)?;
        let counts = of.asked == *netgroups && (now < of.until || since <= of.at);
        counts.then(|| (of.host.clone(), of.until))
    }

    /// The address is to be looked up, for what comes again.
    pub fn ask(&self, address: IpAddr) {
        let mut asked = locked(&self.asked);
        if asked.len() < ASKED_MAX && !asked.contains_key(&address) {
            asked.insert(address, false);
            self.is_asked.store(true, Ordering::Release);
        }
    }

    /// The addresses whose look-up without a connection that waits is to begin.
    #[inline]
    pub fn take_asked(&self) -> Vec<IpAddr> {
        // Each call looks here: all reactors share what is only read.
        let is_asked = self.is_asked.load(Ordering::Relaxed);
        match is_asked && self.is_asked.swap(false, Ordering::AcqRel) {
            true => self.begin_asked(),
            false => Vec::new(),
        }
    }

    #[cold]
    fn begin_asked(&self) -> Vec<IpAddr> {
        let mut asked = locked(&self.asked);
        let begun = asked.iter_mut().filter(|(_, has_begun)| !**has_begun);
        let begun = begun.map(|(address, has_begun)| {
            *has_begun = true;
            *address
        });
        begun.collect()
    }

    /// The look-up of such an address has ended.
    pub fn end_asked(&self, address: IpAddr) {
        locked(&self.asked).remove(&address);
    }
}

impl Nfsd {
    /// Looks up what rules want to know of an address, unless that was done since then. It blocks.
    pub fn look_up_names(
        &self,
        address: IpAddr,
        service: &dyn NameService,
        (since, clock): (Nanos, &dyn Fn() -> Nanos),
    ) {
        let now = clock();
        let names = &self.client_names;
        let asked = self.exports.load().netgroups.clone();
        if names.find(address, &asked, (since, now)).is_some() {
            return;
        }
        let before = locked(&names.known).get(&address).cloned();
        let before = before.unwrap_or_default();
        let (found, are_names_told) = confirmed(address, service, (&before.names, now));
        let has_it = |group: &str| {
            let members = service.members(group)?;
            Some(members.iter().any(|host| is_it(host, address, &found)))
        };
        let (groups, are_groups_told) = told(asked.to_vec(), has_it, (&before.netgroups, now));
        let time = match are_names_told && are_groups_told {
            true => FRESH,
            false => RETRY,
        };
        let texts = |told: &ToldNames| told.iter().map(|(text, _)| text.clone()).collect();
        let host = KnownHost {
            names: texts(&found),
            netgroups: texts(&groups),
        };
        let at = clock();
        let known = HostEntry {
            host: Arc::new(host),
            names: found,
            netgroups: groups,
            asked,
            at,
            until: at.saturating_add(time),
        };
        let mut all = locked(&names.known);
        if all.len() >= KNOWN_MAX {
            let first = all.iter().min_by_key(|(_, of)| of.until);
            let first = first.map(|(address, _)| *address);
            first.map(|address| all.remove(&address));
        }
        all.insert(address, known);
    }

    /// The hosts that rules name.
    pub fn named_hosts(&self) -> Vec<Arc<NamedHost>> {
        let exports = self.exports.load();
        let hosts = client_names(&exports).filter_map(|name| match name {
            ClientName::Host(host) => Some(host.clone()),
            _ => None,
        });
        hosts.collect()
    }

    /// Looks up again a host that rules name; whether it has other addresses now. Where the name
    /// service has no answer it keeps those that it had. It blocks.
    pub fn look_up_host(&self, host: &NamedHost, service: &dyn NameService) -> bool {
        let told = service.addresses(host.name());
        let has_changed = told.is_some_and(|addresses| host.set_addresses(addresses));
        if has_changed {
            self.exports.touch();
        }
        has_changed
    }
}

/// The names of an address that lead to it, and whether the name service has answered all that it
/// was asked: whoever has the address says what it is called, and another what addresses that name
/// has.
fn confirmed(
    address: IpAddr,
    service: &dyn NameService,
    before: (&ToldNames, Nanos),
) -> (ToldNames, bool) {
    let Some(mut names) = service.names(address) else {
        let names = before.0.iter().map(|(name, _)| name.clone());
        return (told(names.collect(), |_| None, before).0, false);
    };
    names.truncate(NAMES_MAX);
    let leads_back = |name: &str| {
        let addresses = service.addresses(name)?;
        let mut addresses = addresses.iter().map(IpAddr::to_canonical);
        Some(addresses.any(|other| other == address))
    };
    told(names, leads_back, before)
}

/// Those that the name service says are so, and whether it has answered of all. Where it has not,
/// what it has said before counts for a while.
fn told(
    asked: Vec<String>,
    says: impl Fn(&str) -> Option<bool>,
    (before, now): (&ToldNames, Nanos),
) -> (ToldNames, bool) {
    let (mut found, mut has_answered) = (ToldNames::new(), true);
    for text in asked {
        match says(&text) {
            Some(true) => found.push((text, now)),
            Some(false) => {}
            None => {
                has_answered = false;
                let mut before = before.iter();
                let held =
                    before.find(|(of, told)| *of == text && now.saturating_sub(*told) < HELD);
                found.extend(held.cloned());
            }
        }
    }
    (found, has_answered)
}

/// Whether the host of a netgroup is the one of these names: by one of them, with or without its
/// domain, or by the address.
fn is_it(host: &str, address: IpAddr, names: &ToldNames) -> bool {
    let whole = host.strip_suffix('.').filter(|whole| !whole.is_empty());
    let host = whole.unwrap_or(host);
    let is_address = || {
        let of = host.parse().map(|of: IpAddr| of.to_canonical());
        of == Ok(address)
    };
    let is_called = |(name, _): &(String, Nanos)| {
        let short = name.split('.').next().unwrap_or_default();
        name.eq_ignore_ascii_case(host) || short.eq_ignore_ascii_case(host)
    };
    host.is_empty() || is_address() || names.iter().any(is_called)
}

fn client_names(exports: &Exports) -> impl Iterator<Item = &ClientName> {
    let rules = exports.iter().flat_map(|export| export.rules());
    rules.flat_map(|rule| rule.clients.names())
}

#[cfg(test)]
mod tests;
