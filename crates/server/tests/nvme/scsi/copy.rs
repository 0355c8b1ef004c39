//! EXTENDED COPY and RECEIVE COPY RESULTS.

use iscsi::initiator::Chap;
use iscsi::{Auth, Credentials};
use needs::needs;
use nvmf::command::AnaState;
use server::{Change, Running};
use wire::scsi::opcode::persistent_reserve_out as reserve_out;
use wire::scsi::opcode::receive_copy_results as results;
use wire::scsi::{asc, cdb, key, opcode};

use super::{ALICE, BOB, DISKS, Fail, MORE, Nexus, serve, serve_volumes, small};
use crate::common::{BLOCK, ram, stop};

/// Bytes of a block of the small volumes.
pub const SMALL: usize = 512;

/// The NAA designator of a unit: the first of type 3 of its Device
/// Identification page.
pub fn naa(nexus: &mut Nexus) -> Vec<u8> {
    let page = nexus.take(cdb::inquiry(Some(0x83), 255), 255).unwrap();
    let mut rest = &page[4..];
    loop {
        let (one, others) = rest.split_at(4 + usize::from(rest[3]));
        if one[1] & 0x3f == 3 {
            return one[4..].to_vec();
        }
        rest = others;
    }
}

pub fn cscd(designator: &[u8], block: usize) -> Vec<u8> {
    let mut bytes = vec![0xe4, 0, 0, 0, 0x01, 0x03, 0, designator.len() as u8];
    bytes.extend(designator);
    bytes.resize(28, 0);
    bytes.extend((block as u32).to_be_bytes());
    bytes
}

/// From and to: index of the CSCD and first block; and how many blocks.
pub fn segment(from: (u16, u64), to: (u16, u64), blocks: u16) -> Vec<u8> {
    let mut bytes = vec![0x02, 0, 0, 0x18];
    bytes.extend(from.0.to_be_bytes());
    bytes.extend(to.0.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(blocks.to_be_bytes());
    bytes.extend(from.1.to_be_bytes());
    bytes.extend(to.1.to_be_bytes());
    bytes
}

/// Copies with a list identifier that is remembered.
pub fn copy(
    nexus: &mut Nexus,
    id: u8,
    cscds: &[Vec<u8>],
    segments: &[Vec<u8>],
) -> Result<(), Fail> {
    let (cscds, segments) = (cscds.concat(), segments.concat());
    let mut list = vec![id, 0];
    list.extend((cscds.len() as u16).to_be_bytes());
    list.extend([0; 4]);
    list.extend((segments.len() as u32).to_be_bytes());
    list.extend([0; 4]);
    list.extend(cscds);
    list.extend(segments);
    let mut cdb = cdb::plain(opcode::EXTENDED_COPY);
    cdb[10..14].copy_from_slice(&(list.len() as u32).to_be_bytes());
    nexus.give(cdb, &list)
}

pub fn received(nexus: &mut Nexus, action: u8, id: u8) -> Result<Vec<u8>, Fail> {
    let mut cdb = cdb::plain(opcode::RECEIVE_COPY_RESULTS);
    (cdb[1], cdb[2], cdb[13]) = (action, id, 200);
    nexus.take(cdb, 200)
}

pub fn aborted(code: u16) -> Result<(), Fail> {
    Err(Fail::Check(key::COPY_ABORTED, code, None))
}

/// Bytes that are different everywhere.
fn noise(len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at * 31 + at / 251 + at / 65_521) as u8)
        .collect()
}

/// A session at LUN 0 ("ram", large blocks) and one at LUN 1 (small blocks), and
/// the CSCD descriptors of both.
fn pair(running: &Running) -> (Nexus, Nexus, [Vec<u8>; 2]) {
    let mut large = Nexus::of(running, ALICE);
    let mut little = Nexus::of(running, ALICE).at(1);
    let cscds = [
        cscd(&naa(&mut large), BLOCK),
        cscd(&naa(&mut little), SMALL),
    ];
    (large, little, cscds)
}

#[test]
fn blocks_are_copied_within_and_between_units() {
    let running = serve(vec![small("small")]);
    let (mut large, mut little, cscds) = pair(&running);
    // More than goes in one piece, and than is done in one turn.
    let data = noise(6 << 20);
    for (n, part) in data.chunks(1 << 20).enumerate() {
        large.write(BLOCK, n as u64 * 256, part).unwrap();
    }
    let blocks = (data.len() / BLOCK) as u16;
    copy(&mut large, 1, &cscds, &[segment((0, 0), (0, 2000), blocks)]).unwrap();
    for (n, part) in data.chunks(1 << 20).enumerate() {
        assert_eq!(large.read(BLOCK, 2000 + n as u64 * 256, 256).unwrap(), part);
    }
    // To the other, whose blocks are an eighth, and back; the unit that the
    // command is sent to has a name of its own.
    let segments = [
        segment((0, 3), (1, 16), 5),
        segment((1, 16), (0xffff, 9), 16),
    ];
    copy(&mut large, 2, &cscds, &segments).unwrap();
    let copied = &data[3 * BLOCK..8 * BLOCK];
    assert_eq!(little.read(SMALL, 16, 40).unwrap(), copied);
    assert_eq!(large.read(BLOCK, 9, 2).unwrap(), copied[..2 * BLOCK]);
    let told = received(&mut large, results::COPY_STATUS, 2).unwrap();
    assert_eq!(told, [0, 0, 0, 8, 1, 0, 2, 0, 0, 0, 7 * 16, 0]);
    // Nothing, and nothing at all.
    copy(&mut large, 3, &cscds, &[segment((0, 0), (1, 0), 0)]).unwrap();
    large.plain(cdb::plain(opcode::EXTENDED_COPY)).unwrap();
    stop(running);
}

#[test]
fn ranges_that_overlap_arrive_whole() {
    let running = serve(vec![small("small")]);
    let (_, mut little, cscds) = pair(&running);
    for (from, to) in [(100, 103), (103, 100), (100, 1500), (100, 100)] {
        // Several pieces.
        let data = noise(3000 * SMALL);
        for (n, part) in data.chunks(500 * SMALL).enumerate() {
            little.write(SMALL, from + n as u64 * 500, part).unwrap();
        }
        copy(&mut little, 0, &cscds, &[segment((1, from), (1, to), 3000)]).unwrap();
        for (n, part) in data.chunks(500 * SMALL).enumerate() {
            let there = little.read(SMALL, to + n as u64 * 500, 500).unwrap();
            assert!(there == part, "from {from} to {to}, part {n}");
        }
    }
    stop(running);
}

#[test]
fn copy_that_fails_reports_the_segments_copied_before() {
    let running = serve(vec![small("small")]);
    let (mut large, mut little, cscds) = pair(&running);
    large.write(BLOCK, 0, &[1; BLOCK]).unwrap();
    let first = segment((0, 0), (1, 8), 1);
    for (n, (second, code)) in (0..).zip([
        (segment((0, 0), (2, 0), 1), asc::UNREACHABLE_COPY_TARGET),
        (
            segment((0, 4095), (1, 0), 2),
            asc::NO_ADDITIONAL_SENSE_INFORMATION,
        ),
        (
            segment((0, 0), (1, 8191), 1),
            asc::NO_ADDITIONAL_SENSE_INFORMATION,
        ),
        (
            segment((0, 0), (1, u64::MAX), 1),
            asc::NO_ADDITIONAL_SENSE_INFORMATION,
        ),
        (segment((1, 0), (0, 0), 7), asc::UNEXPECTED_INEXACT_SEGMENT),
    ]) {
        little.write(SMALL, 8, &[0; SMALL]).unwrap();
        let refused = copy(&mut large, n, &cscds, &[first.clone(), second]);
        assert_eq!(refused, aborted(code), "{n}");
        assert_eq!(little.read(SMALL, 8, 1).unwrap(), [1; SMALL], "{n}");
        let told = received(&mut large, results::COPY_STATUS, n).unwrap();
        assert_eq!(told[4..7], [2, 0, 1], "{n}");
        let details = received(&mut large, results::FAILED_SEGMENT_DETAILS, n).unwrap();
        assert_eq!(details[60 + 2], key::COPY_ABORTED);
        assert_eq!(details[60 + 8..60 + 12], [0, 0, 0, 1], "the segment");
    }
    // A unit that is not here.
    let stranger = cscd(&[0x3f; 8], SMALL);
    let refused = copy(
        &mut large,
        0,
        &[stranger],
        &[segment((0, 0), (0xffff, 0), 1)],
    );
    assert_eq!(refused, aborted(asc::COPY_TARGET_DEVICE_NOT_REACHABLE));
    // A list that means nothing: nothing is copied.
    let mut odd = first.clone();
    odd[0] = 0x03;
    little.write(SMALL, 8, &[0; SMALL]).unwrap();
    let refused = copy(&mut large, 0, &cscds, &[first, odd]);
    let code = asc::UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE;
    assert!(
        matches!(refused, Err(Fail::Check(5, c, _)) if c == code),
        "{refused:?}"
    );
    assert_eq!(little.read(SMALL, 8, 1).unwrap(), [0; SMALL]);
    // A copy that never was has no status.
    let unknown = received(&mut large, results::COPY_STATUS, 99);
    assert!(
        matches!(unknown, Err(Fail::Check(5, 0x2400, _))),
        "{unknown:?}"
    );
    assert_eq!(
        received(&mut large, results::OPERATING_PARAMETERS, 0)
            .unwrap()
            .len(),
        46
    );
    stop(running);
}

#[test]
fn reservations_and_write_protection_hold_on_both_sides() {
    let read_only = store::Spec {
        kind: store::Kind::NULL,
        read_only: true,
        ..small("protected")
    };
    let running = serve(vec![small("small"), read_only]);
    let (mut large, _, mut cscds) = pair(&running);
    let mut protected = Nexus::of(&running, ALICE).at(2);
    let both = [segment((0, 0), (1, 0), 1), segment((1, 0), (0, 0), 8)];
    copy(&mut large, 0, &cscds, &both).unwrap();
    let mut bob = Nexus::of(&running, BOB).at(1);
    let keys = |current: u64, key: u64| {
        let mut list = [current, key].map(u64::to_be_bytes).concat();
        list.extend([0; 8]);
        list
    };
    let out = |bob: &mut Nexus, action, kind, list: &[u8]| {
        bob.give(cdb::persistent_reserve_out(action, kind, 24), list)
            .unwrap();
    };
    out(&mut bob, reserve_out::REGISTER, 0, &keys(0, 1));
    for (kind, is_readable) in [(1, true), (3, false)] {
        out(&mut bob, reserve_out::RESERVE, kind, &keys(1, 0));
        let written = copy(&mut large, 0, &cscds, &both[..1]);
        assert_eq!(written, aborted(asc::THIRD_PARTY_DEVICE_FAILURE));
        let read = copy(&mut large, 0, &cscds, &both[1..]);
        match is_readable {
            true => read.unwrap(),
            false => assert_eq!(read, aborted(asc::THIRD_PARTY_DEVICE_FAILURE)),
        }
        out(&mut bob, reserve_out::RELEASE, kind, &keys(1, 0));
    }
    cscds[1] = cscd(&naa(&mut protected), SMALL);
    copy(&mut large, 0, &cscds, &both[1..]).unwrap();
    let written = copy(&mut large, 0, &cscds, &both[..1]);
    assert_eq!(written, aborted(asc::THIRD_PARTY_DEVICE_FAILURE));
    stop(running);
}

/// An initiator reaches units of other targets at which it is logged in.
#[test]
fn an_initiator_copies_where_it_is_logged_in() {
    let apart = store::Spec {
        size_bytes: 1 << 20,
        ..ram("apart", 1)
    };
    let running = serve(vec![apart]);
    let mut here = Nexus::of(&running, ALICE);
    let mut there = Nexus::login(&running, 2, ALICE, MORE).at(7);
    let cscds = [cscd(&naa(&mut here), BLOCK), cscd(&naa(&mut there), BLOCK)];
    here.write(BLOCK, 5, &[9; BLOCK]).unwrap();
    copy(&mut here, 0, &cscds, &[segment((0, 5), (1, 6), 1)]).unwrap();
    assert_eq!(there.read(BLOCK, 6, 1).unwrap(), [9; BLOCK]);
    // At the other target there is no unit but one.
    copy(&mut there, 0, &cscds, &[segment((1, 6), (0, 7), 1)]).unwrap();
    assert_eq!(here.read(BLOCK, 7, 1).unwrap(), [9; BLOCK]);
    let mut bob = Nexus::login(&running, 2, BOB, MORE).at(7);
    let refused = copy(&mut bob, 0, &cscds, &[segment((1, 6), (0, 8), 1)]);
    assert_eq!(refused, aborted(asc::COPY_TARGET_DEVICE_NOT_REACHABLE));
    let mut bob_here = Nexus::login(&running, 2, BOB, DISKS);
    copy(&mut bob, 0, &cscds, &[segment((1, 6), (0, 8), 1)]).unwrap();
    assert_eq!(bob_here.read(BLOCK, 8, 1).unwrap(), [9; BLOCK]);
    stop(running);
}

/// What a READ is refused of is not copied, and another path is taken where there is one.
#[test]
fn unit_whose_paths_are_in_standby_is_no_source_of_a_copy() {
    let apart = store::Spec {
        size_bytes: 1 << 20,
        ..ram("apart", 1)
    };
    let running = serve(vec![apart]);
    let mut here = Nexus::of(&running, ALICE);
    let mut there = Nexus::login(&running, 2, ALICE, MORE).at(7);
    let cscds = [cscd(&naa(&mut here), BLOCK), cscd(&naa(&mut there), BLOCK)];
    here.write(BLOCK, 5, &[9; BLOCK]).unwrap();
    let set = |listener: Option<usize>, state| {
        let set = Change::SetAna {
            nqn: DISKS.into(),
            listener: listener.map(|number| running.addresses()[number]),
            group: 1,
            state,
        };
        running.change(set).unwrap();
    };
    for state in [AnaState::Inaccessible, AnaState::PersistentLoss] {
        set(None, state);
        assert!(
            here.settle()
                .contains(&asc::ASYMMETRIC_ACCESS_STATE_CHANGED)
        );
        let refused = copy(&mut there, 0, &cscds, &[segment((0, 5), (1, 6), 1)]);
        assert_eq!(refused, aborted(asc::THIRD_PARTY_DEVICE_FAILURE));
        assert_eq!(there.read(BLOCK, 6, 1).unwrap(), [0; BLOCK]);
    }
    let _other = Nexus::login(&running, 3, ALICE, DISKS);
    set(Some(3), AnaState::NonOptimized);
    copy(&mut there, 0, &cscds, &[segment((0, 5), (1, 6), 1)]).unwrap();
    assert_eq!(there.read(BLOCK, 6, 1).unwrap(), [9; BLOCK]);
    stop(running);
}

/// A name alone does not reach what its owner has proved a secret for.
#[test]
fn copy_by_an_initiator_name_without_the_chap_secret_is_refused() {
    let apart = store::Spec {
        size_bytes: 1 << 20,
        ..ram("apart", 1)
    };
    let running = serve(vec![apart]);
    let mut owner = Nexus::of(&running, ALICE);
    let secret = || auth::Secret::new(*b"battery staple");
    let auth = Auth {
        chap: Some(Credentials {
            user: "alice".into(),
            secret: secret(),
        }),
        ..Auth::default()
    };
    running
        .change(Change::SetAuth {
            name: DISKS.into(),
            auth,
        })
        .expect("a change that can be made");
    drop(owner);
    let chap = Chap::new("alice", secret());
    owner = Nexus::proving(running.addresses()[2], ALICE, DISKS, Some(chap));
    owner.write(BLOCK, 5, &[9; BLOCK]).unwrap();
    // Another initiator by the name of the owner, at the target without CHAP.
    let mut other = Nexus::login(&running, 2, ALICE, MORE).at(7);
    let cscds = [cscd(&naa(&mut owner), BLOCK), cscd(&naa(&mut other), BLOCK)];
    for segment in [segment((0, 5), (1, 6), 1), segment((1, 6), (0, 5), 1)] {
        let refused = copy(&mut other, 0, &cscds, &[segment]);
        assert_eq!(refused, aborted(asc::COPY_TARGET_DEVICE_NOT_REACHABLE));
    }
    assert_eq!(other.read(BLOCK, 6, 1).unwrap(), [0; BLOCK]);
    assert_eq!(owner.read(BLOCK, 5, 1).unwrap(), [9; BLOCK]);
    // An initiator that has proved a secret reaches targets without one, too.
    copy(&mut owner, 0, &cscds, &[segment((0, 5), (1, 6), 1)]).unwrap();
    assert_eq!(other.read(BLOCK, 6, 1).unwrap(), [9; BLOCK]);
    stop(running);
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn copy_within_a_file_shares_its_blocks() {
    let folder = tempfile::tempdir().expect("a folder");
    let mounted = testkit::Mounted::made_by("mkfs.xfs", folder.path());
    let file = store::Spec {
        kind: store::Kind::file(mounted.path().join("disk")),
        size_bytes: 16 << 20,
        ..small("file")
    };
    let volume = store::open(&file).expect("opened");
    let running = serve_volumes(vec![volume.clone()]);
    let (mut large, mut little, cscds) = pair(&running);
    let data = noise(2 << 20);
    little.write(SMALL, 16, &data).unwrap();
    let blocks = (data.len() / SMALL) as u16;
    copy(
        &mut little,
        1,
        &cscds,
        &[segment((1, 16), (1, 16 + 4096), blocks)],
    )
    .unwrap();
    assert!(little.read(SMALL, 16 + 4096, blocks.into()).unwrap() == data);
    assert_eq!(volume.stats().shared_bytes, 2 << 20);
    let held = received(&mut little, results::COPY_STATUS, 1).unwrap();
    assert_eq!(held[4], 0x01, "it is over: {held:?}");
    // Ranges that overlap, blocks that lie otherwise, and what lies in memory, are copied.
    let segments = [
        segment((1, 16), (1, 24), blocks),
        segment((1, 24), (1, 16 + 4097), blocks),
        segment((1, 16), (0, 0), blocks),
    ];
    copy(&mut little, 2, &cscds, &segments).unwrap();
    assert!(little.read(SMALL, 16 + 4097, blocks.into()).unwrap() == data);
    assert!(large.read(BLOCK, 1, u32::from(blocks / 8) - 1).unwrap() == data[..data.len() - BLOCK]);
    assert_eq!(volume.stats().shared_bytes, 2 << 20);
    stop(running);
}
