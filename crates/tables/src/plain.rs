//! Texts of others, without what would change the order or look of those around them.

use std::borrow::Cow;

/// The text with characters written out that show nothing of themselves, or command: but for the
/// end of a line control characters, separators, and what formats, such as what turns the
/// direction of writing (Unicode Standard Annex 9, section 2).
#[must_use]
pub fn plain(text: &str) -> Cow<'_, str> {
    let commands = |c: char| {
        let is_shown = matches!(c, '\n' | '"' | '\'' | '\\');
        !is_shown && c.escape_debug().len() > 1
    };
    if !text.contains(commands) {
        return Cow::Borrowed(text);
    }
    let one = |c: char| match commands(c) {
        true => c.escape_unicode().to_string(),
        false => c.to_string(),
    };
    Cow::Owned(text.chars().map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn character_that_commands_is_written_out() {
        assert!(matches!(plain("a `b` \"ü\"\n"), Cow::Borrowed(_)));
        let text = "a\u{202e}b\x1b[31m\u{9b}\r\u{2066}";
        let shown = "a\\u{202e}b\\u{1b}[31m\\u{9b}\\u{d}\\u{2066}";
        assert_eq!(plain(text), shown);
        for unseen in ["\u{2028}", "\u{200b}", "\u{feff}", "\u{ad}", "\u{e0041}"] {
            assert!(plain(unseen).starts_with("\\u{"), "{unseen:?}");
        }
    }
}
