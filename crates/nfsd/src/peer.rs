//! What belongs to one connection.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use machine::Nanos;
use nfs::connection::Connection;
use nfs::server::{ProvenNumber, Session, proven_number};
use store::fs::Asker;
use store::meter::IoMeter;
use wire::nfs4::{clientid4, sessionid4};

use crate::Nfsd;
use crate::answers::Answers;
use crate::call::CallIo;
use crate::duplicate_request_cache::AddressReplies;
use crate::exports::Export;
use crate::hosts::host_number;
use crate::known_states::SeenStates;
use crate::pseudo::{PseudoPlace, View};
use crate::xprtsec::{ConnectedClient, ShownCertificate, Xprtsec};

/// Sessions that a connection remembers: a client has one for each server that
/// it takes this one for.
const SESSIONS_MAX: usize = 8;

/// One connection: what it sees of the exports, its sessions, states that it
/// has seen.
pub struct Peer {
    /// Never used again for another.
    pub id: u64,
    /// Of the other side.
    pub address: SocketAddr,
    /// Of this side, where it is known.
    pub local: Option<SocketAddr>,
    /// States that it has seen.
    pub(crate) states: SeenStates,
    /// What it sees of the exports.
    pub(crate) view: View,
    /// Of which exports' generation what the name service says of its address counts, until when.
    named: Option<(u64, Nanos)>,
    /// What the certificate of its client is called, with its number, if that has shown one.
    certificate: Option<(ProvenNumber, String)>,
    /// What its address has called, once it calls something that must not be done twice.
    replies: Option<Arc<AddressReplies>>,
    /// Memory of its large answers.
    pub(crate) answers: Answers,
    /// Whose turn its calls take.
    asker: Asker,
    /// The one used last comes last.
    sessions: Vec<Rc<SessionUse>>,
    /// What the call did that was answered last.
    pub(crate) answered: Option<CallIo>,
}

/// A session that a connection has used. Counted here, not in the session, so
/// that reactors which share it do not fight for its line.
pub(crate) struct SessionUse {
    pub(crate) session: Arc<Session>,
    /// The connection may be used for it.
    is_bound: Cell<bool>,
}

impl SessionUse {
    /// Whether the connection was associated with the session by CREATE_SESSION or
    /// BIND_CONN_TO_SESSION, or needs not be (RFC 8881, section 18.46.3).
    #[inline]
    pub(crate) fn is_bound(&self) -> bool {
        self.is_bound.get()
    }

    /// It is associated.
    pub(crate) fn bind(&self) {
        self.is_bound.set(true);
    }
}

impl Peer {
    /// A connection from `address` that was just accepted.
    pub fn new(nfsd: &Nfsd, id: u64, address: SocketAddr) -> Peer {
        Peer {
            id,
            address,
            local: None,
            states: SeenStates::default(),
            view: View::new(&nfsd.exports, address),
            named: None,
            certificate: None,
            replies: None,
            answers: Answers::default(),
            asker: Asker {
                host: host_number(address.ip()),
                connection: id,
            },
            sessions: Vec::new(),
            answered: None,
        }
    }

    /// Its connection is protected by TLS from now on; its client has shown this certificate, if
    /// it has shown one.
    pub fn secure(&mut self, nfsd: &Nfsd, shown: Option<ShownCertificate>) {
        let owner = shown.as_ref().map(|shown| shown.owner.clone());
        self.certificate = owner.map(|owner| (proven_number(&owner), owner));
        let client = ConnectedClient {
            xprtsec: match shown {
                None => Xprtsec::Tls,
                Some(_) => Xprtsec::Mtls,
            },
            names: shown.map(|shown| shown.names).unwrap_or_default(),
            ..self.view.client().clone()
        };
        self.view = View::new(&nfsd.exports, client);
    }

    /// Finds what the name service says of its address, where rules ask for that, for a call that
    /// has come at `since`; `Some`: the address is to be looked up.
    #[inline]
    pub(crate) fn find_names(
        &mut self,
        nfsd: &Nfsd,
        (since, now): (Nanos, Nanos),
    ) -> Option<IpAddr> {
        let generation = self.view.generation();
        let counts = |(of, until): (u64, Nanos)| of == generation && now < until;
        match self.view.needs_names() && !self.named.is_some_and(counts) {
            true => self.look_for_names(nfsd, (since, now)),
            false => None,
        }
    }

    #[cold]
    fn look_for_names(&mut self, nfsd: &Nfsd, asked: (Nanos, Nanos)) -> Option<IpAddr> {
        let address = self.address.ip().to_canonical();
        let generation = self.view.generation();
        let netgroups = &self.view.exports().netgroups;
        let found = nfsd.client_names.find(address, netgroups, asked);
        let Some((host, until)) = found else {
            return Some(address);
        };
        let client = ConnectedClient {
            host,
            ..self.view.client().clone()
        };
        self.view = View::new(&nfsd.exports, client);
        self.named = Some((generation, until));
        None
    }

    /// How its connection is protected.
    #[inline]
    pub fn xprtsec(&self) -> Xprtsec {
        self.view.client().xprtsec
    }

    #[inline]
    pub(crate) fn certificate_number(&self) -> Option<ProvenNumber> {
        self.certificate.as_ref().map(|(number, _)| *number)
    }

    /// What the certificate is called that its client has shown.
    pub fn certificate_name(&self) -> Option<&str> {
        self.certificate.as_ref().map(|(_, name)| &**name)
    }

    /// Whether something is exported to its client.
    pub fn has_exports(&self) -> bool {
        self.view.all_granted().next().is_some()
    }

    /// The export that a file handle leads into.
    pub fn export_of(&self, handle: &[u8]) -> Option<u32> {
        match self.view.find(handle) {
            Ok(PseudoPlace::File { export, .. }) => Some(export),
            _ => None,
        }
    }

    /// Under which path its client has an export.
    pub fn export_path(&self, export: u32) -> Option<&str> {
        let granted = self.view.granted(export)?;
        Some(granted.export.path())
    }

    /// The number of its host, as of [`Asker::host`].
    pub fn host(&self) -> u64 {
        self.asker.host
    }

    /// The client whose session it has used last.
    pub fn client(&self) -> Option<clientid4> {
        Some(self.sessions.last()?.session.client.id)
    }

    /// The exports have changed: a connection that says nothing does not hold what is
    /// gone.
    pub fn on_exports(&mut self, nfsd: &Nfsd) {
        self.view.refresh(&nfsd.exports);
    }

    /// What the call did that was just answered, and where that is metered.
    #[inline]
    pub fn take_answered(&mut self) -> Option<(CallIo, Option<&IoMeter>)> {
        let io = self.answered.take()?;
        let export = self.view.exports().get(io.export);
        Some((io, export.map(Export::meter)))
    }

    /// Time has passed: it gives back what its client has taken.
    pub fn on_tick(&mut self, machine: &Connection) {
        self.answers.trim(machine.unsent_bytes());
    }

    /// Whose turn its calls take where they wait.
    #[inline]
    pub(crate) fn asker(&self) -> Asker {
        self.asker
    }

    /// What its address has called that must not be done twice.
    pub(crate) fn address_replies(&mut self, nfsd: &Nfsd) -> &Arc<AddressReplies> {
        let address = self.address.ip();
        self.replies.get_or_insert_with(|| nfsd.replies.of(address))
    }

    /// A session by its name.
    #[inline]
    pub(crate) fn session(&mut self, nfsd: &Nfsd, id: &sessionid4) -> Option<Rc<SessionUse>> {
        if let Some(held) = self.sessions.last()
            && held.session.id == *id
            && !held.session.is_gone()
        {
            return Some(held.clone());
        }
        self.find_session(nfsd, id)
    }

    #[cold]
    fn find_session(&mut self, nfsd: &Nfsd, id: &sessionid4) -> Option<Rc<SessionUse>> {
        self.sessions.retain(|held| !held.session.is_gone());
        let known = self.sessions.iter().position(|held| held.session.id == *id);
        let held = match known {
            Some(at) => self.sessions.remove(at),
            None => {
                let session = nfsd.server.session(id)?;
                let must_bind = session.client.must_bind(self.certificate_number());
                Rc::new(SessionUse {
                    session,
                    is_bound: Cell::new(!must_bind),
                })
            }
        };
        if self.sessions.len() == SESSIONS_MAX {
            self.sessions.remove(0);
        }
        self.sessions.push(held.clone());
        Some(held)
    }
}
