//! What a client has had that has come again just before a target serves others: as much
//! as takes many turns to take away.

use nfs::connection::Credential;
use nfs::server::files::{LockArgs, OpenArgs, ShareReservation};
use nfs::server::locks::Range;
use nfs::server::{CallbackAddress, ClientOwner, Principal};
use nfsd::Nfsd;
use reactor::Nanos;

/// Its opens, and as many owners of locks.
const STATES: u64 = 2000;

/// A client with many states comes, and comes again.
pub fn leave_states(nfsd: &Nfsd, now: Nanos) {
    let before = establish_client(nfsd, 1, now);
    nfsd.files.admit_client(before, true);
    for owner in 0..STATES {
        let owner = owner.to_be_bytes();
        let opened = nfsd.files.open(&OpenArgs {
            client: before,
            uid: 0,
            owner: &owner,
            // Of no file system: there is none to close it in.
            file: (u64::MAX, 1),
            share: ShareReservation { access: 3, deny: 0 },
            delegate: None,
            open_xor_delegation: false,
            delegates_times: false,
            must_confirm: false,
            now,
        });
        let wanted = LockArgs {
            range: Range::new(u64::from_be_bytes(owner) * 2, 1).expect("a range"),
            is_exclusive: true,
        };
        let open = opened.expect("there is room").state;
        let locked = nfsd.files.lock_first(&open, &owner, wanted);
        locked.expect("no owner has a lock there");
    }
    establish_client(nfsd, 2, now);
}

/// It comes, by the name that it had before: its client id.
fn establish_client(nfsd: &Nfsd, incarnation: u8, now: Nanos) -> u64 {
    let owner = ClientOwner {
        verifier: [incarnation; 8],
        id: b"has had much",
        host: 1,
        implementation: b"",
        identity: None,
        protection: None,
    };
    let address = CallbackAddress {
        program: 0,
        to: None,
        local: None,
        ident: 0,
    };
    let principal = Principal::new(&Credential::default(), None);
    let set = (nfsd.server).set_clientid(owner, address, principal, (now, &|_| true));
    let (id, verifier) = set.expect("there is room");
    let confirmed = nfsd.server.confirm_clientid(id, verifier, principal, now);
    confirmed.expect("it was set");
    id
}
