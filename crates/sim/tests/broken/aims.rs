//! Gives plans what faults show in.

use auth::dhchap::{DhchapGroup, DhchapHash};
use auth::psk::PskHash;
use random::Random;
use sim::{DhchapPlan, Lies, Plan};
pub fn has_nfs(plan: &mut Plan) -> bool {
    plan.nfs.is_some()
}

/// NFS clients use a `dir`.
pub fn has_dir(plan: &mut Plan) -> bool {
    plan.nfs.as_ref().is_some_and(|nfs| nfs.is_dir)
}

/// All volumes are encrypted.
pub fn is_encrypted(plan: &mut Plan) -> bool {
    for volume in &mut plan.volumes {
        volume.is_encrypted = true;
    }
    true
}

/// All volumes have checksums, on disks that fail nothing and tear no block.
pub fn is_checksummed(plan: &mut Plan) -> bool {
    for volume in &mut plan.volumes {
        (volume.lies, volume.is_checksummed) = (Lies::File, true);
        volume.block_bytes = 512;
    }
    (plan.disk.read_errors, plan.disk.write_errors) = (0, 0);
    (plan.disk.sync_errors, plan.disk.hangs) = (0, 0);
    (plan.copies, plan.faults.cuts) = (0, 0);
    plan.faults.count_max = plan.faults.count_max.max(10);
    true
}

/// Hosts flush a file whose syncs fail.
pub fn fails_to_sync(plan: &mut Plan) -> bool {
    plan.volumes[0].lies = Lies::File;
    (plan.flushes, plan.disk.sync_errors) = (60, 10);
    true
}

/// Hosts take each other's access to the blocks that all of them want, on disks that
/// are slow.
pub fn preempts(plan: &mut Plan) -> bool {
    plan.volumes.truncate(1);
    plan.volumes[0].lies = Lies::File;
    plan.disk.latency = 500_000;
    (plan.reserve_percent, plan.hot_percent) = (8, 90);
    plan.hosts.len() > 2
}

/// Hosts copy from one volume to another that is reserved.
pub fn copies_beside_reservations(plan: &mut Plan) -> bool {
    (plan.copies, plan.reserve_percent) = (40, 8);
    let is_alike = plan
        .volumes
        .windows(2)
        .all(|two| two[0].block_bytes == two[1].block_bytes);
    plan.volumes.len() == 2 && is_alike && plan.hosts.len() > 1
}

/// Many bits are flipped on their way to and from hosts that have both digests and speak
/// iSCSI, or NVMe.
pub fn flips_bits(plan: &mut Plan, iscsi: bool) -> bool {
    plan.hosts
        .retain(|host| host.iscsi.is_some() == iscsi && host.nbd.is_none());
    plan.hosts
        .iter_mut()
        .for_each(|host| host.set_digests(true, true));
    plan.net.flips = 100;
    !plan.hosts.is_empty()
}

/// Initiators by RDMA write in many small bursts, on connections that lose no bit.
pub fn writes_by_iser(plan: &mut Plan) -> bool {
    plan.net.flips = 0;
    plan.hosts.retain(|host| host.iscsi.is_some());
    for host in &mut plan.hosts {
        (host.rdma, host.maxr2t) = (true, 3);
        if let Some(iscsi) = &mut host.iscsi {
            (iscsi.max_burst, iscsi.max_outstanding_r2t) = (512, 8);
        }
    }
    !plan.hosts.is_empty()
}

/// The same, and they end tasks that are under way.
pub fn aborts_by_iser(plan: &mut Plan) -> bool {
    plan.abort_percent = 20;
    writes_by_iser(plan)
}

/// Those that are left speak iSCSI, or NVMe.
pub fn hosts_speak(plan: &mut Plan, iscsi: bool) -> bool {
    plan.hosts
        .retain(|host| host.iscsi.is_some() == iscsi && host.nbd.is_none());
    plan.hosts.len() > 1
}

/// Clients look names up in a directory that has many.
pub fn has_many_names(plan: &mut Plan) -> bool {
    plan.nfs.as_ref().is_some_and(|nfs| nfs.others > 0)
}

/// A connection may do one operation in a turn, and has many at once that cost much:
/// reads of memory with a digest.
pub fn has_small_turns(plan: &mut Plan) -> bool {
    plan.turn_units_max = 8;
    (plan.net.window_bytes, plan.net.split_percent) = (256 << 10, 0);
    for volume in &mut plan.volumes {
        volume.lies = Lies::Memory;
        (volume.block_bytes, volume.blocks) = (4096, 300);
    }
    for host in &mut plan.hosts {
        (host.entries, host.data_digest) = (16, true);
    }
    plan.hosts.iter().any(|host| host.speaks_nvme())
}

/// Initiators work beside reservations.
pub fn reserves_by_scsi(plan: &mut Plan) -> bool {
    plan.reserve_percent = 8;
    plan.hosts.iter().any(|host| host.iscsi.is_some())
}

/// Documents are applied, and nothing else goes wrong.
pub fn applies(plan: &mut Plan) -> bool {
    let mut random = Random::new(plan.seed);
    plan.apply_documents(true, &mut random);
    true
}

/// The same, and NVMe hosts have two ways to come in by.
pub fn applies_to_nvme(plan: &mut Plan) -> bool {
    plan.listeners = 2;
    plan.hosts.retain(|host| host.speaks_nvme());
    applies(plan) && !plan.hosts.is_empty()
}

/// Two hosts or more of one subsystem speak TLS.
pub fn speaks_tls(plan: &mut Plan) -> bool {
    plan.hosts.retain(|host| host.speaks_nvme());
    for host in &mut plan.hosts {
        (host.subsystem, host.tls) = (0, Some(PskHash::Sha384));
        host.concatenates = false;
    }
    plan.hosts.len() > 1
}

/// One of them does not.
pub fn speaks_tls_or_none(plan: &mut Plan) -> bool {
    let are_more = speaks_tls(plan);
    if let Some(last) = plan.hosts.last_mut() {
        last.tls = None;
    }
    are_more
}

/// The same, and there is a listener for those that do.
pub fn has_tls_listener(plan: &mut Plan) -> bool {
    (plan.listeners, plan.tls_listener) = (2, Some(1));
    speaks_tls_or_none(plan)
}

/// Documents are applied, and nothing else goes wrong, while hosts speak TLS.
pub fn applies_to_tls(plan: &mut Plan) -> bool {
    applies(plan) && speaks_tls(plan)
}

/// Hosts authenticate; controllers, too, where it `is_mutual`.
pub fn authenticates(plan: &mut Plan, is_mutual: bool) -> bool {
    plan.hosts.retain(|host| host.speaks_nvme());
    for host in &mut plan.hosts {
        host.dhchap = Some(DhchapPlan {
            hash: DhchapHash::Sha256,
            is_mutual,
        });
    }
    !plan.hosts.is_empty()
}

/// Hosts make keys for TLS by authentication.
pub fn makes_keys(plan: &mut Plan) -> bool {
    plan.dhchap_group = DhchapGroup::Ffdhe2048;
    let are_there = authenticates(plan, false);
    for host in &mut plan.hosts {
        (host.subsystem, host.tls, host.rdma) = (0, None, false);
        host.concatenates = true;
    }
    are_there
}

/// NFS clients speak TLS, beside one that does not, where there are two.
pub fn secures_clients(plan: &mut Plan) -> bool {
    let Some(nfs) = &mut plan.nfs else {
        return false;
    };
    for (number, client) in nfs.clients.iter_mut().enumerate() {
        client.tls = number == 0;
    }
    nfs.clients.len() > 1
}

/// Users prove who they are, and no bit is flipped.
pub fn proves_users(plan: &mut Plan) -> bool {
    plan.net.flips = 0;
    has_users(plan)
}

/// Users have what they send protected, and many bits of it are flipped.
pub fn flips_bits_of_users(plan: &mut Plan) -> bool {
    plan.net.flips = 100;
    plan.hosts.truncate(1);
    has_users(plan)
}

pub fn has_users(plan: &mut Plan) -> bool {
    let chances = (plan.seed..).map(Random::new);
    for mut chance in chances.take(20) {
        plan.prove_users(&mut chance);
    }
    plan.nfs.as_ref().is_some_and(|nfs| nfs.users.is_some())
}
