//! Lengths, left-overs, and nothing of one machine.

use crate::scan::{Function, code, files, functions, has_word, root};

const FILE_LINES_MAX: usize = 1_000;

/// Lines with code; blank lines and comments are free, and so are tests, where
/// long tables stand.
const FUNCTION_LINES_MAX: usize = 70;

/// What unfinished or silenced code looks like.
const LEFT_OVERS: &[&str] = &[
    "todo!",
    "unimplemented!",
    "dbg!",
    "allow(dead_code",
    "allow(unused",
    "allow(clippy::all",
];

#[test]
fn files_are_short_enough_to_read() {
    for file in files(&[".rs", ".sh", ".py"]) {
        let lines = file.text.lines().count();
        assert!(lines <= FILE_LINES_MAX, "{}: {lines} lines", file.path);
    }
}

/// Tests in documents take longer to look for than all unit tests take. A crate whose
/// manifest does not ask for them has no example there: nothing would compile it.
#[test]
fn examples_stand_in_crates_whose_documents_are_tested() {
    let mut seen = 0;
    let manifests = files(&["Cargo.toml"]);
    let tested: Vec<String> = manifests
        .into_iter()
        .filter(|manifest| manifest.path.starts_with("crates/"))
        .filter(|manifest| !manifest.text.contains("doctest = false"))
        .map(|manifest| manifest.path.replace("Cargo.toml", "src/"))
        .collect();
    for file in files(&[".rs"]) {
        let mut is_open = false;
        for (at, line) in file.text.lines().enumerate() {
            let line = line.trim_start();
            let text = line.strip_prefix("///").or(line.strip_prefix("//!"));
            let Some(words) = text.and_then(|text| text.trim().strip_prefix("```")) else {
                continue;
            };
            is_open = !is_open;
            seen += 1;
            let may_stand = words.starts_with("text")
                || tested.iter().any(|folder| file.path.starts_with(folder));
            assert!(!is_open || may_stand, "{}:{}: {line}", file.path, at + 1);
        }
    }
    assert!(seen > 0, "nothing was looked at");
}

#[test]
fn functions_are_short_enough_to_read() {
    let mut long = Vec::new();
    for file in files(&[".rs"]) {
        for Function {
            name,
            line,
            code_lines,
        } in functions(&code(&file.text))
        {
            let path = &file.path;
            let is_test = path.contains("/tests/") || path.ends_with("/tests.rs");
            if code_lines > FUNCTION_LINES_MAX && !is_test {
                long.push(format!(
                    "{path}:{line}: {name} has {code_lines} lines of code"
                ));
            }
        }
    }
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn nothing_is_left_over() {
    for file in files(&[".rs"]) {
        for (at, line) in code(&file.text).lines().enumerate() {
            for word in LEFT_OVERS {
                let found = match word.strip_suffix('!') {
                    Some(name) => has_word(line, name) && line.contains(word),
                    None => line.contains(word),
                };
                assert!(!found, "{}:{}: {word}", file.path, at + 1);
            }
        }
    }
}

#[test]
fn nothing_names_a_place_of_one_machine() {
    // Put together here, or this very file would be found.
    let places = [
        root().display().to_string() + "/",
        ["/ho", "me/"].concat(),
        ["/ro", "ot/"].concat(),
    ];
    for file in files(&[".rs", ".md", ".toml", ".sh", ".py", "run"]) {
        for (at, line) in file.text.lines().enumerate() {
            let named = places.iter().find(|place| line.contains(*place));
            assert!(named.is_none(), "{}:{}: {named:?}", file.path, at + 1);
        }
    }
}

/// What a test does that passes where it cannot run. Each is put together here, or this
/// very file would be found.
const PASSED_OVER: &[[&str; 2]] = &[
    ["\"SKI", "PPED"],
    ["\"skip", "ped: "],
    ["\"LEFT", " TO CI"],
    ["return eprint", "ln!"],
    ["return skip", "ped("],
    ["reactor::pro", "be("],
    ["is_root() {\n        ret", "urn"],
];

/// A test that the machine cannot run is ignored, with the reason: `#[needs(...)]`.
#[test]
fn no_test_passes_over_what_the_machine_lacks() {
    let mut wrong = Vec::new();
    for file in files(&[".rs"]) {
        let is_test = file.path.contains("tests/");
        let tests = match file.text.find("#[cfg(test)]") {
            _ if is_test => &*file.text,
            Some(at) => &file.text[at..],
            None => continue,
        };
        let found = PASSED_OVER.iter().map(|parts| parts.concat());
        let found = found.filter(|words| tests.contains(words.as_str()));
        wrong.extend(found.map(|words| format!("{}: {words}", file.path)));
    }
    assert!(wrong.is_empty(), "use #[needs(...)]: {wrong:#?}");
}
