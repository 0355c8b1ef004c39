//! The contexts of a server, by handle.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use auth::gss::{ContextStep, GssContext, GssError, Unfinished};
use auth::gss_acceptor::AcceptError;
use faults::Fault;
use machine::{Nanos, locked, work};
use wire::rpc::{RPCSEC_GSS_MAXSEQ, rpc_gss_service_t};

use super::window::Window;
use super::{WINDOW_TOLD, major, service};
use crate::connection::{Credential, Flavor};
use crate::server::{ProvenNumber, Secret, proven_number};

/// How a context is named: a number, and bits that only the server can make of it.
type Handle = [u8; 16];

/// How many contexts there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextsSettings {
    /// Of all clients.
    pub contexts_max: usize,
    /// Of one host, behind whose address there may be many.
    pub contexts_of_host_max: usize,
    /// Of all clients that are not finished.
    pub unfinished_max: usize,
    /// So long an unfinished one is kept.
    pub unfinished_time: Nanos,
}

impl Default for ContextsSettings {
    fn default() -> ContextsSettings {
        ContextsSettings {
            contexts_max: 8192,
            contexts_of_host_max: 2048,
            unfinished_max: 64,
            unfinished_time: 30_000_000_000,
        }
    }
}

/// An established context.
pub struct Context {
    handle: Handle,
    /// What its client has proved to be.
    principal: Box<str>,
    /// Its user; the flavor is that of each call.
    credential: Credential,
    /// Where it was made from, as its caller numbers hosts.
    host: u64,
    /// From then on it is good no more.
    expires: Nanos,
    /// When it was made, or a call in it was verified last.
    used: AtomicU64,
    /// The number of the last call to its client.
    callbacks: AtomicU32,
    /// A call in it was verified: its client has the key, which one that sends another's token
    /// once more has not.
    is_proven: AtomicBool,
    state: Mutex<ContextState>,
}

struct ContextState {
    gss: Box<dyn GssContext>,
    window: Window,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("credential", &self.credential)
            .finish_non_exhaustive()
    }
}

/// A context that was used less than this ago is not noted as used again.
const USED_NANOS: Nanos = 1_000_000_000;

impl Context {
    /// The credential of a call in it with this service.
    pub(crate) fn credential(&self, service: rpc_gss_service_t) -> Credential {
        let mut credential = self.credential.clone();
        credential.flavor = match service {
            rpc_gss_service_t::rpc_gss_svc_none => Flavor::Krb5,
            rpc_gss_service_t::rpc_gss_svc_integrity => Flavor::Krb5i,
            rpc_gss_service_t::rpc_gss_svc_privacy => Flavor::Krb5p,
        };
        credential
    }

    /// What its client has proved to be.
    pub(crate) fn principal(&self) -> &str {
        &self.principal
    }

    /// Checks the header of a call, then whether its sequence number is new; false: the
    /// call is not answered.
    pub(crate) fn verify_header(
        &self,
        header: &[u8],
        (mic, number): (&[u8], u32),
        now: Nanos,
    ) -> Result<bool, GssError> {
        work::spend_bytes(header.len() as u64);
        let mut state = locked(&self.state);
        match state.gss.verify_mic(header, mic) {
            Err(_) if faults::is(Fault::AnyMic) => {}
            checked => checked?,
        }
        let is_new = state.window.take(number) || faults::is(Fault::NoWindow);
        drop(state);
        if is_new && now.saturating_sub(self.used.load(Ordering::Relaxed)) > USED_NANOS {
            self.used.store(now, Ordering::Relaxed);
        }
        if is_new && !self.is_proven.load(Ordering::Relaxed) {
            self.is_proven.store(true, Ordering::Relaxed);
        }
        Ok(is_new)
    }

    /// As [`GssContext::mic`].
    pub(crate) fn mic(&self, message: &[u8], out: &mut Vec<u8>) -> Result<(), GssError> {
        work::spend_bytes(message.len() as u64);
        locked(&self.state).gss.mic(message, out)
    }

    /// As [`GssContext::verify_mic`].
    pub(crate) fn verify_mic(&self, message: &[u8], mic: &[u8]) -> Result<(), GssError> {
        work::spend_bytes(message.len() as u64);
        locked(&self.state).gss.verify_mic(message, mic)
    }

    /// The number of the next call to its client; `None`: there are no more (RFC 2203, section
    /// 5.3.3.1).
    pub(crate) fn next_callback(&self) -> Option<u32> {
        let next = |last| (last + 1 < RPCSEC_GSS_MAXSEQ).then_some(last + 1);
        let last = (self.callbacks).fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        last.ok().map(|last| last + 1)
    }

    /// As [`service::ahead`].
    pub(crate) fn ahead(&self, service: rpc_gss_service_t) -> usize {
        service::ahead(&*locked(&self.state).gss, service)
    }

    /// Protects results: as [`service::protect`].
    pub(crate) fn protect(
        &self,
        by: (rpc_gss_service_t, u32),
        bytes: &mut Vec<u8>,
        at: usize,
    ) -> Result<(), GssError> {
        spend(by.0, bytes.len() - at);
        service::protect(&mut *locked(&self.state).gss, by, bytes, at)
    }

    /// Where the arguments lie in what was sent for them: as [`service::open`].
    pub(crate) fn open(
        &self,
        by: (rpc_gss_service_t, u32),
        body: &mut [u8],
    ) -> Option<std::ops::Range<usize>> {
        spend(by.0, body.len());
        service::open(&mut *locked(&self.state).gss, by, body)
    }

    fn is_expired(&self, now: Nanos) -> bool {
        now >= self.expires && !faults::is(Fault::KeepContexts)
    }
}

/// The work on so many protected bytes.
fn spend(service: rpc_gss_service_t, len: usize) {
    let passes = match service {
        rpc_gss_service_t::rpc_gss_svc_none => 0,
        rpc_gss_service_t::rpc_gss_svc_integrity => 1,
        // They are encrypted, and their checksum is computed.
        rpc_gss_service_t::rpc_gss_svc_privacy => 2,
    };
    work::spend_bytes(passes * len as u64);
}

/// A context of which further tokens are awaited.
struct Begun {
    unfinished: Unfinished,
    since: Nanos,
}

#[derive(Default)]
struct Table {
    contexts: HashMap<Handle, Arc<Context>>,
    /// How many each host has.
    hosts: HashMap<u64, usize>,
    unfinished: HashMap<Handle, Begun>,
    next: u64,
}

impl Table {
    fn remove(&mut self, handle: &Handle) -> Option<Arc<Context>> {
        let context = self.contexts.remove(handle)?;
        if let Some(count) = self.hosts.get_mut(&context.host) {
            *count -= 1;
            if *count == 0 {
                self.hosts.remove(&context.host);
            }
        }
        Some(context)
    }

    /// Removes a context, of a host if one is named: one that is good no more, else one of the
    /// host that has most; of these one without a verified call, else the one that was not used
    /// for longest. Its client makes another one.
    fn make_room(&mut self, host: Option<u64>, now: Nanos) {
        work::spend(self.contexts.len() as u64);
        let of_host = |context: &&Arc<Context>| host.is_none_or(|host| context.host == host);
        let all = self.contexts.values().filter(of_host);
        let first = all.min_by_key(|context| {
            (
                !context.is_expired(now),
                Reverse(self.hosts.get(&context.host)),
                context.is_proven.load(Ordering::Relaxed),
                context.used.load(Ordering::Relaxed),
            )
        });
        if let Some(handle) = first.map(|context| context.handle) {
            self.remove(&handle);
        }
    }
}

/// The contexts of a server.
pub struct Contexts {
    settings: ContextsSettings,
    secret: Secret,
    table: Mutex<Table>,
}

impl fmt::Debug for Contexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Contexts({})", self.len())
    }
}

/// The answer to a call that makes a context, for
/// [`Connection::send_init`](crate::Connection::send_init).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InitAnswer {
    /// Names the context, or what there is of it; empty where there is none.
    pub handle: Vec<u8>,
    /// Status of GSS-API.
    pub major: u32,
    /// Status of the mechanism.
    pub minor: u32,
    /// What the initiator is sent.
    pub token: Vec<u8>,
    /// The checksum of the window's size, where the context is made.
    pub verifier: Option<Vec<u8>>,
}

impl Contexts {
    /// None yet; handles are numbered with `secret`.
    pub fn new(settings: ContextsSettings, secret: Secret) -> Contexts {
        Contexts {
            settings,
            secret,
            table: Mutex::default(),
        }
    }

    /// How many there are, those not counted that are not finished.
    pub fn len(&self) -> usize {
        locked(&self.table).contexts.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The context of a handle that is good now.
    pub(crate) fn find(&self, handle: &[u8], now: Nanos) -> Option<Arc<Context>> {
        let handle: Handle = handle.try_into().ok()?;
        let mut table = locked(&self.table);
        let context = table.contexts.get(&handle)?;
        if context.is_expired(now) {
            table.remove(&handle);
            return None;
        }
        Some(context.clone())
    }

    /// What the client of the context of a handle has proved to be, by its number; `None`: it is
    /// good no more, or there is none.
    pub fn principal_of(&self, handle: &[u8], now: Nanos) -> Option<ProvenNumber> {
        Some(self.find(handle, now)?.credential.principal)
    }

    /// A context is destroyed. Calls that are under way in it are answered still.
    pub(crate) fn remove(&self, context: &Context) {
        locked(&self.table).remove(&context.handle);
    }

    /// All are gone: users have to prove anew who they are. Calls that are under way are
    /// answered still.
    pub fn clear(&self) {
        *locked(&self.table) = Table::default();
    }

    /// What [`GssAcceptor::step`](auth::gss_acceptor::GssAcceptor::step) begins or goes on with: of a call
    /// with this handle, which one that begins does not have. `None`: no such handle.
    #[allow(clippy::option_option)]
    pub fn take_unfinished(&self, handle: Option<&[u8]>) -> Option<Option<Unfinished>> {
        let Some(handle) = handle else {
            return Some(None);
        };
        let handle: Handle = handle.try_into().ok()?;
        let begun = locked(&self.table).unfinished.remove(&handle)?;
        Some(Some(begun.unfinished))
    }

    /// A step was made for a client on `host`: what it is answered. `time_s` is the time of
    /// day, in seconds since 1970, when the clock of connections says `now`.
    pub fn on_step(
        &self,
        step: Result<ContextStep, AcceptError>,
        host: u64,
        (now, time_s): (Nanos, u64),
    ) -> InitAnswer {
        match step {
            Ok(ContextStep::Continue { token, unfinished }) => InitAnswer {
                handle: self.keep(unfinished, now).to_vec(),
                major: major::CONTINUE_NEEDED,
                token,
                ..InitAnswer::default()
            },
            Ok(ContextStep::Done { token, mut context }) => {
                let mut verifier = Vec::new();
                if context
                    .mic(&WINDOW_TOLD.to_be_bytes(), &mut verifier)
                    .is_err()
                {
                    return InitAnswer {
                        major: major::FAILURE,
                        ..InitAnswer::default()
                    };
                }
                let left_s = context.expires_at_s().saturating_sub(time_s);
                let principal = proven_number(context.client_name());
                let credential = Credential::gss(principal, context.user());
                let expires = now.saturating_add(left_s.saturating_mul(1_000_000_000));
                InitAnswer {
                    handle: self.add(context, credential, host, (now, expires)).to_vec(),
                    major: major::COMPLETE,
                    minor: 0,
                    token,
                    verifier: Some(verifier),
                }
            }
            Err(AcceptError {
                major,
                minor,
                token,
                why: _,
            }) => InitAnswer {
                major,
                minor,
                token,
                ..InitAnswer::default()
            },
        }
    }

    fn handle(&self, table: &mut Table) -> Handle {
        table.next += 1;
        let mut handle = [0; 16];
        handle[..8].copy_from_slice(&table.next.to_be_bytes());
        handle[8..].copy_from_slice(&self.secret.of_context(table.next).to_be_bytes());
        handle
    }

    /// Keeps what is not finished; the oldest goes where there are too many.
    fn keep(&self, unfinished: Unfinished, now: Nanos) -> Handle {
        let mut table = locked(&self.table);
        let table = &mut *table;
        let time = self.settings.unfinished_time;
        table
            .unfinished
            .retain(|_, begun| now.saturating_sub(begun.since) < time);
        if table.unfinished.len() >= self.settings.unfinished_max
            && let Some(oldest) = table.unfinished.keys().min().copied()
        {
            table.unfinished.remove(&oldest);
        }
        let handle = self.handle(table);
        let since = now;
        table.unfinished.insert(handle, Begun { unfinished, since });
        handle
    }

    fn add(
        &self,
        gss: Box<dyn GssContext>,
        credential: Credential,
        host: u64,
        (now, expires): (Nanos, Nanos),
    ) -> Handle {
        let mut table = locked(&self.table);
        let table = &mut *table;
        let of_host = table.hosts.get(&host).copied().unwrap_or(0);
        if of_host >= self.settings.contexts_of_host_max {
            table.make_room(Some(host), now);
        } else if table.contexts.len() >= self.settings.contexts_max {
            table.make_room(None, now);
        }
        let handle = self.handle(table);
        let is_of_host = |other: &&Arc<Context>| other.host == host;
        let others = || table.contexts.values().find(is_of_host);
        let credential = match faults::is(Fault::OnePrincipal) {
            true => others().map_or(credential, |other| other.credential.clone()),
            false => credential,
        };
        let context = Context {
            handle,
            principal: gss.client_name().into(),
            credential,
            host,
            expires,
            used: AtomicU64::new(now),
            callbacks: AtomicU32::new(0),
            is_proven: AtomicBool::new(false),
            state: Mutex::new(ContextState {
                gss,
                window: Window::default(),
            }),
        };
        *table.hosts.entry(host).or_default() += 1;
        table.contexts.insert(handle, Arc::new(context));
        handle
    }
}
