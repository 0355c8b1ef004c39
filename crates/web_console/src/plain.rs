//! Texts of others, without what would change the order or look of those around them.

use std::borrow::Cow;

/// The text with characters that command written out: control characters, and those that turn
/// the direction of writing (Unicode Standard Annex 9, section 2).
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    let commands = |c: char| {
        let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' |
            '\u{2066}'..='\u{2069}');
        turns || (c.is_control() && c != '\n')
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
