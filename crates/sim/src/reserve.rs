//! What hosts may do to a volume by its reservations: written a second time, from
//! the standard alone (Base 2.0, section 8.19), to check the target with.
//!
//! One reservation command at a time is under way for a volume. Its outcome may
//! stay unknown, so a book keeps every state that is possible.

use std::collections::BTreeMap;

use random::Random;
use wire::nvme::Sqe;
use wire::nvme::io;
use wire::nvme::reservation::{EDS, Registrant, Status, action, cptpl, notice};
use zerocopy::FromBytes;

use crate::checker::Stamp;

/// A host by its number.
pub type HostNumber = usize;

/// What one command asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    Register {
        key: u64,
        persist: Option<bool>,
    },
    Unregister {
        key: u64,
    },
    Replace {
        key: u64,
        new: u64,
    },
    Acquire {
        key: u64,
        rtype: u8,
    },
    Preempt {
        key: u64,
        victim: u64,
        rtype: u8,
        aborts: bool,
    },
    Release {
        key: u64,
        rtype: u8,
    },
    Clear {
        key: u64,
    },
    Report,
    /// SCSI's REGISTER, which with key 0 ends a registration; without an old
    /// key REGISTER AND IGNORE EXISTING KEY.
    Enroll {
        key: Option<u64>,
        new: u64,
        persist: bool,
    },
}

/// Registrants that a report has room for.
const REPORTED_MAX: usize = 8;
/// Bytes of a report, with Extended Data Structure.
pub const REPORT_BYTES: usize = 64 * (1 + REPORTED_MAX);

/// The content of a Reservation Report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservationReport {
    generation: u32,
    rtype: u8,
    persists: bool,
    /// Keys, and whether the host holds the reservation.
    registrants: BTreeMap<HostNumber, (u64, bool)>,
}

impl ReservationReport {
    /// Reads one, of hosts that are called so.
    pub fn decode(bytes: &[u8], called: &[[u8; 16]]) -> Option<ReservationReport> {
        let (head, mut rest) = Status::read_from_prefix(bytes).ok()?;
        let mut registrants = BTreeMap::new();
        for _ in 0..head.registrants.get() {
            let (one, after) = Registrant::read_from_prefix(rest).ok()?;
            let host = called.iter().position(|called| *called == one.hostid)?;
            let told = (one.rkey.get(), one.rcsts & 1 != 0);
            registrants.insert(host, told);
            rest = after;
        }
        Some(ReservationReport {
            generation: head.generation.get(),
            rtype: head.rtype,
            persists: head.ptpls & 1 != 0,
            registrants,
        })
    }
}

/// A notification to a host: one of [`notice`].
pub type Notice = u8;

/// Notifications that a command brings others, for certain or perhaps.
struct ToldHosts {
    /// Until then, if it is not under way.
    to: Stamp,
    /// Of these kinds.
    kinds: &'static [Notice],
    /// To these.
    hosts: Vec<HostNumber>,
}

/// How a command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandEnd {
    Done,
    Conflict,
    Invalid,
}

/// Registrants and reservation at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ReservationState {
    keys: BTreeMap<HostNumber, u64>,
    /// The type, and the holder; for types 5 and 6 every registrant holds it.
    held: Option<(u8, HostNumber)>,
    persists: bool,
}

impl ReservationState {
    fn is_holder(&self, host: HostNumber) -> bool {
        match self.held {
            Some((5 | 6, _)) => self.keys.contains_key(&host),
            Some((_, holder)) => holder == host,
            None => false,
        }
    }

    /// Whether a host may read and write.
    fn access(&self, host: HostNumber) -> (bool, bool) {
        let Some((rtype, _)) = self.held else {
            return (true, true);
        };
        let is_registered = self.keys.contains_key(&host);
        let all = self.is_holder(host) || is_registered && rtype >= 3;
        (all || matches!(rtype, 1 | 3 | 5), all)
    }

    /// What a command makes of it; what it answers.
    fn apply(&mut self, host: HostNumber, ask: Ask) -> CommandEnd {
        let mine = self.keys.get(&host).copied();
        match ask {
            Ask::Enroll { key, new, persist } => {
                // A host that is not registered has key 0 (SPC-4, section 5.12.7).
                if key.is_some_and(|key| key != mine.unwrap_or(0)) {
                    return CommandEnd::Conflict;
                }
                self.persists = persist;
                match new {
                    0 => self.leave(host),
                    new => drop(self.keys.insert(host, new)),
                }
            }
            Ask::Register { key, persist } => {
                if mine.is_some_and(|mine| mine != key) {
                    return CommandEnd::Conflict;
                }
                self.keys.insert(host, key);
                self.persists = persist.unwrap_or(self.persists);
            }
            Ask::Unregister { key } | Ask::Replace { key, .. } if mine != Some(key) => {
                return CommandEnd::Conflict;
            }
            Ask::Unregister { .. } => self.leave(host),
            Ask::Replace { new, .. } => {
                self.keys.insert(host, new);
            }
            Ask::Acquire { key, .. }
            | Ask::Preempt { key, .. }
            | Ask::Release { key, .. }
            | Ask::Clear { key }
                if mine != Some(key) =>
            {
                return CommandEnd::Conflict;
            }
            Ask::Acquire { rtype, .. } => match self.held {
                None => self.held = Some((rtype, host)),
                Some((held, _)) if held == rtype && self.is_holder(host) => {}
                Some(_) => return CommandEnd::Conflict,
            },
            Ask::Preempt { victim, rtype, .. } => return self.preempt(host, victim, rtype),
            Ask::Release { rtype, .. } => {
                if self.is_holder(host) {
                    if self.held.is_some_and(|(held, _)| held != rtype) {
                        return CommandEnd::Invalid;
                    }
                    self.held = None;
                }
            }
            Ask::Clear { .. } => {
                self.keys.clear();
                self.held = None;
            }
            Ask::Report => {}
        }
        CommandEnd::Done
    }

    /// A host is registered no more.
    fn leave(&mut self, host: HostNumber) {
        if self.keys.remove(&host).is_none() {
            return;
        }
        match self.held {
            Some((5 | 6, _)) if self.keys.is_empty() => self.held = None,
            Some((1..=4, holder)) if holder == host => self.held = None,
            _ => {}
        }
    }

    /// Whether a report shows this state.
    fn is_told_by(&self, report: &ReservationReport) -> bool {
        let told = self.keys.iter();
        let told: BTreeMap<HostNumber, (u64, bool)> = told
            .map(|(&host, &key)| (host, (key, self.is_holder(host))))
            .collect();
        report.registrants == told
            && report.rtype == self.held.map_or(0, |(rtype, _)| rtype)
            && report.persists == self.persists
    }

    /// The hosts that a command that made `after` of this must have notified, and of
    /// what (Base 2.0, section 8.19).
    fn must_tell(
        &self,
        host: HostNumber,
        ask: Ask,
        after: &ReservationState,
    ) -> Vec<(HostNumber, Notice)> {
        let others = |kind| {
            let all = self.keys.keys().filter(move |&&other| other != host);
            all.map(|&other| (other, kind)).collect()
        };
        let was_of_registrants = matches!(self.held, Some((3..=6, _)));
        match ask {
            Ask::Release { .. } | Ask::Unregister { .. } | Ask::Enroll { new: 0, .. }
                if was_of_registrants && after.held.is_none() =>
            {
                others(notice::RESERVATION_RELEASED)
            }
            Ask::Clear { .. } if self.held.is_some() => others(notice::RESERVATION_PREEMPTED),
            Ask::Preempt { .. } => {
                let mut gone: Vec<_> = others(notice::REGISTRATION_PREEMPTED);
                gone.retain(|(other, _)| !after.keys.contains_key(other));
                gone
            }
            _ => Vec::new(),
        }
    }

    fn preempt(&mut self, host: HostNumber, victim: u64, rtype: u8) -> CommandEnd {
        let takes = match self.held {
            Some((5 | 6, _)) => victim == 0,
            Some((_, holder)) => self.keys.get(&holder) == Some(&victim),
            None => false,
        };
        if takes {
            self.keys
                .retain(|&other, &mut key| other == host || victim != 0 && key != victim);
            self.held = Some((rtype, host));
            return CommandEnd::Done;
        }
        if victim == 0 {
            return CommandEnd::Invalid;
        }
        if !self.keys.values().any(|&key| key == victim) {
            return CommandEnd::Conflict;
        }
        self.keys.retain(|_, &mut key| key != victim);
        CommandEnd::Done
    }

    /// The target starts anew.
    fn restart(&mut self) {
        if !self.persists {
            *self = ReservationState::default();
        }
    }
}

/// What a host could and could not do from some moment on: whether it may be
/// that it may, and whether it may be that it may not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Could {
    may_read: bool,
    may_not_read: bool,
    may_write: bool,
    may_not_write: bool,
}

/// The reservations of one volume, as far as they are known.
pub struct Book {
    states: Vec<ReservationState>,
    pending: Option<(HostNumber, Ask)>,
    /// Of the command under way, or the last one.
    number: u64,
    hosts: usize,
    /// What each host could do, from these moments on.
    timeline: Vec<(Stamp, Vec<Could>)>,
    /// When the command under way began.
    begun: Stamp,
    told: Vec<ToldHosts>,
    /// The last report's generation, and whose keys there were.
    reported: Option<(u32, BTreeMap<HostNumber, u64>)>,
}

impl Book {
    /// Of a volume without any.
    pub fn new(hosts: usize) -> Book {
        let mut book = Book {
            states: vec![ReservationState::default()],
            pending: None,
            number: 0,
            hosts,
            timeline: Vec::new(),
            begun: 0,
            told: Vec::new(),
            reported: None,
        };
        book.note(0);
        book
    }

    /// Whether a command is under way, or may still be.
    pub fn is_busy(&self) -> bool {
        self.pending.is_some()
    }

    /// From `now` on all that is possible is possible.
    fn note(&mut self, now: Stamp) {
        let mut all = self.states.clone();
        all.extend(self.after());
        let could = |host| {
            let mut could = Could::default();
            for (read, write) in all.iter().map(|state| state.access(host)) {
                could.may_read |= read;
                could.may_not_read |= !read;
                could.may_write |= write;
                could.may_not_write |= !write;
            }
            could
        };
        self.timeline
            .push((now, (0..self.hosts).map(could).collect()));
    }

    /// The states that the command under way leads to.
    fn after(&self) -> Vec<ReservationState> {
        let Some((host, ask)) = self.pending else {
            return Vec::new();
        };
        let done = |state: &ReservationState| {
            let mut state = state.clone();
            (state.apply(host, ask) == CommandEnd::Done).then_some(state)
        };
        self.states.iter().filter_map(done).collect()
    }

    fn set(&mut self, mut states: Vec<ReservationState>, now: Stamp) {
        let mut unique: Vec<ReservationState> = Vec::new();
        for state in states.drain(..) {
            if !unique.contains(&state) {
                unique.push(state);
            }
        }
        self.states = unique;
        if self.pending.take().is_some()
            && let Some(told) = self.told.last_mut()
        {
            told.to = told.to.min(now);
        }
        self.note(now);
    }

    /// A command is sent; its number.
    pub fn begin(&mut self, host: HostNumber, ask: Ask, now: Stamp) -> u64 {
        assert!(self.pending.replace((host, ask)).is_none(), "one at a time");
        self.number += 1;
        self.begun = now;
        self.told.push(ToldHosts {
            to: Stamp::MAX,
            kinds: match ask {
                Ask::Unregister { .. } | Ask::Release { .. } | Ask::Enroll { new: 0, .. } => {
                    &[notice::RESERVATION_RELEASED]
                }
                Ask::Clear { .. } => &[notice::RESERVATION_PREEMPTED],
                Ask::Preempt { .. } => {
                    &[notice::REGISTRATION_PREEMPTED, notice::RESERVATION_RELEASED]
                }
                _ => &[],
            },
            hosts: (0..self.hosts)
                .filter(|other| *other != host)
                .filter(|other| self.states.iter().any(|s| s.keys.contains_key(other)))
                .collect(),
        });
        self.note(now);
        self.number
    }

    /// When the last command began.
    pub fn begun(&self) -> Stamp {
        self.begun
    }

    /// The host that asks, and for what, as long as it is under way.
    pub fn asked(&self) -> Option<(HostNumber, Ask)> {
        self.pending
    }

    /// A report was the answer; false where that cannot be.
    pub fn reported(&mut self, report: &ReservationReport, now: Stamp) -> bool {
        let mut left = self.states.clone();
        left.retain(|state| state.is_told_by(report));
        let is_possible = !left.is_empty();
        let keys: BTreeMap<HostNumber, u64> =
            report.registrants.iter().map(|(&h, r)| (h, r.0)).collect();
        // The generation counts changes of registrants (Base 2.0, figure 416).
        let is_later = self.reported.as_ref().is_none_or(|(generation, last)| {
            report.generation > *generation || report.generation == *generation && *last == keys
        });
        self.reported = Some((report.generation, keys));
        self.set(left, now);
        is_possible && is_later
    }

    /// Whether a notification that a host got now, after `since`, may be.
    pub fn may_tell(&self, host: HostNumber, kind: Notice, since: Stamp) -> bool {
        let mut all = self.told.iter().filter(|told| told.to >= since);
        all.any(|told| told.kinds.contains(&kind) && told.hosts.contains(&host))
    }

    /// Whether this command is the one under way: a restart ends them all.
    pub fn awaits(&self, number: u64) -> bool {
        self.pending.is_some() && self.number == number
    }

    /// The hosts that the command under way must have notified, and of what, if it is done.
    pub fn must_tell(&self) -> Vec<(HostNumber, Notice)> {
        let (Some((host, ask)), [before]) = (self.pending, &self.states[..]) else {
            return Vec::new();
        };
        let mut after = before.clone();
        match after.apply(host, ask) {
            CommandEnd::Done => before.must_tell(host, ask, &after),
            _ => Vec::new(),
        }
    }

    /// The command was answered; false where that cannot be.
    pub fn answered(&mut self, end: CommandEnd, now: Stamp) -> bool {
        let (host, ask) = self.pending.expect("a command was under way");
        let mut left = self.states.clone();
        left.retain_mut(|state| {
            let mut after = state.clone();
            let fits = after.apply(host, ask) == end;
            if end == CommandEnd::Done {
                *state = after;
            }
            fits
        });
        let is_possible = !left.is_empty();
        self.set(left, now);
        is_possible
    }

    /// The command may have been carried out or not, and is not any more.
    pub fn unknown(&mut self, now: Stamp) {
        let mut all = self.after();
        all.extend(self.states.iter().cloned());
        self.set(all, now);
    }

    /// The target's process ended, and a new one started.
    pub fn restarted(&mut self, now: Stamp) {
        self.unknown(now);
        self.reported = None;
        let mut states = self.states.clone();
        states.iter_mut().for_each(ReservationState::restart);
        self.set(states, now);
    }

    /// Whether a host certainly may not write now.
    pub fn is_barred(&self, host: HostNumber) -> bool {
        let (_, could) = self.timeline.last().expect("there is a beginning");
        !could[host].may_write
    }

    fn between(&self, from: Stamp, to: Stamp, host: HostNumber) -> Could {
        let mut all = Could::default();
        for (n, (since, could)) in self.timeline.iter().enumerate() {
            let until = self.timeline.get(n + 1).map_or(Stamp::MAX, |next| next.0);
            if *since <= to && from <= until {
                let could = could[host];
                all.may_read |= could.may_read;
                all.may_not_read |= could.may_not_read;
                all.may_write |= could.may_write;
                all.may_not_write |= could.may_not_write;
            }
        }
        all
    }

    /// Whether a command between these moments may have been executed.
    pub fn may_allow(
        &self,
        from: Stamp,
        to: Stamp,
        host: HostNumber,
        reads: bool,
        writes: bool,
    ) -> bool {
        let could = self.between(from, to, host);
        (could.may_read || !reads) && (could.may_write || !writes)
    }

    /// Whether a command between these moments may have been refused.
    pub fn may_refuse(
        &self,
        from: Stamp,
        to: Stamp,
        host: HostNumber,
        reads: bool,
        writes: bool,
    ) -> bool {
        let could = self.between(from, to, host);
        could.may_not_read && reads || could.may_not_write && writes
    }

    /// What a host may ask for: mostly what makes sense, as far as it knows.
    pub fn choose(&self, host: HostNumber, can_persist: bool, random: &mut Random) -> Ask {
        if random.percent(15) {
            return Ask::Report;
        }
        let state = &self.states[0];
        let key = state.keys.get(&host).copied().unwrap_or(host as u64 + 1);
        let rtype = random.between(1, 6) as u8;
        let others: Vec<u64> = state
            .keys
            .iter()
            .filter(|(other, _)| **other != host)
            .map(|(_, key)| *key)
            .collect();
        if !state.keys.contains_key(&host) && random.percent(80) {
            let persist = match can_persist {
                true => random.pick(&[None, Some(true), Some(false)]),
                false => None,
            };
            return Ask::Register { key, persist };
        }
        match random.below(12) {
            0 => Ask::Register {
                key: key + 16,
                persist: None,
            },
            1 => Ask::Unregister { key },
            2 => Ask::Replace { key, new: key + 16 },
            3..6 => Ask::Acquire { key, rtype },
            6..9 if !others.is_empty() => {
                let of_all = matches!(state.held, Some((5 | 6, _)));
                let victim = match of_all && random.percent(50) {
                    true => 0,
                    false => random.pick(&others),
                };
                let aborts = random.percent(50);
                Ask::Preempt {
                    key,
                    victim,
                    rtype,
                    aborts,
                }
            }
            9 => Ask::Clear { key },
            _ => {
                let rtype = state.held.map_or(rtype, |(held, _)| held);
                Ask::Release { key, rtype }
            }
        }
    }
}

impl Book {
    /// What an initiator asks for next.
    pub fn choose_scsi(&self, host: HostNumber, can_persist: bool, random: &mut Random) -> Ask {
        let persist = can_persist && random.percent(50);
        loop {
            return match self.choose(host, can_persist, random) {
                Ask::Report => continue,
                Ask::Register { key, .. } => Ask::Enroll {
                    key: None,
                    new: key,
                    persist,
                },
                Ask::Unregister { key } => Ask::Enroll {
                    key: Some(key),
                    new: 0,
                    persist,
                },
                Ask::Replace { key, new } => Ask::Enroll {
                    key: Some(key),
                    new,
                    persist,
                },
                ask => ask,
            };
        }
    }
}

impl Ask {
    /// The command and its data.
    pub fn encode(self) -> (Sqe, Vec<u8>) {
        if self == Ask::Report {
            let mut sqe = Sqe::new(io::RESERVATION_REPORT);
            sqe.cdw10 = (REPORT_BYTES as u32 / 4 - 1).into();
            sqe.cdw11 = EDS.into();
            return (sqe, Vec::new());
        }
        let (opcode, act, rtype, first, second) = match self {
            Ask::Register { key, .. } => {
                (io::RESERVATION_REGISTER, action::REGISTER, 0, 0, Some(key))
            }
            Ask::Unregister { key } => (
                io::RESERVATION_REGISTER,
                action::UNREGISTER,
                0,
                key,
                Some(0),
            ),
            Ask::Replace { key, new } => {
                (io::RESERVATION_REGISTER, action::REPLACE, 0, key, Some(new))
            }
            Ask::Acquire { key, rtype } => (
                io::RESERVATION_ACQUIRE,
                action::ACQUIRE,
                rtype,
                key,
                Some(0),
            ),
            Ask::Preempt {
                key,
                victim,
                rtype,
                aborts,
            } => {
                let act = match aborts {
                    true => action::PREEMPT_AND_ABORT,
                    false => action::PREEMPT,
                };
                (io::RESERVATION_ACQUIRE, act, rtype, key, Some(victim))
            }
            Ask::Release { key, rtype } => {
                (io::RESERVATION_RELEASE, action::RELEASE, rtype, key, None)
            }
            Ask::Clear { key } => (io::RESERVATION_RELEASE, action::CLEAR, 0, key, None),
            Ask::Report | Ask::Enroll { .. } => unreachable!("told above, or SCSI's"),
        };
        let persist = match self {
            Ask::Register {
                persist: Some(true),
                ..
            } => cptpl::SET,
            Ask::Register {
                persist: Some(false),
                ..
            } => cptpl::CLEAR,
            _ => cptpl::KEEP,
        };
        let mut sqe = Sqe::new(opcode);
        let dword10 = u32::from(act) | u32::from(rtype) << 8 | u32::from(persist) << 30;
        sqe.cdw10 = dword10.into();
        let mut bytes = first.to_le_bytes().to_vec();
        bytes.extend(second.into_iter().flat_map(u64::to_le_bytes));
        (sqe, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGISTER: Ask = Ask::Register {
        key: 1,
        persist: None,
    };

    fn barred(rtype: u8) -> (Book, [(bool, bool); 3]) {
        let mut book = Book::new(3);
        for (host, ask) in [
            (0, REGISTER),
            (
                1,
                Ask::Register {
                    key: 2,
                    persist: None,
                },
            ),
            (0, Ask::Acquire { key: 1, rtype }),
        ] {
            book.begin(host, ask, 1);
            assert!(book.answered(CommandEnd::Done, 2));
        }
        let access = [0, 1, 2].map(|host| {
            let may = |reads, writes| book.may_allow(9, 9, host, reads, writes);
            (may(true, false), may(false, true))
        });
        (book, access)
    }

    /// Base 2.0, section 8.19, the table of command behavior.
    #[test]
    fn each_reservation_type_bars_what_the_standard_says() {
        let (all, read, none) = ((true, true), (true, false), (false, false));
        for (rtype, registrant, stranger) in [
            (1, read, read),
            (2, none, none),
            (3, all, read),
            (4, all, none),
            (5, all, read),
            (6, all, none),
        ] {
            assert_eq!(barred(rtype).1, [all, registrant, stranger], "type {rtype}");
        }
    }

    #[test]
    fn an_unknown_outcome_leaves_both_possible() {
        let (mut book, _) = barred(1);
        book.begin(0, Ask::Release { key: 1, rtype: 1 }, 10);
        assert!(
            book.may_allow(10, 10, 2, false, true),
            "while it is under way"
        );
        book.unknown(11);
        assert!(book.may_allow(12, 12, 2, false, true));
        assert!(book.may_refuse(12, 12, 2, false, true));
        // What is learned later settles it.
        book.begin(1, Ask::Acquire { key: 2, rtype: 2 }, 13);
        assert!(book.answered(CommandEnd::Conflict, 14));
        assert!(!book.may_allow(15, 15, 2, false, true));
        book.restarted(16);
        assert!(
            !book.may_refuse(17, 17, 2, true, true),
            "it did not persist"
        );
    }

    #[test]
    fn an_impossible_answer_is_found() {
        let (mut book, _) = barred(1);
        book.begin(1, Ask::Acquire { key: 2, rtype: 1 }, 10);
        assert!(!book.answered(CommandEnd::Done, 11));
    }

    #[test]
    fn a_preempted_holder_is_barred() {
        let (mut book, _) = barred(3);
        let preempt = Ask::Preempt {
            key: 2,
            victim: 1,
            rtype: 1,
            aborts: false,
        };
        book.begin(1, preempt, 10);
        assert!(!book.is_barred(0));
        assert!(book.answered(CommandEnd::Done, 11));
        assert!(book.is_barred(0) && !book.is_barred(1));
        // Key 1 is gone: nothing more to preempt.
        book.begin(1, preempt, 12);
        assert!(book.answered(CommandEnd::Conflict, 13));
    }
}
