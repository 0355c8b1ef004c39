//! How a sanitize operation stands (NVM Express Base Specification 2.0, section 8.21).

use wire::nvme::identify::zeroed;
use wire::nvme::log::{SanitizeLog, sanitize_status};

/// Allow Unrestricted Sanitize Exit, of CDW10.
const AUSE: u32 = 1 << 3;

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

    /// Whether it has failed, and a subsystem that has failed so is let go by another alone.
    pub(crate) fn must_be_repeated(&self) -> bool {
        self.stands == SanitizeStands::Failed && self.cdw10 & AUSE == 0
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
