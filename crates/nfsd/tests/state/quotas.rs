//! Quotas as clients of NFSv4 meet them (RFC 8881, sections 5.8.2.28 to 5.8.2.30).

use store::fs::{FileSystem, Quota, QuotaLimits, QuotaSubject, Time};
use wire::nfs4::*;
use wire::xdr::{Decode, List};

use crate::world::*;
use nfs_argop4 as arg;
use nfsstat4::{NFS4_OK, NFS4ERR_DQUOT};

const KIB: u64 = 1 << 10;

fn limit(world: &World, subject: QuotaSubject, soft_bytes: u64, hard_bytes: u64) {
    let limits = QuotaLimits {
        hard_bytes: Some(hard_bytes),
        soft_bytes: Some(soft_bytes),
        ..QuotaLimits::default()
    };
    let list = [Quota { subject, limits }];
    world.fs.set_quotas(&list, Time::default()).unwrap();
}

/// `quota_avail_hard`, `quota_avail_soft`, `quota_used` and `space_avail` of a file.
fn room(world: &mut World, client: &mut Client, handle: &[u8]) -> [u64; 4] {
    let numbers = [
        FATTR4_QUOTA_AVAIL_HARD,
        FATTR4_QUOTA_AVAIL_SOFT,
        FATTR4_QUOTA_USED,
        FATTR4_SPACE_AVAIL,
    ];
    let bits = numbers
        .iter()
        .fold(0, |bits, number| bits | 1 << (number - 32));
    let attr_request = List::Of(&[0, bits]);
    let ops = at(handle).op(arg::OP_GETATTR(GETATTR4args { attr_request }));
    let mut answer = world.run(client, ops);
    answer.ok(nfs_opnum4::OP_PUTFH);
    answer.ok(nfs_opnum4::OP_GETATTR).with(|from| {
        let attributes = fattr4::decode(from).expect("attributes");
        let values = attributes.attr_vals.0.chunks(8);
        let values = values.map(|value| u64::from_be_bytes(value.try_into().expect("8 bytes")));
        let values: Vec<_> = values.collect();
        values.try_into().expect("each is told")
    })
}

#[test]
fn attributes_tell_what_a_quota_leaves_until_writes_are_refused() {
    for minor in [0, 1, 2] {
        let mut world = World::new();
        world.uid = 1000;
        limit(&world, QuotaSubject::User(1000), 64 * KIB, 128 * KIB);
        let mut client = world.client("a", minor);
        let (_, handle) = world.create(&mut client, "o", "f");
        let told = room(&mut world, &mut client, &handle);
        assert_eq!(told, [128 * KIB, 64 * KIB, 0, 128 * KIB]);
        let data = vec![7; 16 << 10];
        for block in 0..8 {
            let ops = at(&handle).write(ANONYMOUS, block * 16 * KIB, &data);
            assert_eq!(world.last(&mut client, ops), NFS4_OK);
        }
        let told = room(&mut world, &mut client, &handle);
        assert_eq!(told, [0, 0, 128 * KIB, 0]);
        let ops = at(&handle).write(ANONYMOUS, 128 * KIB, &data);
        assert_eq!(world.last(&mut client, ops), NFS4ERR_DQUOT);
        // Where it has been written it is written again.
        let ops = at(&handle).write(ANONYMOUS, 0, &data);
        assert_eq!(world.last(&mut client, ops), NFS4_OK);
        if minor == 2 {
            let ops = at(&handle).op(arg::OP_ALLOCATE(ALLOCATE4args {
                aa_stateid: ANONYMOUS,
                aa_offset: 0,
                aa_length: 256 * KIB,
            }));
            assert_eq!(world.last(&mut client, ops), NFS4ERR_DQUOT);
        }
        // Others have the room that there is.
        world.uid = 1001;
        let told = room(&mut world, &mut client, &handle);
        assert_eq!(told[..3], [0, 0, 128 * KIB]);
        assert!(told[3] > 512 << 20, "{}", told[3]);
    }
}

#[test]
fn space_avail_knows_the_limit_of_the_tree_and_of_the_file_system() {
    let mut world = World::new();
    let mut client = world.client("a", 1);
    let (_, handle) = world.create(&mut client, "o", "f");
    let whole = QuotaSubject::Tree("/".to_owned());
    limit(&world, whole, 100 * KIB, 200 * KIB);
    let told = room(&mut world, &mut client, &handle);
    // The directory counts too.
    let used = 200 * KIB - told[0];
    assert!((1..KIB).contains(&used), "{told:?}");
    assert_eq!(
        told,
        [200 * KIB - used, 100 * KIB - used, used, 200 * KIB - used]
    );
}
