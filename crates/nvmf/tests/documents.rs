//! `docs/nvme.md` lists what the tables in the code hold, no more and no less.
//! `WEFT_WRITE_DOCS=1 cargo test -p nvmf --test documents` brings it up to date.

#![forbid(unsafe_code)]

use nvmf::support::{self, NamedItem};
use std::fmt::Write as _;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/nvme.md");
const BEGIN: &str = "<!-- from the code: begin -->\n";
const END: &str = "<!-- from the code: end -->\n";

fn table(
    out: &mut String,
    title: &str,
    number: &str,
    items: impl Iterator<Item = &'static NamedItem>,
) {
    let mut items: Vec<&NamedItem> = items.collect();
    items.sort_by_key(|item| item.id);
    let _ = write!(
        out,
        "\n### {title}\n\n| {number} | | section | I/O | discovery |\n|---|---|---|---|---|\n"
    );
    let yes = |holds| if holds { "yes" } else { "" };
    for item in items {
        let (io, discovery) = (yes(item.io), yes(item.discovery));
        let NamedItem {
            id, name, section, ..
        } = item;
        let _ = writeln!(
            out,
            "| {id:02X}h | {name} | {section} | {io} | {discovery} |"
        );
    }
}

fn tables() -> String {
    let mut out = String::new();
    table(
        &mut out,
        "Admin commands",
        "opcode",
        support::admin_commands(),
    );
    table(&mut out, "I/O commands", "opcode", support::io_commands());
    table(&mut out, "Features", "FID", support::features());
    table(&mut out, "Log pages", "LID", support::log_pages());
    table(
        &mut out,
        "Identify data structures",
        "CNS",
        support::identify_structures(),
    );
    table(
        &mut out,
        "Asynchronous events",
        "information",
        support::events(),
    );
    table(&mut out, "Properties", "offset", support::properties());
    out.push('\n');
    out
}

#[test]
fn the_page_lists_what_the_code_does() {
    let page = std::fs::read_to_string(PAGE).expect("docs/nvme.md");
    let (before, rest) = page.split_once(BEGIN).expect("the beginning of the lists");
    let (listed, after) = rest.split_once(END).expect("the end of the lists");
    let tables = tables();
    if std::env::var_os("WEFT_WRITE_DOCS").is_some() {
        let page = [before, BEGIN, &tables, END, after].concat();
        return std::fs::write(PAGE, page).expect("docs/nvme.md can be written");
    }
    assert!(
        listed == tables,
        "docs/nvme.md is out of date: WEFT_WRITE_DOCS=1 cargo test -p nvmf --test documents"
    );
}
