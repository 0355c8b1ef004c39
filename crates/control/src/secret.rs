//! Keys for TLS, CHAP names and secrets, and those of DH-HMAC-CHAP: from places of their own or
//! from the configuration itself, and shown nowhere.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use auth::dhchap::DhchapKey;
use auth::psk::Psk;
use auth::{HostDhchap, HostPsk, KEY_FILE_BYTES_MAX, Secret, parse_keys};
use iscsi::Credentials;
use tls::{KeyNow, SecretPlace};

use crate::Origin;
use crate::schema::SCHEMA;
use crate::source::{Section, Sink};
use crate::without_secrets::check_is_shown;

/// Bytes of a secret with the end of its line, and one more: what is longer is refused.
const SECRET_TEXT_BYTES: usize = Secret::LEN_MAX + 3;

/// What the places of secrets had when they could be read last: a process that serves goes by
/// that while one of them cannot be, so that no host waits for the file of another.
#[derive(Debug, Default)]
pub struct SecretsRead {
    by_place: BTreeMap<SecretPlace, Secret>,
    /// What stands for secrets that were taken back since: one each that no peer has, as long as
    /// the place has no other.
    withdrawn: BTreeMap<SecretPlace, Secret>,
    /// What places had of which no secret could be made, and how many bytes of them were read
    /// at most.
    unusable: BTreeMap<SecretPlace, (Secret, usize)>,
    kept: Vec<String>,
}

impl SecretsRead {
    /// What could not be read, and by what is gone meanwhile, a line each.
    #[must_use]
    pub fn kept(&self) -> &[String] {
        &self.kept
    }

    /// Whether a key of the kernel is another than it was when it was read, was revoked or has
    /// expired: what is served then is to be read again.
    #[must_use]
    pub fn has_other_keys(&self) -> bool {
        let mut places = self.by_place.iter();
        places.any(|(place, before)| match place.key_now() {
            KeyNow::Read(now) => match self.unusable.get(place) {
                Some((known, most)) => now.bytes()[..now.len().min(*most)] != *known.bytes(),
                None => now != *before || self.withdrawn.contains_key(place),
            },
            KeyNow::Withdrawn => !self.withdrawn.contains_key(place),
            KeyNow::Unreadable => false,
        })
    }
}

/// What stands for a secret that was taken back.
fn stand_in() -> Secret {
    let mut bytes = [0; 32];
    reactor::must_fill_random(&mut bytes);
    Secret::withdrawn(bytes)
}

/// The secrets that were read so far: those of one side are not the other's.
pub(crate) struct Secrets<'o> {
    origin: &'o Origin<'o>,
    before: &'o SecretsRead,
    now: RefCell<SecretsRead>,
    list: Vec<KnownFile>,
}

struct KnownFile {
    secret: Secret,
    /// Weft proves its own name by it.
    is_mutual: bool,
    span: Range<usize>,
}

impl<'o> Secrets<'o> {
    /// None yet; `before`: what was read of an earlier text.
    pub fn new(origin: &'o Origin<'o>, before: &'o SecretsRead) -> Self {
        Secrets {
            origin,
            before,
            now: RefCell::default(),
            list: Vec::new(),
        }
    }

    /// What was read.
    pub fn into_read(self) -> SecretsRead {
        self.now.into_inner()
    }

    /// The keys for TLS of the host `nqn` that `psk_file` names, if it is there.
    pub fn psks(&self, sink: &mut Sink, section: &Section, names: (&str, &str)) -> Vec<HostPsk> {
        let placed = self.placed_psks(sink, section, names);
        let (mut keys, stand_in) = placed.unwrap_or_default();
        if stand_in.is_some() {
            // The host needs TLS still, and is told that its key is good no longer.
            keys.iter_mut().for_each(HostPsk::withdraw);
        }
        keys
    }

    /// The key for TLS by which weft itself connects as the host `nqn`, likewise: the first.
    pub fn own_psk(&self, sink: &mut Sink, section: &Section, names: (&str, &str)) -> Option<Psk> {
        let (keys, stand_in) = self.placed_psks(sink, section, names)?;
        match stand_in {
            Some(stand_in) => Psk::generated(stand_in),
            None => keys.into_iter().next().map(|first| first.key),
        }
    }

    /// The keys for TLS, and what stands for them if they were taken back.
    fn placed_psks(
        &self,
        sink: &mut Sink,
        section: &Section,
        (nqn, subnqn): (&str, &str),
    ) -> Option<(Vec<HostPsk>, Option<Secret>)> {
        let made = format!(
            "`weft key new FILE --host {nqn} --subsystem {subnqn}` makes one, for the host too"
        );
        self.placed(
            sink,
            section,
            "psk_file",
            (KEY_FILE_BYTES_MAX + 1, &made),
            |key| parse_keys(key.bytes()),
        )
    }

    /// The credentials under `key`, `chap` or `mutual_chap`, if that is there.
    pub fn credentials(
        &mut self,
        sink: &mut Sink,
        section: &Section,
        key: &'static str,
        title: &'static str,
    ) -> Option<Credentials> {
        let section = section.table(sink, SCHEMA, key, title)?;
        section.missing(sink, "user", "user = \"alice\"");
        let user = section.text(sink, "user");
        if let Some(user) = &user
            && let Err(why) = server::check::chap_user(user.value)
        {
            sink.add(&user.span, why);
        }
        let named = user.as_ref().map_or("the user", |user| user.value);
        let secret = self.secret(sink, &section, named);
        let (user, (secret, span)) = (user?.value.to_owned(), secret?);
        self.list.push(KnownFile {
            secret: secret.clone(),
            is_mutual: key == "mutual_chap",
            span,
        });
        Some(Credentials { user, secret })
    }

    fn secret(
        &self,
        sink: &mut Sink,
        section: &Section,
        user: &str,
    ) -> Option<(Secret, Range<usize>)> {
        if !section.has("secret") {
            section.missing(sink, "secret_file", "secret_file = \"alice.secret\"");
        }
        let made = format!("write the secret of {user} to it, and no other line");
        let names = ("secret", "secret_file");
        let placed = (SECRET_TEXT_BYTES, &*made);
        let secret = self.made(sink, section, names, placed, |secret| {
            server::check::chap_secret(secret)?;
            Ok(secret.clone())
        });
        secret.map(|(secret, stand_in, span)| (stand_in.unwrap_or(secret), span))
    }

    /// The secrets of DH-HMAC-CHAP of `nqn` under one of two names, if it is there: in a file
    /// there may be several.
    pub fn dhchap_keys(
        &self,
        sink: &mut Sink,
        section: &Section,
        names: (&'static str, &'static str),
        nqn: &str,
    ) -> Option<Vec<HostDhchap>> {
        self.dhchap(sink, section, names, nqn, |_| Ok(()))
    }

    /// The secret of DH-HMAC-CHAP that a controller proves itself by, likewise: the only one.
    pub fn dhchap_key(
        &self,
        sink: &mut Sink,
        section: &Section,
        names: (&'static str, &'static str),
        nqn: &str,
    ) -> Option<DhchapKey> {
        let is_only = |keys: &[HostDhchap]| match keys {
            [HostDhchap { until: None, .. }] => Ok(()),
            _ => Err(
                "a controller proves itself by one secret, which is good for good: leave one \
                 line there, without `until`, and give it to the hosts"
                    .to_owned(),
            ),
        };
        let keys = self.dhchap(sink, section, names, nqn, is_only)?;
        keys.into_iter().next().map(|only| only.key)
    }

    /// The secrets of either side, which `check` looks at.
    fn dhchap(
        &self,
        sink: &mut Sink,
        section: &Section,
        names: (&'static str, &'static str),
        nqn: &str,
        check: impl Fn(&[HostDhchap]) -> Result<(), String>,
    ) -> Option<Vec<HostDhchap>> {
        let made = format!(
            "`weft key new FILE --dhchap --host NQN --subsystem NQN` or `umask 077; nvme gen-dhchap-key --nqn={nqn} > FILE` makes one"
        );
        let placed = (KEY_FILE_BYTES_MAX + 1, &*made);
        let keys = self.made(sink, section, names, placed, |secret| {
            let keys = parse_keys(secret.bytes())?;
            check(&keys)?;
            Ok(keys)
        });
        keys.map(|(keys, stand_in, _)| match stand_in {
            Some(stand_in) => vec![DhchapKey::withdrawn(stand_in).into()],
            None => keys,
        })
    }

    /// What `make` makes of the secret that stands under the first of two names, or in the place
    /// that the second names, what stands for it if it was taken back, and where that is. The
    /// place has `most` bytes at most; `made` says how they come to be there.
    fn made<T>(
        &self,
        sink: &mut Sink,
        section: &Section,
        (itself, in_file): (&'static str, &'static str),
        (most, made): (usize, &str),
        make: impl Fn(&Secret) -> Result<T, String>,
    ) -> Option<(T, Option<Secret>, Range<usize>)> {
        let key = match (section.has(itself), section.has(in_file)) {
            (true, true) => {
                let text = format!(
                    "`{itself}` and `{in_file}` contradict each other; keep `{in_file}` alone"
                );
                sink.add(&section.span_of(itself), text);
                return None;
            }
            (true, false) => itself,
            (false, true) => in_file,
            (false, false) => return None,
        };
        let span = section.span_of(key);
        if key == in_file {
            let of_line = |secret: &Secret| make(&line_of(secret));
            let placed = self.placed(sink, section, key, (most, made), of_line);
            return placed.map(|(made, stand_in)| (made, stand_in, span));
        }
        let text = section.text(sink, key)?;
        let access = self.origin.access;
        let private = access.map_or(Ok(()), |access| access.check_private("the configuration"));
        let private = private.and_then(|()| check_is_shown(text.value));
        let private = private.map_err(|why| format!("{why}, or use `{in_file}`"));
        match private.and_then(|()| make(&Secret::new(text.value.as_bytes()))) {
            Ok(made) => Some((made, None, span)),
            Err(why) => {
                sink.add(&span, format!("`{key}`: {why}"));
                None
            }
        }
    }

    /// What `make` makes of the secret in the place that `key` names, if it is there; of what
    /// the place had before, where it cannot be read, and what stands for that if it was taken
    /// back.
    fn placed<T>(
        &self,
        sink: &mut Sink,
        section: &Section,
        key: &'static str,
        (most, made): (usize, &str),
        make: impl Fn(&Secret) -> Result<T, String>,
    ) -> Option<(T, Option<Secret>)> {
        let text = section.text(sink, key)?;
        let mut wrong = |why: &str| {
            sink.add(&text.span, format!("`{key}`: {why}"));
            None
        };
        if text.value.is_empty() {
            return wrong("it is empty");
        }
        let place = match SecretPlace::parse(text.value, self.origin.folder) {
            Ok(place) => place,
            Err(why) => return wrong(&why),
        };
        let mut now = self.now.borrow_mut();
        let read = place.read(most, made).and_then(|secret| {
            let made = make(&secret).map_err(|why| format!("{place}: {why}"));
            match made.is_ok() {
                true => drop(now.by_place.insert(place.clone(), secret)),
                false => drop(now.unusable.insert(place.clone(), (secret, most))),
            }
            made
        });
        let why = match read {
            Ok(made) => return Some((made, None)),
            Err(why) => why,
        };
        let before = self.before.by_place.get(&place);
        let Some((secret, made)) = before.and_then(|secret| Some((secret, make(secret).ok()?)))
        else {
            return wrong(&why);
        };
        let known = self.before.withdrawn.get(&place);
        let known = known.or_else(|| now.withdrawn.get(&place)).cloned();
        let is_withdrawn = || matches!(place.key_now(), KeyNow::Withdrawn);
        let stand_in = known.or_else(|| is_withdrawn().then(stand_in));
        let holds = match stand_in.is_some() {
            true => "What was read before is good for nothing any more",
            false => "What was read before stays good until weft ends",
        };
        now.kept.push(format!(
            "line {}, `{key}`: {why}. {holds}",
            sink.line(&text.span)
        ));
        now.by_place.insert(place.clone(), secret.clone());
        if let Some(stand_in) = &stand_in {
            now.withdrawn.insert(place, stand_in.clone());
        }
        Some((made, stand_in))
    }

    /// Reports secrets by which both sides prove themselves (RFC 7143, section
    /// 9.2.1).
    pub fn compare(&self, sink: &mut Sink) {
        let (own, theirs): (Vec<_>, Vec<_>) = self.list.iter().partition(|known| known.is_mutual);
        for own in own {
            if let Some(other) = theirs.iter().find(|known| known.secret == own.secret) {
                let line = sink.line(&other.span);
                let before = "an initiator proves itself by the same secret, ";
                let after = ": weft needs one of its own";
                sink.add_with_line(&own.span, (before, line, after));
            }
        }
    }
}

/// Without the end of its line.
fn line_of(secret: &Secret) -> Secret {
    let bytes = secret.bytes();
    let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    Secret::new(line.strip_suffix(b"\r").unwrap_or(line))
}
