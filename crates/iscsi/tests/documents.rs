//! `docs/iscsi.md` lists the keys that the code knows, no more and no less.
//! `WEFT_WRITE_DOCS=1 cargo test -p iscsi --test documents` brings it up to date.

#![forbid(unsafe_code)]

use std::fmt::Write as _;

use iscsi::support;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/iscsi.md");
const BEGIN: &str = "<!-- keys from the code: begin -->\n";
const END: &str = "<!-- keys from the code: end -->\n";

fn table() -> String {
    let mut out = String::from(
        "\n| key | RFC 7143 | what comes of it | leading connection alone | discovery |\n\
         |---|---|---|---|---|\n",
    );
    let yes = |holds| if holds { "yes" } else { "" };
    for key in support::keys() {
        let (leading, discovery) = (yes(key.leading_only), yes(key.in_discovery));
        let support::Key {
            name, section, how, ..
        } = key;
        let _ = writeln!(
            out,
            "| {name} | {section} | {how} | {leading} | {discovery} |"
        );
    }
    out.push('\n');
    out
}

#[test]
fn the_page_lists_what_the_code_does() {
    let page = std::fs::read_to_string(PAGE).expect("docs/iscsi.md");
    let (before, rest) = page.split_once(BEGIN).expect("the beginning of the list");
    let (listed, after) = rest.split_once(END).expect("the end of the list");
    let table = table();
    if std::env::var_os("WEFT_WRITE_DOCS").is_some() {
        let page = [before, BEGIN, &table, END, after].concat();
        return std::fs::write(PAGE, page).expect("docs/iscsi.md can be written");
    }
    assert!(
        listed == table,
        "docs/iscsi.md is out of date: WEFT_WRITE_DOCS=1 cargo test -p iscsi --test documents"
    );
}
