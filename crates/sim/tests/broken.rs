//! The test of the checker: weft is made to do something wrong, and a few
//! seeds must find it. Needs the feature `broken`; `cargo xtask ci` asks for it.
#![cfg(feature = "broken")]

#[path = "broken/aims.rs"]
mod aims;
#[path = "broken/nbd.rs"]
mod nbd;

use faults::{Fault, set};
use sim::{Lies, Made, Plan};

use self::aims::{
    aborts_by_iser, applies, applies_to_nvme, applies_to_tls, authenticates,
    copies_beside_reservations, fails_to_sync, flips_bits, flips_bits_of_users, has_dir,
    has_many_names, has_nfs, has_small_turns, has_tls_listener, hosts_speak, is_checksummed,
    is_encrypted, makes_keys, preempts, proves_users, reserves_by_scsi, secures_clients,
    speaks_tls, speaks_tls_or_none, writes_by_iser,
};

/// Seeds within which each fault must be found.
const SEEDS: usize = 4000;

/// Some seed fails in the way that the fault explains; others may fail with
/// what follows from it.
fn is_found(fault: Fault, words: &[&str]) {
    is_found_where(|_| true, fault, words);
}

/// The same, of seeds whose plans have what the fault shows in: `aims` gives it to
/// them, or passes over those that cannot have it.
fn is_found_where(aims: impl Fn(&mut Plan) -> bool, fault: Fault, words: &[&str]) {
    set(Some(fault));
    let plans = (0..).filter_map(|seed| {
        let mut plan = Plan::new(seed);
        aims(&mut plan).then_some(plan)
    });
    let mut others = Vec::new();
    let mut plans = plans.take(SEEDS).enumerate();
    let found = plans.find_map(|(tried, plan)| {
        let failure = sim::run_plan(plan, 0).err()?;
        if words.iter().any(|word| failure.text.contains(word)) {
            return Some((tried + 1, failure.seed));
        }
        others.push(failure.to_string());
        None
    });
    set(None);
    let Some((tried, seed)) = found else {
        panic!("{fault:?} is not found: {others:#?}");
    };
    println!("{fault:?}: found by seed {seed}, after {tried} of them");
}

/// How content that was lost with the power shows.
const LOST: &[&str] = &["left of the last epoch", "zeros that nothing explains"];

#[test]
fn unbroken_target_violates_nothing_in_150_seeds() {
    for seed in 0..150 {
        if let Err(failure) = sim::run(seed, 0) {
            panic!("{failure}");
        }
    }
}

#[test]
fn a_dropped_flush_is_found() {
    is_found(Fault::DropFlush, LOST);
}

#[test]
fn an_early_acknowledgement_is_found() {
    is_found(Fault::EarlyAck, LOST);
}

#[test]
fn a_forgotten_loss_is_found() {
    is_found_where(fails_to_sync, Fault::ForgetLoss, LOST);
}

#[test]
fn a_forgotten_loss_for_want_of_space_is_found() {
    is_found_where(fails_to_sync, Fault::ForgetFullSync, LOST);
}

#[test]
fn a_cache_that_hides_a_loss_from_the_next_process_is_found() {
    is_found_where(fails_to_sync, Fault::KeepCache, LOST);
}

#[test]
fn a_sync_that_asks_for_no_loss_beside_it_is_found() {
    is_found_where(fails_to_sync, Fault::SyncAlone, LOST);
}

/// What damaged data looks like.
const DAMAGED: &[&str] = &["bytes that were never", "one step"];

#[test]
fn data_digests_of_nvme_that_are_not_checked_are_found() {
    let aims = |plan: &mut Plan| flips_bits(plan, false);
    is_found_where(aims, Fault::NoDataDigests, DAMAGED);
}

#[test]
fn data_digests_of_iscsi_that_are_not_checked_are_found() {
    let aims = |plan: &mut Plan| flips_bits(plan, true);
    is_found_where(aims, Fault::NoDataDigests, DAMAGED);
}

/// What commands do that are others than were sent.
const OTHERS: &[&str] = &["before the other", "not of here", "nothing explains"];

#[test]
fn bursts_that_an_rdma_read_takes_from_elsewhere_are_found() {
    is_found_where(writes_by_iser, Fault::FirstBurst, DAMAGED);
}

#[test]
fn data_that_is_written_before_its_rdma_read_has_ended_is_found() {
    is_found_where(writes_by_iser, Fault::OtherRead, DAMAGED);
}

#[test]
fn answers_to_functions_before_rdma_reads_of_their_tasks_have_ended_are_found() {
    let words = &["RDMAP: invalid STag"];
    is_found_where(aborts_by_iser, Fault::ReadsGoOn, words);
}

#[test]
fn header_digests_of_nvme_that_are_not_checked_are_found() {
    let aims = |plan: &mut Plan| flips_bits(plan, false);
    is_found_where(aims, Fault::NoHeaderDigests, OTHERS);
}

#[test]
fn header_digests_of_iscsi_that_are_not_checked_are_found() {
    let aims = |plan: &mut Plan| flips_bits(plan, true);
    is_found_where(aims, Fault::NoHeaderDigests, OTHERS);
}

#[test]
fn header_digests_without_data_digests_that_are_not_checked_are_found() {
    let aims = |plan: &mut Plan| {
        plan.hosts
            .iter_mut()
            .for_each(|host| host.set_digests(true, false));
        plan.net.flips = 100;
        true
    };
    is_found_where(aims, Fault::NoHeaderDigests, OTHERS);
}

#[test]
fn digests_of_sense_data_that_are_not_checked_are_found() {
    let aims = |plan: &mut Plan| {
        plan.disk.read_errors = 10;
        flips_bits(plan, true)
    };
    is_found_where(
        aims,
        Fault::NoTextDigests,
        &["initiator", "nothing explains"],
    );
}

#[test]
fn records_of_tls_that_were_changed_and_are_taken_are_found() {
    let aims = |plan: &mut Plan| {
        plan.net.flips = 100;
        plan.hosts
            .iter_mut()
            .for_each(|host| host.set_digests(false, false));
        speaks_tls(plan)
    };
    is_found_where(aims, Fault::AnyTag, &[DAMAGED, OTHERS].concat());
}

#[test]
fn nonces_of_tls_that_are_used_twice_are_found() {
    is_found_where(speaks_tls, Fault::SameNonce, &["Twice"]);
}

#[test]
fn hosts_that_connect_under_the_name_of_another_by_their_own_key_are_found() {
    is_found_where(
        speaks_tls,
        Fault::OtherIdentity,
        &["no document has its key"],
    );
}

#[test]
fn keys_that_are_good_when_their_time_is_over_are_found() {
    is_found_where(
        applies_to_tls,
        Fault::NoExpiry,
        &["no document has its key"],
    );
}

#[test]
fn secrets_that_are_good_when_their_time_is_over_are_found() {
    let aims = |plan: &mut Plan| {
        plan.hosts.iter_mut().for_each(|host| host.tls = None);
        applies(plan) && authenticates(plan, false)
    };
    is_found_where(
        aims,
        Fault::AnyTimeOfSecrets,
        &["no document has its secret"],
    );
}

#[test]
fn keys_that_stay_good_when_they_are_gone_are_found() {
    is_found_where(
        applies_to_tls,
        Fault::KeepKeys,
        &["no document has its key", "after an apply"],
    );
}

#[test]
fn hosts_without_tls_where_it_is_required_are_found() {
    is_found_where(
        has_tls_listener,
        Fault::PlainBesideTls,
        &["which no document says"],
    );
}

#[test]
fn hosts_that_have_keys_and_come_without_are_found() {
    is_found_where(
        speaks_tls_or_none,
        Fault::PlainHosts,
        &["which no document says"],
    );
}

#[test]
fn answers_of_hosts_that_are_not_compared_are_found() {
    is_found_where(
        |plan| authenticates(plan, false),
        Fault::AnyResponse,
        &["no document has its secret"],
    );
}

#[test]
fn answers_of_controllers_that_are_not_compared_are_found() {
    is_found_where(
        |plan| applies(plan) && authenticates(plan, true),
        Fault::AnyControllerResponse,
        &["no document has its secret"],
    );
}

#[test]
fn hosts_that_are_not_asked_to_authenticate_are_found() {
    is_found_where(
        |plan| authenticates(plan, false),
        Fault::NoAuthentication,
        &["no document has its secret"],
    );
}

#[test]
fn io_queues_without_the_key_that_was_made_are_found() {
    is_found_where(
        makes_keys,
        Fault::PlainBesideMadeKey,
        &["without the key for TLS that it has made"],
    );
}

#[test]
fn hosts_that_connect_under_the_name_of_another_by_a_key_that_they_have_made_are_found() {
    is_found_where(
        |plan| makes_keys(plan) && plan.hosts.len() > 1,
        Fault::OtherIdentity,
        &["no document has its key"],
    );
}

#[test]
fn clients_without_tls_in_exports_that_take_nothing_else_are_found() {
    let words = &["an export that takes TLS alone answers"];
    is_found_where(secures_clients, Fault::PlainExports, words);
}

#[test]
fn usage_of_quotas_that_does_not_follow_removals_is_found() {
    let aims = |plan: &mut Plan| {
        plan.nfs
            .as_ref()
            .is_some_and(|nfs| nfs.survives && !nfs.is_dir)
    };
    is_found_where(aims, Fault::KeepCharge, &["quota: "]);
}

/// Files in memory that outlive the target and have limits.
fn has_limits(plan: &mut Plan) -> bool {
    let nfs = plan.nfs.as_ref();
    nfs.is_some_and(|nfs| nfs.has_limits)
}

#[test]
fn writes_beyond_a_hard_limit_that_are_taken_are_found() {
    is_found_where(has_limits, Fault::NoHardLimit, &["quota: more than"]);
}

#[test]
fn usage_of_quotas_that_keeps_what_was_refused_is_found() {
    is_found_where(has_limits, Fault::KeepRefusedCharge, &["is counted"]);
}

#[test]
fn records_of_rpc_with_tls_that_were_changed_and_are_taken_are_found() {
    let aims = |plan: &mut Plan| {
        plan.net.flips = 100;
        plan.hosts.truncate(1);
        secures_clients(plan)
    };
    is_found_where(aims, Fault::AnyTag, &["client", "of NFS", "panic"]);
}

#[test]
fn nonces_of_rpc_with_tls_that_are_used_twice_are_found() {
    is_found_where(secures_clients, Fault::SameNonce, &["Twice"]);
}

#[test]
fn calls_in_the_contexts_of_others_are_found() {
    is_found_where(proves_users, Fault::AnyMic, &["is taken without its key"]);
}

#[test]
fn arguments_that_were_changed_and_are_executed_are_found() {
    let words = &["as far as answers have told"];
    is_found_where(flips_bits_of_users, Fault::AnyArguments, words);
}

#[test]
fn calls_that_are_executed_again_in_their_context_are_found() {
    let words = &["one that must have none"];
    is_found_where(proves_users, Fault::NoWindow, words);
}

#[test]
fn contexts_that_are_good_when_their_time_is_over_are_found() {
    let words = &["whose time is over"];
    is_found_where(proves_users, Fault::KeepContexts, words);
}

#[test]
fn users_that_are_taken_for_others_are_found() {
    let words = &["ends with NFS4ERR_ACCESS", "ends with NFS4_OK"];
    is_found_where(proves_users, Fault::OnePrincipal, words);
}

#[test]
fn files_without_locks_are_found() {
    is_found(
        Fault::NoLocks,
        &["cannot be what", "in part", "bytes that were never"],
    );
}

#[test]
fn ranges_that_are_locked_in_part_are_found() {
    is_found(
        Fault::LockOneStripe,
        &["cannot be what", "in part", "bytes that were never"],
    );
}

#[test]
fn short_writes_that_end_there_are_found() {
    is_found(
        Fault::ShortIsWhole,
        &["in part", "before the other", "nothing explains"],
    );
}

#[test]
fn zeros_that_are_not_written_are_found() {
    is_found(Fault::SkipZeros, &["before the other"]);
}

#[test]
fn zeros_that_power_cuts_take_back_are_found() {
    is_found(Fault::ZeroNotDurable, LOST);
}

#[test]
fn marks_that_go_before_their_data_comes_are_found() {
    is_found(Fault::UnmarkEarly, LOST);
}

#[test]
fn holes_that_are_too_wide_are_found() {
    is_found(Fault::WideHole, &["zeros that nothing explains"]);
}

#[test]
fn memory_without_pins_is_found() {
    is_found(Fault::NoPins, &["in part", "bytes that were never"]);
}

#[test]
fn a_split_fused_pair_is_found() {
    is_found(Fault::SplitFused, &["took the place", "one step"]);
}

#[test]
fn a_split_orwrite_is_found() {
    is_found(Fault::SplitOrWrite, &["before the other"]);
}

#[test]
fn an_encrypted_volume_that_lets_others_between_its_steps_is_found() {
    is_found_where(
        is_encrypted,
        Fault::SplitEncrypted,
        &["took the place", "one step", "before the other"],
    );
}

#[test]
fn holes_of_an_encrypted_volume_that_are_deciphered_are_found() {
    is_found_where(
        is_encrypted,
        Fault::DecipherHoles,
        &["bytes that were never", "cannot be what"],
    );
}

#[test]
fn data_that_is_written_before_its_checksums_are_synced_is_found() {
    is_found_where(
        is_checksummed,
        Fault::SumsUnsynced,
        &["which nothing explains"],
    );
}

#[test]
fn blocks_that_are_not_compared_with_their_checksums_are_found() {
    is_found_where(
        is_checksummed,
        Fault::SumsUnchecked,
        &["bytes that were never"],
    );
}

/// The same of mirrors.
fn is_checksummed_mirror(plan: &mut Plan) -> bool {
    (plan.applies, plan.faults.changes) = (None, 0);
    is_checksummed(plan);
    for volume in &mut plan.volumes {
        volume.made = Made::Mirror(2);
    }
    true
}

#[test]
fn legs_that_are_not_compared_with_checksums_are_found() {
    is_found_where(
        is_checksummed_mirror,
        Fault::AnyLeg,
        &["bytes that were never", "legs of volume"],
    );
}

#[test]
fn a_copy_that_ends_early_is_found() {
    is_found(Fault::ShortCopy, &["before the other", "survived"]);
}

#[test]
fn reservations_that_are_not_checked_are_found() {
    is_found(Fault::NoReservations, &["against the reservations"]);
}

#[test]
fn changes_that_need_the_right_to_read_are_found() {
    is_found_where(
        reserves_by_scsi,
        Fault::ChangesAreReads,
        &["against the reservations"],
    );
}

#[test]
fn copies_of_nvme_to_where_their_host_may_not_write_are_found() {
    is_found_where(
        |plan| copies_beside_reservations(plan) && hosts_speak(plan, false),
        Fault::CopyUnasked,
        &["against the reservations"],
    );
}

#[test]
fn copies_of_scsi_to_where_their_initiator_may_not_write_are_found() {
    is_found_where(
        |plan| copies_beside_reservations(plan) && hosts_speak(plan, true),
        Fault::CopyUnasked,
        &["against the reservations"],
    );
}

#[test]
fn grants_that_are_not_asked_for_again_are_found() {
    is_found(Fault::StaleGrant, &["against the reservations"]);
}

#[test]
fn reservations_that_a_restart_forgets_are_found() {
    is_found(
        Fault::ForgetPersist,
        &["against the reservations", "a reservation command"],
    );
}

#[test]
fn access_that_is_taken_too_early_is_found() {
    is_found_where(
        preempts,
        Fault::NoFence,
        &["before the other", "it is there"],
    );
}

#[test]
fn a_snapshot_of_no_one_instant_is_found() {
    is_found_where(
        |plan| {
            plan.volumes[0].lies = Lies::File;
            plan.snapshots = 50_000;
            true
        },
        Fault::SnapshotUnheld,
        &["cannot be what was left", "in part", "before the other"],
    );
}

#[test]
fn notifications_that_never_come_are_found() {
    is_found(Fault::NoNotices, &["hear of what reservations became"]);
}

#[test]
fn reports_of_reservations_that_lie_are_found() {
    is_found(Fault::WrongReport, &["a reservation command"]);
}

#[test]
fn connections_that_outlive_their_listener_are_found() {
    is_found(Fault::KeepConnections, &["connections are left of"]);
}

#[test]
fn a_size_that_one_subsystem_alone_hears_of_is_found() {
    is_found(Fault::OneSubsystem, &["on a volume of"]);
}

#[test]
fn a_change_of_a_plan_that_is_left_out_is_found() {
    is_found_where(applies, Fault::SkipStep, &["after an apply"]);
}

#[test]
fn a_change_of_a_plan_that_is_not_taken_back_is_found() {
    is_found_where(applies, Fault::KeepStep, &["after an apply"]);
}

#[test]
fn a_host_that_comes_in_before_any_document_lets_it_is_found() {
    is_found_where(
        applies_to_nvme,
        Fault::ListenEarly,
        &["which no document says"],
    );
}

#[test]
fn a_removal_of_a_namespace_that_no_host_hears_of_is_found() {
    is_found_where(
        applies_to_nvme,
        Fault::RemoveUntold,
        &["told of what a document changes"],
    );
}

#[test]
fn a_host_that_is_cut_and_not_named_by_the_plan_is_found() {
    is_found_where(applies_to_nvme, Fault::CutAll, &["which no plan says"]);
}

#[test]
fn hosts_that_a_late_timer_ends_are_found() {
    set(Some(Fault::HastyTick));
    let found = (0..60).find(|&seed| {
        let mut plan = sim::Plan::new(seed);
        plan.only_stand_still();
        let hosts = plan.hosts.len() as u64;
        sim::run_plan(plan, 0).is_ok_and(|outcome| outcome.lives_in_chaos > hosts)
    });
    set(None);
    assert!(found.is_some(), "no host lost a controller");
}

#[test]
fn unreadable_blocks_that_are_read_are_found() {
    is_found(
        Fault::ForgetMarks,
        &["before the other", "nothing explains"],
    );
}

#[test]
fn a_copy_from_the_wrong_volume_is_found() {
    is_found(Fault::OneVolume, &["not of here", "before the other"]);
}

#[test]
fn data_that_is_said_not_to_be_there_is_found() {
    is_found(Fault::NoExtents, &["zeros that nothing explains"]);
}

#[test]
fn a_call_that_is_executed_again_is_found() {
    is_found_where(has_nfs, Fault::ExecuteAgain, &["otherwise than once"]);
}

#[test]
fn a_commit_that_is_not_done_is_found() {
    is_found_where(has_nfs, Fault::DropCommit, &["of NFS ("]);
}

#[test]
fn a_verifier_that_stays_is_found() {
    is_found_where(has_nfs, Fault::SameVerifier, &["of NFS ("]);
}

#[test]
fn a_verifier_that_stays_when_a_sync_fails_is_found() {
    is_found_where(has_dir, Fault::KeepVerifier, &["of NFS ("]);
}

#[test]
fn a_short_stable_write_that_is_not_synced_is_found() {
    is_found_where(has_dir, Fault::ShortUnsynced, &["of NFS ("]);
}

#[test]
fn a_descriptor_that_is_closed_with_unsynced_writes_is_found() {
    is_found_where(has_dir, Fault::CloseUnsynced, &["of NFS ("]);
}

#[test]
fn names_that_are_answered_before_they_are_synced_are_found() {
    is_found_where(has_dir, Fault::NamesUnsynced, &["of NFS finds"]);
}

#[test]
fn names_that_could_not_be_removed_and_are_said_to_be_are_found() {
    is_found_where(
        has_dir,
        Fault::FailedIsRemoved,
        &["of NFS finds", "otherwise than once"],
    );
}

#[test]
fn locks_that_go_with_a_connection_are_found() {
    is_found_where(has_nfs, Fault::ForgetLocks, &["is lost:"]);
}

#[test]
fn a_grace_period_that_is_not_kept_is_found() {
    is_found_where(
        has_nfs,
        Fault::NoGrace,
        &["was granted against", "ReclaimLock", "Reclaim("],
    );
}

#[test]
fn names_that_are_searched_for_are_found() {
    is_found_where(has_many_names, Fault::SearchNames, &["units in one turn"]);
}

#[test]
fn a_turn_without_an_end_is_found() {
    is_found_where(has_small_turns, Fault::EndlessTurn, &["units in one turn"]);
}

#[test]
fn shares_that_are_not_checked_are_found() {
    is_found_where(has_nfs, Fault::NoShares, &["was granted against"]);
}

#[test]
fn write_delegations_that_are_not_recalled_are_found() {
    is_found_where(has_nfs, Fault::NoRecall, &["was granted against"]);
}

#[test]
fn delegations_instead_of_opens_that_are_not_recalled_are_found() {
    let words = &["was granted against"];
    is_found_where(has_nfs, Fault::NoRecallAlone, words);
}

#[test]
fn old_attributes_of_files_that_clients_write_are_found() {
    is_found_where(has_nfs, Fault::OldAttributes, &["is seen behind"]);
}

#[test]
fn locks_without_their_last_byte_are_found() {
    is_found_where(has_nfs, Fault::ShortLock, &["was granted against"]);
}

#[test]
fn parts_that_are_unlocked_whole_are_found() {
    is_found_where(has_nfs, Fault::UnlockAll, &["was granted against"]);
}

#[test]
fn answers_before_their_records_are_found() {
    is_found_where(has_nfs, Fault::AnswerBeforeRecord, &["is lost:"]);
}

/// A volume is limited, and hosts ask it for more than it has.
fn is_limited(plan: &mut Plan) -> bool {
    plan.only_limit(Some(400));
    true
}

#[test]
fn ios_that_count_against_no_limit_are_found() {
    is_found_where(is_limited, Fault::FreeIos, &["has let"]);
}

#[test]
fn a_target_that_serves_on_after_a_panic_is_found() {
    is_found(Fault::KeepServing, &["after a panic"]);
}

#[test]
fn a_disk_that_takes_all_workers_is_found() {
    set(Some(Fault::NoSharesOfDisks));
    let found = (0..60).find(|&seed| {
        let mut plan = sim::Plan::new(seed);
        plan.only_dead_disk();
        let hosts = plan.hosts.len() as u64;
        sim::run_plan(plan, 0).map_or(true, |outcome| outcome.lives_in_chaos > hosts)
    });
    set(None);
    assert!(found.is_some(), "no host waited for a disk of others");
}

/// Volumes are mirrors on files, and the target is killed now and then; disks are cut and return
/// where they are to.
fn mirrors(plan: &mut Plan, cuts: u32) -> bool {
    (plan.applies, plan.faults.changes) = (None, 0);
    plan.volumes.truncate(1);
    let volume = &mut plan.volumes[0];
    (volume.lies, volume.made) = (Lies::File, Made::Mirror(2));
    (plan.copies, plan.reserve_percent, plan.hot_percent) = (0, 0, 90);
    plan.faults.count_max = 30;
    (plan.faults.kills, plan.faults.power_cuts, plan.faults.cuts) = (2, 0, cuts);
    true
}

#[test]
fn a_log_of_a_mirror_that_comes_after_the_data_is_found() {
    is_found_where(
        |plan| mirrors(plan, 0),
        Fault::LogLate,
        &[
            "before the other",
            "comes before",
            "legs of volume",
            "was left of",
        ],
    );
}

#[test]
fn a_stale_leg_that_is_read_is_found() {
    is_found_where(
        |plan| mirrors(plan, 3),
        Fault::StaleLeg,
        &[
            "before the other",
            "comes before",
            "was left of",
            "lies between",
            "explains",
        ],
    );
}

#[test]
fn a_leg_that_fails_untold_is_found() {
    is_found_where(
        |plan| mirrors(plan, 3),
        Fault::OutUnsaved,
        &[
            "before the other",
            "comes before",
            "was left of",
            "lies between",
            "explains",
        ],
    );
}
