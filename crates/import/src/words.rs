//! Lines and words, as most of these programs write them.

/// Lines with the numbers of their first parts: a backslash at the end goes on in the next.
/// Empty ones and comments, which begin with `#`, are left out.
pub(crate) fn logical_lines(text: &str) -> impl Iterator<Item = (u32, String)> {
    let mut lines = (1..).zip(text.lines());
    std::iter::from_fn(move || {
        loop {
            let (number, first) = lines.next()?;
            let mut whole = first.to_owned();
            while whole.ends_with('\\') {
                whole.pop();
                let Some((_, next)) = lines.next() else { break };
                whole.push(' ');
                whole.push_str(next);
            }
            let is_told = !whole.trim_start().starts_with('#') && !whole.trim().is_empty();
            if is_told {
                return Some((number, whole));
            }
        }
    })
}

/// Words between blanks; quotation marks hold blanks together, and `#` begins a comment.
///
/// # Errors
/// A quotation mark is not closed.
pub(crate) fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    match quote {
        None => Ok(words),
        Some(quote) => Err(format!("{quote} is not closed: write the other one")),
    }
}
