//! What holds for every order of claims.

use super::*;
use proptest::prelude::*;
use random::Random;
use reactor::{Bell, Completion, Token};
use std::sync::atomic::{AtomicI32, Ordering};

const GRANULE: u64 = 1 << GRANULE_SHIFT;

/// One thread's claims, as a reactor would have them.
struct Desk {
    locks: Arc<Locks>,
    bell: Arc<Bell>,
    /// By token; `None` in it: held.
    claims: Vec<(Token, Claim, Option<Box<StripePlace>>)>,
    last: Token,
}

impl Desk {
    fn new(locks: &Arc<Locks>) -> Desk {
        Desk {
            locks: Arc::clone(locks),
            bell: Bell::new(None),
            claims: Vec::new(),
            last: 0,
        }
    }

    fn claim(&mut self, claim: Claim) -> Token {
        self.last += 1;
        let caller = || Caller::Ticket(self.bell.ticket(self.last));
        let place = self.locks.acquire(claim, caller).err();
        self.claims.push((self.last, claim, place));
        self.last
    }

    /// Lets those go on that were called; how many.
    fn turn(&mut self) -> usize {
        let mut rung = Vec::new();
        self.bell.take(&mut rung);
        for completion in &rung {
            let Completion::File { token, .. } = *completion else {
                panic!("{completion:?}");
            };
            let entry = self.claims.iter_mut().find(|(t, ..)| *t == token);
            let (_, _, place) = entry.expect("called for a claim that is gone");
            let place = place.take().expect("called though it holds all");
            let caller = || Caller::Ticket(self.bell.ticket(token));
            *place_of(&mut self.claims, token) = place.go_on(caller).err();
        }
        rung.len()
    }

    fn end(&mut self, index: usize) {
        let (_, claim, place) = self.claims.remove(index);
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
            let stripe = line.0.lock().unwrap();
            assert!(stripe.held.is_empty() && stripe.queue.is_empty());
        }
    }
}

fn place_of(
    claims: &mut [(Token, Claim, Option<Box<StripePlace>>)],
    token: Token,
) -> &mut Option<Box<StripePlace>> {
    let entry = claims.iter_mut().find(|(t, ..)| *t == token);
    &mut entry.expect("it is there").2
}

#[derive(Clone, Debug)]
enum Act {
    Claim(Claim),
    /// The claim at this place of those that live, modulo their number.
    End(usize),
}

fn acts(ranges: impl Strategy<Value = (u64, u64)> + 'static) -> impl Strategy<Value = Vec<Act>> {
    let claim = (ranges, any::<bool>())
        .prop_map(|((from, len), alone)| Act::Claim(Claim::new(from, len, alone)));
    let end = any::<usize>().prop_map(Act::End);
    // So few that all that wait are looked at.
    prop::collection::vec(prop_oneof![claim, end], 1..=LOOK_MAX)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// In one stripe: a claim holds exactly if no earlier one is in its way.
    #[test]
    fn nobody_overtakes_and_nobody_is_forgotten(acts in acts((0..40u64, 1..12u64))) {
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
                let blocked = desk.claims[..at].iter().any(|(_, c, _)| c.conflicts(claim));
                prop_assert_eq!(place.is_some(), blocked, "claim {} of {:?}", at, claim);
            }
        }
        while !desk.claims.is_empty() {
            desk.end(0);
        }
        desk.assert_empty();
    }

    /// Over many stripes, which wrap around: claims that hold all they want do
    /// not overlap, one waits only while another is in its way, and all get
    /// their turn.
    #[test]
    fn wide_claims_exclude_each_other_and_end(
        acts in acts((0..200u64, 1..90u64).prop_map(|(a, b)| (a * GRANULE / 2, b * GRANULE / 3))),
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
            while desk.turn() > 0 {}
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
            while desk.turn() > 0 {}
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

#[test]
fn a_claim_costs_what_it_is_compared_with() {
    let mut desk = Desk::new(&Locks::new());
    for at in 0..3 {
        desk.claim(Claim::new(at, 1, true));
    }
    for _ in 0..2 {
        desk.claim(Claim::new(0, 1, true));
    }
    let mut units = 0;
    work::take_turn(&mut units, u64::MAX, || desk.claim(Claim::new(3, 1, true)));
    assert_eq!(units, 5, "three are held, two wait");
}

/// What an act costs.
fn units_of(act: impl FnOnce()) -> u64 {
    let mut units = 0;
    work::take_turn(&mut units, u64::MAX, act);
    units
}

#[test]
fn however_many_claims_wait_none_costs_more_than_an_operation_may() {
    const CLAIMS: usize = 10_000;
    let mut desk = Desk::new(&Locks::new());
    let readers = |n: usize| n.is_multiple_of(3);
    for n in 0..CLAIMS {
        let units = units_of(|| {
            desk.claim(Claim::new(0, 10, !readers(n)));
        });
        assert!(units <= (HELD_MAX + LOOK_MAX) as u64, "{units}");
    }
    // Those in the middle are given up, the others end in their order.
    for _ in 0..CLAIMS / 2 {
        let units = units_of(|| desk.end(CLAIMS / 4));
        assert_eq!(units, 0, "it was not looked at");
    }
    while !desk.claims.is_empty() {
        let units = units_of(|| desk.end(0));
        assert!(units <= work::OPERATION_UNITS_MAX, "{units}");
        desk.turn();
        assert!(
            desk.claims
                .first()
                .is_none_or(|(.., place)| place.is_none())
        );
    }
    desk.assert_empty();
}

#[test]
fn a_writer_that_ends_lets_as_many_readers_on_as_a_stripe_holds() {
    let mut desk = Desk::new(&Locks::new());
    desk.claim(Claim::new(0, 1000, true));
    let readers = 2 * HELD_MAX + LOOK_MAX;
    for _ in 0..readers {
        desk.claim(Claim::new(7, 3, false));
    }
    let units = units_of(|| desk.end(0));
    assert!(units <= work::OPERATION_UNITS_MAX, "{units}");
    desk.turn();
    let held = |desk: &Desk| {
        let places = desk.claims.iter().map(|(.., place)| place.is_none());
        places.collect::<Vec<_>>()
    };
    let expected: Vec<bool> = (0..readers).map(|n| n < HELD_MAX).collect();
    assert_eq!(held(&desk), expected);
    // A reader in nobody's way waits behind those that wait already.
    let late = desk.claim(Claim::new(100, 1, false));
    desk.end(5);
    desk.turn();
    assert!(held(&desk)[HELD_MAX - 1] && !held(&desk)[HELD_MAX]);
    while desk.claims.len() > 1 {
        desk.end(0);
        desk.turn();
    }
    assert!(desk.holds(late));
    desk.end(0);
    desk.assert_empty();
}

#[test]
fn stripes_of_a_range() {
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

/// Threads that claim, wait and release at once: the memory below tells who
/// was there together.
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
