//! LOG SENSE (SPC-4, sections 6.11 and 7.3).

use crate::sense::Sense;

/// Supported Log Pages.
const SUPPORTED: u8 = 0x00;
/// Informational Exceptions.
const INFORMATIONAL_EXCEPTIONS: u8 = 0x2f;
/// The subpage that asks for all of them.
const ALL_SUBPAGES: u8 = 0xff;

pub(crate) fn sense(page: u8, subpage: u8, out: &mut Vec<u8>) -> Result<(), Sense> {
    match (page, subpage) {
        (SUPPORTED, 0) => out.extend([0, 0, 0, 2, SUPPORTED, INFORMATIONAL_EXCEPTIONS]),
        (SUPPORTED, ALL_SUBPAGES) => {
            // SPF, then pairs of page and subpage.
            let pairs = [
                (SUPPORTED, 0),
                (SUPPORTED, ALL_SUBPAGES),
                (INFORMATIONAL_EXCEPTIONS, 0),
            ];
            out.extend([0x40, ALL_SUBPAGES, 0, 2 * pairs.len() as u8]);
            out.extend(pairs.iter().flat_map(|(page, subpage)| [*page, *subpage]));
        }
        // Parameter 0, binary list: no exception, no temperature.
        (INFORMATIONAL_EXCEPTIONS, 0) => {
            out.extend([INFORMATIONAL_EXCEPTIONS, 0, 0, 8]);
            out.extend([0, 0, 0x03, 4, 0, 0, 0, 0]);
        }
        (SUPPORTED | INFORMATIONAL_EXCEPTIONS, _) => return Err(Sense::in_cdb(3, None)),
        _ => return Err(Sense::in_cdb(2, Some(5))),
    }
    Ok(())
}
