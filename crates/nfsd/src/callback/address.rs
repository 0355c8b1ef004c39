//! Calls to clients of version 4.0, on connections to the addresses that they name (RFC 7530,
//! sections 3.3.3, 10.2, 15, 16.33): a client is called at its own address alone.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use machine::Nanos;
use nfs::server::{CallbackAddress, CallbackPath};
use wire::nfs4::{
    CB_COMPOUND, CB_COMPOUND4args, NFS_CB, cb_client4, cb_compound_res_head, clientid4, nfsstat4,
};
use wire::rpc::{accept_stat, accepted_body, reply_body};
use wire::xdr::{Decode, Encode, List, Opaque, Reader};

use super::{Errand, Made, PATIENCE, PAUSE};
use crate::hosts::host_number;
use crate::xprtsec::Xprtsec;
use crate::{Nfsd, Peer};

/// CB_NULL (RFC 7530, section 15.1).
const CB_NULL: u32 = 0;
/// Calls at a time to clients of all hosts, and of one: those that do not answer take a place
/// for [`PATIENCE`] each.
const CALLS_MAX: usize = 256;
const CALLS_OF_HOST_MAX: usize = 16;
/// Of [`CALLS_MAX`], those that see whether clients answer: delegations are recalled beside them.
const PROOFS_MAX: usize = CALLS_MAX / 2;
/// Numbers of programs that no service has (RFC 5531, section 8.3): what listens at the address of
/// a client takes no call for its own.
const PROGRAMS: RangeInclusive<u32> = 0x4000_0000..=0x5fff_ffff;

/// A call to a client of version 4.0, to be made on a connection to it by AUTH_SYS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCall {
    /// The argument of [`Nfsd::answered`].
    pub id: u64,
    /// Where the client is.
    pub to: SocketAddr,
    /// Of this server, by which the client has come, where it is known.
    pub local: Option<IpAddr>,
    /// Program, version and procedure.
    pub called: (u32, u32, u32),
    /// The arguments.
    pub args: Vec<u8>,
}

/// A call that was made, or is about to be.
#[derive(Debug)]
pub(super) struct AddressOut {
    path: Arc<CallbackPath>,
    client: clientid4,
    host: u64,
    /// `None`: it sees whether the client answers.
    errand: Option<Errand>,
}

/// Where a client that has come so takes callbacks. It is not called elsewhere than at the
/// address that it has come from, nor in the clear where it has proved itself or uses TLS, nor by
/// the program of a service.
pub(crate) fn callback_address(
    peer: &Peer,
    is_proven: bool,
    (client, ident): (&cb_client4<'_>, u32),
) -> CallbackAddress {
    let location = &client.cb_location;
    let named = parse_universal(location.r_netid.0, location.r_addr.0);
    let own = peer.address.ip().to_canonical();
    let is_clear = !is_proven && peer.xprtsec() == Xprtsec::None;
    let may_be_called = is_clear && PROGRAMS.contains(&client.cb_program);
    let is_own = |(ip, port): &(IpAddr, u16)| *ip == own && *port != 0 && may_be_called;
    CallbackAddress {
        program: client.cb_program,
        ident,
        to: named.filter(is_own).map(|(ip, port)| match ip {
            IpAddr::V4(_) => SocketAddr::new(ip, port),
            IpAddr::V6(_) => {
                // With its scope.
                let mut address = peer.address;
                address.set_port(port);
                address
            }
        }),
        local: peer.local.map(|local| local.ip().to_canonical()),
    }
}

/// A universal address of TCP (RFC 5665, sections 5.2.3.3, 5.2.3.4).
fn parse_universal(netid: &[u8], address: &[u8]) -> Option<(IpAddr, u16)> {
    let text = str::from_utf8(address).ok()?;
    let (rest, low) = text.rsplit_once('.')?;
    let (ip, high) = rest.rsplit_once('.')?;
    let port = u16::from_be_bytes([high.parse().ok()?, low.parse().ok()?]);
    let ip = match netid {
        b"tcp" => IpAddr::from(ip.parse::<Ipv4Addr>().ok()?),
        b"tcp6" => IpAddr::from(ip.parse::<Ipv6Addr>().ok()?),
        _ => return None,
    };
    Some((ip.to_canonical(), port))
}

/// The results of a call, if it was executed.
fn executed(answer: &[u8]) -> Option<&[u8]> {
    let from = &mut Reader::new(answer);
    let reply_body::MSG_ACCEPTED(accepted) = reply_body::decode(from).ok()? else {
        return None;
    };
    let is_done = accepted.body == accepted_body::default(accept_stat::SUCCESS);
    is_done.then(|| from.rest())
}

/// The status of CB_COMPOUND, and its results.
fn read_results(results: &[u8]) -> Option<(nfsstat4, &[u8])> {
    let from = &mut Reader::new(results);
    let head = cb_compound_res_head::decode(from).ok()?;
    Some((head.status, from.rest()))
}

fn compound(ident: u32, errand: &Errand) -> Vec<u8> {
    let mut args = Vec::with_capacity(128);
    errand.with_op(|op| {
        CB_COMPOUND4args {
            tag: Opaque(&[]),
            minorversion: 0,
            callback_ident: ident,
            argarray: List::Of(&[op]),
        }
        .encode(&mut args);
    });
    args
}

impl Nfsd {
    /// Whether a client of version 4.0 may have a delegation: it answers calls. Where that is
    /// not known it is called.
    pub(crate) fn proves_path(&self, client: clientid4, now: Nanos) -> bool {
        let Some(path) = self.server.callback_path(client) else {
            return false;
        };
        if path.is_up() {
            return true;
        }
        if path.begin_proof(now) {
            // It is tried again when the client opens something, if there is no room.
            let _ = self.call_at(&path, client, None, now);
        }
        false
    }

    /// Sends something to a client of version 4.0 that has begun a call of `path`.
    ///
    /// # Errors
    /// There is no room for one more call.
    fn call_at(
        &self,
        path: &Arc<CallbackPath>,
        client: clientid4,
        errand: Option<Errand>,
        now: Nanos,
    ) -> Result<(), Option<Errand>> {
        let Some(to) = path.address.to else {
            path.drop_call();
            return Ok(());
        };
        let host = host_number(to.ip());
        let mut inner = self.outbox.inner();
        let of_host = inner.calls_of_hosts.get(&host).copied().unwrap_or(0);
        let all: usize = inner.calls_of_hosts.values().sum();
        let most = match errand {
            Some(_) => CALLS_MAX,
            None => PROOFS_MAX,
        };
        if of_host >= CALLS_OF_HOST_MAX || all >= most {
            path.drop_call();
            return Err(errand);
        }
        *inner.calls_of_hosts.entry(host).or_default() += 1;
        inner.next += 1;
        let id = inner.next;
        let CallbackAddress {
            program,
            ident,
            local,
            ..
        } = path.address;
        let (procedure, args) = match &errand {
            Some(errand) => (CB_COMPOUND, compound(ident, errand)),
            None => (CB_NULL, Vec::new()),
        };
        inner.client_calls.push(ClientCall {
            id,
            to,
            local,
            called: (program, NFS_CB, procedure),
            args,
        });
        let out = AddressOut {
            path: path.clone(),
            client,
            host,
            errand,
        };
        let until = now.saturating_add(PATIENCE);
        inner.out.insert(id, (until, Made::AtAddress(out)));
        self.outbox.has_client_calls.store(true, Ordering::Release);
        Ok(())
    }

    /// Something is to be said to a client of version 4.0: what that has no word for is not.
    ///
    /// # Errors
    /// What could not be said: there is no room now.
    pub(super) fn try_post_at(
        &self,
        path: &Arc<CallbackPath>,
        errand: Errand,
        now: Nanos,
    ) -> Result<(), Errand> {
        if !matches!(errand, Errand::Recall(_) | Errand::Getattr(_)) || path.address.to.is_none() {
            return Ok(());
        }
        if !path.begin_call() {
            return Err(errand);
        }
        let called = self.call_at(path, errand.client(), Some(errand), now);
        called.map_err(|errand| errand.expect("it was given"))
    }

    /// A call was answered, or is waited for no longer.
    pub(super) fn answered_at(&self, out: AddressOut, answer: Option<&[u8]>, now: Nanos) {
        let mut inner = self.outbox.inner();
        if let Some(count) = inner.calls_of_hosts.get_mut(&out.host) {
            *count -= 1;
            if *count == 0 {
                inner.calls_of_hosts.remove(&out.host);
            }
        }
        drop(inner);
        let results = answer.and_then(executed);
        let Some(errand) = out.errand else {
            out.path.end_call(results.is_some(), now);
            return self.post_waiting(out.client, now);
        };
        let done = results.and_then(read_results);
        out.path.end_call(done.is_some(), now);
        match done {
            Some(done) => self.callback_done(errand, done, now),
            None => self.outbox.wait(errand, now.saturating_add(PAUSE)),
        }
    }

    /// Calls that are to be made on connections to clients: then [`Nfsd::answered`].
    #[inline]
    pub fn take_client_calls(&self) -> Vec<ClientCall> {
        let has_calls = &self.outbox.has_client_calls;
        if !has_calls.load(Ordering::Relaxed) || !has_calls.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        std::mem::take(&mut self.outbox.inner().client_calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn universal_addresses_of_tcp_are_read() {
        let parsed = |netid: &str, text: &str| parse_universal(netid.as_bytes(), text.as_bytes());
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        assert_eq!(
            parsed("tcp", "192.0.2.1.8.1"),
            Some((ip("192.0.2.1"), 2049))
        );
        assert_eq!(
            parsed("tcp6", "2001:db8::1.0.9"),
            Some((ip("2001:db8::1"), 9))
        );
        let mapped = parsed("tcp6", "::ffff:192.0.2.1.8.1");
        assert_eq!(mapped, Some((ip("192.0.2.1"), 2049)));
        for (netid, text) in [
            ("udp", "192.0.2.1.8.1"),
            ("tcp", "2001:db8::1.0.9"),
            ("tcp6", "192.0.2.1.8.1"),
            ("tcp", "192.0.2.1.256.1"),
            ("tcp", "192.0.2.1.8"),
            ("tcp", "8.1"),
            ("tcp", ""),
            ("tcp", "\u{e4}.8.1"),
        ] {
            assert_eq!(parsed(netid, text), None, "{netid} {text}");
        }
    }
}
