//! NBD clients among the hosts.

use random::Random;

use super::Plan;

/// Makes one seed's chance another's.
const NBD: u64 = 0x6e62_645f_6e62_6421;

/// The form of requests and replies of NBD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NbdForm {
    /// Simple replies, in which an error is a number.
    Simple,
    /// Structured replies.
    Structured,
    /// Extended headers.
    Extended,
}

/// How an NBD client connects.
#[derive(Clone, Copy, Debug)]
pub struct NbdPlan {
    /// Connections to each export.
    pub connections: usize,
    /// The form that it asks for.
    pub form: NbdForm,
}

impl Plan {
    /// In some seeds hosts speak NBD, beside others that do not.
    pub(super) fn some_speak_nbd(&mut self, seed: u64) {
        let r = &mut Random::new(seed ^ NBD);
        if r.one_in(3) {
            self.speak_nbd(r, |r| r.one_in(2));
        }
    }

    /// Those hosts speak NBD that `does` picks. A number alone would not tell a reservation from a
    /// disk that may not be written, nor one that is full from its end.
    pub fn speak_nbd(&mut self, r: &mut Random, does: impl Fn(&mut Random) -> bool) {
        let fails = self.disk.write_errors + self.disk.sync_errors > 0;
        let has_two_reasons = self.reserve_percent > 0 || fails;
        let least = usize::from(has_two_reasons);
        for host in &mut self.hosts {
            if does(r) {
                let connections = r.between(1, 2) as usize;
                let forms = [NbdForm::Simple, NbdForm::Structured, NbdForm::Extended];
                let form = r.pick(&forms[least..]);
                host.subsystem = self.subsystems;
                (host.iscsi, host.nbd) = (None, Some(NbdPlan { connections, form }));
            }
        }
    }

    /// Whether a host speaks NBD.
    pub fn has_nbd(&self) -> bool {
        self.hosts.iter().any(|host| host.nbd.is_some())
    }
}
