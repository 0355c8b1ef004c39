//! Templates and what they are filled with.

use std::collections::BTreeMap;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior};
use serde::Serialize;

/// Renders one of the templates, in which whatever comes from outside is escaped.
///
/// # Panics
/// When the template asks for what is not there.
pub(super) fn render(template: &str, of: impl Serialize) -> String {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true);
    environment.set_syntax(syntax.build().expect("the default's delimiters"));
    let rendered = environment.render_str(template, Serde(of));
    rendered.expect("the template fits what it is of")
}

/// What the library says of each part of a chart: SVG takes it for granted, or finds
/// it at the root.
const GRANTED: &[&str] = &[
    r#" fill="none""#,
    r#" font-family="sans-serif""#,
    r#" opacity="1""#,
    r#" stroke="none""#,
    r#" stroke-width="1""#,
];

/// A chart with what its parts tell.
pub(super) fn with_told(svg: &str, told: &[impl Serialize]) -> String {
    let drawn = svg.trim_end().strip_suffix("</svg>").expect("a picture");
    let parts = render(include_str!("told.svg"), BTreeMap::from([("told", told)]));
    let drawn = GRANTED
        .iter()
        .fold(drawn.to_owned(), |drawn, said| drawn.replace(said, ""));
    let root = r#"<svg fill="none" font-family="sans-serif""#;
    format!("{}{parts}</svg>\n", drawn.replacen("<svg", root, 1))
}
