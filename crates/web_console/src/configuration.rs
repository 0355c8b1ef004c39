//! The text of the configuration.

use api::ConfigText;
use maud::html;

use crate::layout::Page;

/// The text that is served.
#[must_use]
pub fn configuration(page: &Page<'_>, config: &ConfigText) -> String {
    let document = &config.document;
    let content = html! {
        p {
            "Generation " (document.generation) " of "
            @match &document.file {
                Some(file) => { code { (file) } }
                None => { "what is built in" }
            }
            @if let Some(why) = &document.why { ": " (why) }
        }
        pre tabindex="0" { (config.text) }
        p {
            code { "weft diff -c FILE" } " shows what another text would change, "
            code { "weft apply -c FILE" } " serves it."
        }
    };
    page.whole("Configuration", false, &content)
}
