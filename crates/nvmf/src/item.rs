//! What the standard names and numbers: a row of a table of what there is.

/// Something that hosts name by a number: a command, a feature, a log page, an
/// Identify data structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedItem {
    /// The number: opcode, FID, LID, CNS, offset.
    pub id: u8,
    /// The standard's name.
    pub name: &'static str,
    /// Where it is defined: a section of the NVM Express Base Specification
    /// 2.0, or after "NVM" one of the NVM Command Set Specification 1.0.
    pub section: &'static str,
    /// I/O controllers have it.
    pub io: bool,
    /// Discovery controllers have it.
    pub discovery: bool,
}

impl NamedItem {
    /// What only I/O controllers have.
    pub(crate) const fn io(id: u8, name: &'static str, section: &'static str) -> Self {
        NamedItem {
            id,
            name,
            section,
            io: true,
            discovery: false,
        }
    }

    /// What only discovery controllers have.
    pub(crate) const fn discovery(id: u8, name: &'static str, section: &'static str) -> Self {
        NamedItem {
            id,
            name,
            section,
            io: false,
            discovery: true,
        }
    }

    /// What every controller has.
    pub(crate) const fn both(id: u8, name: &'static str, section: &'static str) -> Self {
        NamedItem {
            id,
            name,
            section,
            io: true,
            discovery: true,
        }
    }

    /// Whether a controller of that kind has it.
    pub(crate) fn is_for(&self, is_discovery: bool) -> bool {
        if is_discovery {
            self.discovery
        } else {
            self.io
        }
    }
}
