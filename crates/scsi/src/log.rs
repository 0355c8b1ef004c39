//! LOG SENSE (SPC-4).

use crate::provisioning::LOG_PAGE as PROVISIONING;
use crate::sense::Sense;
use crate::unit::Unit;

/// Supported Log Pages.
const SUPPORTED: u8 = 0x00;
/// Informational Exceptions.
const INFORMATIONAL_EXCEPTIONS: u8 = 0x2f;
/// The subpage that asks for all of them.
const ALL_SUBPAGES: u8 = 0xff;

/// Code, subpage and name of every page, ascending.
pub(crate) const PAGES: [(u8, u8, &str); 4] = [
    (SUPPORTED, 0, "Supported Log Pages"),
    (SUPPORTED, ALL_SUBPAGES, "Supported Log Pages and Subpages"),
    (PROVISIONING, 0, "Logical Block Provisioning"),
    (INFORMATIONAL_EXCEPTIONS, 0, "Informational Exceptions"),
];

/// All but Logical Block Provisioning, for which the volume is asked.
pub(crate) fn sense(page: u8, subpage: u8, unit: &Unit, out: &mut Vec<u8>) -> Result<(), Sense> {
    let offered = || {
        let is_thin = unit.has_thresholds();
        (PAGES.iter()).filter(move |(page, ..)| is_thin || *page != PROVISIONING)
    };
    match (page, subpage) {
        (SUPPORTED, 0) => {
            let pages = offered().filter(|(_, subpage, _)| *subpage == 0);
            let codes: Vec<u8> = pages.map(|(page, _, _)| *page).collect();
            out.extend([SUPPORTED, 0, 0, codes.len() as u8]);
            out.extend(codes);
        }
        (SUPPORTED, ALL_SUBPAGES) => {
            // SPF, then pairs of page and subpage.
            out.extend([0x40, ALL_SUBPAGES, 0, 2 * offered().count() as u8]);
            out.extend(offered().flat_map(|(page, subpage, _)| [*page, *subpage]));
        }
        // Parameter 0, binary list: no exception, and FFh for no temperature.
        (INFORMATIONAL_EXCEPTIONS, 0) => {
            out.extend([INFORMATIONAL_EXCEPTIONS, 0, 0, 8]);
            out.extend([0, 0, 0x03, 4, 0, 0, 0xff, 0xff]);
        }
        (page, _) if offered().any(|(known, ..)| *known == page) => {
            return Err(Sense::in_cdb(3, None));
        }
        _ => return Err(Sense::in_cdb(2, Some(5))),
    }
    Ok(())
}
