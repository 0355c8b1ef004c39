//! Documents are true: links resolve, rooms are described, one test command.

use crate::scan::{files, root};

/// `[text](target)` of a document, code blocks left out.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for part in line.split("](").skip(1) {
            if let Some(end) = part.find(')') {
                found.push((at + 1, part[..end].to_owned()));
            }
        }
    }
    found
}

/// The anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn links_are_found_outside_of_code() {
    let text = "a [b](c.md) [d](e#f)\n```\n[g](h)\n```\n";
    assert_eq!(links(text), [(1, "c.md".to_owned()), (1, "e#f".to_owned())]);
    assert_eq!(anchor("## The way of one I/O"), "the-way-of-one-io");
}

#[test]
fn links_resolve() {
    for file in files(&[".md"]) {
        for (line, link) in links(&file.text) {
            if link.starts_with("http") {
                continue;
            }
            let (path, fragment) = link.split_once('#').unwrap_or((&link, ""));
            let here = root().join(&file.path);
            let there = match path {
                "" => here,
                path => here.parent().expect("a folder").join(path),
            };
            assert!(there.exists(), "{}:{line}: {link}", file.path);
            if !fragment.is_empty() {
                let text = std::fs::read_to_string(&there).expect("a document");
                let mut headings = text.lines().filter(|line| line.starts_with('#'));
                let found = headings.any(|heading| anchor(heading) == fragment);
                assert!(found, "{}:{line}: no heading for {link}", file.path);
            }
        }
    }
}

#[test]
fn the_readme_leads_to_every_page() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("the README");
    let linked: Vec<_> = links(&readme).into_iter().map(|(_, link)| link).collect();
    for page in std::fs::read_dir(root().join("docs"))
        .expect("docs/")
        .flatten()
    {
        let page = format!("docs/{}", page.file_name().to_string_lossy());
        assert!(linked.contains(&page), "README.md has no link to {page}");
    }
}

#[test]
fn every_room_has_its_line_in_the_architecture() {
    let text = std::fs::read_to_string(root().join("docs/architecture.md")).expect("the page");
    let entries = std::fs::read_dir(root().join("crates")).expect("crates/");
    for room in entries.flatten() {
        let name = format!("`crates/{}`", room.file_name().to_string_lossy());
        let row = text
            .lines()
            .any(|line| line.starts_with('|') && line.contains(&name));
        assert!(row, "docs/architecture.md has no row for {name}");
    }
}

#[test]
fn ci_runs_the_readmes_test_command() {
    let command = "cargo xtask ci";
    for path in [".ci/run", "README.md"] {
        let text = std::fs::read_to_string(root().join(path)).expect("a file");
        let has_it = text.lines().any(|line| line.trim() == command);
        assert!(has_it, "{path}: no line `{command}`");
    }
}
