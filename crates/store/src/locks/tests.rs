//! What holds for every order of claims.

use super::held::HeldClaims;
use super::stripe::GUARDED_MAX;
use super::*;
use machine::work;
use proptest::prelude::*;
use random::Random;
use reactor::{Bell, Completion, Token};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicI32, Ordering};

const GRANULE: u64 = 1 << GRANULE_SHIFT;

/// One thread's claims, as a reactor would have them.
struct Desk {
    locks: Arc<Locks>,
    bell: Arc<Bell>,
    /// By token; `None` in it: held.
    claims: VecDeque<(Token, Claim, Option<Box<StripePlace>>)>,
    last: Token,
}

impl Desk {
    fn new(locks: &Arc<Locks>) -> Desk {
        Desk {
            locks: Arc::clone(locks),
            bell: Bell::new(None),
            claims: VecDeque::new(),
            last: 0,
        }
    }

    fn claim(&mut self, claim: Claim) -> Token {
        self.last += 1;
        let caller = || Caller::Ticket(self.bell.ticket(self.last));
        let place = self.locks.acquire(claim, caller).err();
        self.claims.push_back((self.last, claim, place));
        self.last
    }

    /// Lets all go on that are called, and those that are called then.
    fn settle(&mut self) {
        while self.turn() > 0 {}
    }

    /// Lets those go on that were called; how many.
    fn turn(&mut self) -> usize {
        let called = self.called();
        for token in &called {
            self.go_on(*token);
        }
        called.len()
    }

    /// Those that were called.
    fn called(&self) -> Vec<Token> {
        let mut rung = Vec::new();
        self.bell.take(&mut rung);
        let token = |completion| match completion {
            Completion::File { token, .. } => token,
            other => panic!("{other:?}"),
        };
        rung.into_iter().map(token).collect()
    }

    /// Lets one go on that was called, if it has not been given up.
    fn go_on(&mut self, token: Token) {
        let Ok(at) = self.claims.binary_search_by_key(&token, |(t, ..)| *t) else {
            return;
        };
        let (_, _, place) = &mut self.claims[at];
        let caller = || Caller::Ticket(self.bell.ticket(token));
        let called = place.take().expect("called though it holds all");
        *place = called.go_on(caller).err();
    }

    fn end(&mut self, index: usize) {
        let (_, claim, place) = self.claims.remove(index).expect("it is there");
        match place {
            None => self.locks.release(&claim),
            Some(place) => drop(place),
        }
    }

    fn holds(&self, token: Token) -> bool {
        let found = self.claims.iter().find(|(t, ..)| *t == token);
        found.is_some_and(|(_, _, place)| place.is_none())
    }

    fn assert_empty(&self) {
        for line in &self.locks.0 {
            assert!(line.0.lock().unwrap().is_empty());
        }
    }
}

#[derive(Clone, Debug)]
enum Act {
    Claim(Claim),
    /// The claim at this place of those that live, modulo their number.
    End(usize),
}

fn acts(
    ranges: impl Strategy<Value = (u64, u64)> + 'static,
    acts_max: usize,
) -> impl Strategy<Value = Vec<Act>> {
    let claim = (ranges, any::<bool>())
        .prop_map(|((from, len), alone)| Act::Claim(Claim::new(from, len, alone)));
    let end = any::<usize>().prop_map(Act::End);
    prop::collection::vec(prop_oneof![2 => claim, 1 => end], 1..=acts_max)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// In one stripe, where all that wait are guarded: a claim holds exactly if no
    /// earlier one is in its way.
    #[test]
    fn guarded_claim_waits_exactly_while_an_earlier_one_conflicts(
        acts in acts((0..40u64, 1..12u64), GUARDED_MAX),
    ) {
        let mut desk = Desk::new(&Locks::new());
        for act in acts {
            match act {
                Act::Claim(claim) => {
                    desk.claim(claim);
                }
                Act::End(n) if !desk.claims.is_empty() => desk.end(n % desk.claims.len()),
                Act::End(_) => {}
            }
            desk.turn();
            for (at, (_, claim, place)) in desk.claims.iter().enumerate() {
                let blocked = desk.claims.range(..at).any(|(_, c, _)| c.conflicts(claim));
                prop_assert_eq!(place.is_some(), blocked, "claim {} of {:?}", at, claim);
            }
        }
        while !desk.claims.is_empty() {
            desk.end(0);
        }
        desk.assert_empty();
    }

    /// In one stripe, with more claims than are guarded: none that are held conflict, a
    /// claim waits exactly while it conflicts with one that is held or that has waited
    /// longer, and all are granted in the end.
    #[test]
    fn claim_waits_only_while_it_conflicts(
        acts in acts((0..60u64, prop_oneof![9 => 1..3u64, 1 => 1..40u64]), 400),
    ) {
        let mut desk = Desk::new(&Locks::new());
        for act in acts {
            match act {
                Act::Claim(claim) => {
                    desk.claim(claim);
                }
                Act::End(n) if !desk.claims.is_empty() => desk.end(n % desk.claims.len()),
                Act::End(_) => {}
            }
            desk.settle();
            for (at, (_, claim, place)) in desk.claims.iter().enumerate() {
                let before = desk.claims.range(..at).any(|(_, c, _)| c.conflicts(claim));
                let mut held = desk.claims.iter().filter(|(.., place)| place.is_none());
                let beside = held.any(|(_, c, _)| !std::ptr::eq(c, claim) && c.conflicts(claim));
                match place {
                    None => prop_assert!(!beside, "two are held: {:?}", claim),
                    Some(_) => prop_assert!(before || beside, "nothing is in the way: {:?}", claim),
                }
            }
        }
        while !desk.claims.is_empty() {
            let held = desk.claims.iter().position(|(.., place)| place.is_none());
            prop_assert!(held.is_some(), "nothing is held and some wait");
            desk.end(held.unwrap());
            desk.settle();
        }
        desk.assert_empty();
    }

    /// What is held is found as by comparing with all of it, on a way that grows with
    /// its logarithm.
    #[test]
    fn held_claims_find_what_a_list_finds(
        acts in acts((0..3000u64, prop_oneof![9 => 1..4u64, 1 => 1..900u64]), 900),
    ) {
        let mut held = HeldClaims::default();
        let mut list: Vec<(Claim, u64)> = Vec::new();
        for (id, act) in (1..).zip(acts) {
            match act {
                Act::Claim(claim) => {
                    let mut found = None;
                    let units = units_of(|| found = held.conflict(&claim));
                    let depth_max = 2 * (list.len() + 2).ilog2() + 8;
                    prop_assert!(units <= u64::from(depth_max), "{} of {}", units, list.len());
                    let conflicting = |id| list.iter().any(|(c, i)| *i == id && c.conflicts(&claim));
                    match found {
                        Some(id) => prop_assert!(conflicting(id)),
                        None => prop_assert!(list.iter().all(|(c, _)| !c.conflicts(&claim))),
                    }
                    // Also what conflicts, and some twice.
                    for id in [id, 1_000_000 + id].into_iter().take(1 + usize::from(id % 5 == 0)) {
                        held.insert(claim, id);
                        list.push((claim, id));
                    }
                }
                Act::End(_) if list.is_empty() => {}
                Act::End(n) => {
                    let claim = list[n % list.len()].0;
                    let id = held.remove(&claim);
                    let at = list.iter().position(|entry| *entry == (claim, id));
                    list.swap_remove(at.expect("it was held"));
                }
            }
        }
        for (claim, _) in &list {
            held.remove(claim);
        }
        prop_assert!(held.is_empty());
    }

    /// Over many stripes, which wrap around: claims that hold all they want do
    /// not overlap, one waits only while another is in its way, and all get
    /// their turn.
    #[test]
    fn wide_claims_exclude_each_other_and_end(
        acts in acts(
            (0..200u64, 1..90u64).prop_map(|(a, b)| (a * GRANULE / 2, b * GRANULE / 3)),
            64,
        ),
    ) {
        let mut desk = Desk::new(&Locks::new());
        for act in acts {
            match act {
                Act::Claim(claim) => {
                    desk.claim(claim);
                }
                Act::End(n) if !desk.claims.is_empty() => desk.end(n % desk.claims.len()),
                Act::End(_) => {}
            }
            desk.settle();
            let held = desk.claims.iter().filter(|(.., place)| place.is_none());
            let held: Vec<Claim> = held.map(|(_, claim, _)| *claim).collect();
            for (at, claim) in held.iter().enumerate() {
                prop_assert!(held[..at].iter().all(|other| !other.conflicts(claim)));
            }
            for (token, claim, place) in &desk.claims {
                let others = desk.claims.iter().filter(|(other, ..)| other != token);
                let mut in_the_way = others.filter(|(_, c, _)| c.conflicts(claim));
                prop_assert!(place.is_none() || in_the_way.next().is_some(), "{:?}", claim);
            }
        }
        while !desk.claims.is_empty() {
            let held = desk.claims.iter().position(|(.., place)| place.is_none());
            prop_assert!(held.is_some(), "they wait for each other");
            desk.end(held.unwrap());
            desk.settle();
        }
        desk.assert_empty();
    }
}

/// A reactor that is slow: what was called has not gone on yet.
#[derive(Clone, Debug)]
enum LateAct {
    Claim(Claim),
    /// As in [`Act`].
    End(usize),
    /// One of those that were called, modulo their number.
    GoOn(usize),
}

fn late_acts(
    ranges: impl Strategy<Value = (u64, u64)> + 'static,
) -> impl Strategy<Value = Vec<LateAct>> {
    let claim = (ranges, prop::bool::weighted(0.7))
        .prop_map(|((from, len), alone)| LateAct::Claim(Claim::new(from, len, alone)));
    let end = any::<usize>().prop_map(LateAct::End);
    let go_on = any::<usize>().prop_map(LateAct::GoOn);
    prop::collection::vec(prop_oneof![4 => claim, 2 => end, 2 => go_on], 1..=500)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Many more claims than are guarded, in one stripe and over several: one that was
    /// called goes on after any time, or is given up instead, and no other waits for ever.
    #[test]
    fn no_call_is_lost_where_claims_go_on_late_or_are_given_up(
        acts in late_acts(prop_oneof![
            8 => (0..6u64).prop_map(|block| (block * 4096, 4096)),
            2 => (0..5u64, 2..4u64).prop_map(|(block, blocks)| (block * 4096, blocks * 4096)),
            2 => (0..4u64, 1..4u64).prop_map(|(from, len)| (from * GRANULE / 2, len * GRANULE)),
        ]),
    ) {
        let mut desk = Desk::new(&Locks::new());
        let mut called = Vec::new();
        for act in acts {
            match act {
                LateAct::Claim(claim) => {
                    desk.claim(claim);
                }
                LateAct::End(n) if !desk.claims.is_empty() => desk.end(n % desk.claims.len()),
                LateAct::GoOn(n) if !called.is_empty() => {
                    desk.go_on(called.swap_remove(n % called.len()));
                }
                _ => {}
            }
            called.extend(desk.called());
            let held = desk.claims.iter().filter(|(.., place)| place.is_none());
            let held: Vec<Claim> = held.map(|(_, claim, _)| *claim).collect();
            for (at, claim) in held.iter().enumerate() {
                prop_assert!(held[..at].iter().all(|other| !other.conflicts(claim)));
            }
        }
        while !desk.claims.is_empty() {
            while let Some(token) = called.pop() {
                desk.go_on(token);
                called.extend(desk.called());
            }
            for (token, claim, place) in &desk.claims {
                let others = desk.claims.iter().filter(|(other, ..)| other != token);
                let mut in_the_way = others.filter(|(_, c, _)| c.conflicts(claim));
                prop_assert!(place.is_none() || in_the_way.next().is_some(), "{:?}", claim);
            }
            let held = desk.claims.iter().position(|(.., place)| place.is_none());
            prop_assert!(held.is_some(), "nothing is held and some wait");
            desk.end(held.unwrap());
            called.extend(desk.called());
        }
        desk.assert_empty();
    }
}

#[test]
fn readers_do_not_starve_a_writer() {
    let mut desk = Desk::new(&Locks::new());
    let first = desk.claim(Claim::new(0, 10, false));
    let writer = desk.claim(Claim::new(5, 1, true));
    let late = desk.claim(Claim::new(0, 10, false));
    let aside = desk.claim(Claim::new(6, 4, false));
    assert!(desk.holds(first) && desk.holds(aside));
    assert!(!desk.holds(writer) && !desk.holds(late));
    desk.end(0);
    desk.turn();
    assert!(desk.holds(writer) && !desk.holds(late));
    desk.end(0);
    desk.turn();
    assert!(desk.holds(late));
}

#[test]
fn a_place_that_is_given_up_lets_the_next_one_on() {
    let mut desk = Desk::new(&Locks::new());
    desk.claim(Claim::new(0, 10, false));
    desk.claim(Claim::new(5, 1, true));
    let late = desk.claim(Claim::new(0, 10, false));
    desk.end(1);
    desk.turn();
    assert!(desk.holds(late));
    // Called, and given up before it went on.
    let writer = desk.claim(Claim::new(5, 3 * GRANULE, true));
    desk.end(0);
    desk.end(0);
    assert!(!desk.holds(writer));
    desk.claims.clear();
    desk.assert_empty();
}

/// What an act costs.
fn units_of(act: impl FnOnce()) -> u64 {
    let mut units = 0;
    work::take_turn(&mut units, u64::MAX, act);
    units
}

/// A claim on one block of 4 KiB of the first stripe, the granules of which follow each
/// other here.
fn block(n: u64, is_exclusive: bool) -> Claim {
    let in_granule = GRANULE / 4096;
    let granule = n / in_granule * u64::from(STRIPES);
    Claim::new(
        (granule * in_granule + n % in_granule) * 4096,
        4096,
        is_exclusive,
    )
}

/// A few claims that are held lie side by side, and a unit pays for eight of them. A unit
/// pays for each of the others on the way down a tree that is balanced.
#[test]
fn held_claims_cost_what_is_compared() {
    const FEW: u64 = 64;
    const OTHERS: u64 = 1023;
    let ascending: fn(u64) -> u64 = |n| n;
    let outside_in: fn(u64) -> u64 = |n| match n % 2 {
        0 => n / 2,
        _ => OTHERS - 1 - n / 2,
    };
    for (order, height) in [(ascending, 10), (outside_in, 12)] {
        let mut held = HeldClaims::default();
        let mut insert = |n| units_of(|| held.insert(Claim::new(2 * n, 1, true), n));
        assert!((0..FEW).all(|n| insert(OTHERS + n) == 0));
        assert_eq!(insert(order(0)), 1, "the first of the tree");
        for n in 1..OTHERS {
            insert(order(n));
        }
        let between =
            |n: u64| units_of(|| assert_eq!(held.conflict(&Claim::new(2 * n + 1, 1, true)), None));
        let units_max = (0..OTHERS).map(between).max();
        assert_eq!(units_max, Some(FEW / 8 + height));
    }
}

#[test]
fn three_hundred_claims_on_one_block_hold_up_no_other_block() {
    let mut desk = Desk::new(&Locks::new());
    for _ in 0..300 {
        desk.claim(block(0, true));
    }
    let other = desk.claim(block(1, true));
    assert!(desk.holds(other));
}

#[test]
fn three_hundred_held_blocks_hold_up_no_other_block() {
    let mut desk = Desk::new(&Locks::new());
    for n in 0..=300 {
        let token = desk.claim(block(n, true));
        assert!(desk.holds(token), "block {n}");
    }
}

#[test]
fn claim_at_position_100_is_granted_when_its_own_conflict_is_released() {
    let mut desk = Desk::new(&Locks::new());
    desk.claim(block(1, true));
    for _ in 0..100 {
        desk.claim(block(0, true));
    }
    let other = desk.claim(block(1, true));
    assert!(!desk.holds(other));
    desk.end(0);
    desk.turn();
    assert!(desk.holds(other));
}

#[test]
fn claim_behind_many_that_wait_for_the_same_is_granted_without_another_release() {
    let mut desk = Desk::new(&Locks::new());
    let in_the_way = desk.claim(block(0, true));
    desk.claim(block(0, true));
    // All of them wait for one that waits, and is given up.
    let wide = desk.claim(Claim::new(0, GRANULE, true));
    for _ in 0..1000 {
        desk.claim(block(0, true));
    }
    let other = desk.claim(block(1, true));
    assert!(!desk.holds(other));
    desk.end(2);
    assert!(!desk.holds(wide));
    desk.settle();
    assert!(desk.holds(in_the_way) && desk.holds(other));
    // One that was called, and is given up before it goes on, calls the next.
    let wide = desk.claim(Claim::new(0, GRANULE, true));
    let other = desk.claim(block(2, true));
    while !desk.holds(wide) {
        desk.end(0);
        desk.settle();
    }
    assert!(!desk.holds(other));
}

#[test]
fn wide_writer_is_granted_under_readers_that_never_end() {
    let mut desk = Desk::new(&Locks::new());
    for n in 0..100 {
        desk.claim(block(n, false));
    }
    // More than are guarded wait before it.
    for _ in 0..3 * GUARDED_MAX {
        desk.claim(block(0, true));
    }
    let writer = desk.claim(Claim::new(0, GRANULE, true));
    let mut readers = 0;
    while !desk.holds(writer) {
        assert!(readers < 1000, "the writer waits for ever");
        let oldest = desk.claims.iter().position(|(.., place)| place.is_none());
        desk.end(oldest.expect("something is held"));
        desk.claim(block(readers % 100, false));
        readers += 1;
        desk.settle();
    }
}

#[test]
fn claim_costs_no_more_behind_16384_others_on_its_block() {
    const CLAIMS: usize = 16_384;
    let mut desk = Desk::new(&Locks::new());
    for _ in 0..CLAIMS {
        let units = units_of(|| {
            desk.claim(block(0, true));
        });
        assert!(units <= GUARDED_MAX as u64, "{units}");
    }
    let mut calls = 0;
    while !desk.claims.is_empty() {
        // What is held, and as often one that waits.
        let at = match desk.claims.len() {
            left if left.is_multiple_of(2) => (3 * GUARDED_MAX).min(left - 1),
            _ => 0,
        };
        let units = units_of(|| desk.end(at));
        assert!(units <= 4 * GUARDED_MAX as u64, "{units}");
        let mut called = 0;
        let units = units_of(|| called = desk.turn());
        assert!(units <= (called * GUARDED_MAX) as u64, "{units}");
        calls += called;
    }
    assert!(calls <= CLAIMS, "{calls} calls");
    desk.assert_empty();
}

#[test]
fn widest_claim_costs_no_more_than_an_operation_may() {
    let mut desk = Desk::new(&Locks::new());
    let all = Claim::new(0, u64::MAX, true);
    desk.claim(all);
    // In each stripe: as many as are guarded, in each other's way as seldom as may be,
    // and many more.
    for n in 0..100 {
        for stripe in 0..u64::from(STRIPES) {
            desk.claim(Claim::new(stripe * GRANULE + n * 4096, 4096, true));
        }
    }
    let units = units_of(|| desk.end(0));
    assert!(units <= work::OPERATION_UNITS_MAX, "{units}");
    desk.settle();
    assert!(desk.claims.iter().all(|(.., place)| place.is_none()));
    let units = units_of(|| {
        desk.claim(Claim::new(
            u64::from(STRIPES) * GRANULE,
            u64::from(STRIPES) * GRANULE,
            true,
        ));
    });
    assert!(units <= work::OPERATION_UNITS_MAX, "{units}");
    while !desk.claims.is_empty() {
        desk.end(0);
        desk.settle();
    }
    desk.assert_empty();
}

#[test]
fn stripes_of_a_claim_cover_its_range() {
    let stripes = |from, len| Claim::new(from, len, true).stripes();
    assert_eq!(stripes(0, 1), 1);
    assert_eq!(stripes(GRANULE - 1, 1), 1);
    assert_eq!(stripes(GRANULE - 1, 2), 0b11);
    assert_eq!(stripes(63 * GRANULE, GRANULE + 1), 1 << 63 | 1);
    assert_eq!(stripes(GRANULE, 63 * GRANULE), u64::MAX - 1);
    assert_eq!(stripes(0, 64 * GRANULE), u64::MAX);
    assert_eq!(stripes(5, 64 * GRANULE), u64::MAX);
    assert_eq!(stripes(0, u64::MAX), u64::MAX);
    assert_ne!(stripes(u64::MAX, 5), 0);
}

#[test]
fn a_thread_waits_no_longer_than_it_likes() {
    let locks = Locks::new();
    let claim = Claim::new(0, 3 * GRANULE, true);
    assert!(locks.acquire_within(claim, Duration::ZERO));
    assert!(!locks.acquire_within(claim, Duration::from_millis(5)));
    let other = thread::spawn({
        let locks = Arc::clone(&locks);
        move || locks.acquire_within(claim, Duration::from_secs(60))
    });
    locks.release(&claim);
    assert!(other.join().unwrap());
    locks.release(&claim);
    Desk::new(&locks).assert_empty();
}

/// Threads that claim, wait and release at once: the memory below tells which claims were
/// held together.
#[test]
fn claims_of_many_threads_never_meet() {
    const BLOCKS: u64 = 24;
    const CLAIMS: u64 = 4_000;
    let locks = Locks::new();
    let cells: Vec<AtomicI32> = (0..BLOCKS).map(|_| AtomicI32::new(0)).collect();
    let work = |seed: u64| {
        let mut random = Random::new(seed);
        let mut below = |n: u64| random.below(n);
        for _ in 0..CLAIMS {
            let first = below(BLOCKS);
            let count = 1 + below((BLOCKS - first).min(6));
            let alone = below(3) == 0;
            // Blocks of a third of a granule: one stripe, or two, or three.
            let claim = Claim::new(first * GRANULE / 3, count * GRANULE / 3, alone);
            assert!(locks.acquire_within(claim, Duration::from_secs(60)));
            let mine = &cells[first as usize..(first + count) as usize];
            for cell in mine {
                let before = match alone {
                    true => cell.swap(-1, Ordering::AcqRel),
                    false => cell.fetch_add(1, Ordering::AcqRel).min(0),
                };
                assert_eq!(before, 0, "two where one should be");
            }
            if below(4) == 0 {
                thread::yield_now();
            }
            for cell in mine {
                match alone {
                    true => cell.store(0, Ordering::Release),
                    false => drop(cell.fetch_sub(1, Ordering::AcqRel)),
                }
            }
            locks.release(&claim);
        }
    };
    thread::scope(|scope| {
        for thread in 1..=4 {
            scope.spawn(move || work(thread));
        }
    });
    Desk::new(&locks).assert_empty();
}

/// Reactors with many claims each, more than are guarded, beside threads that wait for as
/// long as they like: what is called in one thread is given up or released in another.
#[test]
fn tickets_and_threads_wait_for_the_same_ranges() {
    const BLOCKS: u64 = 5;
    const CLAIMS: u64 = 6_000;
    let locks = Locks::new();
    let cells: Vec<AtomicI32> = (0..BLOCKS).map(|_| AtomicI32::new(0)).collect();
    let random_claim = |random: &mut Random| {
        let first = random.below(BLOCKS);
        let count = 1 + random.below(BLOCKS - first).min(random.below(3));
        // Blocks of two thirds of a granule: one stripe, or some.
        let (from, len) = (first * GRANULE * 2 / 3, count * GRANULE * 2 / 3);
        Claim::new(from, len, random.below(3) > 0)
    };
    let cells_of = |claim: &Claim| {
        let block = |at: u64| (at * 3).div_ceil(GRANULE * 2) as usize;
        &cells[block(claim.from)..block(claim.to).min(BLOCKS as usize)]
    };
    let enter = |claim: &Claim| {
        for cell in cells_of(claim) {
            let before = match claim.is_exclusive {
                true => cell.swap(-1, Ordering::AcqRel),
                false => cell.fetch_add(1, Ordering::AcqRel).min(0),
            };
            assert_eq!(before, 0, "two where one should be");
        }
    };
    let leave = |claim: &Claim| {
        for cell in cells_of(claim) {
            match claim.is_exclusive {
                true => cell.store(0, Ordering::Release),
                false => drop(cell.fetch_sub(1, Ordering::AcqRel)),
            }
        }
    };
    let reactor = |seed: u64| {
        let mut random = Random::new(seed);
        let mut desk = Desk::new(&locks);
        let mut entered: Vec<Token> = Vec::new();
        let mut left = CLAIMS;
        while left > 0 || !desk.claims.is_empty() {
            if left > 0 && desk.claims.len() < 60 {
                left -= 1;
                desk.claim(random_claim(&mut random));
            } else {
                let n = random.below(desk.claims.len() as u64) as usize;
                let (token, claim, _) = &desk.claims[n];
                match entered.iter().position(|other| other == token) {
                    Some(at) => {
                        leave(claim);
                        entered.swap_remove(at);
                        desk.end(n);
                    }
                    // Some are given up.
                    None if random.below(50) == 0 => desk.end(n),
                    None => {}
                }
            }
            desk.turn();
            for (token, claim, place) in &desk.claims {
                if place.is_none() && !entered.contains(token) {
                    enter(claim);
                    entered.push(*token);
                }
            }
        }
    };
    let thread = |seed: u64| {
        let mut random = Random::new(seed);
        for _ in 0..CLAIMS / 6 {
            let claim = random_claim(&mut random);
            let micros = random.below(2) * random.below(300);
            if locks.acquire_within(claim, Duration::from_micros(micros)) {
                enter(&claim);
                leave(&claim);
                locks.release(&claim);
            }
        }
    };
    thread::scope(|scope| {
        (1..=2).for_each(|seed| drop(scope.spawn(move || reactor(seed))));
        (3..=4).for_each(|seed| drop(scope.spawn(move || thread(seed))));
    });
    Desk::new(&locks).assert_empty();
}
