//! How a client introduces itself, and what it does where its server has
//! started again (RFC 8881, sections 2.4 and 8.4).

use ::nfs::client::exchange_id;
use reactor::Driver;
use wire::nfs4::{
    CLOSE4args, DELEGRETURN4args, DESTROY_CLIENTID4args, DESTROY_SESSION4args, EXCHANGE_ID4resok,
    OPEN4args, OPEN4resok, PUTFH4args, RECLAIM_COMPLETE4args, nfs_argop4, nfs_opnum4, nfsstat4,
    open_claim4, open_delegation_type4, openflag4, sessionid4, state_owner4, stateid4,
};
use wire::xdr::Opaque;

use super::client::{Attempt, Manner};
use super::files::owner;
use super::{Client, ClientError};

/// Whether the server lacks the minor version that it was called by.
fn is_other_version(error: &ClientError) -> bool {
    error.status() == Some(nfsstat4::NFS4ERR_MINOR_VERS_MISMATCH)
}

impl<D: Driver> Client<D> {
    /// EXCHANGE_ID and CREATE_SESSION.
    pub(super) fn establish_session(&mut self) -> Result<(), ClientError> {
        let identity = self.params.identity.clone();
        let op = nfs_argop4::OP_EXCHANGE_ID(exchange_id(identity.verifier, &identity.owner));
        let (clientid, sequence) = loop {
            let found = self.call_without_session(&op, |results| {
                let found: EXCHANGE_ID4resok<'_> = results.take(nfs_opnum4::OP_EXCHANGE_ID)?;
                Ok((found.eir_clientid, found.eir_sequenceid))
            });
            match found {
                // A server that does not have 4.2 may have 4.1 (RFC 8881, section
                // 2.7).
                Err(error) if self.params.minor == 2 && is_other_version(&error) => {
                    self.params.minor = 1;
                }
                found => break found?,
            }
        };
        self.clientid = clientid;
        self.sequence = sequence;
        self.make_own_session()
    }

    /// RECLAIM_COMPLETE.
    pub(super) fn reclaim_complete(&mut self) -> Result<(), ClientError> {
        let op = nfs_argop4::OP_RECLAIM_COMPLETE(RECLAIM_COMPLETE4args { rca_one_fs: false });
        let number = nfs_opnum4::OP_RECLAIM_COMPLETE;
        let done = self.recovery_call(
            |compound| {
                compound.op(&op);
            },
            |results| results.done(number),
        );
        match done {
            Err(error) if error.status() == Some(nfsstat4::NFS4ERR_COMPLETE_ALREADY) => Ok(()),
            done => done,
        }
    }

    /// One call that recovery needs: where the session goes meanwhile, it fails.
    fn recovery_call<T>(
        &mut self,
        write: impl Fn(&mut super::Compound<'_>),
        mut read: impl FnMut(&mut super::Results<'_>) -> Result<T, super::Wrong>,
    ) -> Result<T, ClientError> {
        let mut manner = Manner::ONCE;
        let end = self.driver.now() + self.params.patience.as_nanos() as u64;
        loop {
            match self.attempt(&mut manner, &|_, compound| write(compound), &mut read)? {
                Attempt::Done(done) => return Ok(done),
                Attempt::Again(_) if self.driver.now() < end => {
                    self.idle(std::time::Duration::from_millis(50))?;
                }
                Attempt::Again(error) => return Err(error),
                Attempt::Gone => {
                    return Err(ClientError::Unusable("the session is gone again".into()));
                }
            }
        }
    }

    /// The session is gone: another, and where the server has forgotten the
    /// client, its opens again (CLAIM_PREVIOUS, section 18.16.3).
    pub(super) fn recover(&mut self) -> Result<(), ClientError> {
        let before = self.clientid;
        self.establish_session()?;
        if self.clientid == before {
            return Ok(());
        }
        for number in self.opens.numbers() {
            let reclaimed = self.reclaim(number);
            match reclaimed {
                Ok(stateid) => self.opens.set(number, stateid),
                // It cannot be reclaimed: operations with its old state id fail.
                Err(error) if error.status().is_some() => {}
                Err(error) => return Err(error),
            }
        }
        self.reclaim_complete()
    }

    fn reclaim(&mut self, number: usize) -> Result<stateid4, ClientError> {
        let open = self.opens.at(number);
        let (handle, access) = (open.handle.clone(), open.access);
        let owner = owner(number);
        let args = OPEN4args {
            seqid: 0,
            share_access: access.bits(),
            share_deny: wire::nfs4::OPEN4_SHARE_DENY_NONE,
            owner: state_owner4 {
                clientid: self.clientid,
                owner: Opaque(&owner),
            },
            openhow: openflag4::OPEN4_NOCREATE,
            claim: open_claim4::CLAIM_PREVIOUS(open_delegation_type4::OPEN_DELEGATE_NONE),
        };
        let put = PUTFH4args {
            object: Opaque(handle.as_bytes()),
        };
        self.recovery_call(
            |compound| {
                compound.op(&nfs_argop4::OP_PUTFH(put));
                compound.op(&nfs_argop4::OP_OPEN(args));
            },
            |results| {
                results.done(nfs_opnum4::OP_PUTFH)?;
                let opened: OPEN4resok<'_> = results.take(nfs_opnum4::OP_OPEN)?;
                Ok(opened.stateid)
            },
        )
    }

    /// DELEGRETURN of all that the server wants back.
    pub(super) fn return_delegations(&mut self) -> Result<(), ClientError> {
        while let Some(recall) = self.take_recall() {
            let put = PUTFH4args {
                object: Opaque(recall.handle.as_bytes()),
            };
            let args = DELEGRETURN4args {
                deleg_stateid: recall.stateid,
            };
            let returned = self.recovery_call(
                |compound| {
                    compound.op(&nfs_argop4::OP_PUTFH(put));
                    compound.op(&nfs_argop4::OP_DELEGRETURN(args));
                },
                |results| {
                    results.done(nfs_opnum4::OP_PUTFH)?;
                    results.done(nfs_opnum4::OP_DELEGRETURN)
                },
            );
            match returned {
                // The server has it already, or has forgotten it.
                Err(error) if error.status().is_some() => {}
                returned => returned?,
            }
        }
        Ok(())
    }

    /// DESTROY_SESSION of one that [`Client::more_slots`] made.
    ///
    /// # Errors
    /// Where the server refuses.
    pub fn destroy_session(&mut self, session: sessionid4) -> Result<(), ClientError> {
        let op = nfs_argop4::OP_DESTROY_SESSION(DESTROY_SESSION4args {
            dsa_sessionid: session,
        });
        self.call_without_session(&op, |results| results.done(nfs_opnum4::OP_DESTROY_SESSION))
    }

    /// Closes all files, gives session and client back and closes the
    /// connections.
    ///
    /// # Errors
    /// Where the server refuses or does not answer; the connections are closed
    /// all the same.
    pub fn disconnect(mut self) -> Result<(), ClientError> {
        let ended = self.take_leave();
        self.close()?;
        ended
    }

    fn take_leave(&mut self) -> Result<(), ClientError> {
        for number in self.opens.numbers() {
            self.close_number(number)?;
        }
        if let Some(slots) = self.slots.take() {
            self.destroy_session(slots.session())?;
        }
        let op = nfs_argop4::OP_DESTROY_CLIENTID(DESTROY_CLIENTID4args {
            dca_clientid: self.clientid,
        });
        self.call_without_session(&op, |results| results.done(nfs_opnum4::OP_DESTROY_CLIENTID))
    }

    /// CLOSE.
    pub(super) fn close_number(&mut self, number: usize) -> Result<(), ClientError> {
        let closed = self.call(
            Manner::ONCE,
            |opens, compound| {
                let open = opens.at(number);
                let put = PUTFH4args {
                    object: Opaque(open.handle.as_bytes()),
                };
                compound.op(&nfs_argop4::OP_PUTFH(put));
                compound.op(&nfs_argop4::OP_CLOSE(CLOSE4args {
                    seqid: 0,
                    open_stateid: open.stateid,
                }));
            },
            |results| {
                results.done(nfs_opnum4::OP_PUTFH)?;
                results.done(nfs_opnum4::OP_CLOSE)
            },
        );
        self.opens.forget(number);
        closed
    }
}
