//! Blocks in braces, as ganesha.conf, ctl.conf and UCL have them.

use crate::report::Place;
use crate::tree::SourceKey;

/// No configuration goes deeper.
pub(crate) const DEPTH_MAX: usize = 32;

/// How a file writes its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockStyle {
    /// `NAME { key = value, value; }`, names without regard to case.
    Ganesha,
    /// `name word word { ... }`, a statement a line.
    Ctl,
    /// `key = value`, `key { ... }`, `key name { ... }`, `key [ ... ]`: UCL.
    Ucl,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Mark(char),
    /// The end of a line.
    End,
}

/// Reads a text into the keys of its top level.
///
/// # Errors
/// The line, and what is wrong there.
pub(crate) fn read(
    style: BlockStyle,
    text: &str,
    file: u16,
) -> Result<Vec<SourceKey>, (Place, String)> {
    let tokens = tokens(style, text, file)?;
    let mut reader = BlockReader {
        style,
        open: vec![SourceKey::default()],
        arrays: vec![false],
        words: Vec::new(),
        place: Place { file, line: 1 },
    };
    let mut last = Place { file, line: 1 };
    for (line, token) in tokens {
        last = Place { file, line };
        reader.take(last, token).map_err(|why| (last, why))?;
    }
    reader.end().map_err(|why| (last, why))?;
    match (reader.open.pop(), reader.open.is_empty()) {
        (Some(top), true) => Ok(top.keys),
        (Some(open), false) => {
            let why = format!("`{}` is not closed: write the other brace", open.name);
            Err((open.place, why))
        }
        (None, _) => Ok(Vec::new()),
    }
}

struct BlockReader {
    style: BlockStyle,
    /// The blocks around this place; the first is the file.
    open: Vec<SourceKey>,
    /// Which of them are lists.
    arrays: Vec<bool>,
    /// Of a statement that has begun.
    words: Vec<String>,
    place: Place,
}

impl BlockReader {
    fn take(&mut self, place: Place, token: Token) -> Result<(), String> {
        let in_array = self.arrays.last() == Some(&true);
        match token {
            Token::Word(word) => {
                if self.words.is_empty() {
                    self.place = place;
                }
                self.words.push(word);
                if in_array {
                    self.end()?;
                }
                Ok(())
            }
            Token::Mark('{') => self.begin(place, false),
            Token::Mark('[') => self.begin(place, true),
            Token::Mark(mark @ ('}' | ']')) => self.close(mark),
            Token::Mark(';') => self.end(),
            Token::Mark(',') if self.style == BlockStyle::Ucl && !in_array => self.end(),
            // Between a key and its values.
            Token::Mark(_) => Ok(()),
            Token::End if self.style == BlockStyle::Ganesha => Ok(()),
            // A brace may stand in the line after its name; a value must not.
            Token::End if self.words.len() == 1 && self.style == BlockStyle::Ucl => Ok(()),
            Token::End => self.end(),
        }
    }

    fn begin(&mut self, place: Place, is_array: bool) -> Result<(), String> {
        if self.open.len() > DEPTH_MAX {
            return Err(format!(
                "blocks are nested more than {DEPTH_MAX} deep: this is no configuration"
            ));
        }
        let in_array = self.arrays.last() == Some(&true);
        let mut words = std::mem::take(&mut self.words).into_iter();
        let name = words.next();
        if name.is_none() && !in_array && self.open.len() > 1 {
            return Err("a brace without a name before it".to_owned());
        }
        let mut key = SourceKey::new(&name.unwrap_or_default(), place);
        key.words = words.collect();
        self.fold(&mut key);
        self.open.push(key);
        self.arrays.push(is_array);
        Ok(())
    }

    fn fold(&self, key: &mut SourceKey) {
        if self.style == BlockStyle::Ganesha {
            key.name.make_ascii_lowercase();
        }
    }

    fn close(&mut self, mark: char) -> Result<(), String> {
        self.end()?;
        let is_array = self.arrays.pop();
        let Some(mut key) = self.open.pop().filter(|_| !self.open.is_empty()) else {
            return Err(format!("`{mark}` closes nothing: take it out"));
        };
        if is_array != Some(mark == ']') {
            return Err(format!("`{mark}` does not close `{}`", key.name));
        }
        // UCL: `key name { ... }` is `key { name { ... } }`.
        if self.style == BlockStyle::Ucl {
            while let Some(name) = key.words.pop_if(|_| is_array == Some(false)) {
                let mut inner = SourceKey::new(&name, key.place);
                inner.keys = std::mem::take(&mut key.keys);
                key.keys.push(inner);
            }
            if key.name.is_empty() && self.open.len() == 1 && is_array == Some(false) {
                // Braces around the whole.
                self.open[0].keys.append(&mut key.keys);
                return Ok(());
            }
        }
        let place = self.open.len() - 1;
        let parent = &mut self.open[place];
        // Named twice, it is one with the keys of both.
        let same = |known: &&mut SourceKey| known.name == key.name && known.words.is_empty();
        let is_list = is_array == Some(true) || key.name.is_empty();
        let known = parent.keys.last_mut().filter(same);
        match known {
            Some(known) if self.style == BlockStyle::Ucl && !is_list => {
                known.keys.append(&mut key.keys);
            }
            _ => parent.keys.push(key),
        }
        Ok(())
    }

    /// Ends a statement.
    fn end(&mut self) -> Result<(), String> {
        let words = std::mem::take(&mut self.words);
        let in_array = self.arrays.last() == Some(&true);
        let Some(parent) = self.open.last_mut() else {
            return Ok(());
        };
        if in_array {
            parent.words.extend(words);
            return Ok(());
        }
        let Some((name, rest)) = words.split_first() else {
            return Ok(());
        };
        if rest.is_empty() && self.style != BlockStyle::Ctl {
            return Err(format!("`{name}` has no value: give it one"));
        }
        let mut key = SourceKey::new(name, self.place);
        key.words = rest.to_vec();
        self.fold(&mut key);
        if let Some(parent) = self.open.last_mut() {
            parent.keys.push(key);
        }
        Ok(())
    }
}

/// What stands up to the other quotation mark, in the same line.
fn quoted(rest: &mut impl Iterator<Item = char>, mark: char) -> Result<String, String> {
    let mut quoted = String::new();
    loop {
        match rest.next() {
            Some(end) if end == mark => return Ok(quoted),
            Some('\\') if mark == '"' => quoted.extend(rest.next()),
            Some('\n') | None => return Err(format!("{mark} is not closed: write the other one")),
            Some(c) => quoted.push(c),
        }
    }
}

fn tokens(style: BlockStyle, text: &str, file: u16) -> Result<Vec<(u32, Token)>, (Place, String)> {
    let mut tokens = Vec::new();
    let mut rest = text.chars().peekable();
    let mut line: u32 = 1;
    let mut word = String::new();
    let end_word = |word: &mut String, tokens: &mut Vec<(u32, Token)>, line: u32| {
        // `key: value` of UCL.
        let has_colon = style == BlockStyle::Ucl && word.len() > 1 && word.ends_with(':');
        if has_colon {
            word.pop();
        }
        if !word.is_empty() {
            tokens.push((line, Token::Word(std::mem::take(word))));
        }
    };
    while let Some(c) = rest.next() {
        match c {
            '\n' => {
                end_word(&mut word, &mut tokens, line);
                tokens.push((line, Token::End));
                line += 1;
            }
            c if c.is_whitespace() => end_word(&mut word, &mut tokens, line),
            '#' if word.is_empty() => while rest.next_if(|c| *c != '\n').is_some() {},
            '/' if word.is_empty() && style == BlockStyle::Ucl && rest.peek() == Some(&'*') => {
                let mut before = ' ';
                let ended = loop {
                    let Some(c) = rest.next() else { break false };
                    line += u32::from(c == '\n');
                    if before == '*' && c == '/' {
                        break true;
                    }
                    before = c;
                };
                if !ended {
                    return Err((Place { file, line }, "a comment is not closed".to_owned()));
                }
            }
            '"' | '\'' if word.is_empty() => {
                let quoted = quoted(&mut rest, c);
                let quoted = quoted.map_err(|why| (Place { file, line }, why))?;
                // `"key": value`.
                if style == BlockStyle::Ucl {
                    rest.next_if_eq(&':');
                }
                tokens.push((line, Token::Word(quoted)));
            }
            // An address of IPv6 with its port.
            '[' if style == BlockStyle::Ctl => word.push(c),
            ']' if style == BlockStyle::Ctl => word.push(c),
            '[' | ']' if style == BlockStyle::Ganesha => word.push(c),
            '=' | ',' | ';' if style == BlockStyle::Ctl => word.push(c),
            '{' | '}' | '[' | ']' | ';' | ',' | '=' => {
                end_word(&mut word, &mut tokens, line);
                tokens.push((line, Token::Mark(c)));
            }
            c => word.push(c),
        }
    }
    end_word(&mut word, &mut tokens, line);
    tokens.push((line, Token::End));
    Ok(tokens)
}
