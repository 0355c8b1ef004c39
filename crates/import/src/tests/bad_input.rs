use proptest::prelude::*;

use super::{format, mistakes};
use crate::{BYTES_MAX, Format, NoFiles, import};

#[test]
fn input_that_is_binary_or_a_template_is_told_for_every_format() {
    for (name, _) in Format::all() {
        let told = mistakes(name, "a\nb \0 c\n");
        assert!(told.contains("source:2: a NUL byte"), "{name}: {told}");
        let told = mistakes(name, "a\n\n{{ target_name }}\n");
        assert!(
            told.contains("source:3: `{{` is of a template"),
            "{name}: {told}"
        );
        let told = mistakes(name, "disk{0..3}\n");
        assert!(
            told.contains("source:1: `{1..2}` is a pattern"),
            "{name}: {told}"
        );
        let told = mistakes(name, &" ".repeat(BYTES_MAX + 1));
        assert!(told.contains("more than 16 MiB"), "{name}: {told}");
        let told = mistakes(name, "");
        assert!(!told.is_empty(), "{name}");
    }
}

#[test]
fn a_hundred_thousand_brackets_are_refused_by_every_format() {
    for (name, _) in Format::all() {
        for (open, close) in [
            ("[", "]"),
            ("{", "}"),
            ("<a>\n", "</a>\n"),
            ("a {\n", "}\n"),
            ("(", ")"),
        ] {
            for closed in ["", close] {
                let text = open.repeat(100_000) + &closed.repeat(100_000);
                mistakes(name, &text);
            }
        }
        mistakes(name, &"{\"a\":".repeat(100_000));
        mistakes(name, &"\"".repeat(100_001));
        mistakes(name, &"\\\n".repeat(100_000));
    }
}

#[test]
fn a_key_twice_is_a_mistake_with_its_line() {
    let told = mistakes("nvmetcli", "{\n \"ports\": [],\n \"ports\": []\n}");
    assert!(
        told.contains("source:3: ") && told.contains("\"ports\" is there already"),
        "{told}"
    );
}

/// Words of all formats, so that texts of them come far.
const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "<",
    ">",
    "\"",
    ",",
    ":",
    ";",
    "=",
    "\\",
    "#",
    "\n",
    " ",
    "-",
    "/",
    "*",
    "@",
    "0",
    "1",
    "4294967296",
    "/srv/a",
    "/dev/b",
    "192.0.2.1",
    "::",
    "subsystems",
    "ports",
    "nqn",
    "attr",
    "namespaces",
    "nsid",
    "device",
    "path",
    "storage_objects",
    "targets",
    "tpgs",
    "luns",
    "name",
    "plugin",
    "target",
    "backing-store",
    "EXPORT",
    "FSAL",
    "Client",
    "lun",
    "portal-group",
    "auth-group",
    "include",
    "%include",
    "method",
    "params",
    "config",
    "ro",
    "rw",
    "sec=",
    "-maproot=",
    "V4:",
    "Subsystem1",
    "[Nvmf]",
    "é",
    "\u{1f980}",
    "true",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_text_panics(words in prop::collection::vec(0..WORDS.len(), 0..80), random in ".{0,60}") {
        let text: String = words.iter().map(|word| WORDS[*word]).collect();
        for (name, _) in Format::all() {
            let _ = import(format(name), "source", &text, &NoFiles);
            let _ = import(format(name), "source", &random, &NoFiles);
        }
    }

    #[test]
    fn no_json_panics(words in prop::collection::vec(0..WORDS.len(), 1..40)) {
        let mut text = String::from("{");
        for (nth, word) in words.iter().enumerate() {
            let word = WORDS[*word].replace(['"', '\\', '\n'], "");
            match nth % 3 {
                0 => text += &format!("\"{word}{nth}\": [{{"),
                1 => text += &format!("\"{word}\": \"{word}\", "),
                _ => text += &format!("\"{word}x\": 1 }}], "),
            }
        }
        for (name, _) in Format::all() {
            let _ = import(format(name), "source", &text, &NoFiles);
        }
    }
}

/// What fuzzing has reached stays reached without a fuzzer.
#[test]
fn the_corpus_is_replayed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/import");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("the corpus") {
        let path = entry.expect("an entry").path();
        println!("{}", path.display());
        crate::fuzz(&std::fs::read(path).expect("an input"));
        count += 1;
    }
    assert!(count >= 10, "{count} inputs");
}
