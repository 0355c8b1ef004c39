//! What importers of NFS exports share: clients as weft names them, squashing, and exports that
//! weft cannot nest.

use std::collections::HashSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use server::nfs;

use crate::Import;
use crate::model::{ExportModel, Notes, RuleModel};
use crate::report::Weight::{Access, Lost};
use crate::tree::SourceKey;

/// Whom a rule is for, in the words of weft.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Client {
    /// A host or an address.
    One(String),
    /// A network.
    Net(String),
    /// Hosts that the source does not name one by one: a pattern or a netgroup.
    Unknown,
    /// Everybody.
    Any,
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Client::One(name) | Client::Net(name) => f.write_str(name),
            Client::Unknown => f.write_str("a pattern or netgroup"),
            Client::Any => f.write_str("everybody"),
        }
    }
}

impl Client {
    /// Whether somebody may be both. Of a name it is not known where it leads.
    fn meets(&self, other: &Client) -> bool {
        let net = |client: &Client| match client {
            Client::One(name) => Some((name.parse().ok()?, 128)),
            Client::Net(name) => {
                let (ip, bits) = name.split_once('/')?;
                Some((ip.parse::<IpAddr>().ok()?, bits.parse().ok()?))
            }
            Client::Unknown | Client::Any => None,
        };
        match (net(self), net(other)) {
            (Some((IpAddr::V4(a), bits)), Some((IpAddr::V4(b), others))) => {
                let bits = others.min(bits).min(32);
                first_of(a.into(), bits) == first_of(b.into(), bits)
            }
            (Some((a, bits)), Some((b, others))) if a.is_ipv6() == b.is_ipv6() => {
                first_of(a, bits.min(others)) == first_of(b, bits.min(others))
            }
            (Some(_), Some(_)) => false,
            _ => true,
        }
    }
}

/// A client as it is asked, and what it may do; `None`: nothing.
pub(crate) struct AskedClient {
    pub client: Client,
    pub terms: Option<ExportTerms>,
    pub note: String,
}

/// Clients that are shut out of an export, of which each is looked for.
const SHUT_MAX: usize = 1_000;

/// What decides the rights of a rule's clients.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExportTerms {
    pub read_only: bool,
    pub squash: &'static str,
    pub anon_uid: u32,
    pub anon_gid: u32,
    pub security: Vec<&'static str>,
    /// How connections may be protected; empty: however.
    pub xprtsec: Vec<&'static str>,
    /// From ports below 1024 alone.
    pub secure: bool,
}

/// Why a flavor is not carried over that proves who users are.
pub(crate) fn left_out_flavor(name: &str) -> String {
    match name.starts_with("krb5") {
        true => format!(
            "{name} is left out: add it to `security` when [nfs.kerberos] names a keytab, until \
             then clients that prove themselves by it cannot"
        ),
        false => format!("weft has no {name}: clients that prove themselves by it cannot"),
    }
}

impl ExportTerms {
    /// What both allow.
    fn least(self, other: &ExportTerms) -> ExportTerms {
        let strict = |squash: &str| {
            ["none", "root", "all"]
                .iter()
                .position(|word| *word == squash)
        };
        let mut least = self;
        least.read_only |= other.read_only;
        least.secure |= other.secure;
        if strict(least.squash) < strict(other.squash) {
            least.squash = other.squash;
            (least.anon_uid, least.anon_gid) = (other.anon_uid, other.anon_gid);
        }
        least
            .security
            .retain(|flavor| other.security.contains(flavor));
        match (least.xprtsec.is_empty(), other.xprtsec.is_empty()) {
            (_, true) => {}
            (true, false) => least.xprtsec.clone_from(&other.xprtsec),
            (false, false) => least.xprtsec.retain(|way| other.xprtsec.contains(way)),
        }
        least
    }

    pub fn rule(&self, clients: Option<Vec<String>>, note: &str) -> RuleModel {
        let mut notes = Notes::default();
        for key in [
            "clients",
            "allow_any_client",
            "read_only",
            "squash",
            "security",
            "xprtsec",
            "secure",
        ] {
            notes.set(key, note);
        }
        for key in ["anon_uid", "anon_gid"] {
            notes.set(key, note);
        }
        RuleModel {
            clients,
            read_only: self.read_only,
            squash: self.squash,
            anon_uid: self.anon_uid,
            anon_gid: self.anon_gid,
            security: self.security.clone(),
            xprtsec: self.xprtsec.clone(),
            secure: self.secure,
            note: notes,
        }
    }
}

impl Import<'_> {
    /// A client as the source names it; `None` if weft has no word for it, which is told.
    pub(crate) fn client(&mut self, at: &SourceKey, text: &str) -> Option<Client> {
        if matches!(text, "" | "*" | "0.0.0.0/0" | "::/0") {
            return Some(Client::Any);
        }
        if text.starts_with('@') || text.contains(['*', '?', '[']) && !text.starts_with('[') {
            let what = if text.starts_with('@') {
                "netgroup"
            } else {
                "pattern"
            };
            let why = format!(
                "{text} is a {what}, which is not taken over: write it into `clients` of the \
                 export, until then its hosts are not let in"
            );
            self.report.add(at.place, "client", Access, why);
            return Some(Client::Unknown);
        }
        let text = text.replace(['[', ']'], "");
        match network(&text) {
            Some(Ok(found)) => Some(found),
            Some(Err(why)) => {
                self.report.mistake(at.place, why);
                None
            }
            None => match server::check::host(&text) {
                Ok(()) => Some(Client::One(text)),
                Err(why) => {
                    self.report
                        .mistake(at.place, format!("{why}: name a host or a network"));
                    None
                }
            },
        }
    }

    /// The rules of an export, from clients in the order in which they are asked. Who is not let
    /// in, or may do less, gets no more by a rule behind.
    pub(crate) fn rules(&mut self, at: &SourceKey, asked: Vec<AskedClient>) -> Vec<RuleModel> {
        let mut rules: Vec<RuleModel> = Vec::new();
        let mut shut: Vec<Client> = Vec::new();
        let mut unknown: Vec<ExportTerms> = Vec::new();
        let mut last: Option<ExportTerms> = None;
        let mut named: HashSet<String> = HashSet::new();
        for AskedClient {
            client,
            terms,
            note,
        } in asked
        {
            let Some(terms) = terms else {
                shut.push(client);
                continue;
            };
            let is_shut = shut.len() > SHUT_MAX || shut.iter().any(|known| known.meets(&client));
            if is_shut && client != Client::Unknown {
                let why = format!(
                    "among {client} are clients that must not be let in, and weft makes no \
                     exceptions: it is left out"
                );
                self.report.add(at.place, "clients", Access, why);
                shut.push(client);
                continue;
            }
            let name = match &client {
                Client::Unknown => {
                    unknown.push(terms);
                    continue;
                }
                Client::One(name) | Client::Net(name) => Some(name.clone()),
                Client::Any => None,
            };
            let least = unknown.iter().fold(terms.clone(), ExportTerms::least);
            if least != terms {
                let why = format!("{client} may do no more than the pattern or netgroup before it");
                self.report.add(at.place, "clients", Access, why);
            }
            if least.security.is_empty() {
                continue;
            }
            match (
                rules.last_mut().and_then(|rule| rule.clients.as_mut()),
                name,
            ) {
                (Some(clients), Some(name)) if last.as_ref() == Some(&least) => {
                    if named.insert(name.clone()) {
                        clients.push(name);
                    }
                }
                (_, name) => {
                    named = name.iter().cloned().collect();
                    rules.push(least.rule(name.map(|name| vec![name]), &note));
                }
            }
            last = Some(least);
            // After everybody none is asked.
            if client == Client::Any {
                break;
            }
        }
        rules
    }

    /// Adds an export unless it is there, or lies in another or around it, and so cannot be.
    pub(crate) fn export(&mut self, at: &SourceKey, mut export: ExportModel) {
        if export.path.len() > 1 {
            let plain = export.path.trim_end_matches('/').to_owned();
            export.path = plain;
        }
        if export.folder.len() > 1 {
            let plain = export.folder.trim_end_matches('/').to_owned();
            export.folder = plain;
        }
        if let Err(why) = nfs::check_path(&export.path) {
            return self.report.mistake(at.place, why.to_string());
        }
        if self.model.exports.len() == EXPORTS_MAX {
            let text = format!("there are more than {EXPORTS_MAX} exports");
            return self.report.mistake(at.place, text);
        }
        if export.rules.len() > nfs::RULES_MAX {
            let text = format!(
                "an export has {} rules at most: use networks",
                nfs::RULES_MAX
            );
            return self.report.mistake(at.place, text);
        }
        let mut known = self.model.exports.iter();
        let clash = known.find_map(|other| {
            let same = || nfs::clash(&other.path, &export.path).map(|why| why.to_string());
            let is_same = other.folder == export.folder;
            same().or_else(|| is_same.then(|| format!("{} is exported already", other.folder)))
        });
        match clash {
            Some(why) => {
                let path = export.path;
                let why = format!("{why}: {path} is left out; one export serves what is below it");
                self.report.add(at.place, "export", Access, why);
            }
            None => self.model.exports.push(export),
        }
    }

    /// A number of a user or group that is none to `chown`, or its name.
    pub(crate) fn id(&mut self, at: &SourceKey, text: &str) -> Option<u32> {
        match text {
            "root" | "wheel" => return Some(0),
            "nobody" => return Some(65_534),
            _ => {}
        }
        // -2 is what the number was called when it had 16 bits, or 32.
        let number = match text.parse::<i64>() {
            Ok(-2) => Some(65_534),
            Ok(number) => u32::try_from(number).ok().filter(|id| *id != u32::MAX),
            Err(_) => None,
        };
        if number.is_none() {
            let why = format!(
                "{text}: only numbers mean the same on every machine: look it up with `id` and \
                 set `anon_uid` and `anon_gid`; it is 65534"
            );
            self.report.add(at.place, &at.name, Lost, why);
        }
        number
    }
}

/// What one file is compared with every other for.
const EXPORTS_MAX: usize = 4_096;

/// An address or a network, with the length of its prefix or a mask; `None`: no address.
fn network(text: &str) -> Option<Result<Client, String>> {
    let (address, behind) = match text.split_once('/') {
        None => (text, None),
        Some((address, behind)) => (address, Some(behind)),
    };
    let ip: IpAddr = address.parse().ok()?;
    let Some(behind) = behind else {
        return Some(Ok(Client::One(ip.to_string())));
    };
    let most = if ip.is_ipv4() { 32 } else { 128 };
    let bits = match behind.parse::<Ipv4Addr>() {
        Ok(mask) if ip.is_ipv4() => mask_bits(mask),
        _ => behind.parse().ok().filter(|bits| *bits <= most),
    };
    let Some(bits) = bits else {
        return Some(Err(format!(
            "{text}: {behind:?} is no length of a prefix and no mask: write 192.0.2.0/24"
        )));
    };
    Some(Ok(match bits {
        0 => Client::Any,
        bits => Client::Net(format!("{}/{bits}", first_of(ip, bits))),
    }))
}

/// How many bits a mask has, if they stand together.
pub(crate) fn mask_bits(mask: Ipv4Addr) -> Option<u32> {
    let bits = mask.to_bits();
    (bits.leading_ones() + bits.trailing_zeros() >= 32).then(|| bits.leading_ones())
}

/// The first address of a network.
fn first_of(ip: IpAddr, bits: u32) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() & mask))
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            IpAddr::V6((ip.to_bits() & mask).into())
        }
    }
}
