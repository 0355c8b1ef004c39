//! What is supported, for the documents: the tables that the code goes by.

use crate::sense::Attention;
use crate::table::ROWS;
use crate::{inquiry, log, mode, opcodes};

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SupportRow {
    /// OPERATION CODE.
    pub opcode: u8,
    /// SERVICE ACTION, for those that have one.
    pub action: Option<u8>,
    /// The standard's name.
    pub name: &'static str,
    /// Which standard: `SPC-4`, `SBC-3`, ...
    pub standard: &'static str,
}

/// A page of some kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SupportedPage {
    /// PAGE CODE.
    pub code: u8,
    /// SUBPAGE CODE.
    pub subpage: u8,
    /// The standard's name.
    pub name: &'static str,
    /// Fields of a mode page that MODE SELECT can change; empty for none.
    pub settings: &'static str,
}

/// Commands by operation code, then by service action. Those that a logical unit
/// has only in some configurations are among them.
pub fn commands() -> impl Iterator<Item = SupportRow> {
    ROWS.iter().map(|row| SupportRow {
        opcode: row.opcode,
        action: row.action,
        name: row.name,
        standard: row.standard,
    })
}

/// Vital product data pages.
pub fn vpd_pages() -> impl Iterator<Item = SupportedPage> {
    inquiry::pages().map(|(code, name)| page(code, 0, name))
}

/// Mode pages.
pub fn mode_pages() -> impl Iterator<Item = SupportedPage> {
    mode::pages().map(|(name, code, subpage, settings)| SupportedPage {
        settings,
        ..page(code, subpage, name)
    })
}

/// Log pages.
pub fn log_pages() -> impl Iterator<Item = SupportedPage> {
    let pages = log::PAGES.iter();
    pages.map(|(code, subpage, name)| page(*code, *subpage, name))
}

/// Unit attention conditions: additional sense code and qualifier, name.
pub fn attentions() -> impl Iterator<Item = (u16, &'static str)> {
    let all = Attention::ALL.iter();
    all.map(|(attention, name)| (attention.code(), *name))
}

/// Names of task management functions.
pub fn task_management() -> impl Iterator<Item = &'static str> {
    opcodes::TASK_MANAGEMENT.iter().map(|(name, _)| *name)
}

fn page(code: u8, subpage: u8, name: &'static str) -> SupportedPage {
    SupportedPage {
        code,
        subpage,
        name,
        settings: "",
    }
}
