//! A user with a security context of RPCSEC_GSS: what its calls are, and what their answers may
//! be.

use auth::gss::GssContext as _;
use doubles::gss::{GssClient, SERVICES};
use nfs::gss::major;
use random::Random;
use reactor::Nanos;
use wire::nfs4::{
    CREATE4args, LOOKUP4args, NFS_V4, NFS4_PROGRAM, NFSPROC4_COMPOUND, REMOVE4args, compound_head,
    createtype4, fattr4, nfs_argop4, nfsstat4,
};
use wire::rpc::{accept_stat, accepted_body, reply_body, rpc_gss_service_t};
use wire::xdr::{Decode as _, Encode, List, Opaque, Reader};

use super::WALL_SECONDS;
use crate::checker::{Verdict, Violation};
use crate::plan::UsersPlan;
use crate::world::S;

/// Names in the directory of a user.
const NAMES: usize = 3;
/// Calls that are kept, to be sent once more.
const KEPT_MAX: usize = 8;
/// More than a server remembers below the highest number.
const FAR: u32 = 300;

/// What a user asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserAsk {
    /// A context.
    Init,
    /// The end of it.
    Destroy,
    /// To make its directory, which no other may enter.
    Home,
    Make(usize),
    Remove(usize),
    Look(usize),
    /// To look into the directory of another.
    Enter(u32),
    /// The same in the other's context, without its key.
    Steal(u32),
}

/// A call without an answer.
#[derive(Debug)]
pub struct UserCall {
    pub xid: u32,
    pub ask: UserAsk,
    pub begun_at: Nanos,
    number: u32,
    service: rpc_gss_service_t,
    record: Vec<u8>,
}

/// What an answer comes to.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// It is what it has to be.
    Right,
    /// It is not what the server has protected for the call, or tells of another failure.
    Wrong(String),
}

/// A user.
pub struct User {
    pub uid: u32,
    plan: UsersPlan,
    gss: GssClient,
    /// When the context must be good no more, if there is one.
    expires: Option<Nanos>,
    /// Whether its directory and each name are there, as far as answers have told.
    home: Option<bool>,
    names: [Option<bool>; NAMES],
    pub sent: Option<UserCall>,
    /// Records of calls in this context that were answered.
    kept: Vec<Vec<u8>>,
    /// The highest number of those.
    seen: u32,
    /// Names that are looked at before it is done.
    looks: usize,
    ops_left: u64,
    pub checked: u64,
}

impl User {
    /// Without a context.
    pub fn new(uid: u32, plan: UsersPlan) -> User {
        User {
            uid,
            plan,
            gss: GssClient::new("", 0),
            expires: None,
            home: Some(false),
            names: [Some(false); NAMES],
            sent: None,
            kept: Vec::new(),
            seen: 0,
            looks: 0,
            ops_left: plan.ops,
            checked: 0,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.ops_left == 0 && self.looks == 0 && self.sent.is_none()
    }

    /// Each name is looked at.
    pub fn verify(&mut self) {
        self.looks = NAMES;
    }

    pub fn has_context(&self) -> bool {
        self.expires.is_some()
    }

    /// Names its context.
    pub fn handle(&self) -> Option<Vec<u8>> {
        self.expires.map(|_| self.gss.handle.clone())
    }

    /// The server has ended, with its contexts and its memory.
    pub fn server_died(&mut self) {
        self.forget_context();
        self.sent = None;
        (self.home, self.names) = (Some(false), [Some(false); NAMES]);
    }

    fn forget_context(&mut self) {
        self.expires = None;
        self.kept.clear();
        self.seen = 0;
    }

    /// The answer to what was sent will not come: whether it was done is not known.
    pub fn lose(&mut self) {
        match self.sent.take().map(|call| call.ask) {
            Some(UserAsk::Home) => self.home = None,
            Some(UserAsk::Make(name) | UserAsk::Remove(name)) => self.names[name] = None,
            // It may be gone.
            Some(UserAsk::Destroy) => self.forget_context(),
            _ => {}
        }
    }

    /// What comes next.
    pub fn next(&mut self, others: &[u32], random: &mut Random) -> Option<UserAsk> {
        if self.is_idle() {
            return None;
        }
        if self.expires.is_none() {
            return Some(UserAsk::Init);
        }
        if self.home != Some(true) {
            return Some(UserAsk::Home);
        }
        if let Some(name) = self.names.iter().position(Option::is_none) {
            return Some(UserAsk::Look(name));
        }
        if self.ops_left == 0 {
            self.looks -= 1;
            return Some(UserAsk::Look(self.looks));
        }
        self.ops_left -= 1;
        let name = random.below(NAMES as u64) as usize;
        Some(match random.below(12) {
            0 if self.plan.ends_contexts => UserAsk::Destroy,
            1 if !others.is_empty() => UserAsk::Enter(random.pick(others)),
            2 if !others.is_empty() => UserAsk::Steal(random.pick(others)),
            3..5 => UserAsk::Look(name),
            5..8 => UserAsk::Remove(name),
            _ => UserAsk::Make(name),
        })
    }

    /// The record of a call, which waits for its answer from here on. `stolen`: the handle of
    /// another's context.
    pub fn call(
        &mut self,
        (xid, ask, now): (u32, UserAsk, Nanos),
        stolen: Option<Vec<u8>>,
        random: &mut Random,
    ) -> Vec<u8> {
        if ask == UserAsk::Init {
            let until = WALL_SECONDS + now / S + self.plan.lives_s;
            self.gss = GssClient::new(&format!("user{}:{}", self.uid, self.uid), until);
            self.forget_context();
        } else if random.one_in(8) {
            // Numbers may be left out.
            self.gss.number += random.between(1, 2 * u64::from(FAR)) as u32;
        }
        let service = self.service(random);
        let number = self.gss.number;
        let record = match ask {
            UserAsk::Init => self.gss.init(xid),
            UserAsk::Destroy => self.gss.destroy(xid),
            UserAsk::Steal(_) => {
                let mut thief = self.gss.clone();
                (thief.handle, thief.number) = (stolen.unwrap_or_default(), FAR * 1000);
                thief.call(procedure(xid), &self.args(ask), service)
            }
            _ => {
                let args = self.args(ask);
                self.gss.call(procedure(xid), &args, service)
            }
        };
        self.sent = Some(UserCall {
            xid,
            ask,
            begun_at: now,
            number,
            service,
            record: record.clone(),
        });
        record
    }

    fn service(&self, random: &mut Random) -> rpc_gss_service_t {
        let first = usize::from(self.plan.only_protected);
        random.pick(&SERVICES[first..])
    }

    /// A record that must have no answer and do nothing: one of those that were answered once
    /// more, or one whose number is too low. When its context is good no more, it is denied.
    pub fn unwanted(&mut self, xid: u32, random: &mut Random) -> Option<(Vec<u8>, Nanos)> {
        let expires = self.expires.filter(|_| self.home == Some(true))?;
        if random.one_in(2) && !self.kept.is_empty() {
            let at = random.below(self.kept.len() as u64) as usize;
            return Some((self.kept[at].clone(), expires));
        }
        let low = self.seen.checked_sub(FAR).filter(|low| *low > 0)?;
        let name = random.below(NAMES as u64) as usize;
        let args = match self.names[name]? {
            true => self.args(UserAsk::Remove(name)),
            false => self.args(UserAsk::Make(name)),
        };
        let service = self.service(random);
        let number = std::mem::replace(&mut self.gss.number, low);
        let record = self.gss.call(procedure(xid), &args, service);
        self.gss.number = number;
        Some((record, expires))
    }

    fn args(&self, ask: UserAsk) -> Vec<u8> {
        let (name, values) = (|name: usize| [b'n', b'0' + name as u8], mode());
        let lookup = |name: &[u8]| {
            encoded(&nfs_argop4::OP_LOOKUP(LOOKUP4args {
                objname: Opaque(name),
            }))
        };
        let create = |name: &[u8]| {
            encoded(&nfs_argop4::OP_CREATE(CREATE4args {
                objtype: createtype4::NF4DIR,
                objname: Opaque(name),
                createattrs: fattr4 {
                    attrmask: List::Of(&[0, 1 << (wire::nfs4::FATTR4_MODE - 32)]),
                    attr_vals: Opaque(&values),
                },
            }))
        };
        let mut ops = vec![encoded(&nfs_argop4::OP_PUTROOTFH), lookup(b"proven")];
        let own = home_of(self.uid);
        match ask {
            UserAsk::Home => ops.push(create(&own)),
            UserAsk::Make(at) => ops.extend([lookup(&own), create(&name(at))]),
            UserAsk::Remove(at) => {
                let target = name(at);
                let remove = nfs_argop4::OP_REMOVE(REMOVE4args {
                    target: Opaque(&target),
                });
                ops.extend([lookup(&own), encoded(&remove)]);
            }
            UserAsk::Look(at) => ops.extend([lookup(&own), lookup(&name(at))]),
            UserAsk::Enter(other) | UserAsk::Steal(other) => {
                ops.extend([lookup(&home_of(other)), lookup(&name(0))]);
            }
            UserAsk::Init | UserAsk::Destroy => {}
        }
        let mut args = encoded(&compound_head {
            tag: Opaque(b""),
            minorversion: 0,
            ops: ops.len() as u32,
        });
        args.extend(ops.concat());
        args
    }

    /// An answer to what was sent.
    pub fn heard(&mut self, answer: &[u8], now: Nanos) -> Result<Heard, Violation> {
        let call = self.sent.as_ref().expect("it is the answer to it");
        let (ask, uid) = (call.ask, self.uid);
        let from = &mut Reader::new(&answer[8..]);
        let Ok(reply) = reply_body::decode(from) else {
            return Ok(Heard::Wrong("an answer that makes no sense".into()));
        };
        let accepted = match reply {
            reply_body::MSG_ACCEPTED(accepted) => accepted,
            reply_body::MSG_DENIED(why) => {
                self.checked += 1;
                if matches!(ask, UserAsk::Steal(_)) {
                    self.sent = None;
                    return Ok(Heard::Right);
                }
                return match self.expires.is_some_and(|at| now + S >= at) {
                    true => {
                        self.sent = None;
                        self.forget_context();
                        Ok(Heard::Right)
                    }
                    false => Ok(Heard::Wrong(format!("{ask:?} is denied: {why:?}"))),
                };
            }
        };
        if let UserAsk::Steal(of) = ask {
            return Err(Violation(format!(
                "user {uid}: a call in the context of user {of} is taken without its key"
            )));
        }
        if accepted.body != accepted_body::default(accept_stat::SUCCESS) {
            return Ok(Heard::Wrong(format!(
                "{ask:?} ends with {:?}",
                accepted.body
            )));
        }
        if ask == UserAsk::Init {
            return Ok(self.began(answer));
        }
        let Some(results) = self.opened(accepted.verf.body.0, from.rest()) else {
            return Ok(Heard::Wrong(format!(
                "{ask:?} is answered without protection"
            )));
        };
        let call = self.sent.take().expect("just seen");
        self.checked += 1;
        if self.expires.is_some_and(|at| call.begun_at >= at) {
            return Err(Violation(format!(
                "user {uid}: {ask:?} is taken in a context whose time is over"
            )));
        }
        if ask == UserAsk::Destroy {
            self.forget_context();
            return Ok(Heard::Right);
        }
        self.seen = self.seen.max(call.number);
        self.kept.truncate(KEPT_MAX - 1);
        self.kept.insert(0, call.record);
        self.done(ask, &results).map(|()| Heard::Right)
    }

    /// A context is made.
    fn began(&mut self, answer: &[u8]) -> Heard {
        let (status, _) = self.gss.take_init(answer);
        if status != major::COMPLETE {
            return Heard::Wrong(format!("no context: {status:#x}"));
        }
        self.sent = None;
        self.checked += 1;
        // The server counts whole seconds: it may be good for one longer.
        let until_s = self.gss.context.expires_at_s() - WALL_SECONDS;
        self.expires = Some((until_s + 1) * S);
        Heard::Right
    }

    /// The results that the server has protected for the call.
    fn opened(&mut self, mic: &[u8], body: &[u8]) -> Option<Vec<u8>> {
        let call = self.sent.as_ref()?;
        let number = call.number.to_be_bytes();
        let context = &mut self.gss.context;
        context.verify_mic(&number, mic).ok()?;
        let from = &mut Reader::new(body);
        let mut opaque = || {
            let len = u32::decode(from).ok()?;
            Some(from.opaque(len as usize).ok()?.to_vec())
        };
        let data = match call.service {
            _ if call.ask == UserAsk::Destroy => return Some(Vec::new()),
            rpc_gss_service_t::rpc_gss_svc_none => return Some(body.to_vec()),
            rpc_gss_service_t::rpc_gss_svc_integrity => {
                let (data, mic) = (opaque()?, opaque()?);
                context.verify_mic(&data, &mic).ok()?;
                data
            }
            rpc_gss_service_t::rpc_gss_svc_privacy => {
                let mut token = opaque()?;
                let range = context.unwrap(&mut token).ok()?;
                token[range].to_vec()
            }
        };
        data.strip_prefix(&number).map(<[u8]>::to_vec)
    }

    /// The results of a COMPOUND, which is done once.
    fn done(&mut self, ask: UserAsk, results: &[u8]) -> Verdict {
        let from = &mut Reader::new(results);
        let head = nfsstat4::decode(from).ok().and_then(|status| {
            let tag = u32::decode(from).ok()?;
            from.opaque(tag as usize).ok()?;
            Some((status, u32::decode(from).ok()?))
        });
        let (status, count) = head.ok_or_else(|| Violation("results without a head".into()))?;
        // Nothing is done yet.
        if [nfsstat4::NFS4ERR_GRACE, nfsstat4::NFS4ERR_DELAY].contains(&status) {
            return Ok(());
        }
        let uid = self.uid;
        let (known, ops) = match ask {
            UserAsk::Enter(_) => {
                let is_kept_out = match status {
                    nfsstat4::NFS4ERR_NOENT => count == 3,
                    status => status == nfsstat4::NFS4ERR_ACCESS && count == 4,
                };
                return match is_kept_out {
                    true => Ok(()),
                    false => Err(Violation(format!(
                        "user {uid}: {ask:?} ends with {status:?}"
                    ))),
                };
            }
            UserAsk::Home => (&mut self.home, 3),
            UserAsk::Make(name) | UserAsk::Remove(name) | UserAsk::Look(name) => {
                (&mut self.names[name], 4)
            }
            UserAsk::Init | UserAsk::Destroy | UserAsk::Steal(_) => {
                unreachable!("they have no results")
            }
        };
        let makes = matches!(ask, UserAsk::Make(_) | UserAsk::Home);
        let was_there = match status {
            nfsstat4::NFS4_OK => Some(!makes),
            nfsstat4::NFS4ERR_EXIST if makes => Some(true),
            nfsstat4::NFS4ERR_NOENT if !makes => Some(false),
            _ => None,
        };
        let is_explained = count == ops
            && was_there.is_some_and(|was_there| known.is_none_or(|known| known == was_there));
        if !is_explained {
            return Err(Violation(format!(
                "user {uid}: {ask:?} ends with {status:?} after {count} operations, and the name \
                 was there, as far as answers have told: {known:?}"
            )));
        }
        *known = match ask {
            UserAsk::Remove(_) => Some(false),
            UserAsk::Look(_) => was_there,
            _ => Some(true),
        };
        Ok(())
    }
}

fn home_of(uid: u32) -> Vec<u8> {
    format!("u{uid}").into_bytes()
}

/// The procedure of all calls, with their number.
fn procedure(xid: u32) -> (u32, u32, u32, u32) {
    (xid, NFS4_PROGRAM, NFS_V4, NFSPROC4_COMPOUND)
}

/// A mode that lets no other in.
fn mode() -> Vec<u8> {
    encoded(&0o700u32)
}

fn encoded(what: &impl Encode) -> Vec<u8> {
    let mut bytes = Vec::new();
    what.encode(&mut bytes);
    bytes
}
