//! LOG SENSE (SPC-4).

use crate::sense::Sense;

/// Supported Log Pages.
const SUPPORTED: u8 = 0x00;
/// Informational Exceptions.
const INFORMATIONAL_EXCEPTIONS: u8 = 0x2f;
/// The subpage that asks for all of them.
const ALL_SUBPAGES: u8 = 0xff;

/// Code, subpage and name of every page, ascending.
pub(crate) const PAGES: [(u8, u8, &str); 3] = [
    (SUPPORTED, 0, "Supported Log Pages"),
    (SUPPORTED, ALL_SUBPAGES, "Supported Log Pages and Subpages"),
    (INFORMATIONAL_EXCEPTIONS, 0, "Informational Exceptions"),
];

pub(crate) fn sense(page: u8, subpage: u8, out: &mut Vec<u8>) -> Result<(), Sense> {
    match (page, subpage) {
        (SUPPORTED, 0) => {
            let pages = PAGES.iter().filter(|(_, subpage, _)| *subpage == 0);
            let codes: Vec<u8> = pages.map(|(page, _, _)| *page).collect();
            out.extend([SUPPORTED, 0, 0, codes.len() as u8]);
            out.extend(codes);
        }
        (SUPPORTED, ALL_SUBPAGES) => {
            // SPF, then pairs of page and subpage.
            out.extend([0x40, ALL_SUBPAGES, 0, 2 * PAGES.len() as u8]);
            out.extend(
                PAGES
                    .iter()
                    .flat_map(|(page, subpage, _)| [*page, *subpage]),
            );
        }
        // Parameter 0, binary list: no exception, and FFh for no temperature.
        (INFORMATIONAL_EXCEPTIONS, 0) => {
            out.extend([INFORMATIONAL_EXCEPTIONS, 0, 0, 8]);
            out.extend([0, 0, 0x03, 4, 0, 0, 0xff, 0xff]);
        }
        (SUPPORTED | INFORMATIONAL_EXCEPTIONS, _) => return Err(Sense::in_cdb(3, None)),
        _ => return Err(Sense::in_cdb(2, Some(5))),
    }
    Ok(())
}
