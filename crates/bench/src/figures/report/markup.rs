//! Elements, attributes and text, for HTML and SVG alike: what is written is
//! well-formed XML, and whatever came from outside is escaped.

use std::fmt::{Display, Write};

/// A document that is being written.
#[derive(Debug, Default)]
pub(super) struct Markup {
    text: String,
    open: Vec<&'static str>,
    is_in_tag: bool,
}

impl Markup {
    /// Begins an element; [`Self::attr`] may follow, then content.
    pub(super) fn begin(&mut self, name: &'static str) -> &mut Self {
        self.end_tag();
        self.text.push('<');
        self.text.push_str(name);
        self.open.push(name);
        self.is_in_tag = true;
        self
    }

    /// An attribute of the element that was begun last.
    ///
    /// # Panics
    /// When that has content already.
    pub(super) fn attr(&mut self, name: &str, value: impl Display) -> &mut Self {
        assert!(self.is_in_tag, "attribute {name} after content");
        write!(self.text, " {name}=\"").expect("strings take everything");
        escape(&mut self.text, &value.to_string());
        self.text.push('"');
        self
    }

    /// Text content.
    pub(super) fn text(&mut self, text: impl Display) -> &mut Self {
        self.end_tag();
        escape(&mut self.text, &text.to_string());
        self
    }

    /// What is markup already: another document's, or a style sheet without
    /// `<` and `&`.
    pub(super) fn raw(&mut self, markup: &str) -> &mut Self {
        self.end_tag();
        self.text.push_str(markup);
        self
    }

    /// Ends the element that was begun last.
    ///
    /// # Panics
    /// When there is none.
    pub(super) fn end(&mut self) -> &mut Self {
        let name = self.open.pop().expect("an element is open");
        match std::mem::take(&mut self.is_in_tag) {
            // HTML takes `<p/>` for an element that goes on.
            true if is_void(name) => self.text.push_str("/>"),
            true => write!(self.text, "></{name}>").expect("strings take everything"),
            false => write!(self.text, "</{name}>").expect("strings take everything"),
        }
        if is_block(name) {
            self.text.push('\n');
        }
        self
    }

    /// An element that holds text alone.
    pub(super) fn leaf(&mut self, name: &'static str, text: impl Display) -> &mut Self {
        self.begin(name).text(text).end()
    }

    /// The same of a class.
    pub(super) fn classed(
        &mut self,
        name: &'static str,
        class: &str,
        text: impl Display,
    ) -> &mut Self {
        self.begin(name).attr("class", class).text(text).end()
    }

    /// The document.
    ///
    /// # Panics
    /// When an element is open.
    pub(super) fn finish(self) -> String {
        assert!(self.open.is_empty(), "open: {:?}", self.open);
        self.text
    }

    fn end_tag(&mut self) {
        if std::mem::take(&mut self.is_in_tag) {
            self.text.push('>');
        }
    }
}

/// Elements of HTML and SVG that have no content ever.
fn is_void(name: &str) -> bool {
    matches!(name, "meta" | "br" | "col" | "path")
}

/// After which a line may end without showing.
fn is_block(name: &str) -> bool {
    !matches!(
        name,
        "a" | "b"
            | "br"
            | "code"
            | "em"
            | "i"
            | "path"
            | "s"
            | "small"
            | "span"
            | "td"
            | "text"
            | "th"
            | "title"
    )
}

fn escape(to: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => to.push_str("&amp;"),
            '<' => to.push_str("&lt;"),
            '>' => to.push_str("&gt;"),
            '"' => to.push_str("&quot;"),
            '\'' => to.push_str("&#39;"),
            // XML has no way to write the others (XML 1.0, 2.2).
            '\n' | '\t' => to.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => to.push('\u{fffd}'),
            c => to.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_outside_stays_text() {
        let evil = "</b><script>\"'&amp;\u{1b}[0m\u{0}";
        let mut to = Markup::default();
        to.begin("p").attr("title", evil).leaf("b", evil).end();
        let text = to.finish();
        let parsed = roxmltree::Document::parse(&text).expect("well-formed");
        let p = parsed.root_element();
        let same = evil.replace(['\u{1b}', '\u{0}'], "\u{fffd}");
        assert_eq!(p.attribute("title"), Some(&*same));
        assert_eq!(p.first_element_child().unwrap().text(), Some(&*same));
        assert_eq!(p.descendants().filter(|n| n.is_element()).count(), 2);
    }

    #[test]
    fn elements_without_content_are_ended_as_html_wants_it() {
        let mut to = Markup::default();
        to.begin("div").begin("br").end().begin("span").end().end();
        assert_eq!(to.finish(), "<div><br/><span></span></div>\n");
    }
}
