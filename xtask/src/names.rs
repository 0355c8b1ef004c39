//! Names of types: one that stands for many things tells a reader nothing.

use std::collections::BTreeMap;

use syn::{Attribute, Item};

use crate::scan::files;

/// Types that may have one name, tests apart.
const SAME_NAME_MAX: usize = 3;

#[test]
fn no_type_name_stands_for_more_than_three_types() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files(&[".rs"]) {
        let is_test = file.path.ends_with("/tests.rs") || file.path.contains("/tests/");
        if !is_test && file.path.contains("/src/") {
            let parsed = syn::parse_file(&file.text).expect("it compiles");
            for name in types(&parsed.items) {
                places.entry(name).or_default().push(file.path.clone());
            }
        }
    }
    assert!(places.len() > 1000, "the product's types were looked at");
    places.retain(|_, paths| paths.len() > SAME_NAME_MAX);
    assert!(places.is_empty(), "rename all but three: {places:#?}");
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

/// The last column of the glossary names a type by its room.
#[test]
fn types_of_the_glossary_are_there() {
    let glossary = files(&["glossary.md"]);
    let rows = glossary[0]
        .text
        .lines()
        .filter(|line| line.starts_with('|'));
    let names = rows.filter_map(|row| row.rsplit('`').nth(1)?.split_once("::"));
    let mut seen = 0;
    for (room, name) in names {
        let folder = format!("crates/{room}/src/");
        let is_there = files(&[".rs"]).iter().any(|file| {
            let is_word = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric());
            let mut after = file.text.split(name).skip(1);
            file.path.starts_with(&folder) && after.any(is_word)
        });
        assert!(is_there, "docs/glossary.md: there is no {name} in {room}");
        seen += 1;
    }
    assert!(seen > 20, "the glossary was looked at");
}
