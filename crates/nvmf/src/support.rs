//! What is supported, as data: the same tables that commands are executed by.

pub use crate::item::NamedItem;
use crate::{admin, controller, feature, identify, log};

/// Admin commands by opcode.
pub fn admin_commands() -> impl Iterator<Item = &'static NamedItem> {
    admin::COMMANDS.iter().map(|command| &command.item)
}

/// I/O commands by opcode.
pub fn io_commands() -> impl Iterator<Item = &'static NamedItem> {
    log::IO_COMMANDS.iter().map(|(item, _)| item)
}

/// Features by identifier.
pub fn features() -> impl Iterator<Item = &'static NamedItem> {
    feature::FEATURES.iter().map(|feature| &feature.item)
}

/// Log pages by identifier.
pub fn log_pages() -> impl Iterator<Item = &'static NamedItem> {
    log::PAGES.iter().map(|page| &page.item)
}

/// Identify data structures by CNS.
pub fn identify_structures() -> impl Iterator<Item = &'static NamedItem> {
    identify::STRUCTURES.iter().map(|structure| &structure.item)
}

/// Properties by offset in bytes.
pub fn properties() -> impl Iterator<Item = &'static NamedItem> {
    controller::PROPERTIES.iter().map(|property| &property.item)
}

/// Asynchronous events by their information, which means something else in
/// each type; the name begins with the type.
pub fn events() -> impl Iterator<Item = &'static NamedItem> {
    controller::EVENTS.iter().map(|event| &event.item)
}
