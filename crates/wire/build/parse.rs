//! Reads descriptions in the XDR language (RFC 4506, section 6), with four
//! things of our own: every variable length has a bound, `/// text` documents
//! the definition behind it, `payload NAME;` is variable-length opaque data
//! whose bytes are not here but in memory of their own, and `chain T NAME;` is
//! what the standards describe as a struct that points to the next of its kind.

use std::collections::BTreeMap;

/// What a name in a description stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Definition {
    /// A number.
    Const(u64),
    /// Another name for a type.
    Typedef(Type),
    /// Names for numbers, in order.
    Enum(Vec<(String, u32)>),
    /// Fields, in order.
    Struct(Vec<Field>),
    /// One of several, told apart by a number before it.
    Union(Union),
}

/// A definition with its name and its documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub name: String,
    pub doc: Vec<String>,
    pub what: Definition,
}

/// A field of a struct, or what an arm of a union holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    pub kind: Type,
}

/// The type of a declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    U32,
    I32,
    U64,
    I64,
    Bool,
    /// `opaque NAME[N]`.
    OpaqueFixed(String),
    /// `opaque NAME<N>` and `string NAME<N>`.
    Opaque(String),
    /// `T NAME<N>`.
    List(Box<Type>, String),
    /// `T NAME[N]`.
    Array(Box<Type>, String),
    /// `T *NAME`.
    Optional(Box<Type>),
    /// `payload NAME`.
    Payload,
    /// `chain T NAME`.
    Chain(Box<Type>),
    /// Defined elsewhere in the group.
    Named(String),
}

/// `union NAME switch (KIND WHICH) { ... }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Union {
    /// Type of the number that tells.
    pub by: Type,
    /// Case labels (names or numbers) and what follows; `None`: nothing.
    pub arms: Vec<(Vec<String>, Option<Field>)>,
    /// What follows any other number, if others are allowed.
    pub default: Option<Option<Field>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Punct(char),
    Doc(String),
}

/// Reads one description.
///
/// # Errors
/// Where it is wrong, with the line.
pub fn parse(text: &str) -> Result<Vec<Item>, String> {
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
    };
    let mut items = Vec::new();
    while parser.at < parser.tokens.len() {
        items.push(parser.item()?);
    }
    Ok(items)
}

/// Every constant and value of an enum, by name.
pub fn numbers(items: &[Item]) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for item in items {
        match &item.what {
            Definition::Const(value) => {
                found.insert(item.name.clone(), *value);
            }
            Definition::Enum(values) => {
                found.extend(
                    values
                        .iter()
                        .map(|(name, value)| (name.clone(), u64::from(*value))),
                );
            }
            _ => {}
        }
    }
    found
}

fn tokens(text: &str) -> Result<Vec<(usize, Token)>, String> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let trimmed = line.trim_start();
        if let Some(doc) = trimmed.strip_prefix("///") {
            found.push((number, Token::Doc(doc.trim().to_owned())));
            continue;
        }
        let line = line.split("//").next().unwrap_or(line);
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let len = match first {
                c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
                '{' | '}' | '(' | ')' | '<' | '>' | '[' | ']' | ';' | ':' | ',' | '=' | '*' => 1,
                other => return Err(format!("line {number}: '{other}' is not XDR")),
            };
            let (word, behind) = rest.split_at(len);
            found.push((
                number,
                match first {
                    c if is_word(c) => Token::Word(word.to_owned()),
                    c => Token::Punct(c),
                },
            ));
            rest = behind.trim_start();
        }
    }
    Ok(found)
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    at: usize,
}

impl Parser {
    fn wrong<T>(&self, wanted: &str) -> Result<T, String> {
        Err(match self.tokens.get(self.at.min(self.tokens.len() - 1)) {
            Some((line, token)) => format!("line {line}: {token:?} where {wanted} should be"),
            None => format!("the end where {wanted} should be"),
        })
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(_, token)| token)
    }

    fn take(&mut self, punct: char) -> bool {
        let found = self.peek() == Some(&Token::Punct(punct));
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, punct: char) -> Result<(), String> {
        match self.take(punct) {
            true => Ok(()),
            false => self.wrong(&format!("'{punct}'")),
        }
    }

    fn word(&mut self) -> Result<String, String> {
        match self.peek() {
            Some(Token::Word(word)) => {
                let word = word.clone();
                self.at += 1;
                Ok(word)
            }
            _ => self.wrong("a word"),
        }
    }

    fn keyword(&mut self, keyword: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Word(word)) if word == keyword);
        self.at += usize::from(found);
        found
    }

    fn item(&mut self) -> Result<Item, String> {
        let mut doc = Vec::new();
        while let Some(Token::Doc(line)) = self.peek() {
            doc.push(line.clone());
            self.at += 1;
        }
        let (name, what) = match self.word()?.as_str() {
            "const" => {
                let name = self.word()?;
                self.expect('=')?;
                (name, Definition::Const(self.number()?))
            }
            "typedef" => {
                let field = self.declaration()?;
                (field.name, Definition::Typedef(field.kind))
            }
            "enum" => (self.word()?, Definition::Enum(self.values()?)),
            "struct" => (self.word()?, Definition::Struct(self.fields()?)),
            "union" => (self.word()?, Definition::Union(self.union()?)),
            _ => {
                self.at -= 1;
                return self.wrong("const, typedef, enum, struct or union");
            }
        };
        self.expect(';')?;
        Ok(Item { name, doc, what })
    }

    fn number(&mut self) -> Result<u64, String> {
        let word = self.word()?;
        number_of(&word).ok_or_else(|| {
            self.at -= 1;
            self.wrong::<()>("a number").unwrap_err()
        })
    }

    fn values(&mut self) -> Result<Vec<(String, u32)>, String> {
        self.expect('{')?;
        let mut values = Vec::new();
        loop {
            let name = self.word()?;
            self.expect('=')?;
            let value = self.number()?;
            values.push((name, u32::try_from(value).map_err(|e| e.to_string())?));
            if !self.take(',') {
                break;
            }
        }
        self.expect('}')?;
        Ok(values)
    }

    fn fields(&mut self) -> Result<Vec<Field>, String> {
        self.expect('{')?;
        let mut fields = Vec::new();
        while !self.take('}') {
            fields.push(self.declaration()?);
            self.expect(';')?;
        }
        Ok(fields)
    }

    fn union(&mut self) -> Result<Union, String> {
        if !self.keyword("switch") {
            return self.wrong("switch");
        }
        self.expect('(')?;
        let by = self.declaration()?.kind;
        self.expect(')')?;
        self.expect('{')?;
        let (mut arms, mut default) = (Vec::new(), None);
        while !self.take('}') {
            if self.keyword("default") {
                self.expect(':')?;
                default = Some(self.arm()?);
                continue;
            }
            let mut labels = Vec::new();
            while self.keyword("case") {
                labels.push(self.word()?);
                self.expect(':')?;
            }
            if labels.is_empty() {
                return self.wrong("case or default");
            }
            arms.push((labels, self.arm()?));
        }
        Ok(Union { by, arms, default })
    }

    fn arm(&mut self) -> Result<Option<Field>, String> {
        let field = match self.keyword("void") {
            true => None,
            false => Some(self.declaration()?),
        };
        self.expect(';')?;
        Ok(field)
    }

    fn declaration(&mut self) -> Result<Field, String> {
        let first = self.word()?;
        let unsigned = first == "unsigned";
        let base = match unsigned {
            true => format!("u{}", self.word()?),
            false => first,
        };
        if base == "payload" {
            return Ok(Field {
                name: self.word()?,
                kind: Type::Payload,
            });
        }
        if base == "chain" {
            let of = Type::Named(self.word()?);
            return Ok(Field {
                name: self.word()?,
                kind: Type::Chain(Box::new(of)),
            });
        }
        let is_bytes = base == "opaque" || base == "string";
        let kind = match base.as_str() {
            "int" | "int32_t" => Type::I32,
            "uint" | "uint32_t" => Type::U32,
            "hyper" | "int64_t" => Type::I64,
            "uhyper" | "uint64_t" => Type::U64,
            "bool" => Type::Bool,
            other => Type::Named(other.to_owned()),
        };
        if self.take('*') {
            return Ok(Field {
                name: self.word()?,
                kind: Type::Optional(Box::new(kind)),
            });
        }
        let name = self.word()?;
        let kind = if self.take('<') {
            let max = self
                .word()
                .map_err(|why| format!("{why}: {name} has no bound"))?;
            self.expect('>')?;
            match is_bytes {
                true => Type::Opaque(max),
                false => Type::List(Box::new(kind), max),
            }
        } else if self.take('[') {
            let len = self.word()?;
            self.expect(']')?;
            match is_bytes {
                true => Type::OpaqueFixed(len),
                false => Type::Array(Box::new(kind), len),
            }
        } else if is_bytes {
            return self.wrong("the length of bytes");
        } else {
            kind
        };
        Ok(Field { name, kind })
    }
}

/// A number as C writes it.
pub fn number_of(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistake_is_told_with_its_line() {
        let wrong = [
            ("struct a {\n int x\n};", "line 3"),
            ("typedef opaque name<>;", "name has no bound"),
            ("typedef opaque name;", "length of bytes"),
            ("enum e { A = x };", "a number"),
            ("union u switch (int i) { int x; };", "case or default"),
            ("int x;", "const, typedef"),
            ("const A = 1 $", "'$' is not XDR"),
        ];
        for (text, why) in wrong {
            let error = parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn numbers_are_found_by_name() {
        let items = parse("const A = 0x10; // sixteen\nenum e { B = 2, C = 3 };").unwrap();
        let found = numbers(&items);
        assert_eq!(found.into_values().collect::<Vec<_>>(), [16, 2, 3]);
    }
}
