//! What is shown where a page cannot be.

use api::ProblemDetails;
use maud::{DOCTYPE, html};

use crate::layout::head;

/// Why a page is not shown. Whoever sees it may have no login.
#[must_use]
pub fn problem(problem: &ProblemDetails) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head(&problem.title))
            body {
                main {
                    h1 { (problem.title) }
                    p { (problem.detail) }
                    @if let Some(hint) = &problem.hint { p { (hint) } }
                    p { a href="/" { "Overview" } }
                }
            }
        }
    };
    page.into_string()
}
