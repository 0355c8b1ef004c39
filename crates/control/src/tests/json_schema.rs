//! The schema that editors get, and documents that obey it.

use serde_json::Value;

use super::*;

/// What a value has against a schema, by the words that weft's schema uses alone.
fn mistakes(whole: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let judge = |schema: &Value, value: &Value| mistakes(whole, schema, value, at);
    let no = |is_right: bool, what: &str| match is_right {
        true => Vec::new(),
        false => vec![format!("{at}: {value} is no {what}")],
    };
    let one = |(word, said): (&String, &Value)| match (word.as_str(), value) {
        ("$schema" | "title" | "definitions" | "additionalProperties", _) => Vec::new(),
        ("$ref", _) => {
            let place = said.as_str().and_then(|place| place.strip_prefix('#'));
            let referred = place.and_then(|place| whole.pointer(place));
            judge(referred.expect("a place in the schema"), value)
        }
        ("anyOf", _) => {
            let any = said.as_array().expect("schemas");
            no(
                any.iter().any(|one| judge(one, value).is_empty()),
                "of any form",
            )
        }
        ("enum", _) => no(
            said.as_array().expect("values").contains(value),
            "such word",
        ),
        ("type", _) => {
            let is_right = match said.as_str() {
                Some("string") => value.is_string(),
                Some("integer") => value.is_i64() || value.is_u64(),
                Some("boolean") => value.is_boolean(),
                Some("array") => value.is_array(),
                Some("object") => value.is_object(),
                _ => panic!("{said} is no type that is known here"),
            };
            no(is_right, &said.to_string())
        }
        ("minimum", Value::Number(_)) => no(value.as_i64().is_none_or(|n| n >= 0), "such number"),
        // There is one, of sizes.
        ("pattern", Value::String(text)) => {
            let sizes = crate::pattern::members(text);
            let are_sizes = sizes
                .iter()
                .all(|text| crate::value::parse_size(text).is_ok());
            no(are_sizes, "size")
        }
        ("items", Value::Array(items)) => items.iter().flat_map(|item| judge(said, item)).collect(),
        ("properties", Value::Object(members)) => members
            .iter()
            .flat_map(|(key, member)| match said.get(key) {
                Some(schema) => mistakes(whole, schema, member, &format!("{at}.{key}")),
                None if schema["additionalProperties"] == false => vec![format!("{at}: {key}")],
                None => panic!("{at}: any key would do"),
            })
            .collect(),
        ("minimum" | "pattern" | "items" | "properties", _) => Vec::new(),
        _ => panic!("{word} is no word that is known here"),
    };
    schema
        .as_object()
        .expect("a schema")
        .iter()
        .flat_map(one)
        .collect()
}

fn judged(text: &str) -> Vec<String> {
    let table: toml::Table = text.parse().expect(text);
    let schema = json_schema();
    mistakes(
        &schema,
        &schema,
        &serde_json::to_value(table).expect("JSON"),
        "",
    )
}

/// What stands between fences of TOML.
fn documents_of_pages() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = std::fs::read_dir(root.join("docs")).expect("docs");
    let mut pages: Vec<_> = docs.map(|entry| entry.expect("an entry").path()).collect();
    pages.push(root.join("README.md"));
    pages.retain(|page| page.extension().is_some_and(|suffix| suffix == "md"));
    let blocks = |page: &PathBuf| {
        let text = std::fs::read_to_string(page).expect("a page");
        let blocks = text.split("```toml\n").skip(1);
        let blocks = blocks.map(|rest| rest.split("```").next().expect("a block").to_owned());
        blocks.collect::<Vec<_>>()
    };
    pages.iter().flat_map(blocks).collect()
}

#[test]
fn documents_obey_the_schema_that_editors_get() {
    let packaged = include_str!("../../../../packaging/weft.toml").to_owned();
    let mut documents = vec![
        EXAMPLE.to_owned(),
        uncommented(EXAMPLE),
        built_in_text(2049),
        packaged,
    ];
    let of_pages = documents_of_pages();
    assert!(of_pages.len() > 10, "{}", of_pages.len());
    documents.extend(of_pages);
    for text in documents {
        assert_eq!(judged(&text), [""; 0], "{text}");
    }
}

#[test]
fn document_that_the_schema_refuses_is_refused_by_weft() {
    for wrong in [
        "volume = 3",
        "[[volume]]\nsise = 1",
        "[[volume]]\nsize = \"1XiB\"",
        "[[volume]]\nadopt = \"yes\"",
        "[nvme]\nio_queues_max = -1",
        "[policy]\nspin_us_max = \"ever\"",
        "[[nvme.subsystem]]\nhosts = [3]",
        "[[iscsi.target]]\nchap = { use = \"a\" }",
    ] {
        assert_ne!(judged(wrong), [""; 0], "{wrong}");
        assert!(read(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn schema_has_every_key() {
    let schema = json_schema();
    for (title, keys) in SCHEMA {
        let section = match *title {
            "the file" => &schema,
            title => &schema["definitions"][title.trim_matches(['[', ']'])],
        };
        for key in *keys {
            assert!(
                section["properties"][key.name].is_object(),
                "{title} {}",
                key.name
            );
        }
    }
}
