//! Sanitize (NVM Express Base Specification 2.0, section 8.21): by cryptography alone, of
//! subsystems of which every namespace is encrypted.

use wire::nvme::Status;

use crate::controller::Controller;
use crate::request::{AdminOutcome, AdminRequest, Fault, Reply, at};

/// Sanitize Action (CDW10 bits 2:0): Exit Failure Mode.
const EXIT_FAILURE_MODE: u32 = 1;
/// Start a crypto erase.
const CRYPTO_ERASE: u32 = 4;
/// No-Deallocate After Sanitize, which SANICAP inhibits.
const NDAS: u32 = 1 << 9;

/// SANICAP: crypto erase.
const CES: u32 = 1 << 0;
/// No-Deallocate is inhibited.
const NDI: u32 = 1 << 29;
/// Media is not modified in addition after a sanitize operation.
const NODMMAS_NONE: u32 = 1 << 30;

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
            return match last.must_be_repeated() {
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
