//! Attributes for tests that not every machine can run.
//!
//! `#[needs(io_uring, program("setpriv"))]` above `#[test]` looks for what it names while
//! the test is compiled. Where the machine lacks it, the test is ignored, with the reason.
//! `probe.rs` has the list of names.
//!
//! `#[each_driver]` in place of `#[test]` makes two tests of a function that takes a
//! `reactor::Choice`: `NAME::epoll` and `NAME::io_uring`, of which the second needs
//! io_uring. Both need what the attribute names besides.
//!
//! A machine changes between two builds of a test at most: `cargo clean -p needs` has all
//! of these tests compiled anew. A test that fails says so.

#![forbid(unsafe_code)]

mod probe;

use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

use probe::Need;

/// What the machine may lack, or a text that explains what is wrong with the attribute.
type Expanded = Result<TokenStream, String>;

/// Ignores a test, with the reason, where the machine lacks what the attribute names.
#[proc_macro_attribute]
pub fn needs(names: TokenStream, test: TokenStream) -> TokenStream {
    told(needed(names).and_then(|needs| test_that_needs(&needs, test)))
}

/// One test for each driver of the reactor.
#[proc_macro_attribute]
pub fn each_driver(names: TokenStream, function: TokenStream) -> TokenStream {
    told(tests_of_drivers(&names.to_string(), function))
}

fn told(expanded: Expanded) -> TokenStream {
    expanded.unwrap_or_else(|wrong| tokens(&format!("::core::compile_error!({wrong:?});")))
}

fn tokens(text: &str) -> TokenStream {
    text.parse().expect("tokens of this crate")
}

/// The names in the attribute, each with the value in its parentheses.
fn needed(names: TokenStream) -> Result<Vec<Need>, String> {
    let mut needs: Vec<Need> = Vec::new();
    for token in names {
        match token {
            TokenTree::Ident(name) => needs.push(Need::new(&name.to_string())),
            TokenTree::Group(value) => {
                let need = needs.last_mut().ok_or("a value without a name")?;
                let written = value.stream().to_string();
                need.value = match written.strip_prefix('"') {
                    Some(text) => text.trim_end_matches('"').to_owned(),
                    None => written.replace('_', ""),
                };
            }
            TokenTree::Punct(comma) if comma.as_char() == ',' => {}
            other => return Err(format!("{other} is not what a test may need")),
        }
    }
    Ok(needs)
}

fn test_that_needs(needs: &[Need], test: TokenStream) -> Expanded {
    let mut expanded = TokenStream::new();
    // A test that is ignored anyway says why by itself.
    let is_ignored = test.to_string().contains("ignore =");
    for need in needs {
        if let Err(why) = need.probe()?
            && !is_ignored
        {
            expanded = tokens(&format!("#[ignore = {:?}]", format!("{need}: {why}")));
            break;
        }
    }
    let mut test: Vec<TokenTree> = test.into_iter().collect();
    let Some(TokenTree::Group(body)) = test.pop() else {
        return Err("a test has a body".into());
    };
    let mut told = tokens(&said_on_failure(needs));
    told.extend(body.stream());
    expanded.extend(test);
    expanded.extend([TokenTree::Group(Group::new(Delimiter::Brace, told))]);
    Ok(expanded)
}

/// Statements that say what a test needs if it fails, since the machine may have lost it,
/// and have cargo compile the test anew where what was asked for is a variable.
fn said_on_failure(needs: &[Need]) -> String {
    let names: Vec<String> = needs.iter().map(Need::to_string).collect();
    let variables = needs.iter().filter_map(Need::variable);
    let looked_at = variables.map(|name| format!("let _ = ::core::option_env!({name:?});"));
    let looked_at: String = looked_at.collect();
    let said = format!(
        "this test needs {}, which was there when it was compiled: if it is there no more, \
         `cargo clean -p needs` has the test ignored",
        names.join(", ")
    );
    format!(
        "{looked_at}\
         struct Needs; \
         impl ::core::ops::Drop for Needs {{ fn drop(&mut self) {{ \
         if ::std::thread::panicking() {{ ::std::eprintln!({said:?}); }} }} }} \
         let _needs = Needs;"
    )
}

fn tests_of_drivers(names: &str, function: TokenStream) -> Expanded {
    let mut words = function.clone().into_iter();
    let is_fn =
        |token: &TokenTree| matches!(token, TokenTree::Ident(word) if word.to_string() == "fn");
    words
        .find(is_fn)
        .ok_or("no function of a reactor::Choice")?;
    let name = words.next().ok_or("a function without a name")?;
    let mut expanded = function;
    expanded.extend(tokens(&format!(
        "mod {name} {{\
         #[::needs::needs({names})] #[test] fn epoll() {{ super::{name}(::reactor::Choice::Epoll) }}\
         #[::needs::needs(io_uring, {names})] #[test] fn io_uring() {{ super::{name}(::reactor::Choice::Uring) }}\
         }}"
    )));
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_test_names_what_it_needs_and_the_remedy() {
        let said = said_on_failure(&[Need::new("root"), Need::new("ipv6")]);
        assert!(said.contains("needs root, ipv6,") && said.contains("cargo clean -p needs"));
        assert!(!said.contains("option_env"));
        assert!(said_on_failure(&[Need::new("ci")]).contains("option_env!(\"CI\")"));
    }
}
