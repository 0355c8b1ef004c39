//! What importers of iSCSI targets share.

use server::check;

use crate::Import;
use crate::model::{Login, LoginPair, TargetModel};
use crate::report::Weight::{Access, Lost};
use crate::tree::{SourceKey, flag, number};
use crate::{note, write};

/// The lengths that a CHAP secret of weft's has.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 12..=255;

impl Import<'_> {
    /// Begins with a target, unless weft cannot serve one of this name, which is told.
    pub(crate) fn target(&mut self, at: &SourceKey, name: &str) -> Option<TargetModel> {
        let name = match iscsi::check_target_name(name) {
            Ok(name) => name,
            Err(why) => {
                self.fits::<_>(at, Err(format!("{name:?}: {why}")));
                return None;
            }
        };
        let number = self.model.targets.len();
        if self.named.insert(name.clone(), number).is_some() {
            let text = format!("a target {name} is there already: give each its own name");
            self.report.mistake(at.place, text);
            return None;
        }
        let mut target = TargetModel {
            name,
            portals: Some(Vec::new()),
            has_weak_chap: true,
            ..TargetModel::default()
        };
        target.notes.set("name", note(at));
        target
            .notes
            .set("portal_groups", "the portals of the source");
        Some(target)
    }

    /// A user and a secret; `None` if weft could not take them, which is told.
    pub(crate) fn login(&mut self, at: &SourceKey, user: &str, secret: &str) -> Option<Login> {
        let why = match check::chap_user(user) {
            Err(why) => why,
            Ok(()) if SECRET_BYTES.contains(&secret.len()) => {
                return Some(Login {
                    user: user.to_owned(),
                    secret: secret.to_owned(),
                });
            }
            Ok(()) => format!(
                "the CHAP secret of {user} has {} bytes, weft takes {} to {}: give it another, \
                 there and here",
                secret.len(),
                SECRET_BYTES.start(),
                SECRET_BYTES.end()
            ),
        };
        let why = format!("{why}; who needs it is left out");
        self.report.add(at.place, "secret", Access, why);
        None
    }

    /// Both directions of CHAP. Both sides must not prove themselves by one secret.
    pub(crate) fn logins(
        &mut self,
        at: &SourceKey,
        chap: (&str, &str),
        mutual: Option<(&str, &str)>,
    ) -> Option<LoginPair> {
        let (user, secret) = chap;
        let chap = self.login(at, user, secret)?;
        let mutual = match mutual {
            None => None,
            Some((_, own)) if own == secret => {
                let why = "both sides prove themselves by one secret (RFC 7143, section 9.2.1 \
                           forbids it): weft does not prove itself here";
                self.report.add(at.place, "secret", Access, why);
                None
            }
            Some((user, secret)) => self.login(at, user, secret),
        };
        let chap = Some(chap);
        Some(LoginPair { chap, mutual })
    }

    /// An initiator's name as weft compares it.
    pub(crate) fn initiator(&mut self, at: &SourceKey, name: &str) -> Option<String> {
        match iscsi::check_initiator_name(name) {
            Ok(name) => Some(name),
            Err(why) => {
                self.fits::<_>(at, Err(format!("{name:?}: {why}")));
                None
            }
        }
    }

    /// What people call a target.
    pub(crate) fn alias(&mut self, at: &SourceKey, target: &mut TargetModel) {
        let Some(alias) = at.word() else { return };
        match check::alias(alias) {
            Ok(()) => {
                target.alias = Some(alias.to_owned());
                target.notes.set("alias", note(at));
            }
            Err(why) => self.report.add(at.place, &at.name, Lost, why),
        }
    }

    /// A limit of RFC 7143 under its own name, where it is not the source's default.
    pub(crate) fn term(&mut self, at: &SourceKey, target: &mut TargetModel, default: &str) {
        let Some(word) = at.word() else { return };
        if word.eq_ignore_ascii_case(default) {
            return;
        }
        let found = TERMS.iter().find(|row| row.name == at.name);
        let Some(row) = found else { return };
        match row.value(word) {
            Some(value) => {
                target.terms.insert(row.key, value);
                target.notes.set(row.key, note(at));
            }
            None => {
                let why = format!(
                    "`{}` of weft does not go so far: it has its default",
                    row.key
                );
                self.report.add(at.place, &at.name, Lost, why);
            }
        }
    }
}

/// A key of RFC 7143, section 13, and weft's.
struct TermRow {
    name: &'static str,
    key: &'static str,
    /// Of numbers.
    bounds: Option<(u64, u64)>,
}

const fn row(name: &'static str, key: &'static str, bounds: Option<(u64, u64)>) -> TermRow {
    TermRow { name, key, bounds }
}

const LENGTH: Option<(u64, u64)> = Some((512, 0xff_ffff));

const TERMS: &[TermRow] = &[
    row("FirstBurstLength", "first_burst_bytes", LENGTH),
    row("MaxBurstLength", "max_burst_bytes", LENGTH),
    row(
        "MaxRecvDataSegmentLength",
        "max_recv_data_segment_bytes",
        LENGTH,
    ),
    row("MaxOutstandingR2T", "r2ts_max", Some((1, 16))),
    row("MaxConnections", "session_connections_max", Some((1, 64))),
    row("ErrorRecoveryLevel", "error_recovery_level", Some((0, 1))),
    row("default_cmdsn_depth", "queue_depth", Some((1, 1024))),
    row("queue_depth", "queue_depth", Some((1, 1024))),
    row("InitialR2T", "initial_r2t", None),
    row("ImmediateData", "immediate_data", None),
    row("HeaderDigest", "header_digest", None),
    row("DataDigest", "data_digest", None),
];

impl TermRow {
    /// The value as TOML.
    fn value(&self, word: &str) -> Option<String> {
        if let Some((least, most)) = self.bounds {
            let found = number(word).filter(|number| (least..=most).contains(number));
            return found.map(|number| number.to_string());
        }
        if !self.key.ends_with("digest") {
            return flag(word).map(|flag| flag.to_string());
        }
        let upper = word.to_ascii_uppercase();
        let has = |name: &str| upper.split(',').any(|word| word.trim() == name);
        let policy = match (has("CRC32C"), has("NONE")) {
            (true, true) => "allowed",
            (true, false) => "required",
            (false, true) => "none",
            (false, false) => return None,
        };
        Some(write::quoted(policy))
    }
}
