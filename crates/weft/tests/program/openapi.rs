//! The description of the API, and its copy in the repository.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::admin::Admin;
use crate::tcp::Tcp;
use crate::told::end_in_order;

/// The copy, for those who read it without a weft that runs.
const COPY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");

/// As it is served.
fn description() -> String {
    let admin = Admin::start();
    let answer = admin.exchange(b"GET /v1/openapi.json HTTP/1.0\r\nHost: weft\r\n\r\n");
    end_in_order(admin.serving);
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.0 200 "), "{head}");
    assert!(head.contains("content-type: application/json"), "{head}");
    body.to_owned()
}

/// As it is in the repository.
fn described() -> Value {
    let text = fs::read_to_string(COPY).expect("there");
    serde_json::from_str(&text).expect("JSON")
}

/// Every operation, with its path.
fn operations(described: &Value) -> Vec<(&str, &Value)> {
    let paths = described["paths"].as_object().expect("paths").iter();
    let operations = paths.flat_map(|(path, item)| {
        let item = item.as_object().expect("operations");
        item.values().map(move |operation| (&**path, operation))
    });
    operations.collect()
}

#[test]
fn description_in_the_repository_is_the_one_that_is_served() {
    let now = description();
    if std::env::var_os("WEFT_WRITE_DOCS").is_some() {
        fs::write(COPY, &now).expect("ours");
    }
    let there = fs::read_to_string(COPY).unwrap_or_default();
    assert!(
        there == now,
        "docs/openapi.json is stale: `WEFT_WRITE_DOCS=1 cargo test --workspace --test program -- \
         openapi` writes it"
    );
}

#[test]
fn route_has_a_description_or_is_for_browsers() {
    /// What is added with no description of its own: pages of browsers, and objects, whose paths
    /// are described by kinds.
    const OTHERS: [&str; 4] = [
        "/login/{secret}",
        "/console/{name}",
        "/configuration/change",
        "/v1/objects/{*object}",
    ];
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../admin/src");
    let mut seen = BTreeSet::new();
    let sources = fs::read_dir(sources).expect("sources").flatten();
    for source in sources.filter(|source| source.path().is_file()) {
        let text = fs::read_to_string(source.path()).expect("a source");
        let product = text.split("#[cfg(test)]").next().unwrap_or_default();
        for route in product.split(".route(").skip(1) {
            let Some(path) = route.trim_start().strip_prefix('"') else {
                // Those of the console's table.
                assert_eq!(source.file_name(), "console.rs", ".route({route}");
                continue;
            };
            let path = path.split('"').next().expect("its end").to_owned();
            assert!(
                OTHERS.contains(&&*path),
                "{path} has no description: give its function #[utoipa::path], and add it with \
                 .routes(routes!(...))"
            );
            seen.insert(path);
        }
    }
    assert_eq!(seen.len(), OTHERS.len(), "{seen:?}");
}

#[test]
fn description_is_whole() {
    let described = described();
    let mut values = vec![&described];
    while let Some(value) = values.pop() {
        if let Some(place) = value.get("$ref").and_then(Value::as_str) {
            let there = described.pointer(place.trim_start_matches('#'));
            assert!(there.is_some(), "{place}");
        }
        match value {
            Value::Object(members) => values.extend(members.values()),
            Value::Array(items) => values.extend(items),
            _ => {}
        }
    }
    let mut ids = BTreeSet::new();
    for (path, operation) in operations(&described) {
        let id = operation["operationId"].as_str().expect("an id");
        assert!(ids.insert(id), "{id} twice");
        assert!(
            operation["summary"].is_string(),
            "{id} says not what it does"
        );
        assert!(
            operation["responses"]["200"].is_object(),
            "{id} answers nothing"
        );
        let names = path.split('{').skip(1);
        for name in names.map(|rest| rest.split('}').next().expect("its end")) {
            let parameters = operation["parameters"].as_array().expect(id);
            let is_it = |known: &Value| known["name"] == name && known["in"] == "path";
            assert!(parameters.iter().any(is_it), "{id}: {name}");
        }
    }
}

#[test]
fn every_kind_of_objects_is_described_with_its_fields() {
    let described = described();
    for kind in control::object_kinds() {
        let path = format!("/v1/objects/{}", kind.replace('/', "%2F"));
        let paths = described["paths"].as_object().expect("paths").iter();
        let mut set = paths.filter_map(|(known, item)| {
            let rest = known.strip_prefix(&path)?;
            let body = &item.get("patch")?["requestBody"];
            (rest.is_empty() || rest.starts_with("/")).then_some(body)
        });
        let body = set.next().unwrap_or_else(|| panic!("{kind}"));
        let schema = body["content"]["application/json"]["schema"]["$ref"].as_str();
        let fields = described.pointer(schema.expect("a schema").trim_start_matches('#'));
        assert!(fields.expect("there")["properties"].is_object(), "{kind}");
    }
    let secret = "/components/schemas/TargetFields/properties/chap/anyOf/0/properties/secret";
    assert!(described.pointer(secret).is_some());
}

#[test]
fn operation_without_a_login_is_refused_but_for_the_two_that_are_open() {
    let tcp = Tcp::start();
    let described = described();
    let mut open = Vec::new();
    for (path, item) in described["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let place = path.replace(['{', '}'], "");
            let answer = tcp.ask(&format!("{} {place}", method.to_uppercase()), "", "{}");
            match operation["security"] == serde_json::json!([{}]) {
                true => open.push(&**path),
                false => assert_eq!(answer.status, 401, "{method} {path}: {}", answer.body),
            }
        }
    }
    assert_eq!(open, ["/healthz", "/readyz"]);
}
