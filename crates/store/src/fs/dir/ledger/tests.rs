use super::*;
use crate::fs::quota::{Quota, QuotaLimits, QuotaSubject};
use random::Random;

fn key(ino: u64) -> ObjectKey {
    ObjectKey { ino, born: 7 }
}

fn look(version: u64, bytes: u64, uid: u32) -> UsageSeen {
    UsageSeen {
        version,
        bytes,
        owner: Some((uid, 5)),
    }
}

fn put(ledger: &Ledger, quotas: &Quotas, ino: u64, look: UsageSeen) -> bool {
    ledger.put(quotas, key(ino), look, (&mut None, || true))
}

fn used(quotas: &Quotas, subject: &QuotaSubject) -> (u64, u64) {
    let usage = quotas.usage_of(subject);
    (usage.bytes, usage.objects)
}

fn whole(quotas: &Quotas) -> (u64, u64) {
    used(quotas, &QuotaSubject::Tree("/".to_owned()))
}

#[test]
fn older_look_does_not_take_the_place_of_a_newer_one() {
    let (ledger, quotas) = (Ledger::of(8), Quotas::default());
    let (early, late) = (ledger.tick(), ledger.tick());
    put(&ledger, &quotas, 1, look(late, 100, 1));
    put(&ledger, &quotas, 1, look(early, 7, 2));
    assert_eq!(used(&quotas, &QuotaSubject::User(1)), (100, 1));
    assert_eq!(used(&quotas, &QuotaSubject::User(2)), (0, 0));
    let content = UsageSeen {
        version: ledger.tick(),
        bytes: 60,
        owner: None,
    };
    assert!(put(&ledger, &quotas, 1, content));
    assert!(
        !put(&ledger, &quotas, 2, content),
        "whose it is is not known"
    );
    assert_eq!(used(&quotas, &QuotaSubject::User(1)), (60, 1));
}

#[test]
fn there_are_never_more_objects_than_the_bound_and_removals_make_room() {
    let (ledger, quotas) = (Ledger::of(8), Quotas::default());
    for ino in 0..9 {
        let is_in = put(&ledger, &quotas, ino, look(ledger.tick(), 10, 1));
        assert_eq!(is_in, ino < 8);
    }
    assert!(ledger.is_full() && !ledger.has_room_again());
    assert_eq!(whole(&quotas), (80, 8));
    ledger.remove(&quotas, &key(0));
    ledger.remove(&quotas, &key(8));
    ledger.remove(&quotas, &key(1));
    assert!(ledger.has_room_again());
    ledger.begin_round();
    assert!(put(&ledger, &quotas, 8, look(ledger.tick(), 10, 1)));
    assert!(!ledger.is_full());
    assert_eq!(whole(&quotas), (70, 7));
}

#[test]
fn object_that_a_round_does_not_meet_is_gone_unless_open_without_a_name() {
    let (ledger, quotas) = (Ledger::of(8), Quotas::default());
    for ino in 0..3 {
        put(&ledger, &quotas, ino, look(ledger.tick(), 10, 1));
    }
    ledger.keep_nameless(&key(1));
    ledger.begin_round();
    // Met by a look that is older than what is known.
    put(&ledger, &quotas, 2, look(0, 99, 1));
    ledger.end_round(&quotas);
    assert_eq!(whole(&quotas), (20, 2));
    ledger.remove(&quotas, &key(1));
    assert_eq!(whole(&quotas), (10, 1));
    ledger.clear(&quotas);
    assert_eq!(whole(&quotas), (0, 0));
}

/// What was reserved is used up, and no more is taken than that on the way.
#[test]
fn credit_becomes_what_is_charged() {
    let (ledger, quotas) = (Ledger::of(8), Quotas::default());
    let limits = QuotaLimits {
        hard_bytes: Some(100),
        ..QuotaLimits::default()
    };
    let subject = QuotaSubject::User(1);
    quotas.set(&[Quota { subject, limits }], &[]);
    let of = quotas.charged(1, 5, &None);
    quotas.take(&of, 100, 1).unwrap();
    assert_eq!(quotas.take(&of, 1, 0), Err(Error::DQuot));
    let mut credit = Some((of.clone(), 100, 1));
    let seen = look(ledger.tick(), 30, 1);
    assert!(ledger.put(&quotas, key(1), seen, (&mut credit, || true)));
    assert!(credit.is_none());
    assert_eq!(used(&quotas, &QuotaSubject::User(1)), (30, 1));
    assert_eq!(quotas.take(&of, 71, 0), Err(Error::DQuot));
    // What is gone meanwhile uses nothing up.
    let mut credit = Some((of, 0, 0));
    let seen = look(ledger.tick(), 30, 1);
    assert!(!ledger.put(&quotas, key(2), seen, (&mut credit, || false)));
    assert!(credit.is_some());
}

/// Whatever comes in whatever order, accounts have what entries say.
#[test]
fn accounts_are_the_sum_of_entries() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let (ledger, quotas) = (Ledger::of(12), Quotas::default());
        let mut model: HashMap<u64, (u64, u64, u32)> = HashMap::new();
        let mut versions = vec![ledger.tick()];
        for _ in 0..200 {
            let ino = random.below(16);
            let (bytes, uid) = (random.below(1000), random.below(3) as u32);
            match random.below(5) {
                0 => {
                    ledger.remove(&quotas, &key(ino));
                    model.remove(&ino);
                }
                1 => {
                    let given = ledger.give_to(&quotas, &key(ino), (uid, 5), false);
                    assert_eq!(given, Ok(()));
                    if let Some(entry) = model.get_mut(&ino) {
                        (entry.0, entry.2) = (u64::MAX, uid);
                    }
                    // Later looks come after it.
                    versions = vec![ledger.tick()];
                    if let Some(entry) = model.get_mut(&ino) {
                        entry.0 = versions[0] - 1;
                    }
                }
                _ => {
                    versions.push(ledger.tick());
                    let at = random.below(versions.len() as u64) as usize;
                    let version = versions[at];
                    put(&ledger, &quotas, ino, look(version, bytes, uid));
                    let has_room = model.len() < 12;
                    match model.get_mut(&ino) {
                        Some(entry) if version > entry.0 => *entry = (version, bytes, uid),
                        Some(_) => {}
                        None if has_room => {
                            model.insert(ino, (version, bytes, uid));
                        }
                        None => {}
                    }
                }
            }
            for uid in 0..3 {
                let of = || model.values().filter(|entry| entry.2 == uid);
                let sum = (of().map(|entry| entry.1).sum(), of().count() as u64);
                assert_eq!(used(&quotas, &QuotaSubject::User(uid)), sum, "seed {seed}");
            }
        }
    }
}
