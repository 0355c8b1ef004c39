//! Keys and secrets of NVMe hosts: what a host comes with, and what a document has for it.

use std::time::Duration;

use auth::dhchap::{DhchapHash, DhchapKey};
use auth::psk::{Psk, PskHash};
use auth::{HostDhchap, HostPsk};
use nvmf::HostTerms;
use nvmf::dhchap::{DhchapChoice, DhchapKeys};
use random::Random;
use server::SubsystemSpec;

use crate::changes::host_nqn;
use crate::plan::{DhchapPlan, Plan};

/// What a host shows to be let in. Its keys and secrets have two generations: those of the
/// first are in the document in which all hosts have everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The generation of its key for TLS, where it speaks TLS.
    pub psk: u8,
    /// The generation of its secret, where it has one.
    pub secret: u8,
    /// The host that it says to be in its Connect, if that is another: where it makes a key by
    /// authentication, in that behind TLS.
    pub poses_as: Option<usize>,
    /// It goes on without TLS, whatever key it has made.
    pub stays_plain: bool,
    /// It comes back by the key that it has made.
    pub has_made_key: bool,
}

/// What a host has, and what of it it shows.
pub struct HostCredentials {
    host: usize,
    tls: Option<PskHash>,
    dhchap: Option<DhchapPlan>,
    concatenates: bool,
    /// The key that it has made.
    made: Option<Psk>,
    /// Hosts that have keys or secrets, of the same subsystem.
    others: Vec<usize>,
    random: Random,
    /// It may show something else than it has at first.
    comes_odd: bool,
    /// What it shows this time.
    pub shown: Credentials,
    /// Times that it has shown something else than it has at first.
    pub odd: u64,
}

impl HostCredentials {
    /// Of a host of a plan.
    pub fn new(plan: &Plan, host: usize) -> HostCredentials {
        let own = &plan.hosts[host];
        let others = plan.hosts.iter().enumerate();
        let others = others.filter(|(other, of)| {
            let is_near = of.speaks_nvme() && of.subsystem == own.subsystem;
            *other != host && is_near && (of.tls.is_some() || of.dhchap.is_some())
        });
        HostCredentials {
            host,
            tls: own.tls,
            dhchap: own.dhchap,
            concatenates: own.concatenates,
            made: None,
            others: others.map(|(other, _)| other).collect(),
            random: Random::new(plan.seed ^ 0x7368_6f77_6e73_6f00 ^ host as u64),
            comes_odd: plan.odd_arrivals,
            shown: Credentials::default(),
            odd: 0,
        }
    }

    /// What it shows from now on: mostly its own name, with the key and the secret of the first
    /// generation.
    pub fn draw(&mut self) -> Credentials {
        self.made = None;
        self.shown = Credentials::default();
        if !self.comes_odd {
            return self.shown;
        }
        let r = &mut self.random;
        self.shown = Credentials {
            psk: u8::from(self.tls.is_some() && r.one_in(6)),
            secret: u8::from(self.dhchap.is_some() && r.one_in(6)),
            poses_as: match !self.others.is_empty() && r.one_in(6) {
                true => Some(r.pick(&self.others)),
                false => None,
            },
            stays_plain: self.concatenates && r.one_in(6),
            has_made_key: false,
        };
        self.odd += u64::from(self.shown != Credentials::default());
        Credentials {
            poses_as: self.poses_as(),
            ..self.shown
        }
    }

    /// Whether it has a key to make before anything else.
    pub fn makes_key(&self) -> bool {
        self.concatenates && self.made.is_none()
    }

    /// It comes back by the key that it has made.
    pub fn come_back(&mut self, made: Psk) -> Credentials {
        (self.made, self.shown.has_made_key) = (Some(made), true);
        self.shown
    }

    /// The host that it says to be this time, if that is another.
    pub fn poses_as(&self) -> Option<usize> {
        self.shown.poses_as.filter(|_| !self.makes_key())
    }

    /// Its key for TLS, if it speaks TLS.
    pub fn psk(&self) -> Option<Psk> {
        let own = self.tls.map(|hash| psk(hash, self.host, self.shown.psk));
        self.made.clone().or(own)
    }

    /// Its secret, and that of the controller where that has to authenticate, too.
    pub fn dhchap(&self) -> Option<DhchapKeys> {
        // A key that it has made stands for it.
        let own = self.dhchap.filter(|_| self.made.is_none())?;
        let secrets = secrets(own.hash, self.host, self.shown.secret);
        Some(DhchapKeys {
            controller: secrets.controller.filter(|_| own.is_mutual),
            ..secrets
        })
    }
}

/// A host's key for TLS.
pub fn psk(hash: PskHash, host: usize, generation: u8) -> Psk {
    Psk::new(hash, |bytes| bytes.fill(host as u8 * 2 + generation + 1))
}

/// A host's secret, and that of the controller to it.
pub fn secrets(hash: DhchapHash, host: usize, generation: u8) -> DhchapKeys {
    let secret = |salt: u8| {
        DhchapKey::new(hash, &mut |bytes| {
            bytes.fill(host as u8 * 2 + generation + salt);
        })
    };
    DhchapKeys {
        host: vec![secret(64).into()],
        controller: Some(secret(128)),
    }
}

/// Fills in what hosts are held to: what each of them has, in the first generation.
pub fn hold_to_all(plan: &Plan, spec: &mut SubsystemSpec) {
    spec.dhchap = DhchapChoice {
        hashes: DhchapHash::ALL.to_vec(),
        groups: vec![plan.dhchap_group],
    };
    let hosts = plan.hosts.iter().enumerate();
    let terms = hosts.map(|(number, host)| HostTerms {
        psks: host
            .tls
            .into_iter()
            .map(|hash| good(hash, number, 0))
            .collect(),
        dhchap: (host.dhchap).map(|dhchap| secrets(dhchap.hash, number, 0)),
        ..HostTerms::new(host_nqn(number))
    });
    // Hosts that are held to nothing are not named.
    spec.terms = terms
        .filter(|terms| *terms != HostTerms::new(&*terms.nqn))
        .collect();
}

/// The same by chance: keys and secrets are added, rotated and gone, and hosts that have none
/// are asked for them.
pub fn hold_to_some(plan: &Plan, spec: &mut SubsystemSpec, r: &mut Random) {
    if !plan.has_credentials() {
        return;
    }
    hold_to_all(plan, spec);
    let count = r.between(1, DhchapHash::ALL.len() as u64) as usize;
    spec.dhchap.hashes.rotate_left(count - 1);
    spec.dhchap.hashes.truncate(count);
    let all = plan.hosts.iter().enumerate();
    let terms = all.filter(|(_, host)| host.speaks_nvme());
    let terms = terms.map(|(number, host)| HostTerms {
        psks: some_psks(host.tls, number, r),
        dhchap: some_secrets(host.dhchap, number, r),
        ..HostTerms::new(host_nqn(number))
    });
    spec.terms = terms
        .filter(|terms| *terms != HostTerms::new(&*terms.nqn))
        .collect();
}

fn good(hash: PskHash, host: usize, generation: u8) -> HostPsk {
    HostPsk {
        key: psk(hash, host, generation),
        until: None,
    }
}

fn until(hash: PskHash, host: usize, generation: u8, time: Duration) -> HostPsk {
    HostPsk {
        key: psk(hash, host, generation),
        until: Some(time),
    }
}

/// Times since 1970, of which one is over and the other far away: the clock that keys expire by
/// is none of the simulated ones.
const OVER: Duration = Duration::from_secs(1);
const FAR: Duration = Duration::from_secs(1 << 36);

fn some_psks(tls: Option<PskHash>, host: usize, r: &mut Random) -> Vec<HostPsk> {
    let Some(hash) = tls else {
        return match r.one_in(8) {
            true => vec![good(PskHash::Sha256, host, 0)],
            false => Vec::new(),
        };
    };
    match r.below(12) {
        0..4 => vec![good(hash, host, 0)],
        4 | 5 => vec![good(hash, host, 1), good(hash, host, 0)],
        6 | 7 => vec![good(hash, host, 1), until(hash, host, 0, FAR)],
        8 => vec![good(hash, host, 1), until(hash, host, 0, OVER)],
        9 => vec![until(hash, host, 0, OVER)],
        10 => vec![good(hash, host, 1)],
        _ => Vec::new(),
    }
}

fn some_secrets(dhchap: Option<DhchapPlan>, host: usize, r: &mut Random) -> Option<DhchapKeys> {
    let Some(DhchapPlan { hash, .. }) = dhchap else {
        return r.one_in(8).then(|| secrets(DhchapHash::Sha256, host, 0));
    };
    let (first, second) = (secrets(hash, host, 0), secrets(hash, host, 1));
    // The controller's stays while the host takes the new one.
    let both = |until| {
        let mut keys = first.clone();
        keys.host[0].until = until;
        keys.host.insert(0, second.host[0].clone());
        Some(keys)
    };
    match r.below(14) {
        0..5 => Some(first),
        5 => Some(DhchapKeys {
            controller: None,
            ..first
        }),
        6 => Some(DhchapKeys {
            controller: second.controller,
            ..first
        }),
        7 | 8 => Some(second),
        9 => both(None),
        10 | 11 => both(Some(FAR)),
        12 => both(Some(OVER)),
        _ => None,
    }
}

/// Whether what a document has for the host that is named is what a host shows.
pub struct Proof<'d> {
    plan: &'d Plan,
    /// The host, and what it shows.
    host: usize,
    shown: Credentials,
    terms: Option<&'d HostTerms>,
    choice: &'d DhchapChoice,
}

impl<'d> Proof<'d> {
    /// Of a host to a subsystem.
    pub fn new(
        plan: &'d Plan,
        spec: &'d SubsystemSpec,
        (host, shown): (usize, Credentials),
    ) -> Proof<'d> {
        let nqn = host_nqn(shown.poses_as.unwrap_or(host));
        Proof {
            plan,
            host,
            shown,
            terms: spec.terms.iter().find(|terms| terms.nqn == nqn),
            choice: &spec.dhchap,
        }
    }

    /// Whether it may be connected as it has come, whatever key or secret it has shown.
    pub fn may_stay(&self) -> bool {
        !self.needs_tls() || self.plan.hosts[self.host].speaks_tls()
    }

    fn needs_tls(&self) -> bool {
        self.terms.is_some_and(HostTerms::needs_tls)
    }

    /// Whether a host that makes a key gets all its queues: the key goes with its secret, a
    /// host that comes to need TLS loses what it has without, and without the key no I/O queue
    /// is taken.
    pub fn keeps_key(&self) -> bool {
        let own = &self.plan.hosts[self.host];
        let has_tls = self.shown.has_made_key || !self.needs_tls();
        !own.concatenates || (self.has_secret() && has_tls && !self.shown.stays_plain)
    }

    /// Whether the key that it speaks TLS by is one of those that it may have, in its own name.
    pub fn has_key(&self) -> bool {
        let own = &self.plan.hosts[self.host];
        let Some(hash) = own.tls else {
            // A key that was made is of the host that has made it.
            return !self.shown.has_made_key || self.shown.poses_as.is_none();
        };
        let key = psk(hash, self.host, self.shown.psk);
        let is_key = |known: &&HostPsk| known.until != Some(OVER) && known.key == key;
        let known = self.terms.map_or(&[][..], |terms| &terms.psks);
        self.shown.poses_as.is_none() && known.iter().any(|known| is_key(&known))
    }

    /// Whether it and the controller prove what they have to each other.
    pub fn has_secret(&self) -> bool {
        let own = self.plan.hosts[self.host].dhchap;
        let known = self.terms.and_then(|terms| terms.dhchap.as_ref());
        let (Some(own), Some(known)) = (own, known) else {
            // A host that wants the controller to authenticate does not do without.
            return match own {
                Some(own) => !own.is_mutual && !self.plan.hosts[self.host].concatenates,
                None => known.is_none(),
            };
        };
        let mut hashes = self.choice.hashes.iter();
        let makes_key = self.plan.hosts[self.host].concatenates;
        if makes_key && !hashes.any(|hash| hash.is_of_tls()) {
            return false;
        }
        let mine = secrets(own.hash, self.host, self.shown.secret);
        let is_mine =
            |known: &HostDhchap| known.until != Some(OVER) && known.key == mine.host[0].key;
        known.host.iter().any(is_mine) && (!own.is_mutual || mine.controller == known.controller)
    }
}

/// What hosts are held to, in words and order that do not depend on where it stands. The
/// secrets are part of it.
pub fn words_of(spec: &SubsystemSpec) -> Vec<String> {
    let text = |terms: &HostTerms| {
        let psks = terms.psks.iter();
        let psks: Vec<_> = psks
            .map(|known| (known.key.interchange(), known.until))
            .collect();
        let secrets = terms.dhchap.as_ref().map(|keys| {
            let controller = keys.controller.as_ref().map(DhchapKey::interchange);
            let own = keys.host.iter();
            let own: Vec<_> = own
                .map(|known| (known.key.interchange(), known.until))
                .collect();
            (own, controller)
        });
        format!("{} {:?} {psks:?} {secrets:?}", terms.nqn, terms.networks)
    };
    let mut all: Vec<String> = spec.terms.iter().map(text).collect();
    all.sort();
    all.push(format!("{:?}", spec.dhchap));
    all
}
