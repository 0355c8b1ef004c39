//! Sanitize (NVM Express Base Specification 2.0, section 8.21): by cryptography alone, of
//! subsystems of which every namespace is encrypted.

use wire::nvme::Status;
use wire::nvme::identify::zeroed;
use wire::nvme::log::{SanitizeLog, sanitize_status};

use crate::controller::Controller;
use crate::request::{AdminOutcome, AdminRequest, Fault, Reply, at};

/// Sanitize Action (CDW10 bits 2:0): Exit Failure Mode.
const EXIT_FAILURE_MODE: u32 = 1;
/// Start a crypto erase.
const CRYPTO_ERASE: u32 = 4;
/// Allow Unrestricted Sanitize Exit.
const AUSE: u32 = 1 << 3;
/// No-Deallocate After Sanitize, which SANICAP inhibits.
const NDAS: u32 = 1 << 9;

/// SANICAP: crypto erase.
const CES: u32 = 1 << 0;
/// No-Deallocate is inhibited.
const NDI: u32 = 1 << 29;
/// Media is not modified in addition after a sanitize operation.
const NODMMAS_NONE: u32 = 1 << 30;

/// How the last sanitize operation of a subsystem stands. It is forgotten with the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SanitizeStatus {
    /// Its CDW10.
    cdw10: u32,
    stands: SanitizeStands,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SanitizeStands {
    #[default]
    Never,
    /// So many namespaces of so many are sanitized.
    InProgress {
        done: u32,
        all: u32,
    },
    Completed,
    Failed,
}

impl SanitizeStatus {
    /// One that begins, of so many namespaces.
    #[must_use]
    pub(crate) fn begun(cdw10: u32, all: u32) -> SanitizeStatus {
        let stands = SanitizeStands::InProgress { done: 0, all };
        SanitizeStatus { cdw10, stands }
    }

    /// One more namespace is sanitized, or could not be: whether it is over.
    pub(crate) fn went_on(&mut self, is_done: bool) -> bool {
        if let SanitizeStands::InProgress { done, all } = &mut self.stands {
            *done += 1;
            self.stands = match (is_done, done == all) {
                (false, _) => SanitizeStands::Failed,
                (true, true) => SanitizeStands::Completed,
                (true, false) => return false,
            };
        }
        true
    }

    /// Whether it goes on.
    pub(crate) fn is_in_progress(&self) -> bool {
        matches!(self.stands, SanitizeStands::InProgress { .. })
    }

    /// The log page.
    pub(crate) fn log(&self) -> SanitizeLog {
        let mut log: SanitizeLog = zeroed();
        let (sstat, sprog) = match self.stands {
            SanitizeStands::Never => (sanitize_status::NEVER, u16::MAX),
            SanitizeStands::InProgress { done, all } => {
                let part = u64::from(done) * 65_536 / u64::from(all.max(1));
                (sanitize_status::IN_PROGRESS, part.min(0xfffe) as u16)
            }
            SanitizeStands::Completed => (sanitize_status::COMPLETED, u16::MAX),
            SanitizeStands::Failed => (sanitize_status::FAILED, u16::MAX),
        };
        log.sprog = sprog.into();
        log.sstat = sstat.into();
        log.scdw10 = self.cdw10.into();
        log.times = [u32::MAX.into(); 6];
        log
    }
}

/// Whether the host may destroy all that the subsystem holds: it sees all of it, and all of it is
/// encrypted.
fn is_offered(controller: &Controller) -> bool {
    let all = &controller.subsystem.namespaces;
    let sees_all = controller.namespaces().count() == all.len();
    !all.is_empty() && sees_all && all.iter().all(|namespace| namespace.is_encrypted)
}

/// SANICAP.
pub(crate) fn capabilities(controller: &Controller) -> u32 {
    match is_offered(controller) {
        true => CES | NDI | NODMMAS_NONE,
        false => 0,
    }
}

/// Sanitize (section 5.24), checked.
pub(crate) fn sanitize(request: &mut AdminRequest<'_>) -> Result<AdminOutcome, Fault> {
    let cdw10 = request.sqe.cdw10.get();
    let last = request.sanitize;
    if last.is_in_progress() {
        return Err(Fault::of(Status::SANITIZE_IN_PROGRESS));
    }
    match cdw10 & 7 {
        EXIT_FAILURE_MODE => {
            let is_stuck = last.stands == SanitizeStands::Failed && last.cdw10 & AUSE == 0;
            return match is_stuck {
                true => Err(Fault::of(Status::SANITIZE_FAILED.dnr())),
                false => Ok(AdminOutcome::Done(Reply::done(0))),
            };
        }
        CRYPTO_ERASE if cdw10 & NDAS == 0 && is_offered(request.controller) => {}
        _ => return Err(Fault::field(at::CDW10)),
    }
    for namespace in request.controller.namespaces() {
        let ana = request.controller.ana_state(namespace);
        if !ana.is_accessible() {
            return Err(Fault::of(ana.status()));
        }
        if namespace.refuses_writes() {
            return Err(Fault::of(Status::WRITE_PROTECTED.dnr()));
        }
    }
    Ok(AdminOutcome::Sanitize { cdw10 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_tells_how_far_it_has_come_and_how_it_ended() {
        let told = |status: &SanitizeStatus| {
            let log = status.log();
            (log.sstat.get(), log.sprog.get(), log.scdw10.get())
        };
        assert_eq!(told(&SanitizeStatus::default()), (0, 0xffff, 0));
        let mut status = SanitizeStatus::begun(4, 3);
        assert_eq!(told(&status), (2, 0, 4));
        assert!(!status.went_on(true) && status.is_in_progress());
        assert_eq!(told(&status), (2, 21_845, 4));
        assert!(!status.went_on(true));
        let mut failed = status;
        assert!(status.went_on(true) && !status.is_in_progress());
        assert_eq!(told(&status), (1, 0xffff, 4));
        assert!(failed.went_on(false));
        assert_eq!(told(&failed), (3, 0xffff, 4));
        assert_eq!(failed.log().times.map(|time| time.get()), [u32::MAX; 6]);
    }
}
