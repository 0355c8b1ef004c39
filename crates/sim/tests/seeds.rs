//! Thousands of seeds keep what weft promises, and a seed says everything.

use auth::psk::PskHash;
use random::Random;

/// Seeds that CI runs.
const SEEDS: u64 = 2000;

#[test]
fn every_seed_keeps_the_promises() {
    // A half on each of two processors; no seed knows of another.
    let half = |from: u64| {
        let mut total = sim::RunOutcome::default();
        for seed in from..from + SEEDS / 2 {
            match sim::run(seed, 200) {
                Ok(outcome) => total.add(&outcome),
                Err(failure) => panic!("{failure}"),
            }
        }
        total
    };
    let total = std::thread::scope(|scope| {
        let first = scope.spawn(|| half(0));
        let mut second = half(SEEDS / 2);
        second.add(&first.join().expect("seeds keep the promises"));
        second
    });
    // Seeds that do nothing would pass as well.
    assert!(total.checked > 100 * SEEDS, "{total:?}");
    assert!(total.failed > SEEDS, "{total:?}");
    assert!(total.faults > 3 * SEEDS, "{total:?}");
    assert!(total.flips.iter().all(|n| *n > SEEDS / 5), "{total:?}");
    assert!(total.lives > 3 * SEEDS, "{total:?}");
    assert!(total.sessions > SEEDS / 2, "{total:?}");
    assert!(total.by_nbd > SEEDS / 4, "{total:?}");
    assert!(total.functions > SEEDS / 2, "{total:?}");
    assert!(total.secured > SEEDS / 4, "{total:?}");
    assert!(total.by_rdma.iter().all(|n| *n > SEEDS / 4), "{total:?}");
    assert!(total.authenticated > SEEDS / 4, "{total:?}");
    assert!(total.odd_arrivals > SEEDS / 10, "{total:?}");
    assert!(total.limited > SEEDS / 5, "{total:?}");
    assert!(total.snapshots > SEEDS, "{total:?}");
    assert!(total.secured_flips > SEEDS / 100, "{total:?}");
    let [applied, taken_back, refused] = total.applies;
    assert!(applied > SEEDS / 4, "{total:?}");
    assert!(taken_back > SEEDS / 40, "{total:?}");
    assert!(refused > SEEDS / 100, "{total:?}");
    let nfs = total.nfs;
    assert!(nfs.checked > 50 * SEEDS, "{total:?}");
    assert!(nfs.repeated > SEEDS, "{total:?}");
    assert!(nfs.lost > SEEDS / 2, "{total:?}");
    assert!(nfs.reclaimed > SEEDS / 40, "{total:?}");
    assert!(nfs.rewritten > SEEDS / 10, "{total:?}");
    assert!(nfs.delegations > SEEDS / 10, "{total:?}");
    assert!(nfs.asked > SEEDS / 100, "{total:?}");
    assert!(nfs.secured > SEEDS / 10, "{total:?}");
    assert!(nfs.by_rdma > SEEDS / 10, "{total:?}");
    assert!(nfs.flips > SEEDS / 100, "{total:?}");
    assert!(nfs.proven > SEEDS, "{total:?}");
}

#[test]
fn a_seed_runs_the_same_each_time() {
    let run = |seed| sim::run(seed, 0).expect("seeds keep the promises");
    // Elsewhere and behind other seeds: what those leave must not show.
    let backwards = std::thread::spawn(move || (0..20).rev().map(run).collect::<Vec<_>>());
    let forwards: Vec<_> = (0..20).map(run).collect();
    let backwards = backwards.join().expect("seeds do not panic");
    for (seed, (this, that)) in forwards.iter().zip(backwards.iter().rev()).enumerate() {
        assert_eq!(this, that, "seed {seed}");
    }
}

/// A target that was paused receives what hosts sent meanwhile before it looks at
/// their keep alive timers.
#[test]
fn hosts_outlive_a_target_that_stood_still() {
    for seed in 0..40 {
        let mut plan = sim::Plan::new(seed);
        plan.only_stand_still();
        let hosts = plan.hosts.len() as u64;
        let outcome = sim::run_plan(plan, 200).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(outcome.faults, 1, "seed {seed}");
        assert_eq!(outcome.lives_in_chaos, hosts, "seed {seed}");
    }
}

/// What reads, writes and locks of a `dir` wait for is held by the reactor that has
/// panicked, for ever.
#[test]
fn target_with_a_dir_ends_in_time_when_a_reactor_panics() {
    let mut panics = 0;
    for seed in 0..300 {
        let mut plan = sim::Plan::new(seed);
        if !plan.nfs.as_ref().is_some_and(|nfs| nfs.is_dir) {
            continue;
        }
        plan.applies = None;
        plan.shards = 2;
        plan.panic = Some(sim::PanicPlan {
            shard: 0,
            after: 5_000_000,
            events: 0,
        });
        panics += 1;
        sim::run_plan(plan, 200).unwrap_or_else(|failure| panic!("{failure}"));
    }
    assert!(panics > 10, "{panics} of them");
}

/// Hosts whose commands become others end no connection but their own.
#[test]
fn flipped_bits_of_a_host_end_no_connection_of_another() {
    let (mut flips, mut lives) = (0, 0);
    for seed in 0..200 {
        let mut plan = sim::Plan::new(seed);
        plan.only_flip_bits();
        let outcome = sim::run_plan(plan, 200).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(outcome.relives, 0, "seed {seed}");
        flips += outcome.flips.iter().sum::<u64>();
        lives += outcome.lives_in_chaos;
    }
    assert!(flips > 200 && lives > 500, "{flips} bits, {lives} lives");
}

/// Every bit that is flipped under TLS, that of a handshake, too, ends a connection and nothing
/// else: the checker sees no data that is other than it was written.
#[test]
fn flipped_bits_under_tls_end_connections_and_change_nothing() {
    let (mut flips, mut lives) = (0, 0);
    for seed in 0..200 {
        let mut plan = sim::Plan::new(seed);
        plan.only_flip_bits();
        plan.net.flips = 300;
        for host in &mut plan.hosts {
            (host.iscsi, host.nbd, host.tls) = (None, None, Some(PskHash::Sha256));
            (host.subsystem, host.rdma, host.concatenates) = (0, false, false);
        }
        let outcome = sim::run_plan(plan, 200).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(outcome.relives, 0, "seed {seed}");
        assert_eq!(outcome.flips, [outcome.secured_flips, 0], "seed {seed}");
        flips += outcome.secured_flips;
        lives += outcome.secured;
    }
    assert!(flips > 500 && lives > 800, "{flips} bits, {lives} lives");
}

/// Every bit that is flipped between NFS clients that speak TLS, and users who have their calls
/// protected, and their target ends a connection or a call and nothing else.
#[test]
fn flipped_bits_of_nfs_are_found_by_tls_and_by_the_protection_of_users() {
    let (mut flips, mut checked, mut proven) = (0, 0, 0);
    for seed in 0..600 {
        let mut plan = sim::Plan::new(seed);
        plan.applies = None;
        plan.hosts.truncate(1);
        (plan.ops, plan.net.flips) = (60, 100);
        plan.prove_users(&mut Random::new(seed));
        let Some(nfs) = &mut plan.nfs else {
            continue;
        };
        for client in &mut nfs.clients {
            (client.tls, client.rdma) = (true, None);
        }
        let outcome = sim::run_plan(plan, 200).unwrap_or_else(|failure| panic!("{failure}"));
        flips += outcome.nfs.flips;
        checked += outcome.nfs.checked;
        proven += outcome.nfs.proven;
    }
    assert!(
        flips > 500 && checked > 5000 && proven > 1000,
        "{flips} bits, {checked} answers, {proven} of users"
    );
}

/// Every bit that is flipped between NFS clients by RDMA and their target once they are connected
/// ends a connection and nothing else.
#[test]
fn flipped_bits_of_nfs_are_found_by_the_crc_of_mpa() {
    let (mut flips, mut checked) = (0, 0);
    for seed in 0..500 {
        let mut plan = sim::Plan::new(seed);
        plan.applies = None;
        plan.hosts.truncate(1);
        (plan.ops, plan.net.flips) = (60, 100);
        let Some(nfs) = &mut plan.nfs else {
            continue;
        };
        nfs.users = None;
        for client in &mut nfs.clients {
            client.tls = false;
            client.rdma = Some(sim::NfsRdmaPlan {
                crc: true,
                small_fpdus: seed % 2 == 0,
                ird_max: 2,
            });
        }
        let outcome = sim::run_plan(plan, 200).unwrap_or_else(|failure| panic!("{failure}"));
        flips += outcome.nfs.flips;
        checked += outcome.nfs.checked;
    }
    assert!(
        flips > 500 && checked > 5000,
        "{flips} bits, {checked} answers"
    );
}

/// Every bit that is flipped between initiators by RDMA and their target once they are connected
/// ends a connection and nothing else.
#[test]
fn flipped_bits_of_iscsi_are_found_by_the_crc_of_mpa() {
    let (mut flips, mut lives) = (0, 0);
    for seed in 0..400 {
        let mut plan = sim::Plan::new(seed);
        plan.hosts.retain(|host| host.iscsi.is_some());
        if plan.hosts.is_empty() {
            continue;
        }
        plan.only_flip_bits();
        plan.net.flips = 100;
        for host in &mut plan.hosts {
            host.set_digests(true, true);
            host.rdma = true;
        }
        let outcome = sim::run_plan(plan, 200).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(outcome.relives, 0, "seed {seed}");
        assert_eq!(outcome.by_rdma[1], outcome.lives, "seed {seed}");
        flips += outcome.flips[1];
        lives += outcome.lives;
    }
    assert!(flips > 1000 && lives > 1000, "{flips} bits, {lives} lives");
}

/// How many bytes of a stream there are to cut behind: of a host of the first seed that has one
/// of NVMe, or of iSCSI.
fn cuts_of(is_iscsi: bool, connection: usize, end: usize) -> u64 {
    let has_one = |seed: &u64| {
        let hosts = sim::Plan::new(*seed).hosts;
        hosts
            .iter()
            .any(|host| host.iscsi.is_some() == is_iscsi && host.nbd.is_none())
    };
    let seed = (0..).find(has_one).expect("a seed");
    let is_over = |at: &u64| {
        let mut plan = sim::Plan::new(seed);
        plan.hosts
            .retain(|host| host.iscsi.is_some() == is_iscsi && host.nbd.is_none());
        plan.only_cut(sim::StreamCut {
            connection,
            end,
            at: *at,
        });
        let outcome = sim::run_plan(plan, 200).unwrap_or_else(|failure| panic!("{failure}"));
        outcome.faults == 0
    };
    (1..).find(is_over).expect("an end") - 1
}

/// The first connection of an NVMe host is its Admin Queue.
#[test]
fn streams_by_rdma_may_be_cut_behind_every_byte() {
    for (is_iscsi, connection) in [(false, 0), (false, 1), (true, 0)] {
        for end in 0..2 {
            let cuts = cuts_of(is_iscsi, connection, end);
            println!("iSCSI {is_iscsi}, connection {connection}, end {end}: {cuts} bytes");
            assert!(cuts > 200, "{cuts}");
        }
    }
}

/// Documents take units away while flushes are under way, which end when all is read once more.
#[test]
fn refused_commands_that_read_nothing_are_not_read_again() {
    let mut failed = 0;
    for seed in 0..400 {
        let mut plan = sim::Plan::new(seed);
        plan.apply_documents(false, &mut Random::new(seed));
        plan.hosts.retain(|host| host.iscsi.is_some());
        if plan.hosts.is_empty() {
            continue;
        }
        (plan.flushes, plan.ops, plan.nfs) = (300, 60, None);
        plan.disk.latency = 2_000_000;
        let outcome = sim::run_plan(plan, 200).unwrap_or_else(|failure| panic!("{failure}"));
        failed += outcome.failed;
    }
    assert!(failed > 500, "{failed} commands were refused");
}

/// What comes of a connection that is being closed is not taken for the beginning of the next.
#[test]
fn users_whose_connections_are_reset_amid_a_call_take_answers_of_the_next_alone() {
    let mut proven = 0;
    for seed in 0..400 {
        let mut plan = sim::Plan::new(seed);
        plan.applies = None;
        plan.hosts.truncate(1);
        (plan.ops, plan.net.flips, plan.net.window_bytes) = (60, 0, 100);
        (plan.faults.resets, plan.faults.count_max) = (100, 100);
        plan.prove_users(&mut Random::new(seed));
        if plan.nfs.as_ref().is_none_or(|nfs| nfs.users.is_none()) {
            continue;
        }
        let outcome = sim::run_plan(plan, 200).unwrap_or_else(|failure| panic!("{failure}"));
        proven += outcome.nfs.proven;
    }
    assert!(proven > 1000, "{proven} answers of users");
}

/// The reactor that has panicked does not go on with what came short.
#[test]
fn writes_that_come_short_when_a_reactor_panics_may_be_there_in_part() {
    for seed in 250..300 {
        let mut plan = sim::Plan::new(seed);
        plan.applies = None;
        for volume in &mut plan.volumes {
            volume.lies = sim::Lies::File;
        }
        (plan.disk.short, plan.disk.latency) = (2, 500_000);
        plan.faults.count_max = 0;
        plan.panic = Some(sim::PanicPlan {
            shard: 0,
            after: 1_000_000 + seed * 10_000,
            events: 0,
        });
        sim::run_plan(plan, 200).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn volumes_that_are_made_of_others_keep_all_promises() {
    for seed in 3000..3200 {
        let mut plan = sim::Plan::new(seed);
        in_slices(&mut plan, seed);
        sim::run_plan(plan, 200).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// Every volume is made of slices of a file, which keep their sizes.
fn in_slices(plan: &mut sim::Plan, seed: u64) {
    (plan.applies, plan.faults.changes) = (None, 0);
    for volume in &mut plan.volumes {
        (volume.lies, volume.made) = (sim::Lies::File, sim::Made::Slices(2 + seed % 7));
    }
}

/// A volume that is made of others in one way, in a plan where it keeps its size.
fn made_of(plan: &mut sim::Plan, made: sim::Made) {
    (plan.applies, plan.faults.changes) = (None, 0);
    for volume in &mut plan.volumes {
        (volume.lies, volume.made) = (sim::Lies::File, made);
        // A stripe has whole rows.
        volume.blocks -= volume.blocks % 12;
    }
}

#[test]
fn stripes_and_delays_keep_all_promises() {
    for seed in 3200..3400 {
        let mut plan = sim::Plan::new(seed);
        let made = match seed % 2 {
            0 => sim::Made::Stripe(2 + seed / 2 % 3),
            _ => sim::Made::Delayed,
        };
        made_of(&mut plan, made);
        sim::run_plan(plan, 200).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// Mirrors, whose legs fail and return in any order, beside crashes and power cuts.
fn mirrored(seed: u64) -> sim::Plan {
    let mut plan = sim::Plan::new(seed);
    made_of(&mut plan, sim::Made::Mirror(2 + seed % 2));
    plan.faults.count_max = plan.faults.count_max.max(10);
    plan.faults.cuts = (seed % 5) as u32;
    plan
}

#[test]
fn mirrors_keep_all_promises_whatever_becomes_of_their_legs() {
    for seed in 3400..3800 {
        sim::run_plan(mirrored(seed), 200).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn encrypted_volumes_keep_all_promises() {
    for seed in 3200..3400 {
        let mut plan = sim::Plan::new(seed);
        for volume in &mut plan.volumes {
            volume.is_encrypted = true;
        }
        sim::run_plan(plan, 200).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// Checksummed volumes on disks that fail nothing: what cannot be read was torn by the power or
/// changed on the disk.
fn checksummed(seed: u64) -> sim::Plan {
    let mut plan = sim::Plan::new(seed);
    (plan.disk.read_errors, plan.disk.write_errors) = (0, 0);
    (plan.disk.sync_errors, plan.disk.hangs) = (0, 0);
    (plan.copies, plan.faults.cuts) = (0, 0);
    plan.faults.count_max = plan.faults.count_max.max(10);
    for volume in &mut plan.volumes {
        volume.is_checksummed = true;
        volume.is_encrypted = seed.is_multiple_of(4);
    }
    plan
}

#[test]
fn checksummed_volumes_keep_all_promises() {
    for seed in 3800..4100 {
        sim::run_plan(checksummed(seed), 200).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// Mirrors with checksums above them: what is changed on one leg is read from another, and is
/// there again in the end.
#[test]
fn checksummed_mirrors_lose_nothing_that_one_leg_has() {
    for seed in 4300..4500 {
        let mut plan = checksummed(seed);
        made_of(&mut plan, sim::Made::Mirror(2 + seed % 2));
        for volume in &mut plan.volumes {
            // What an I/O costs, it costs on each leg.
            (volume.block_bytes, volume.blocks) = (512, volume.blocks.min(120));
        }
        sim::run_plan(plan, 200).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn checksummed_volumes_keep_all_promises_where_disks_fail() {
    // In the last ones, the sync of a checksum says to an NBD client that the disk is full, blocks
    // that are torn go with a shrink while they are read, and a client comes while the target ends.
    for seed in (4100..4300).chain([4942, 6211, 6330]) {
        let mut plan = sim::Plan::new(seed);
        for volume in &mut plan.volumes {
            (volume.lies, volume.is_checksummed) = (sim::Lies::File, true);
        }
        sim::run_plan(plan, 200).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// What a full disk has taken of a write is answered, and safe where the answer says so.
#[test]
fn writes_to_a_dir_keep_the_promises_where_the_disk_is_full_and_the_power_fails() {
    let mut cuts = 0;
    for seed in 0..1500 {
        let mut plan = sim::Plan::new(seed);
        plan.applies = None;
        let Some(nfs) = plan.nfs.as_mut().filter(|nfs| nfs.is_dir) else {
            continue;
        };
        nfs.full_cuts = 6;
        plan.faults.resets = 4;
        cuts += nfs.full_cuts;
        sim::run_plan(plan, 200).unwrap_or_else(|failure| panic!("{failure}"));
    }
    assert!(cuts > 300, "{cuts} of them");
}

/// A host that uses a disk that answers has all answers, and in time.
#[test]
fn hosts_go_on_while_the_disk_of_others_never_answers() {
    for seed in 0..60 {
        let mut plan = sim::Plan::new(seed);
        plan.only_dead_disk();
        let (hosts, ops) = (plan.hosts.len() as u64, plan.ops);
        let outcome = sim::run_plan(plan, 200).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(outcome.lives_in_chaos, hosts, "seed {seed}");
        assert!(outcome.ops >= ops, "seed {seed}");
    }
}

/// Hosts that wait for a limit cost hosts of another volume, on the same reactors, nothing.
#[test]
fn a_limited_neighbour_costs_others_no_time() {
    const RUNS: u64 = 16;
    let took = |seed: u64, limit: Option<u64>| {
        let mut plan = sim::Plan::new(seed);
        plan.only_limit(limit);
        let outcome = sim::run_plan(plan, 200).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(outcome.faults, 0, "seed {seed}");
        outcome.took_ns
    };
    // Of each volume, how much longer 99 of a hundred take where the first is limited. Which hosts
    // ask for what, and when, is another then: a single run says little.
    let mut longer: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
    for seed in 0..RUNS {
        let (free, limited) = (took(seed, None), took(seed, Some(400)));
        for (volume, longer) in longer.iter_mut().enumerate() {
            longer.push(limited[volume] as f64 / free[volume] as f64);
        }
    }
    let [own, others] = longer.map(|mut longer| {
        longer.sort_by(f64::total_cmp);
        longer[longer.len() / 2]
    });
    println!(
        "99 of a hundred take {own:.1} times as long, and {others:.2} times on the other volume"
    );
    assert!(own > 10.0, "a limit holds them back: {own}");
    assert!(others <= 1.2, "{others}");
}
