//! One client, and what is agreed with it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use machine::Nanos;
use wire::nfs4::{clientid4, nfs_opnum4, nfsstat4, verifier4};

use super::principal::{Principal, ProvenNumber};
use super::{ClientOwner, Protection};

/// What is kept of the name of a client's program.
const IMPLEMENTATION_BYTES_MAX: usize = 128;

/// What is kept of what a client has proved to be.
const IDENTITY_CHARS_MAX: usize = 256;

/// A record of a client (RFC 8881, section 2.4), shared by its sessions.
#[derive(Debug)]
pub struct Client {
    /// Its identifier; no other client of this server ever has the same.
    pub id: clientid4,
    /// The minor version of its first call; those with sessions may speak others
    /// of them too.
    pub minor: u32,
    /// `co_ownerid`.
    pub owner: Box<[u8]>,
    /// `co_verifier`: of this boot of the client.
    pub verifier: verifier4,
    /// The principal that made the record.
    pub principal: Principal,
    /// Where it was made from, as its caller numbers hosts.
    pub host: u64,
    /// What program it is (`nii_name`), as far as it says so.
    pub implementation: Box<[u8]>,
    /// What it had proved to be, if anything: a name that another cannot claim.
    pub identity: Option<Box<str>>,
    /// How its state is protected.
    pub protection: Option<Protection>,
    /// When the lease was renewed last.
    renewed: AtomicU64,
    status_flags: AtomicU32,
    has_reclaimed: AtomicBool,
    may_reclaim: AtomicBool,
    is_recorded: AtomicBool,
    is_gone: AtomicBool,
}

impl Client {
    pub(super) fn new(
        (id, minor): (clientid4, u32),
        owner: &ClientOwner<'_>,
        principal: Principal,
        now: Nanos,
    ) -> Client {
        let implementation = owner.implementation;
        let kept = implementation.len().min(IMPLEMENTATION_BYTES_MAX);
        Client {
            id,
            minor,
            owner: owner.id.into(),
            verifier: owner.verifier,
            principal,
            host: owner.host,
            implementation: implementation[..kept].into(),
            identity: owner.identity.map(|name| {
                let kept = name.chars().take(IDENTITY_CHARS_MAX);
                kept.collect::<String>().into()
            }),
            protection: owner.protection,
            renewed: AtomicU64::new(now),
            status_flags: AtomicU32::new(0),
            has_reclaimed: AtomicBool::new(false),
            may_reclaim: AtomicBool::new(false),
            is_recorded: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
        }
    }

    /// Whether a principal may do what protection is enforced for. What was made with a
    /// certificate is protected by it.
    ///
    /// # Errors
    /// NFS4ERR_WRONG_CRED.
    pub fn check_protection(&self, principal: Principal) -> Result<(), nfsstat4> {
        let has_certificate = principal.certificate == self.principal.certificate;
        let is_let = self.protection.is_none() || self.is_machine(principal);
        match has_certificate && is_let {
            true => Ok(()),
            false => Err(nfsstat4::NFS4ERR_WRONG_CRED),
        }
    }

    /// Whether a principal may do an operation, as far as the client wants that enforced.
    ///
    /// # Errors
    /// NFS4ERR_WRONG_CRED.
    pub fn check_enforced(&self, number: nfs_opnum4, principal: Principal) -> Result<(), nfsstat4> {
        let protection = self.protection.as_ref();
        let is_enforced = protection.is_some_and(|of| of.enforced.has(number));
        match !is_enforced || self.is_machine(principal) {
            true => Ok(()),
            false => Err(nfsstat4::NFS4ERR_WRONG_CRED),
        }
    }

    /// Whether a connection whose client has shown this certificate, or none, is to be bound to
    /// a session of it before it is used for that: else whoever has seen the session's identifier
    /// could use it.
    pub fn must_bind(&self, certificate: Option<ProvenNumber>) -> bool {
        self.protection.is_some() || self.principal.certificate != certificate
    }

    /// Whether the machine's principal may do this although the file wants another flavor.
    pub fn allows(&self, number: nfs_opnum4, principal: Principal) -> bool {
        let protection = self.protection.as_ref();
        protection.is_some_and(|of| of.allowed.has(number)) && self.is_machine(principal)
    }

    fn is_machine(&self, principal: Principal) -> bool {
        principal == self.principal && principal.has_integrity
    }

    /// Which of the registry's owners it is among.
    pub(super) fn owners(&self) -> usize {
        usize::from(self.minor > 0)
    }

    /// Renews the lease of the client.
    #[inline]
    pub fn renew(&self, now: Nanos) {
        // Most requests come long before it matters; a store each would have
        // the reactors of one client fight for the line.
        if now.saturating_sub(self.renewed.load(Ordering::Relaxed)) > RENEW_NANOS {
            self.renewed.fetch_max(now, Ordering::Relaxed);
        }
    }

    /// Whether it is the server's client no more: nothing of it is good for anything.
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    pub(super) fn leave(&self) {
        self.is_gone.store(true, Ordering::Release);
    }

    /// How long it has been silent at least: what it has sent just after its lease was
    /// renewed was not noted.
    pub fn silent(&self, now: Nanos) -> Nanos {
        now.saturating_sub(self.renewed.load(Ordering::Relaxed) + RENEW_NANOS)
    }

    /// SEQ4_STATUS_*.
    #[inline]
    pub fn status_flags(&self) -> u32 {
        self.status_flags.load(Ordering::Relaxed)
    }

    /// Sets and clears SEQ4_STATUS_*.
    pub fn set_status_flags(&self, set: u32, clear: u32) {
        self.status_flags.fetch_or(set, Ordering::Relaxed);
        self.status_flags.fetch_and(!clear, Ordering::Relaxed);
    }

    /// RECLAIM_COMPLETE arrived: it has all back that it had.
    pub fn has_reclaimed(&self) -> bool {
        self.has_reclaimed.load(Ordering::Acquire)
    }

    /// Whether it had state before the server began.
    pub fn may_reclaim(&self) -> bool {
        self.may_reclaim.load(Ordering::Acquire)
    }

    /// Whether this is the first time.
    pub(super) fn reclaimed(&self) -> bool {
        !self.has_reclaimed.swap(true, Ordering::AcqRel)
    }

    /// Whether it is on record since this start of the server: it may have
    /// state back after the next one.
    #[inline]
    pub fn is_recorded(&self) -> bool {
        self.is_recorded.load(Ordering::Acquire)
    }

    /// Whether this is the first time.
    pub(super) fn recorded(&self) -> bool {
        !self.is_recorded.swap(true, Ordering::AcqRel)
    }

    /// It is on record by another of the same name, which is gone.
    pub(super) fn take_record(&self) {
        self.is_recorded.store(true, Ordering::Release);
    }

    pub(super) fn let_reclaim(&self) {
        self.may_reclaim.store(true, Ordering::Release);
    }
}

/// A lease renewed less than this ago is not renewed again.
const RENEW_NANOS: Nanos = 100_000_000;
