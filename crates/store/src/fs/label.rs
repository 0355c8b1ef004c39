//! Security labels (RFC 7862, section 9): kept for clients, which enforce them, and not looked
//! into.

use std::sync::Arc;

/// Bytes of a label's data at most, as Linux has it.
pub const LABEL_BYTES_MAX: usize = 2048;

/// A security label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label(Arc<LabelParts>);

#[derive(Debug, PartialEq, Eq)]
struct LabelParts {
    format: u32,
    policy: u32,
    data: Box<[u8]>,
}

impl Label {
    /// A label in a format (`lfs_lfs`) and by a policy (`lfs_pi`) that the server need not know.
    /// `None` without data, and with more than [`LABEL_BYTES_MAX`] bytes of it.
    pub fn new((format, policy): (u32, u32), data: &[u8]) -> Option<Label> {
        let fits = (1..=LABEL_BYTES_MAX).contains(&data.len());
        fits.then(|| {
            Label(Arc::new(LabelParts {
                format,
                policy,
                data: data.into(),
            }))
        })
    }

    /// `lfs_lfs`.
    pub fn format(&self) -> u32 {
        self.0.format
    }

    /// `lfs_pi`.
    pub fn policy(&self) -> u32 {
        self.0.policy
    }

    /// `slai_data`.
    pub fn data(&self) -> &[u8] {
        &self.0.data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_has_data_and_not_more_than_fits() {
        for (bytes, fits) in [
            (0, false),
            (1, true),
            (LABEL_BYTES_MAX, true),
            (LABEL_BYTES_MAX + 1, false),
        ] {
            let label = Label::new((1, 2), &vec![7; bytes]);
            assert_eq!(label.is_some(), fits, "{bytes} bytes");
        }
        let label = Label::new((1, 2), b"s0").expect("it fits");
        assert_eq!(
            (label.format(), label.policy(), label.data()),
            (1, 2, &b"s0"[..])
        );
    }
}
