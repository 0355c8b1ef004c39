//! Copies by ROD tokens: POPULATE TOKEN, WRITE USING TOKEN, RECEIVE ROD TOKEN INFORMATION.

use needs::needs;
use nvmf::command::AnaState;
use random::Random;
use server::Change;
use wire::scsi::opcode::persistent_reserve_out as reserve_out;
use wire::scsi::opcode::third_party_copy_out as action;
use wire::scsi::{asc, cdb, key};

use super::copy::SMALL;
use super::{ALICE, BOB, DISKS, Fail, MORE, Nexus, illegal, serve, serve_volumes, small};
use crate::common::{BLOCK, ram, stop};

/// First block and number of blocks.
type Blocks = (u64, u32);

fn descriptors(ranges: &[Blocks]) -> Vec<u8> {
    let one = |(lba, blocks): &Blocks| {
        let (lba, blocks) = (lba.to_be_bytes(), blocks.to_be_bytes());
        [&lba[..], &blocks, &[0; 4]].concat()
    };
    ranges.iter().flat_map(one).collect()
}

fn list(mut head: Vec<u8>, ranges: &[Blocks]) -> Vec<u8> {
    let ranges = descriptors(ranges);
    let at = head.len();
    head[at - 2..].copy_from_slice(&(ranges.len() as u16).to_be_bytes());
    head[..2].copy_from_slice(&((at - 2 + ranges.len()) as u16).to_be_bytes());
    [head, ranges].concat()
}

fn populate(nexus: &mut Nexus, id: u32, ranges: &[Blocks]) -> Result<(), Fail> {
    let list = list(vec![0; 16], ranges);
    let cdb = cdb::with_token(action::POPULATE_TOKEN, id, list.len() as u32);
    nexus.give(cdb, &list)
}

fn using_list(flags: u8, token: &[u8], offset: u64, ranges: &[Blocks]) -> Vec<u8> {
    let mut head = vec![0; 536];
    head[2] = flags;
    head[8..16].copy_from_slice(&offset.to_be_bytes());
    head[16..528].copy_from_slice(token);
    list(head, ranges)
}

fn write_using(
    nexus: &mut Nexus,
    id: u32,
    flags: u8,
    (token, offset): (&[u8], u64),
    ranges: &[Blocks],
) -> Result<(), Fail> {
    let list = using_list(flags, token, offset, ranges);
    let cdb = cdb::with_token(action::WRITE_USING_TOKEN, id, list.len() as u32);
    nexus.give(cdb, &list)
}

fn information(nexus: &mut Nexus, id: u32) -> Result<Vec<u8>, Fail> {
    nexus.take(cdb::rod_token_information(id, 1024), 1024)
}

/// How an operation stands, and its transfer count.
fn standing(nexus: &mut Nexus, id: u32) -> (u8, u64) {
    let told = information(nexus, id).unwrap();
    assert_eq!(told[15], 0xf1);
    (
        told[5],
        u64::from_be_bytes(told[16..24].try_into().unwrap()),
    )
}

fn token(nexus: &mut Nexus, ranges: &[Blocks]) -> Vec<u8> {
    populate(nexus, 77, ranges).unwrap();
    information(nexus, 77).unwrap()[38..550].to_vec()
}

fn noise(len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at * 31 + at / 251 + at / 65_521) as u8)
        .collect()
}

#[test]
fn token_copies_what_its_ranges_held_within_and_between_units_and_targets() {
    let running = serve(vec![small("small")]);
    let mut large = Nexus::of(&running, ALICE);
    let mut little = Nexus::of(&running, ALICE).at(1);
    let mut elsewhere = Nexus::login(&running, 2, ALICE, MORE).at(7);
    let data = noise(1 << 20);
    large.write(BLOCK, 0, &data).unwrap();
    populate(&mut large, 5, &[(100, 20), (0, 60)]).unwrap();
    assert_eq!(standing(&mut large, 5), (0x01, 80));
    let made = information(&mut large, 5).unwrap();
    let token = &made[38..550];
    let named = [&data[100 * BLOCK..120 * BLOCK], &data[..60 * BLOCK]].concat();

    write_using(&mut large, 6, 0, (token, 0), &[(1000, 30), (2000, 50)]).unwrap();
    assert_eq!(standing(&mut large, 6), (0x01, 80));
    assert_eq!(large.read(BLOCK, 1000, 30).unwrap(), named[..30 * BLOCK]);
    assert_eq!(large.read(BLOCK, 2000, 50).unwrap(), named[30 * BLOCK..]);
    // To smaller blocks, from an offset that is counted in those; by another target, too.
    write_using(&mut little, 1, 1, (token, 16), &[(4, 304)]).unwrap();
    assert_eq!(
        little.read(SMALL, 4, 304).unwrap(),
        named[16 * SMALL..320 * SMALL]
    );
    write_using(&mut elsewhere, 1, 0, (token, 0), &[(1000, 8)]).unwrap();
    assert_eq!(little.read(SMALL, 1000, 8).unwrap(), named[..8 * SMALL]);
    // As much as there is.
    write_using(&mut little, 2, 0, (token, 632), &[(0, 16)]).unwrap();
    assert_eq!(standing(&mut little, 2), (0x03, 8));
    // What its ranges were is known by the nexus that asked, under its identifiers.
    let unknown = Err(illegal(asc::INVALID_FIELD_IN_CDB));
    assert_eq!(information(&mut elsewhere, 6), unknown);
    assert_eq!(information(&mut large, 99), unknown);
    // It is not needed any more.
    write_using(&mut large, 7, 2, (token, 0), &[(3000, 1)]).unwrap();
    let gone = write_using(&mut large, 8, 0, (token, 0), &[(3000, 1)]);
    assert_eq!(gone, Err(illegal(asc::TOKEN_UNKNOWN)));
    stop(running);
}

/// A unit that has checksums, or is encrypted, takes and gives whole blocks alone.
#[test]
fn ranges_that_are_not_whole_blocks_of_both_units_are_refused_and_nothing_is_written() {
    let checked = store::Spec {
        checksum: true,
        ..ram("checked", 1024)
    };
    let encrypted = store::Spec {
        encryption: Some(crate::encrypted::by(1)),
        ..ram("encrypted", 1024)
    };
    let running = serve(vec![small("small"), checked, encrypted]);
    let mut little = Nexus::of(&running, ALICE).at(1);
    little.write(SMALL, 0, &noise(64 * SMALL)).unwrap();
    let small_token = token(&mut little, &[(0, 9), (16, 55)]);
    let refused = Err(illegal(asc::INVALID_TOKEN_OPERATION));
    for lun in [2, 3] {
        let mut large = Nexus::of(&running, ALICE).at(lun);
        large.write(BLOCK, 0, &[7; 16 * BLOCK]).unwrap();
        // From small blocks: the first range ends within a large one.
        let one = write_using(&mut large, 1, 0, (&small_token, 0), &[(0, 2)]);
        assert_eq!(one, refused, "{lun}");
        let one = write_using(&mut large, 1, 0, (&small_token, 0), &[(0, 1)]);
        assert_eq!(one, Ok(()), "{lun}");
        assert_eq!(large.read(BLOCK, 0, 1).unwrap(), noise(BLOCK), "{lun}");
        assert_eq!(large.read(BLOCK, 1, 15).unwrap(), [7; 15 * BLOCK], "{lun}");
        // To small blocks: it begins, or ends, within a large one.
        let token = token(&mut large, &[(0, 4)]);
        for (offset, ranges) in [(1, [(100, 8)]), (0, [(100, 7)])] {
            let part = write_using(&mut little, 1, 0, (&token, offset), &ranges);
            assert_eq!(part, refused, "{lun}");
        }
        assert_eq!(little.read(SMALL, 100, 8).unwrap(), [0; 8 * SMALL]);
    }
    stop(running);
}

#[test]
fn token_of_zeros_zeroes() {
    let running = serve(vec![small("small")]);
    let mut little = Nexus::of(&running, ALICE).at(1);
    little.write(SMALL, 0, &noise(64 * SMALL)).unwrap();
    let mut zero = vec![0; 512];
    zero[..8].copy_from_slice(&[0xff, 0xff, 0, 1, 0, 0, 0x01, 0xf8]);
    write_using(&mut little, 1, 0, (&zero, 0), &[(40, 4), (8, 16)]).unwrap();
    assert_eq!(standing(&mut little, 1), (0x01, 20));
    let mut expected = noise(64 * SMALL);
    expected[40 * SMALL..44 * SMALL].fill(0);
    expected[8 * SMALL..24 * SMALL].fill(0);
    assert_eq!(little.read(SMALL, 0, 64).unwrap(), expected);
    // Of a thin unit the zeros take no space: whole frames of 16 KiB.
    write_using(&mut little, 1, 0, (&zero, 0), &[(32, 32)]).unwrap();
    let told = little.take(cdb::get_lba_status(32, 24), 24).unwrap();
    assert_eq!(told[20], 1, "deallocated");
    stop(running);
}

#[test]
fn tokens_and_lists_that_are_wrong_are_refused_and_nothing_is_written() {
    let running = serve(vec![small("small")]);
    let mut large = Nexus::of(&running, ALICE);
    let before = noise(8 * BLOCK);
    large.write(BLOCK, 500, &before).unwrap();
    let good = token(&mut large, &[(0, 8)]);
    let mut forged = good.clone();
    forged[500] ^= 1;
    let mut other = good.clone();
    other[15] ^= 1;
    let mut long = good.clone();
    long[7] = 0;
    let field = asc::INVALID_FIELD_IN_PARAMETER_LIST;
    for (name, token, offset, ranges, code) in [
        ("forged", &forged, 0, &[(500, 1)][..], asc::TOKEN_UNKNOWN),
        ("unknown", &other, 0, &[(500, 1)], asc::TOKEN_UNKNOWN),
        ("length", &long, 0, &[(500, 1)], asc::INVALID_TOKEN_LENGTH),
        ("behind its end", &good, 8, &[(500, 1)], field),
        ("overlap", &good, 0, &[(500, 2), (501, 1)], field),
        (
            "outside",
            &good,
            0,
            &[(4095, 2)],
            asc::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE,
        ),
        (
            "many",
            &good,
            0,
            &[(500, 0); 65],
            asc::TOO_MANY_SEGMENT_DESCRIPTORS,
        ),
    ] {
        let refused = write_using(&mut large, 3, 0, (token, offset), ranges);
        let Err(Fail::Check(key::ILLEGAL_REQUEST, found, _)) = refused else {
            panic!("{name}: {refused:?}")
        };
        assert_eq!(found, code, "{name}");
    }
    assert_eq!(large.read(BLOCK, 500, 8).unwrap(), before);
    // One that is logged in to the other target alone does not reach what it names.
    let mut carol = Nexus::login(&running, 2, "iqn.2004-01.org.example:carol", MORE).at(7);
    let refused = write_using(&mut carol, 1, 0, (&good, 0), &[(0, 8)]);
    assert_eq!(refused, Err(illegal(asc::TOKEN_UNKNOWN)));
    assert_eq!(
        write_using(&mut large, 4, 0, (&good, 0), &[]),
        Err(illegal(field))
    );
    // Lists that are too short or say nothing; none at all does nothing.
    for action in [action::POPULATE_TOKEN, action::WRITE_USING_TOKEN] {
        assert_eq!(large.give(cdb::with_token(action, 1, 0), &[]), Ok(()));
        let short = large.give(cdb::with_token(action, 1, 12), &[0; 12]);
        assert_eq!(short, Err(illegal(asc::PARAMETER_LIST_LENGTH_ERROR)));
        let empty = large.give(cdb::with_token(action, 1, 4096), &[0; 4096]);
        assert_eq!(empty, Err(illegal(field)));
    }
    stop(running);
}

#[test]
fn token_is_revoked_by_every_change_of_its_ranges_and_by_no_other() {
    let running = serve(vec![small("small"), small("other")]);
    let mut other = Nexus::of(&running, ALICE).at(2);
    let mut little = Nexus::of(&running, BOB).at(1);
    little.write(SMALL, 0, &noise(64 * SMALL)).unwrap();
    let revoked = Err(illegal(asc::TOKEN_REVOKED));
    let mut alice = Nexus::of(&running, ALICE).at(1);
    let changes: [fn(&mut Nexus); 4] = [
        |bob| bob.write(SMALL, 15, &[1; SMALL]).unwrap(),
        |bob| {
            let one = cdb::with_token(action::WRITE_USING_TOKEN, 1, 552);
            let mut zero = vec![0; 512];
            zero[..8].copy_from_slice(&[0xff, 0xff, 0, 1, 0, 0, 0x01, 0xf8]);
            bob.give(one, &using_list(0, &zero, 0, &[(8, 1)])).unwrap();
        },
        |bob| {
            let mut unmap = vec![0, 22, 0, 16, 0, 0, 0, 0];
            unmap.extend(descriptors(&[(9, 1)]));
            bob.give(cdb::unmap(0, 24), &unmap).unwrap();
        },
        |bob| {
            bob.give(cdb::compare_and_write(0, 20, 1), &bob_block())
                .unwrap()
        },
    ];
    for (n, change) in changes.into_iter().enumerate() {
        little.write(SMALL, 20, &bob_block()[..SMALL]).unwrap();
        let token = token(&mut alice, &[(20, 1), (8, 8)]);
        little.write(SMALL, 16, &[1; 4 * SMALL]).unwrap();
        write_using(&mut other, 1, 0, (&token, 0), &[(100, 1)]).unwrap();
        change(&mut little);
        assert_eq!(
            write_using(&mut other, 1, 0, (&token, 0), &[(100, 1)]),
            revoked,
            "{n}"
        );
        assert_eq!(
            information(&mut other, 1).unwrap()[5],
            0x01,
            "of the one before"
        );
    }
    stop(running);
}

/// What is compared with itself, then written.
fn bob_block() -> Vec<u8> {
    vec![5; 2 * SMALL]
}

#[test]
fn copy_that_changes_what_its_own_token_names_ends_before_it_reads_that() {
    let running = serve(vec![small("small")]);
    let mut little = Nexus::of(&running, ALICE).at(1);
    let data = noise(3 << 19);
    little.write(SMALL, 1024, &data).unwrap();
    let of_three = token(&mut little, &[(1024, 3072)]);
    // It goes by pieces of 512 KiB: the second one is written to what is named.
    let ended = write_using(&mut little, 1, 0, (&of_three, 0), &[(0, 3072)]);
    assert_eq!(ended, Err(illegal(asc::TOKEN_REVOKED)));
    assert_eq!(standing(&mut little, 1), (0x02, 2048));
    assert!(little.read(SMALL, 0, 2048).unwrap() == data[..1 << 20]);
    assert!(little.read(SMALL, 2048, 2048).unwrap() == data[512 << 10..]);
    // One that has read all by then ends well.
    let of_two = token(&mut little, &[(0, 2048)]);
    write_using(&mut little, 2, 0, (&of_two, 0), &[(1024, 2048)]).unwrap();
    assert!(little.read(SMALL, 1024, 2048).unwrap() == data[..1 << 20]);
    stop(running);
}

#[test]
fn sessions_of_an_initiator_have_its_tokens_together() {
    let running = serve(vec![small("small")]);
    let mut nexuses = [ALICE, ALICE].map(|name| Nexus::of(&running, name).at(1));
    let first = token(&mut nexuses[0], &[(0, 1)]);
    for number in 1..32 {
        token(&mut nexuses[number % 2], &[(0, 1)]);
    }
    write_using(&mut nexuses[1], 1, 0, (&first, 0), &[(8, 1)]).unwrap();
    token(&mut nexuses[1], &[(0, 1)]);
    let gone = write_using(&mut nexuses[1], 1, 0, (&first, 0), &[(8, 1)]);
    assert_eq!(gone, Err(illegal(asc::TOKEN_UNKNOWN)));
    stop(running);
}

/// Its list identifier is free again.
#[test]
fn populate_that_makes_no_token_leaves_no_operation() {
    let running = serve(vec![small("small")]);
    let mut holders = Vec::new();
    for number in 0..8 {
        let mut holder = Nexus::of(&running, &format!("{ALICE}{number}")).at(1);
        for id in 0..32 {
            populate(&mut holder, id, &[(0, 1)]).unwrap();
        }
        holders.push(holder);
    }
    let mut bob = Nexus::of(&running, BOB).at(1);
    let Err(Fail::Check(_, code, _)) = populate(&mut bob, 1, &[(0, 1)]) else {
        panic!("256 tokens are all that there may be");
    };
    assert_eq!(code, asc::INSUFFICIENT_RESOURCES_TO_CREATE_ROD_TOKEN);
    let unknown = information(&mut bob, 1);
    assert_eq!(unknown, Err(illegal(asc::INVALID_FIELD_IN_CDB)));
    stop(running);
}

#[test]
fn reservations_and_write_protection_hold_on_both_sides() {
    let running = serve(vec![small("small")]);
    let mut large = Nexus::of(&running, ALICE);
    let mut little = Nexus::of(&running, ALICE).at(1);
    let mut bob = Nexus::of(&running, BOB).at(1);
    little.write(SMALL, 0, &noise(8 * SMALL)).unwrap();
    let token = token(&mut little, &[(0, 8)]);
    let reserve = |bob: &mut Nexus, action, kind: u8, key: u64, new: u64| {
        let mut list = vec![0; 24];
        list[..8].copy_from_slice(&key.to_be_bytes());
        list[8..16].copy_from_slice(&new.to_be_bytes());
        let mut cdb = cdb::plain(wire::scsi::opcode::PERSISTENT_RESERVE_OUT);
        (cdb[1], cdb[2], cdb[8]) = (action, kind, 24);
        bob.give(cdb, &list).unwrap();
    };
    reserve(&mut bob, reserve_out::REGISTER, 0, 0, 7);
    // Write exclusive: it may be read, and not written.
    reserve(&mut bob, reserve_out::RESERVE, 1, 7, 0);
    write_using(&mut large, 1, 0, (&token, 0), &[(0, 1)]).unwrap();
    let refused = write_using(&mut little, 1, 0, (&token, 0), &[(100, 1)]);
    assert_eq!(refused, Err(Fail::Conflict));
    reserve(&mut bob, reserve_out::RELEASE, 1, 7, 0);
    // Exclusive access: nor read, by a token that was made before.
    reserve(&mut bob, reserve_out::RESERVE, 3, 7, 0);
    let aborted = |code| Err(Fail::Check(key::COPY_ABORTED, code, None));
    let refused = write_using(&mut large, 2, 0, (&token, 0), &[(0, 1)]);
    assert_eq!(refused, aborted(asc::THIRD_PARTY_DEVICE_FAILURE));
    assert_eq!(standing(&mut large, 2), (0x02, 0));
    // With IMMED the command ends well, and the failure is told when it is asked for.
    write_using(&mut large, 3, 1, (&token, 0), &[(0, 1)]).unwrap();
    assert_eq!(standing(&mut large, 3), (0x02, 0));
    assert_eq!(populate(&mut little, 1, &[(0, 1)]), Err(Fail::Conflict));
    stop(running);
}

/// What a READ is refused of is not copied.
#[test]
fn unit_whose_path_is_in_standby_is_no_source_of_a_token() {
    let running = serve(vec![small("small")]);
    let mut large = Nexus::of(&running, ALICE);
    let mut elsewhere = Nexus::login(&running, 2, ALICE, MORE).at(7);
    large.write(BLOCK, 0, &noise(8 * BLOCK)).unwrap();
    let token = token(&mut large, &[(0, 8)]);
    let set = |state| {
        let set = Change::SetAna {
            nqn: DISKS.into(),
            listener: None,
            group: 1,
            state,
        };
        running.change(set).unwrap();
    };
    set(AnaState::Inaccessible);
    let aborted = |code| Err(Fail::Check(key::COPY_ABORTED, code, None));
    let refused = write_using(&mut elsewhere, 2, 0, (&token, 0), &[(0, 64)]);
    assert_eq!(refused, aborted(asc::THIRD_PARTY_DEVICE_FAILURE));
    assert_eq!(standing(&mut elsewhere, 2), (0x02, 0));
    assert_eq!(elsewhere.read(SMALL, 0, 64).unwrap(), [0; 64 * SMALL]);
    set(AnaState::Optimized);
    write_using(&mut elsewhere, 3, 0, (&token, 0), &[(0, 64)]).unwrap();
    assert_eq!(elsewhere.read(SMALL, 0, 64).unwrap(), noise(8 * BLOCK));
    stop(running);
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn use_of_a_token_shares_blocks_between_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let mounted = testkit::Mounted::made_by("mkfs.xfs", folder.path());
    let volumes = ["one", "two"].map(|name| {
        let spec = store::Spec {
            kind: store::Kind::file(mounted.path().join(name)),
            ..small(name)
        };
        store::open(&spec).expect("opened")
    });
    let running = serve_volumes(volumes.to_vec());
    let mut one = Nexus::of(&running, ALICE).at(1);
    let mut two = Nexus::of(&running, ALICE).at(2);
    let data = noise(1 << 20);
    one.write(SMALL, 8, &data).unwrap();
    let token = token(&mut one, &[(8, 2048)]);
    write_using(&mut two, 1, 0, (&token, 0), &[(16, 2048)]).unwrap();
    assert_eq!(two.read(SMALL, 16, 2048).unwrap(), data);
    assert_eq!(volumes[1].stats().shared_bytes, 1 << 20);
    // Within the volume, beside what is named.
    write_using(&mut one, 1, 0, (&token, 8), &[(4096, 2040)]).unwrap();
    assert_eq!(one.read(SMALL, 4096, 2040).unwrap(), data[8 * SMALL..]);
    assert_eq!(volumes[0].stats().shared_bytes, 2040 * 512 / 4096 * 4096);
    stop(running);
}

/// A token of the model.
struct KnownToken {
    token: Vec<u8>,
    /// The unit that it is of.
    unit: usize,
    blocks: Vec<usize>,
    /// What they held when it was made.
    named: Vec<u8>,
    /// Whether they hold it still.
    is_valid: bool,
}

/// Writes, tokens and copies by them, against what the blocks should hold.
#[test]
fn copies_by_tokens_are_those_of_a_model() {
    const BLOCKS: usize = 256;
    let running = serve(vec![small("one"), small("two")]);
    let mut units = [1, 2].map(|lun| Nexus::of(&running, ALICE).at(lun));
    let mut model = [[0_u8; BLOCKS]; 2];
    for unit in &mut units {
        unit.write(SMALL, 0, &[0; BLOCKS * SMALL]).unwrap();
    }
    let mut tokens: Vec<KnownToken> = Vec::new();
    let mut random = Random::new(1);
    let (mut copied, mut revoked) = (0, 0);
    for number in 0..400 {
        let (what, unit, byte) = (random.below(4), random.below(2) as usize, random.next_u32());
        let byte = byte as u8;
        let (at, to) = (
            random.below(BLOCKS as u64) as usize,
            random.below(BLOCKS as u64) as usize,
        );
        let len = random.between(1, 20) as usize;
        let len = len.min(BLOCKS - at);
        let mut changed = Vec::new();
        match what {
            0 => {
                units[unit]
                    .write(SMALL, at as u64, &vec![byte; len * SMALL])
                    .unwrap();
                model[unit][at..at + len].fill(byte);
                changed = (at..at + len).collect();
            }
            1 => {
                // Two ranges, the later one first.
                let half = len.div_ceil(2);
                let mut ranges = vec![(at as u64 + half as u64, (len - half) as u32)];
                ranges.push((at as u64, half as u32));
                let blocks: Vec<usize> = (at + half..at + len).chain(at..at + half).collect();
                let token = token(&mut units[unit], &ranges);
                let named = blocks.iter().map(|block| model[unit][*block]).collect();
                tokens.push(KnownToken {
                    token,
                    unit,
                    blocks,
                    named,
                    is_valid: true,
                });
            }
            _ if tokens.is_empty() => {}
            _ => {
                let known = &tokens[usize::from(byte) % tokens.len()];
                let count = known.named.len().min(BLOCKS - to);
                let is_goal = |block: &usize| (to..to + count).contains(block);
                // What it names would change on the way.
                if known.unit == unit && known.blocks.iter().any(is_goal) {
                    continue;
                }
                let done = write_using(
                    &mut units[unit],
                    number,
                    0,
                    (&known.token, 0),
                    &[(to as u64, count as u32)],
                );
                match (known.is_valid, done) {
                    (true, Ok(())) => copied += 1,
                    (false, Err(fail)) => {
                        // Or it was the oldest of too many.
                        let codes = [asc::TOKEN_REVOKED, asc::TOKEN_UNKNOWN];
                        assert!(codes.map(illegal).contains(&fail), "{fail:?}");
                        revoked += 1;
                        continue;
                    }
                    (true, Err(fail)) => {
                        assert_eq!(fail, illegal(asc::TOKEN_UNKNOWN), "step {number}");
                        continue;
                    }
                    (false, Ok(())) => panic!("step {number}: a copy of what is no more"),
                }
                model[unit][to..to + count].copy_from_slice(&known.named[..count]);
                changed = (to..to + count).collect();
            }
        }
        for known in tokens.iter_mut().filter(|known| known.unit == unit) {
            known.is_valid &= !known.blocks.iter().any(|block| changed.contains(block));
        }
    }
    for (unit, model) in units.iter_mut().zip(&model) {
        let held = unit.read(SMALL, 0, BLOCKS as u32).unwrap();
        let expected: Vec<u8> = model.iter().flat_map(|byte| [*byte; SMALL]).collect();
        assert!(held == expected);
    }
    assert!(
        copied > 20 && revoked > 20,
        "{copied} copied, {revoked} revoked"
    );
    stop(running);
}
