//! The states that a connection has seen.

use std::sync::{Arc, Weak};

use nfs::server::files::State;
use nfs::server::{Client, ConnectionId, Session};

/// States that a connection remembers at first, and at most; each twice the one
/// before it.
const SEEN_MIN: usize = 8;
const SEEN_MAX: usize = 1024;

/// What a connection has seen: its states, so that reading and writing find them
/// without tables that reactors share, and the sessions whose callbacks it carries.
#[derive(Default)]
pub(crate) struct SeenStates {
    states: Vec<Option<KnownState>>,
    bound: Vec<Weak<Session>>,
}

/// A state, and whose it is.
#[derive(Clone)]
pub(crate) struct KnownState {
    pub(crate) state: Arc<State>,
    pub(crate) client: Arc<Client>,
}

impl SeenStates {
    #[inline]
    fn place(&self, client: u32, number: u32) -> usize {
        (number ^ client.wrapping_mul(31)) as usize & self.states.len().wrapping_sub(1)
    }

    /// The state that a state id of this start of the server names.
    #[inline]
    pub(crate) fn find(&self, client: u32, number: u32) -> Option<&KnownState> {
        let known = self.states.get(self.place(client, number))?.as_ref()?;
        let state = &known.state;
        let is_it = state.number == number && state.client as u32 == client;
        (is_it && !state.is_over() && !known.client.is_gone()).then_some(known)
    }

    /// Keeps one more, in place of one that is over or, if there are many, of
    /// another one.
    #[cold]
    pub(crate) fn keep(&mut self, known: KnownState) {
        let (client, number) = (known.state.client as u32, known.state.number);
        while self.states.len() < SEEN_MAX && !self.is_free(client, number) {
            let room = (self.states.len() * 2).max(SEEN_MIN);
            let before = std::mem::take(&mut self.states);
            self.states.resize_with(room, || None);
            for known in before.into_iter().flatten() {
                let at = self.place(known.state.client as u32, known.state.number);
                self.states[at] = Some(known);
            }
        }
        let at = self.place(client, number);
        self.states[at] = Some(known);
    }

    fn is_free(&self, client: u32, number: u32) -> bool {
        let there = self.states.get(self.place(client, number));
        there.is_some_and(|there| there.as_ref().is_none_or(|there| there.state.is_over()))
    }

    /// The connection carries callbacks of this session.
    pub(crate) fn bound(&mut self, session: &Arc<Session>) {
        self.bound.retain(|bound| {
            let bound = bound.upgrade();
            bound.is_some_and(|bound| !bound.is_gone() && !Arc::ptr_eq(&bound, session))
        });
        self.bound.push(Arc::downgrade(session));
    }

    /// The connection is gone.
    pub(crate) fn unbind(&self, connection: ConnectionId) {
        for session in self.bound.iter().filter_map(Weak::upgrade) {
            session.unbind(connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs::server::files::{Files, OpenArgs, ShareReservation};

    /// However many states a connection sees, it finds the last ones, and none
    /// that it has not seen or that is over.
    #[test]
    fn a_connection_finds_the_last_states_that_it_has_seen() {
        let files = Files::new(1, nfs::server::Secret::default(), 0);
        let server = nfs::server::Server::new(nfs::server::ServerSettings::default(), 1, [], 0);
        let owner = nfs::server::ClientOwner {
            verifier: [0; 8],
            id: b"a",
            host: 1,
            implementation: b"",
            identity: None,
            protection: None,
        };
        let principal = nfs::connection::Credential::default();
        let principal = nfs::server::Principal::new(&principal, None);
        let address = nfs::server::CallbackAddress {
            program: 0,
            to: None,
            local: None,
            ident: 0,
        };
        let (id, verifier) = server
            .set_clientid(owner, address, principal, (0, &|_| true))
            .unwrap();
        server.confirm_clientid(id, verifier, principal, 0).unwrap();
        let client = server.renew(id, 0).unwrap();
        files.admit_client(id, true);
        let open = |file| {
            let opened = files.open(&OpenArgs {
                client: id,
                uid: 0,
                owner: b"o",
                file: (1, file),
                share: ShareReservation { access: 1, deny: 0 },
                delegate: None,
                open_xor_delegation: false,
                delegates_times: false,
                must_confirm: false,
                now: 0,
            });
            opened.unwrap().state
        };
        let mut seen = SeenStates::default();
        assert!(seen.find(id as u32, 1).is_none());
        let states: Vec<_> = (0..3000).map(open).collect();
        for (at, state) in states.iter().enumerate() {
            assert!(seen.find(id as u32, state.number).is_none());
            let (state, client) = (state.clone(), client.clone());
            seen.keep(KnownState { state, client });
            let of_last = at.saturating_sub(SEEN_MAX / 2);
            let found = seen.find(id as u32, states[of_last].number).unwrap();
            assert!(Arc::ptr_eq(&found.state, &states[of_last]));
        }
        assert_eq!(seen.states.len(), SEEN_MAX);
        let last = &states[2999];
        assert!(seen.find(id as u32 + 1, last.number).is_none());
        files.close(last).unwrap();
        assert!(seen.find(id as u32, last.number).is_none());
    }
}
