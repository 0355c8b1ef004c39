//! Names of types: one that stands for many things tells a reader nothing.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Attribute, Item};

use crate::scan::files;

/// Types that may have one name, tests apart.
const SAME_NAME_MAX: usize = 3;

#[test]
fn no_type_name_stands_for_more_than_three_types() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, name) in types_of_the_product() {
        places.entry(name).or_default().push(path);
    }
    assert!(places.len() > 1000, "the product's types were looked at");
    places.retain(|_, paths| paths.len() > SAME_NAME_MAX);
    assert!(places.is_empty(), "rename all but three: {places:#?}");
}

/// A name of a test says of which thing it tells, when, and what is so then.
#[test]
fn names_of_functions_begin_with_no_pronoun() {
    const PRONOUNS: [&str; 2] = ["what_", "who_"];
    let mut wrong = Vec::new();
    let sources = files(&[".rs"]);
    for file in &sources {
        for line in file.text.lines() {
            let words = line.split_once("fn ").map(|(_, name)| name);
            let name = words.filter(|name| PRONOUNS.iter().any(|of| name.starts_with(of)));
            wrong.extend(name.map(|name| format!("{}: {name}", file.path)));
        }
    }
    assert!(sources.len() > 500, "the sources were looked at");
    assert!(
        wrong.is_empty(),
        "say subject, condition and expectation: {wrong:#?}"
    );
}

/// The last column of the glossary names a type by its room.
#[test]
fn types_of_the_glossary_are_there() {
    let defined: BTreeSet<(String, String)> = types_of_the_product()
        .into_iter()
        .filter_map(|(path, name)| Some((path.split('/').nth(1)?.to_owned(), name)))
        .collect();
    let glossary = &files(&["glossary.md"])[0].text;
    let rows = glossary.lines().filter(|line| line.starts_with('|'));
    let named: Vec<_> = rows
        .filter_map(|row| row.rsplit('`').nth(1)?.split_once("::"))
        .map(|(room, name)| (room.to_owned(), name.to_owned()))
        .collect();
    assert!(named.len() > 20, "the glossary was looked at");
    let missing: Vec<_> = named
        .iter()
        .filter(|name| !defined.contains(name))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/glossary.md names what is not there: {missing:?}"
    );
}

/// A listing in architecture.md has a function a line, behind the path of its file below
/// `crates/`; without a path the file is that of the line before.
#[test]
fn functions_of_the_listed_ways_are_there() {
    let sources = files(&[".rs"]);
    let page = &files(&["architecture.md"])[0].text;
    let listings = page.split("```").skip(1).step_by(2);
    let (mut looked_at, mut missing) = (0, Vec::new());
    for listing in listings.filter(|listing| listing.contains(".rs ")) {
        let mut file = None;
        for line in listing.lines() {
            let mut words = line.split_whitespace();
            let Some(mut name) = words.next().filter(|word| !word.starts_with('[')) else {
                continue;
            };
            if name.ends_with(".rs") {
                let path = format!("crates/{name}");
                file = sources.iter().find(|source| source.path.ends_with(&path));
                name = words.next().unwrap_or_default();
            }
            let is_there =
                |open| file.is_some_and(|file| file.text.contains(&format!("fn {name}{open}")));
            looked_at += 1;
            if !is_there('(') && !is_there('<') {
                missing.push(line.to_owned());
            }
        }
    }
    assert!(looked_at > 200, "the listings were looked at");
    assert!(
        missing.is_empty(),
        "docs/architecture.md lists what is not there: {missing:#?}"
    );
}

/// Every type of the product, behind the path of its file.
fn types_of_the_product() -> Vec<(String, String)> {
    let is_of_product = |path: &str| {
        let is_test = path.ends_with("/tests.rs") || path.contains("/tests/");
        !is_test && path.contains("/src/")
    };
    let mut found = Vec::new();
    for file in files(&[".rs"])
        .iter()
        .filter(|file| is_of_product(&file.path))
    {
        let parsed = syn::parse_file(&file.text).expect("it compiles");
        found.extend(
            types(&parsed.items)
                .into_iter()
                .map(|name| (file.path.clone(), name)),
        );
    }
    found
}

/// Names of the types that these items define, those of modules among them too.
fn types(items: &[Item]) -> Vec<String> {
    let mut found = Vec::new();
    for item in items {
        let (attributes, name) = match item {
            Item::Struct(item) => (&item.attrs, &item.ident),
            Item::Enum(item) => (&item.attrs, &item.ident),
            Item::Trait(item) => (&item.attrs, &item.ident),
            Item::Type(item) => (&item.attrs, &item.ident),
            Item::Union(item) => (&item.attrs, &item.ident),
            Item::Mod(module) => {
                let inner = module.content.as_ref().map(|(_, items)| &items[..]);
                if !module.attrs.iter().any(is_of_tests) {
                    found.extend(types(inner.unwrap_or_default()));
                }
                continue;
            }
            _ => continue,
        };
        if !attributes.iter().any(is_of_tests) {
            found.push(name.to_string());
        }
    }
    found
}

fn is_of_tests(attribute: &Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else {
        return false;
    };
    list.path.is_ident("cfg") && list.tokens.to_string().contains("test")
}
