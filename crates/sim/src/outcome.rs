//! What came of a run.

/// What a run has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunOutcome {
    /// Operations begun.
    pub ops: u64,
    /// Answers checked.
    pub checked: u64,
    /// Commands that failed.
    pub failed: u64,
    /// Times that hosts came up.
    pub lives: u64,
    /// Those of them that were iSCSI sessions.
    pub sessions: u64,
    /// Those of them that were NBD clients.
    pub by_nbd: u64,
    /// Those of them that spoke TLS.
    pub secured: u64,
    /// Those of them that did so by a key that they had made.
    pub concatenated: u64,
    /// Those of them that connected by RDMA: NVMe hosts, and iSCSI sessions.
    pub by_rdma: [u64; 2],
    /// Those of them that authenticated by DH-HMAC-CHAP.
    pub authenticated: u64,
    /// Times that hosts showed another key or secret than they have at first, or posed as others.
    pub odd_arrivals: u64,
    /// Task management functions that ended something.
    pub functions: u64,
    /// All lives, until everything was to work.
    pub lives_in_chaos: u64,
    /// Faults of the run's own doing.
    pub faults: u64,
    /// Bits that were flipped on their way, of NVMe and of iSCSI.
    pub flips: [u64; 2],
    /// Those of them that were flipped under TLS.
    pub secured_flips: u64,
    /// Lives beyond the first of hosts of which no bit was flipped, until everything was
    /// to work.
    pub relives: u64,
    /// What NFS clients did.
    pub nfs: NfsOutcome,
    /// Documents that were applied, that were taken back because a change could not be
    /// made, and that were refused.
    pub applies: [u64; 3],
    /// The time that 99 of a hundred reads and writes of the first volumes took at most, of
    /// hosts that use one volume alone.
    pub took_ns: [u64; 2],
    /// Runs with limits.
    pub limited: u64,
    /// Snapshots of volumes that were made and checked.
    pub snapshots: u64,
    /// The same for every run of a seed.
    pub digest: u64,
}

impl RunOutcome {
    /// Counts what another run has done; digests, times and `lives_in_chaos` are of one
    /// run alone.
    pub fn add(&mut self, other: &RunOutcome) {
        self.ops += other.ops;
        self.checked += other.checked;
        self.failed += other.failed;
        self.lives += other.lives;
        self.sessions += other.sessions;
        self.by_nbd += other.by_nbd;
        self.secured += other.secured;
        self.concatenated += other.concatenated;
        for (sum, by_rdma) in self.by_rdma.iter_mut().zip(other.by_rdma) {
            *sum += by_rdma;
        }
        self.authenticated += other.authenticated;
        self.odd_arrivals += other.odd_arrivals;
        self.secured_flips += other.secured_flips;
        self.functions += other.functions;
        self.faults += other.faults;
        self.limited += other.limited;
        self.snapshots += other.snapshots;
        for (sum, flips) in self.flips.iter_mut().zip(other.flips) {
            *sum += flips;
        }
        self.nfs = self.nfs.plus(&other.nfs);
        for (sum, applies) in self.applies.iter_mut().zip(other.applies) {
            *sum += applies;
        }
    }
}

/// What the NFS clients of a run have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NfsOutcome {
    /// Answers checked.
    pub checked: u64,
    /// Times that clients mounted or took back what they had.
    pub lives: u64,
    /// Those of them that took back what they had from a target started again.
    pub reclaimed: u64,
    /// Calls sent again on another connection, in their slots.
    pub repeated: u64,
    /// Calls whose outcome is not known: the session was gone.
    pub lost: u64,
    /// Writes made again because a restart had changed the verifier.
    pub rewritten: u64,
    /// Delegations given.
    pub delegations: u64,
    /// Times that clients said what a file is like that they write by a delegation.
    pub asked: u64,
    /// Times that clients mounted, or took back what they had, by TLS.
    pub secured: u64,
    /// The same by RDMA.
    pub by_rdma: u64,
    /// Bits that were flipped on the way, by TLS, under MPA's CRC or with users' protection.
    pub flips: u64,
    /// Answers checked of users who prove who they are.
    pub proven: u64,
}

impl NfsOutcome {
    /// These and those.
    #[must_use]
    pub fn plus(&self, other: &NfsOutcome) -> NfsOutcome {
        NfsOutcome {
            checked: self.checked + other.checked,
            lives: self.lives + other.lives,
            reclaimed: self.reclaimed + other.reclaimed,
            repeated: self.repeated + other.repeated,
            lost: self.lost + other.lost,
            rewritten: self.rewritten + other.rewritten,
            delegations: self.delegations + other.delegations,
            asked: self.asked + other.asked,
            secured: self.secured + other.secured,
            by_rdma: self.by_rdma + other.by_rdma,
            flips: self.flips + other.flips,
            proven: self.proven + other.proven,
        }
    }
}

/// A run that did not keep what weft promises.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// What is wrong.
    pub text: String,
    /// The last lines of its trace.
    pub trace: Vec<String>,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for line in &self.trace {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "seed {}: {}", self.seed, self.text)?;
        write!(f, "to repeat it: cargo xtask sim --seed {}", self.seed)
    }
}
