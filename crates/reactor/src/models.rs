//! Models of threads around a reactor that sleeps: nothing that was sent or rung is
//! left behind while it sleeps. Before each operation on a lock or an atomic a
//! scheduler draws which thread goes on: `cargo xtask shuttle`. It knows no order of
//! memory that is weaker than one operation after the other.

use crate::bell::Bell;
use crate::mailbox::mailbox;
use crate::types::Completion;
use crate::waker::Sleeper;
use shuttle::scheduler::RandomScheduler;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::{Config, FailurePersistence, Runner, thread};
use std::sync::Arc;

/// Orders drawn for each model.
const ORDERS: usize = 50_000;
/// Threads beside the reactor's.
const OTHERS: usize = 3;

/// Runs a model in many orders, the same each time.
fn run(model: fn()) {
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::None;
    Runner::new(RandomScheduler::new_from_seed(1, ORDERS), config).run(model);
}

fn is_written(sleeper: &Sleeper) -> bool {
    rustix::io::read(sleeper.fd(), &mut [0; 8]).is_ok()
}

/// The others do `each`; the reactor takes as a driver does: it looks, sleeps until
/// its descriptor is written, forgets wakes and looks again.
fn until_taken(
    sleeper: &Sleeper,
    each: impl Fn(usize) + Send + Sync + 'static,
    mut is_all: impl FnMut() -> bool,
) {
    let (each, over) = (Arc::new(each), Arc::new(AtomicUsize::new(0)));
    for me in 0..OTHERS {
        let (each, over) = (Arc::clone(&each), Arc::clone(&over));
        thread::spawn(move || {
            each(me);
            over.fetch_add(1, Ordering::SeqCst);
        });
    }
    while !is_all() {
        if sleeper.try_sleep() {
            loop {
                let are_over = over.load(Ordering::SeqCst) == OTHERS;
                if is_written(sleeper) {
                    break;
                }
                assert!(!are_over, "something is left while its reactor sleeps");
                thread::yield_now();
            }
        }
        sleeper.awake();
    }
}

fn mail_to_a_sleeper() {
    let sleeper = Sleeper::new(true).unwrap();
    let (to, from) = mailbox(sleeper.waker());
    let mut letters = Vec::new();
    let send = move |me| (0..2).for_each(|n| to.send((me, n)));
    until_taken(&sleeper, send, || {
        from.take(&mut letters);
        letters.len() == 2 * OTHERS
    });
    for me in 0..OTHERS {
        let theirs = letters.iter().filter(|(of, _)| *of == me);
        assert!(theirs.map(|(_, n)| *n).eq(0..2), "{letters:?}");
    }
}

fn tickets_of_a_sleeper() {
    let sleeper = Sleeper::new(true).unwrap();
    let bell = Bell::new(Some(sleeper.waker()));
    let rings = Arc::clone(&bell);
    let mut rung = Vec::new();
    let ring = move |me| rings.ticket(me as u64).ring();
    until_taken(&sleeper, ring, || {
        bell.take(&mut rung);
        rung.len() == OTHERS
    });
    let mut tokens: Vec<_> = rung.iter().map(Completion::token).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, [0, 1, 2]);
}

fn mail_to_one_that_ends() {
    let sleeper = Sleeper::new(true).unwrap();
    let (to, from) = mailbox(sleeper.waker());
    let letter = Arc::new(());
    let sent = Arc::clone(&letter);
    let sender = thread::spawn(move || (0..2).for_each(|_| to.send(Arc::clone(&sent))));
    from.take(&mut Vec::new());
    drop(from);
    sender.join().unwrap();
    assert_eq!(Arc::strong_count(&letter), 1);
}

#[test]
fn model_of_mail_to_a_sleeping_reactor_loses_no_letter() {
    run(mail_to_a_sleeper);
}

#[test]
fn model_of_tickets_of_a_sleeping_driver_loses_no_ring() {
    run(tickets_of_a_sleeper);
}

#[test]
fn model_of_mail_to_a_reactor_that_ends_drops_each_letter() {
    run(mail_to_one_that_ends);
}

fn late_clear_is_found_by(model: fn()) {
    faults::set(Some(faults::Fault::ClearLate));
    let found = std::panic::catch_unwind(|| run(model));
    faults::set(None);
    let panic = found.expect_err("the fault is found");
    let text = panic.downcast_ref::<&str>().copied().unwrap_or_default();
    assert!(text.contains("left while its reactor sleeps"), "{text}");
}

#[test]
fn model_finds_a_mailbox_that_is_cleared_after_the_look() {
    late_clear_is_found_by(mail_to_a_sleeper);
}

#[test]
fn model_finds_a_bell_that_is_cleared_after_the_look() {
    late_clear_is_found_by(tickets_of_a_sleeper);
}
