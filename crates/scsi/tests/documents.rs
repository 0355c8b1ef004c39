//! `docs/iscsi.md` lists what the tables in the code hold, no more and no less.
//! `WEFT_WRITE_DOCS=1 cargo test -p scsi --test documents` brings it up to date.

#![forbid(unsafe_code)]

use std::fmt::Write as _;

use scsi::support::{self, SupportRow, SupportedPage};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/iscsi.md");
const BEGIN: &str = "<!-- lists from the code: begin -->\n";
const END: &str = "<!-- lists from the code: end -->\n";

fn commands(out: &mut String) {
    out.push_str("\n### Commands\n\n| opcode | action | | standard |\n|---|---|---|---|\n");
    for item in support::commands() {
        let SupportRow {
            opcode,
            action,
            name,
            standard,
        } = item;
        let action = action.map_or_else(String::new, |action| format!("{action:02X}h"));
        let _ = writeln!(out, "| {opcode:02X}h | {action} | {name} | {standard} |");
    }
}

fn pages(out: &mut String, title: &str, pages: impl Iterator<Item = SupportedPage>) {
    let pages: Vec<SupportedPage> = pages.collect();
    let has_settings = pages.iter().any(|page| !page.settings.is_empty());
    let (head, line) = match has_settings {
        true => (" can be changed |", "---|"),
        false => ("", ""),
    };
    let _ = write!(out, "\n### {title}\n\n| page | |{head}\n|---|---|{line}\n");
    for page in pages {
        let SupportedPage { code, name, .. } = page;
        let subpage = match page.subpage {
            0 => String::new(),
            subpage => format!(", {subpage:02X}h"),
        };
        let settings = match has_settings {
            true => format!(" {} |", page.settings),
            false => String::new(),
        };
        let _ = writeln!(out, "| {code:02X}h{subpage} | {name} |{settings}");
    }
}

fn tables() -> String {
    let mut out = String::new();
    commands(&mut out);
    pages(&mut out, "Vital product data pages", support::vpd_pages());
    pages(&mut out, "Mode pages", support::mode_pages());
    pages(&mut out, "Log pages", support::log_pages());
    out.push_str("\n### Unit attentions\n\n| code | |\n|---|---|\n");
    for (code, name) in support::attentions() {
        let (asc, ascq) = (code >> 8, code & 0xff);
        let _ = writeln!(out, "| {asc:02X}h/{ascq:02X}h | {name} |");
    }
    out.push_str("\n### Task management functions\n\n");
    for name in support::task_management() {
        let _ = writeln!(out, "- {name}");
    }
    out.push('\n');
    out
}

#[test]
fn the_page_lists_what_the_code_does() {
    let page = std::fs::read_to_string(PAGE).expect("docs/iscsi.md");
    let (before, rest) = page.split_once(BEGIN).expect("the beginning of the lists");
    let (listed, after) = rest.split_once(END).expect("the end of the lists");
    let tables = tables();
    if std::env::var_os("WEFT_WRITE_DOCS").is_some() {
        let page = [before, BEGIN, &tables, END, after].concat();
        return std::fs::write(PAGE, page).expect("docs/iscsi.md can be written");
    }
    assert!(
        listed == tables,
        "docs/iscsi.md is out of date: WEFT_WRITE_DOCS=1 cargo test -p scsi --test documents"
    );
}
