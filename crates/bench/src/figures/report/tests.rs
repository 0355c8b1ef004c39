//! The report against its samples: whatever it shows must be what they say.

pub(super) mod fixture;

use super::*;
use crate::figures::measured::Effort;

#[test]
#[ignore = "for looking"]
fn look() {
    let to = std::env::temp_dir().join("weft-report-look");
    write(&fixture::measured(Effort::Full, 5), &to).expect("written");
}
