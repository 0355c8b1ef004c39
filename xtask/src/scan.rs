//! Reads the source tree for the rules: files, and Rust code without its
//! comments and texts.

use std::path::{Path, PathBuf};

/// The workspace's root.
pub fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    root.canonicalize().expect("the workspace is there")
}

/// One file of the tree.
pub struct File {
    /// Relative to the root, with `/`.
    pub path: String,
    pub text: String,
}

/// Folders that hold nothing of ours, relative to the root.
const SKIPPED: &[&str] = &[
    "target",
    "shared",
    "fuzz/target",
    "fuzz/corpus",
    "fuzz/artifacts",
];

/// Every text file whose name ends in one of `endings`, in a fixed order.
pub fn files(endings: &[&str]) -> Vec<File> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).expect("a folder of the tree");
        for entry in entries.flatten() {
            let name = entry.file_name().into_string().unwrap_or_default();
            let path = entry.path();
            let short = path.strip_prefix(&root).expect("below the root");
            let short = short.to_string_lossy().into_owned();
            let kind = entry.file_type().expect("a kind of file");
            let hidden = name.starts_with('.') && name != ".ci" && name != ".cargo";
            if kind.is_dir() && !hidden && !SKIPPED.contains(&short.as_str()) {
                folders.push(path);
            } else if kind.is_file() && endings.iter().any(|ending| name.ends_with(ending)) {
                found.push(File {
                    path: short,
                    text: std::fs::read_to_string(&path).expect("a text file"),
                });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// Rust code with comments and the insides of texts blanked, line by line.
pub fn code(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment(rest),
            '"' => quoted(rest, 1),
            'r' | 'b' | 'c' if !ends_in_word(&out) => literal(rest),
            '\'' => character(rest),
            _ => 0,
        };
        let (blanked, kept) = match len {
            0 => (0, first.len_utf8()),
            len => (len, 0),
        };
        out.extend(rest[..blanked].chars().map(|c| match c {
            '\n' => '\n',
            _ => ' ',
        }));
        out.push_str(&rest[blanked..blanked + kept]);
        rest = &rest[blanked + kept..];
    }
    out
}

fn ends_in_word(text: &str) -> bool {
    text.ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
        } else {
            at += 1;
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length of a text whose inside starts at `at`.
fn quoted(text: &str, mut at: usize) -> usize {
    let bytes = text.as_bytes();
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// The length of a text with a prefix (`b""`, `r#""#`, `b'x'`), 0 for a name.
fn literal(text: &str) -> usize {
    let prefix = text.len() - text.trim_start_matches(['r', 'b', 'c']).len();
    let rest = &text[prefix..];
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    let is_raw = text[..prefix].contains('r');
    match rest.as_bytes().get(hashes) {
        Some(b'"') if is_raw => {
            let start = prefix + hashes + 1;
            let end = format!("\"{}", "#".repeat(hashes));
            let inside = text[start..].find(&end).unwrap_or(text.len() - start);
            (start + inside + end.len()).min(text.len())
        }
        Some(b'"') if hashes == 0 => quoted(text, prefix + 1),
        Some(b'\'') if hashes == 0 && text.starts_with("b'") => 1 + character(rest),
        _ => 0,
    }
}

/// The length of a character in quotes, 0 for a lifetime.
fn character(text: &str) -> usize {
    let inside = &text[1..];
    if let Some(escaped) = inside.strip_prefix('\\') {
        return escaped[1..].find('\'').map_or(0, |at| at + 4);
    }
    let len = inside.chars().next().map_or(0, char::len_utf8);
    match inside[len..].starts_with('\'') {
        true => len + 2,
        false => 0,
    }
}

/// A function and where its body stands.
pub struct Function {
    pub name: String,
    /// Counted from 1.
    pub line: usize,
    /// Lines of its body that hold code.
    pub code_lines: usize,
}

/// The functions of code that [`code`] has blanked.
pub fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let name: String = code[at + 3..]
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        let Some(end) = code[at..].find(['{', ';']) else {
            continue;
        };
        if ends_in_word(&code[..at]) || name.is_empty() || code[at + end..].starts_with(';') {
            continue;
        }
        let body = block(&code[at + end..]);
        found.push(Function {
            name,
            line: code[..at].matches('\n').count() + 1,
            code_lines: body.lines().filter(|line| !line.trim().is_empty()).count(),
        });
    }
    found
}

/// From an opening brace to its partner.
fn block(code: &str) -> &str {
    let mut depth = 0;
    for (at, c) in code.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &code[..=at];
        }
    }
    code
}

/// Whether `word` stands in `text` as a whole word.
pub fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let after = &text[at + word.len()..];
        !ends_in_word(&text[..at]) && !after.starts_with(|c: char| c.is_alphanumeric() || c == '_')
    })
}

#[test]
fn comments_and_texts_are_blanked_and_code_is_kept() {
    let text = "a /* x /* y */ z */ b // unsafe\nc \"un\\\"safe\" d r#\"un\"safe\"# e 'f' '\\'' \
                b\"g\" b'h' '\\u{41}' fn i<'j>(k: &'j u8) r#type for_r\"l\"";
    let words: Vec<_> = code(text).split_whitespace().map(str::to_owned).collect();
    let kept = "a b c d e fn i<'j>(k: &'j u8) r#type for_r";
    assert_eq!(words, kept.split(' ').collect::<Vec<_>>());
    assert_eq!(code("/*\n*/\"\n\"\n").matches('\n').count(), 3);
}

#[test]
fn functions_have_lengths() {
    let text = "fn a();\nfn b() {\n  // no\n\n  x;\n}\nimpl C { fn d() { if e { f } } }\n";
    let found: Vec<_> = functions(&code(text))
        .iter()
        .map(|f| (f.name.clone(), f.line, f.code_lines))
        .collect();
    assert_eq!(found, [("b".into(), 2, 3), ("d".into(), 7, 1)]);
}

#[test]
fn words_are_whole() {
    assert!(has_word("x unsafe{", "unsafe"));
    assert!(!has_word("unsafe_code not_unsafe", "unsafe"));
}
