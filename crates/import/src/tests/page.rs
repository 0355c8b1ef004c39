//! The examples of docs/import.md: what is shown is what is printed.

use super::{SomeFiles, format, load};
use crate::{Format, import};

const PAGE: &str = include_str!("../../../../docs/import.md");

/// The fenced blocks of a section.
fn blocks(section: &'static str) -> Vec<&'static str> {
    let blocks = section.split("```").skip(1).step_by(2);
    let inner = |block: &'static str| block.split_once('\n').map_or("", |(_, text)| text);
    blocks.map(inner).collect()
}

/// `WEFT_WRITE_DOCS=1` writes the documents that are printed into the page.
#[test]
fn the_pages_examples_are_what_is_printed_and_load() {
    let mut page = PAGE.to_owned();
    for (name, _) in Format::all() {
        let title = format!("\n## {name}\n");
        let (_, section) = PAGE.split_once(&title).expect(name);
        let section = section.split("\n## ").next().expect("a section");
        let blocks = blocks(section);
        let [source, document] = blocks[..] else {
            panic!("{name}: a source and a document");
        };
        let found = import(format(name), "source", source, &SomeFiles::default());
        let found = found.unwrap_or_else(|report| panic!("{name}: {report}"));
        load(&found);
        let after = page.find(&title).expect(name);
        let (head, rest) = page.split_at(after);
        let old = format!("```toml\n{document}```");
        let new = format!("```toml\n{}```", found.document);
        page = format!("{head}{}", rest.replacen(&old, &new, 1));
    }
    if std::env::var_os("WEFT_WRITE_DOCS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/import.md");
        std::fs::write(path, page).expect("written");
        return;
    }
    assert_eq!(page, PAGE, "WEFT_WRITE_DOCS=1 writes it");
}
