//! Names of owners and groups (RFC 8881, section 5.9), for clients on which a user is called as
//! here and has another number: those whose users prove who they are, or all.
//!
//! A table of the configuration comes before the database of users. The database of users may block. What is not known yet is asked for, and the client comes
//! again (NFS4ERR_DELAY); what is known for long is told, and asked for anew.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use auth::user::{AccountKind, Accounts, AccountsUnavailable};
use machine::{Nanos, locked};
use wire::nfs4::nfsstat4;

/// For how long what is known is told without asking anew.
const FRESH: Nanos = 600 * 1_000_000_000;
/// For how long where the database could not be asked.
const RETRY: Nanos = 10 * 1_000_000_000;
/// Answers that are kept at most; where there are more, all are asked for anew.
const KNOWN_MAX: usize = 16 * 1024;
/// Questions under way at most; what is asked beyond comes again.
const ASKED_MAX: usize = 1024;
/// Of these, those of one host.
const ASKED_OF_HOST_MAX: usize = 256;
/// Bytes of a name at most.
const NAME_BYTES_MAX: usize = 256;

/// What is asked of the database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum OwnerQuestion {
    Name(AccountKind, u32),
    Number(AccountKind, Box<str>),
}

/// What it has said.
#[derive(Clone, Debug)]
enum OwnerAnswer {
    /// `user@domain`.
    Name(Option<Arc<str>>),
    Number(Option<u32>),
}

/// How owners are named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerNaming {
    /// What stands behind the `@`, for every client; `None`: owners have names for users that
    /// prove who they are alone, if those have a domain.
    pub domain: Option<String>,
    /// Users that the database is not asked for.
    pub user_ids: Vec<(String, u32)>,
    /// Groups, likewise.
    pub group_ids: Vec<(String, u32)>,
}

impl OwnerNaming {
    fn ids(&self, kind: AccountKind) -> &[(String, u32)] {
        match kind {
            AccountKind::User => &self.user_ids,
            AccountKind::Group => &self.group_ids,
        }
    }
}

/// The names that are known.
#[derive(Default)]
pub struct Owners {
    state: Mutex<KnownOwners>,
    is_asked: AtomicBool,
    is_for_all: AtomicBool,
}

#[derive(Default)]
struct KnownOwners {
    /// `None`: owners have numbers alone.
    domain: Option<Arc<str>>,
    /// What comes before the database.
    table: HashMap<OwnerQuestion, OwnerAnswer>,
    /// With until when each is fresh.
    known: HashMap<OwnerQuestion, (OwnerAnswer, Nanos)>,
    /// With the host that was first to ask, and when; `None` of those under way.
    asked: HashMap<OwnerQuestion, (u64, Option<Nanos>)>,
    /// How many each host has among them.
    hosts: HashMap<u64, usize>,
}

/// A question for the database.
pub struct Question {
    domain: Arc<str>,
    asked: OwnerQuestion,
    host: u64,
    since: Nanos,
}

impl Question {
    /// The host whose turn it takes, as of [`Asker::host`](store::fs::Asker::host).
    pub fn host(&self) -> u64 {
        self.host
    }
}

impl KnownOwners {
    /// Notes a question, unless there are too many.
    fn ask(&mut self, question: OwnerQuestion, (host, now): AskedBy) -> bool {
        let of_host = self.hosts.get(&host).copied().unwrap_or(0);
        let is_one_more = self.asked.len() < ASKED_MAX
            && of_host < ASKED_OF_HOST_MAX
            && !self.asked.contains_key(&question);
        if is_one_more {
            self.hosts.insert(host, of_host + 1);
            self.asked.insert(question, (host, Some(now)));
        }
        is_one_more
    }

    /// What was answered last, or that there is no such name or number.
    fn known_or_none(&self, question: &OwnerQuestion) -> OwnerAnswer {
        let known = self.known.get(question).map(|(answer, _)| answer.clone());
        known.unwrap_or(match question {
            OwnerQuestion::Name(..) => OwnerAnswer::Name(None),
            OwnerQuestion::Number(..) => OwnerAnswer::Number(None),
        })
    }

    fn answered(&mut self, question: &OwnerQuestion) {
        let Some((host, _)) = self.asked.remove(question) else {
            return;
        };
        if let Some(count) = self.hosts.get_mut(&host) {
            *count -= 1;
            if *count == 0 {
                self.hosts.remove(&host);
            }
        }
    }
}

/// The host that asks, as of [`Asker::host`](store::fs::Asker::host), and when.
pub type AskedBy = (u64, Nanos);

impl Owners {
    /// Owners are named so from now on; where that has no domain, with `of_proven` behind the `@`
    /// for users that prove who they are.
    pub fn set_naming(&self, naming: &OwnerNaming, of_proven: Option<&str>) {
        let domain = naming.domain.as_deref().or(of_proven);
        let mut table = HashMap::new();
        for kind in [AccountKind::User, AccountKind::Group] {
            for (name, id) in domain.iter().flat_map(|_| naming.ids(kind)) {
                let whole = format!("{name}@{}", domain.unwrap_or_default());
                let number = OwnerQuestion::Number(kind, name.as_str().into());
                table.insert(number, OwnerAnswer::Number(Some(*id)));
                // Of several names of a number the first is told.
                let name = table.entry(OwnerQuestion::Name(kind, *id));
                name.or_insert_with(|| OwnerAnswer::Name(Some(whole.into())));
            }
        }
        let domain = domain.map(Arc::from);
        self.is_for_all
            .store(naming.domain.is_some(), Ordering::Release);
        *locked(&self.state) = KnownOwners {
            domain,
            table,
            ..KnownOwners::default()
        };
    }

    /// Whether they have names for users, too, that have not proved who they are.
    #[inline]
    pub(crate) fn are_for_all(&self) -> bool {
        self.is_for_all.load(Ordering::Acquire)
    }

    /// The name of a number, if it has one.
    ///
    /// # Errors
    /// NFS4ERR_DELAY where that is asked for.
    pub fn name(
        &self,
        kind: AccountKind,
        id: u32,
        by: AskedBy,
    ) -> Result<Option<Arc<str>>, nfsstat4> {
        let mut state = locked(&self.state);
        if state.domain.is_none() {
            return Ok(None);
        }
        match self.look_up(&mut state, OwnerQuestion::Name(kind, id), by)? {
            OwnerAnswer::Name(name) => Ok(name),
            OwnerAnswer::Number(_) => unreachable!("a name was asked for"),
        }
    }

    /// The number of a name, `user@domain`.
    ///
    /// # Errors
    /// NFS4ERR_BADOWNER where there is none, NFS4ERR_DELAY where that is asked for.
    pub(crate) fn number(
        &self,
        kind: AccountKind,
        name: &[u8],
        by: AskedBy,
    ) -> Result<u32, nfsstat4> {
        let bad = nfsstat4::NFS4ERR_BADOWNER;
        let text = std::str::from_utf8(name).map_err(|_| bad)?;
        let (name, domain) = text.rsplit_once('@').ok_or(bad)?;
        let mut state = locked(&self.state);
        let own = state.domain.as_ref().ok_or(bad)?;
        if !own.eq_ignore_ascii_case(domain) || name.len() > NAME_BYTES_MAX || name.contains('\0') {
            return Err(bad);
        }
        match self.look_up(&mut state, OwnerQuestion::Number(kind, name.into()), by)? {
            OwnerAnswer::Number(number) => number.ok_or(bad),
            OwnerAnswer::Name(_) => unreachable!("a number was asked for"),
        }
    }

    fn look_up(
        &self,
        state: &mut KnownOwners,
        question: OwnerQuestion,
        by: AskedBy,
    ) -> Result<OwnerAnswer, nfsstat4> {
        if let Some(answer) = state.table.get(&question) {
            return Ok(answer.clone());
        }
        let known = state.known.get(&question).cloned();
        if let Some((answer, until)) = &known
            && by.1 < *until
        {
            return Ok(answer.clone());
        }
        if state.ask(question, by) {
            self.is_asked.store(true, Ordering::Release);
        }
        known
            .map(|(answer, _)| answer)
            .ok_or(nfsstat4::NFS4ERR_DELAY)
    }

    /// What is to be asked of the database, if anything.
    #[inline]
    pub fn take_questions(&self) -> Vec<Question> {
        match self.is_asked.load(Ordering::Acquire) {
            true => self.take_asked(),
            false => Vec::new(),
        }
    }

    #[cold]
    fn take_asked(&self) -> Vec<Question> {
        let mut state = locked(&self.state);
        self.is_asked.store(false, Ordering::Release);
        let Some(domain) = state.domain.clone() else {
            return Vec::new();
        };
        let asked = state.asked.iter_mut();
        let asked = asked.filter_map(|(asked, (host, since))| {
            Some(Question {
                domain: domain.clone(),
                asked: asked.clone(),
                host: *host,
                since: since.take()?,
            })
        });
        asked.collect()
    }

    /// Asks the database, and keeps what it says. It blocks. One that cannot be asked leaves what
    /// was known, and else owners have numbers alone for a while.
    pub fn answer(&self, question: Question, accounts: &dyn Accounts) {
        let Question { domain, asked, .. } = question;
        let answer = match &asked {
            OwnerQuestion::Name(kind, id) => accounts
                .name(*kind, *id)
                .map(|name| OwnerAnswer::Name(name.map(|name| format!("{name}@{domain}").into()))),
            OwnerQuestion::Number(kind, name) => {
                accounts.number(*kind, name).map(OwnerAnswer::Number)
            }
        };
        let mut state = locked(&self.state);
        // Another domain was set meanwhile: what is kept is of that.
        if state.domain.as_ref() != Some(&domain) {
            return;
        }
        let (answer, time) = match answer {
            Ok(answer) => (answer, FRESH),
            Err(AccountsUnavailable) => (state.known_or_none(&asked), RETRY),
        };
        if state.known.len() >= KNOWN_MAX {
            state.known.clear();
        }
        state.answered(&asked);
        let until = question.since.saturating_add(time);
        state.known.insert(asked, (answer, until));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use AccountKind::{Group, User};

    /// One user and one group, how often they were asked for, and whether they cannot be.
    #[derive(Default)]
    struct Few(AtomicUsize, AtomicBool);

    impl Few {
        fn ask<T>(&self, answer: Option<T>) -> Result<Option<T>, AccountsUnavailable> {
            self.0.fetch_add(1, Ordering::Relaxed);
            match self.1.load(Ordering::Relaxed) {
                true => Err(AccountsUnavailable),
                false => Ok(answer),
            }
        }
    }

    impl Accounts for Few {
        fn name(&self, kind: AccountKind, id: u32) -> Result<Option<String>, AccountsUnavailable> {
            self.ask(match (kind, id) {
                (User, 7) => Some("alice".to_owned()),
                (Group, 8) => Some("staff".to_owned()),
                _ => None,
            })
        }

        fn groups(&self, _: u32) -> Result<Vec<u32>, AccountsUnavailable> {
            unreachable!("owners have names alone")
        }

        fn number(
            &self,
            kind: AccountKind,
            name: &str,
        ) -> Result<Option<u32>, AccountsUnavailable> {
            self.ask(match (kind, name) {
                (User, "alice") => Some(7),
                (Group, "staff") => Some(8),
                _ => None,
            })
        }
    }

    const DELAY: nfsstat4 = nfsstat4::NFS4ERR_DELAY;
    const BAD: nfsstat4 = nfsstat4::NFS4ERR_BADOWNER;

    fn owners() -> (Owners, Few) {
        let owners = Owners::default();
        owners.set_naming(&OwnerNaming::default(), Some("example.org"));
        (owners, Few::default())
    }

    fn settle(owners: &Owners, few: &Few) {
        for question in owners.take_questions() {
            owners.answer(question, few);
        }
    }

    #[test]
    fn name_and_number_are_known_once_the_database_has_answered() {
        let (owners, few) = owners();
        let name = |kind, id| {
            owners
                .name(kind, id, (1, 0))
                .map(|name| name.map(|n| n.to_string()))
        };
        let number = |kind, name: &str| owners.number(kind, name.as_bytes(), (1, 0));
        for _ in 0..3 {
            assert_eq!(name(User, 7), Err(DELAY));
            assert_eq!(name(User, 9), Err(DELAY));
            assert_eq!(number(Group, "staff@EXAMPLE.org"), Err(DELAY));
            assert_eq!(number(Group, "alice@example.org"), Err(DELAY));
        }
        settle(&owners, &few);
        assert_eq!(few.0.load(Ordering::Relaxed), 4, "each is asked for once");
        assert_eq!(name(User, 7), Ok(Some("alice@example.org".to_owned())));
        assert_eq!(name(User, 9), Ok(None));
        assert_eq!(number(Group, "staff@example.org"), Ok(8));
        assert_eq!(number(Group, "alice@example.org"), Err(BAD));
        assert!(owners.take_questions().is_empty());
    }

    #[test]
    fn table_comes_before_the_database_and_of_two_names_tells_the_first() {
        let few = Few::default();
        let owners = Owners::default();
        let ids = |ids: &[(&str, u32)]| {
            let ids = ids.iter().map(|(name, id)| ((*name).to_owned(), *id));
            ids.collect()
        };
        let naming = OwnerNaming {
            domain: Some("example.org".to_owned()),
            user_ids: ids(&[("bob", 7), ("alice", 9), ("robert", 7)]),
            group_ids: ids(&[("wheel", 7)]),
        };
        owners.set_naming(&naming, Some("other.org"));
        assert!(owners.are_for_all());
        let number = |kind, name: &str| owners.number(kind, name.as_bytes(), (1, 0));
        let name = |kind, id| {
            let name = owners.name(kind, id, (1, 0));
            name.map(|name| name.map(|name| name.to_string()))
        };
        assert_eq!(number(User, "bob@example.org"), Ok(7));
        assert_eq!(number(User, "robert@Example.org"), Ok(7));
        assert_eq!(number(User, "alice@example.org"), Ok(9));
        assert_eq!(number(Group, "wheel@example.org"), Ok(7));
        assert_eq!(number(User, "bob@other.org"), Err(BAD));
        assert_eq!(name(User, 7), Ok(Some("bob@example.org".to_owned())));
        assert_eq!(name(Group, 7), Ok(Some("wheel@example.org".to_owned())));
        assert!(owners.take_questions().is_empty(), "the table knows");
        assert_eq!(name(Group, 8), Err(DELAY));
        settle(&owners, &few);
        assert_eq!(name(Group, 8), Ok(Some("staff@example.org".to_owned())));
        owners.set_naming(&OwnerNaming::default(), Some("example.org"));
        assert!(!owners.are_for_all());
        assert_eq!(number(User, "bob@example.org"), Err(DELAY));
    }

    #[test]
    fn names_that_are_none_of_the_domain_are_bad_without_a_question() {
        let (owners, _) = owners();
        let long = format!("{}@example.org", "a".repeat(NAME_BYTES_MAX + 1));
        let texts: [&[u8]; 5] = [
            b"alice",
            b"alice@other.org",
            b"\xff@example.org",
            b"a\0@example.org",
            long.as_bytes(),
        ];
        for text in texts {
            assert_eq!(owners.number(User, text, (1, 0)), Err(BAD));
        }
        owners.set_naming(&OwnerNaming::default(), None);
        assert_eq!(owners.number(User, b"alice@example.org", (1, 0)), Err(BAD));
        assert_eq!(owners.name(User, 7, (1, 0)), Ok(None));
        assert!(owners.take_questions().is_empty());
    }

    #[test]
    fn answer_that_is_old_is_told_and_asked_for_anew() {
        let (owners, few) = owners();
        assert!(owners.name(User, 7, (1, 0)).is_err());
        settle(&owners, &few);
        for (now, asked) in [(FRESH - 1, 1), (FRESH, 2), (FRESH + 1, 2)] {
            assert!(owners.name(User, 7, (1, now)).is_ok(), "{now}");
            settle(&owners, &few);
            assert_eq!(few.0.load(Ordering::Relaxed), asked, "{now}");
        }
    }

    #[test]
    fn database_that_fails_is_asked_again_soon_and_what_was_known_is_told_meanwhile() {
        let (owners, few) = owners();
        let name = |id, now| owners.name(User, id, (1, now)).map(|name| name.is_some());
        assert_eq!(name(7, 0), Err(DELAY));
        settle(&owners, &few);
        few.1.store(true, Ordering::Relaxed);
        // Known, and old; and never known.
        assert_eq!((name(7, FRESH), name(8, FRESH)), (Ok(true), Err(DELAY)));
        let number = |now| owners.number(User, b"alice@example.org", (1, now));
        assert_eq!(number(FRESH), Err(DELAY));
        settle(&owners, &few);
        assert_eq!((name(7, FRESH), name(8, FRESH)), (Ok(true), Ok(false)));
        assert_eq!(number(FRESH), Err(BAD));
        assert!(owners.take_questions().is_empty(), "not at once");
        few.1.store(false, Ordering::Relaxed);
        assert_eq!(number(FRESH + RETRY), Err(BAD));
        settle(&owners, &few);
        assert_eq!(number(FRESH + RETRY), Ok(7));
        assert_eq!(number(2 * FRESH + RETRY - 1), Ok(7));
    }

    #[test]
    fn answer_for_another_domain_is_not_kept_and_questions_have_a_bound() {
        let (owners, few) = owners();
        assert!(owners.name(User, 7, (1, 0)).is_err());
        let mut questions = owners.take_questions();
        owners.set_naming(&OwnerNaming::default(), Some("other.org"));
        owners.answer(questions.remove(0), &few);
        assert_eq!(owners.name(User, 7, (1, 0)), Err(DELAY));
        settle(&owners, &few);
        let mut ids = 0..;
        for host in 0..2 * (ASKED_MAX / ASKED_OF_HOST_MAX) as u64 {
            for id in ids.by_ref().take(2 * ASKED_OF_HOST_MAX) {
                assert_eq!(owners.name(Group, id, (host, 0)), Err(DELAY));
            }
            let asked = locked(&owners.state).asked.len();
            let whole = ASKED_OF_HOST_MAX * (host as usize + 1);
            assert_eq!(asked, whole.min(ASKED_MAX), "each host has its share");
        }
        assert_eq!(owners.take_questions().len(), ASKED_MAX);
        settle(&owners, &few);
    }
}
