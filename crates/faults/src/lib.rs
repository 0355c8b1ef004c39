//! Faults put in on purpose, to see that the simulator's checker finds them.
//!
//! Without the feature `broken`, which nothing but that test asks for, there is
//! none and [`is`] is false where it is compiled.
#![forbid(unsafe_code)]

/// What weft can be made to do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A flush is answered without a sync.
    DropFlush,
    /// A durable write is acknowledged when it is in the page cache.
    EarlyAck,
    /// FUA of an NBD client is not looked at.
    ForgetFua,
    /// I/Os on a file do not wait for each other.
    NoLocks,
    /// A range that lies in several stripes is locked in the first alone.
    LockOneStripe,
    /// Others come between a Compare and the Write that is fused with it.
    SplitFused,
    /// Others come between what ORWRITE reads and what it writes.
    SplitOrWrite,
    /// Others come between what an encrypted volume reads of a range and what it writes there.
    SplitEncrypted,
    /// Sectors of an encrypted volume that were never written are deciphered.
    DecipherHoles,
    /// The data of a checksummed volume is written before its sums are synced.
    SumsUnsynced,
    /// A block of a checksummed volume is not compared with its sum.
    SumsUnchecked,
    /// What a leg of a mirror holds of a block that another one has wrong is not compared.
    AnyLeg,
    /// A snapshot is made while I/O is under way.
    SnapshotUnheld,
    /// A copy of several ranges leaves its last step out.
    ShortCopy,
    /// A copy from another volume reads the one that it writes.
    OneVolume,
    /// A command that asks where data lies is answered that there is none.
    NoExtents,
    /// A sync that failed is forgotten.
    ForgetLoss,
    /// A sync that failed for want of space is forgotten.
    ForgetFullSync,
    /// The page cache of a file outlives the process that got the error of a loss.
    KeepCache,
    /// A sync does not ask whether another beside it got the error of a loss.
    SyncAlone,
    /// What comes short has been written whole.
    ShortIsWhole,
    /// Where a file system cannot zero a range it is not zeroed.
    SkipZeros,
    /// Zeros are durable without a sync.
    ZeroNotDurable,
    /// A mark is taken away before what replaces it is durable.
    UnmarkEarly,
    /// A part of a frame that becomes a hole takes the rest with it.
    WideHole,
    /// The log of a mirror has a region when the first write to it is done.
    LogLate,
    /// A leg of a mirror that lacks something is read.
    StaleLeg,
    /// A write that a leg of a mirror has failed is acknowledged before the log says so.
    OutUnsaved,
    /// Digests of data that goes to memory or comes from it are not looked at.
    NoDataDigests,
    /// Digests of headers are not looked at.
    NoHeaderDigests,
    /// Digests of data that a protocol itself reads are not looked at.
    NoTextDigests,
    /// The RDMA Read of every burst of a write asks for the first bytes.
    FirstBurst,
    /// The end of an RDMA Read is taken for that of the one asked for last.
    OtherRead,
    /// A task management function is answered while RDMA Reads of tasks that it ended go on.
    ReadsGoOn,
    /// Memory that is being sent is written in place.
    NoPins,
    /// Reservations are not looked at.
    NoReservations,
    /// SCSI commands that change blocks in another way than WRITE need no more
    /// than one that reads.
    ChangesAreReads,
    /// An I/O that goes at once takes nothing of its limits.
    FreeIos,
    /// Whether a host may write where it copies to is not looked at.
    CopyUnasked,
    /// What a host may do is asked once and never again.
    StaleGrant,
    /// Reservations that are to outlast a restart are not written.
    ForgetPersist,
    /// A command that takes access away is answered while what began before goes on.
    NoFence,
    /// No host is notified that a reservation or a registration is gone.
    NoNotices,
    /// A report of reservations does not name the holder.
    WrongReport,
    /// Connections stay when the listener that accepted them is removed.
    KeepConnections,
    /// Keep alive timers are looked at before what arrived while the target stood
    /// still.
    HastyTick,
    /// What a host marks as unreadable can be read.
    ForgetMarks,
    /// Only one subsystem is notified that a volume has another size.
    OneSubsystem,
    /// One change of a plan is left out.
    SkipStep,
    /// One change of a plan that cannot be made is not taken back.
    KeepStep,
    /// Hosts come in by new listeners before others may do less.
    ListenEarly,
    /// A host is not told that a namespace was removed.
    RemoveUntold,
    /// All controllers of a subsystem end when it says anew who may do what.
    CutAll,
    /// A retransmitted call of NFS is executed again.
    ExecuteAgain,
    /// A COMMIT is answered and not done.
    DropCommit,
    /// The verifier of writes is the same after a restart.
    SameVerifier,
    /// A directory keeps its verifier of writes when a sync has failed.
    KeepVerifier,
    /// A stable write to a directory that comes short is answered before it is synced.
    ShortUnsynced,
    /// A directory closes descriptors with writes that were not synced.
    CloseUnsynced,
    /// A change of names in a directory is answered before it is synced.
    NamesUnsynced,
    /// What a directory could not remove is said to be removed.
    FailedIsRemoved,
    /// What a client has open and locked is removed with its connection.
    ForgetLocks,
    /// Others are let in while clients may still reclaim.
    NoGrace,
    /// What an OPEN denies to others is not looked at.
    NoShares,
    /// What is removed still counts for quotas.
    KeepCharge,
    /// What one limit refuses still counts for the quotas that were asked before.
    KeepRefusedCharge,
    /// The hard limit of a quota is not looked at.
    NoHardLimit,
    /// A name is looked for among all of its directory.
    SearchNames,
    /// A connection goes on as long as it has something to do.
    EndlessTurn,
    /// A write delegation stays where another client opens the file to read.
    NoRecall,
    /// A delegation that there is instead of an open stays whatever another client opens.
    NoRecallAlone,
    /// What a client says of a file that it writes by a delegation is told to no other.
    OldAttributes,
    /// The last byte of a lock is not locked.
    ShortLock,
    /// An unlock of a part of a lock unlocks all of it.
    UnlockAll,
    /// A client is answered that it may have state before its record is on the disk.
    AnswerBeforeRecord,
    /// A Connect may name another host than the one whose key TLS is spoken by.
    OtherIdentity,
    /// Records of TLS are taken whatever their tags are.
    AnyTag,
    /// All records of TLS that a side sends are sealed with one nonce.
    SameNonce,
    /// Keys for TLS are good when their time is over.
    NoExpiry,
    /// Keys for TLS that a change takes away stay good.
    KeepKeys,
    /// What is no TLS is taken where TLS is required.
    PlainBesideTls,
    /// Hosts that have keys for TLS may come without.
    PlainHosts,
    /// What a host answers to a challenge is not compared.
    AnyResponse,
    /// What a controller answers to a challenge is not compared.
    AnyControllerResponse,
    /// Secrets of hosts are good when their time is over.
    AnyTimeOfSecrets,
    /// Hosts that have secrets are not asked to authenticate.
    NoAuthentication,
    /// A host that has made a key for TLS may have I/O queues without it.
    PlainBesideMadeKey,
    /// Exports that take TLS alone are for connections without.
    PlainExports,
    /// Checksums of headers of RPCSEC_GSS are not compared.
    AnyMic,
    /// Checksums of arguments of RPCSEC_GSS are not compared.
    AnyArguments,
    /// Calls of RPCSEC_GSS whose numbers were seen, or are too low, are executed.
    NoWindow,
    /// Security contexts are good when their time is over.
    KeepContexts,
    /// All users of a host are the first who has a security context.
    OnePrincipal,
    /// When a reactor has failed the others go on.
    KeepServing,
    /// A disk may have everything that waits for disks.
    NoSharesOfDisks,
    /// What a reader has pinned is not compared with what is there.
    NoSnapshots,
    /// Frames that were received change places without locks.
    CommitUnlocked,
    /// A frame that is replaced is free at once, also while it is pinned.
    FreePinned,
    /// What says that there is something to take is cleared after it was taken.
    ClearLate,
}

#[cfg(feature = "broken")]
thread_local! {
    static FAULT: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// Whether this thread is to do this wrong.
#[inline]
pub fn is(fault: Fault) -> bool {
    #[cfg(feature = "broken")]
    return FAULT.get() == Some(fault);
    #[cfg(not(feature = "broken"))]
    {
        let _ = fault;
        false
    }
}

/// What this thread is to do wrong from now on.
#[cfg(feature = "broken")]
pub fn set(fault: Option<Fault>) {
    FAULT.set(fault);
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(not(feature = "broken"))]
    fn nothing_is_broken_unless_it_is_asked_for() {
        assert!(!super::is(super::Fault::DropFlush));
    }
}
