//! What later sections of a file refer to by name.

use crate::source::hint;

/// Objects in the order of their names, so that to find one takes few steps in a file of many.
pub(crate) struct ByName<T>(Vec<(String, T)>);

impl<T> ByName<T> {
    /// Of two with one name, which is a mistake that is told elsewhere, either may be found.
    pub fn new(named: impl IntoIterator<Item = (String, T)>) -> Self {
        let mut list: Vec<(String, T)> = named.into_iter().collect();
        list.sort_by(|(a, _), (b, _)| a.cmp(b));
        Self(list)
    }

    /// The one of this name.
    pub fn find(&self, name: &str) -> Option<&T> {
        let compared = |(known, _): &(String, T)| {
            #[cfg(test)]
            tests::COMPARED.with(|count| count.set(count.get() + 1));
            known.as_str().cmp(name)
        };
        let at = self.0.binary_search_by(compared).ok()?;
        Some(&self.0[at].1)
    }

    /// `; did you mean ...?`, or nothing.
    pub fn hint(&self, name: &str) -> String {
        hint(name, self.0.iter().map(|(known, _)| known.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fmt::Write as _;
    use std::path::Path;

    use crate::{Origin, parse};

    std::thread_local! {
        /// Names that were compared by this thread.
        pub(super) static COMPARED: Cell<u64> = const { Cell::new(0) };
    }

    /// As many of each: volumes, subsystems, targets that share their groups, LUNs of one
    /// target, file systems, exports.
    fn document(count: u32) -> String {
        let mut text = String::from(
            "[[iscsi.target]]\nname = \"iqn.2026-01.io.weft:all\"\nallow_any_initiator = true\n",
        );
        for n in 0..count {
            let _ = write!(text, "[[iscsi.target.lun]]\nlun = {n}\nvolume = \"v{n}\"\n");
        }
        for n in 0..count {
            let _ = write!(
                text,
                "[[volume]]\nname = \"v{n}\"\nkind = \"null\"\nsize = \"1MiB\"\n\
                 [[nvme.subsystem]]\nnqn = \"nqn.2026-01.io.weft:{n}\"\nallow_any_host = true\n\
                 volumes = [\"v{n}\"]\n\
                 [[iscsi.target]]\nname = \"iqn.2026-01.io.weft:{n}\"\nallow_any_initiator = true\n\
                 volumes = [\"v{n}\"]\nsubsystem = \"nqn.2026-01.io.weft:{n}\"\n\
                 [[file_system]]\nname = \"f{n}\"\nkind = \"mem\"\nsize = \"16MiB\"\n\
                 [[export]]\npath = \"/e{n}\"\nfile_system = \"f{n}\"\nallow_any_client = true\n"
            );
        }
        for (port, protocol) in [(4420, "nvme-tcp"), (3260, "iscsi"), (2049, "nfs")] {
            let _ = write!(
                text,
                "[[listener]]\naddress = \"127.0.0.1:{port}\"\nprotocol = \"{protocol}\"\n"
            );
        }
        text
    }

    fn compared(count: u32) -> u64 {
        COMPARED.with(|compared| compared.set(0));
        let origin = Origin {
            folder: Path::new(""),
            access: Some(auth::FileAccess::OWN),
        };
        let config = parse(&document(count), &origin, &[0]).expect("a configuration");
        assert_eq!(config.iscsi_targets.len(), count as usize + 1);
        assert_eq!(config.iscsi_targets[0].luns.len(), count as usize);
        assert_eq!(config.exports.len(), count as usize);
        COMPARED.with(Cell::get)
    }

    #[test]
    fn a_name_takes_few_comparisons_more_in_a_file_of_many_more_names() {
        let (some, many) = (compared(64), compared(1024));
        // Five names of each are looked up; a search takes one comparison more for each
        // doubling.
        assert!((64 * 5..=64 * 5 * 8).contains(&some), "{some}");
        assert!((1024 * 5..=1024 * 5 * 12).contains(&many), "{many}");
    }
}
