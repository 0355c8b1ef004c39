//! Writes Rust for parsed descriptions. Names stay as the standards spell them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::parse::{Definition, Field, Item, Type, Union, number_of, numbers};

/// What a description may use: its own items and those of its group.
pub struct Group<'g> {
    items: BTreeMap<&'g str, &'g Item>,
    numbers: BTreeMap<String, u64>,
    /// Types that point into the bytes they were read from.
    borrowing: BTreeSet<&'g str>,
}

impl<'g> Group<'g> {
    /// Of everything that is described together.
    pub fn new(all: &'g [Item]) -> Group<'g> {
        let items: BTreeMap<&str, &Item> = all.iter().map(|i| (i.name.as_str(), i)).collect();
        let mut group = Group {
            items,
            numbers: numbers(all),
            borrowing: BTreeSet::new(),
        };
        // Until nothing is added: a type borrows if something in it does.
        loop {
            let more: Vec<&str> = (group.items.iter())
                .filter(|(name, item)| !group.borrowing.contains(*name) && group.item_borrows(item))
                .map(|(name, _)| *name)
                .collect();
            if more.is_empty() {
                return group;
            }
            group.borrowing.extend(more);
        }
    }

    fn item_borrows(&self, item: &Item) -> bool {
        match &item.what {
            Definition::Const(_) | Definition::Enum(_) => false,
            Definition::Typedef(kind) => self.borrows(kind),
            Definition::Struct(fields) => fields.iter().any(|f| self.borrows(&f.kind)),
            Definition::Union(union) => (union.arms.iter())
                .filter_map(|(_, field)| field.as_ref())
                .chain(union.default.iter().flatten())
                .any(|f| self.borrows(&f.kind)),
        }
    }

    fn borrows(&self, kind: &Type) -> bool {
        match kind {
            Type::Opaque(_) | Type::List(..) | Type::Chain(_) => true,
            Type::Array(of, _) | Type::Optional(of) => self.borrows(of),
            Type::Named(name) => self.borrowing.contains(name.as_str()),
            _ => false,
        }
    }

    fn number(&self, word: &str) -> Result<u64, String> {
        let known = || self.numbers.get(word).copied();
        number_of(word)
            .or_else(known)
            .ok_or_else(|| format!("{word} is not a number that is known here"))
    }

    /// The type as Rust writes it.
    fn kind(&self, kind: &Type) -> Result<String, String> {
        Ok(match kind {
            Type::U32 => "u32".into(),
            Type::I32 => "i32".into(),
            Type::U64 => "u64".into(),
            Type::I64 => "i64".into(),
            Type::Bool => "bool".into(),
            Type::Payload => "Payload".into(),
            Type::Chain(of) => format!("Chain<'a, {}>", self.kind(of)?),
            Type::OpaqueFixed(len) => format!("[u8; {}]", self.number(len)?),
            Type::Opaque(max) => format!("Opaque<'a, {}>", self.number(max)?),
            Type::List(of, max) => format!("List<'a, {}, {}>", self.kind(of)?, self.number(max)?),
            Type::Array(of, len) => format!("[{}; {}]", self.kind(of)?, self.number(len)?),
            Type::Optional(of) => format!("Option<{}>", self.kind(of)?),
            Type::Named(name) => match self.items.contains_key(name.as_str()) {
                true => format!("{name}{}", self.lifetime(name)),
                false => return Err(format!("{name} is not described")),
            },
        })
    }

    fn lifetime(&self, name: &str) -> &'static str {
        match self.borrowing.contains(name) {
            true => "<'a>",
            false => "",
        }
    }

    /// Rust for the items of one description.
    pub fn write(&self, items: &[Item]) -> Result<String, String> {
        let mut out = String::new();
        for item in items {
            for line in &item.doc {
                let _ = writeln!(out, "/// {line}");
            }
            let name = &item.name;
            let written = match &item.what {
                Definition::Const(value) => {
                    let kind = if u32::try_from(*value).is_ok() {
                        "u32"
                    } else {
                        "u64"
                    };
                    let _ = writeln!(out, "pub const {name}: {kind} = {value};");
                    Ok(())
                }
                Definition::Typedef(kind) => self.kind(kind).map(|kind| {
                    let _ = writeln!(out, "pub type {name}{} = {kind};", self.lifetime(name));
                }),
                Definition::Enum(values) => {
                    write_enum(&mut out, name, values);
                    Ok(())
                }
                Definition::Struct(fields) => self.write_struct(&mut out, name, fields),
                Definition::Union(union) => self.write_union(&mut out, name, union),
            };
            written.map_err(|why| format!("{name}: {why}"))?;
            out.push('\n');
        }
        Ok(out)
    }

    fn write_struct(&self, out: &mut String, name: &str, fields: &[Field]) -> Result<(), String> {
        let life = self.lifetime(name);
        let mut body = String::new();
        let (mut decode, mut encode) = (String::new(), String::new());
        for field in fields {
            let (field, kind) = (field_name(&field.name), self.kind(&field.kind)?);
            let _ = writeln!(body, "    pub {field}: {kind},");
            let _ = writeln!(decode, "            {field}: Decode::decode(from)?,");
            let _ = writeln!(encode, "        self.{field}.encode(to);");
        }
        // What borrows nothing has one size and few parts: reading it becomes part
        // of what wants it.
        let inline = if life.is_empty() {
            "#[inline]\n    "
        } else {
            ""
        };
        let _ = write!(
            out,
            "{DERIVE}pub struct {name}{life} {{\n{body}}}\n\
             impl<'a> Decode<'a> for {name}{life} {{\n    {inline}\
             fn decode(from: &mut Reader<'a>) -> Result<Self, XdrError> {{\n        \
             Ok({name} {{\n{decode}        }})\n    }}\n}}\n\
             impl Encode for {name}{} {{\n    {inline}\
             fn encode(&self, to: &mut Vec<u8>) {{\n{encode}    }}\n}}\n",
            life.replace('a', "_"),
        );
        Ok(())
    }

    fn write_union(&self, out: &mut String, name: &str, union: &Union) -> Result<(), String> {
        let life = self.lifetime(name);
        let by = self.kind(&union.by)?;
        let (mut body, mut decode, mut encode) = (String::new(), String::new(), String::new());
        for (labels, field) in &union.arms {
            for label in labels {
                let (variant, number) = self.label(&union.by, label)?;
                match field {
                    Some(field) => {
                        let kind = self.kind(&field.kind)?;
                        let _ = writeln!(body, "    {variant}({kind}),");
                        let _ = writeln!(
                            decode,
                            "            {number} => {name}::{variant}(Decode::decode(from)?),"
                        );
                        let _ = writeln!(
                            encode,
                            "            {name}::{variant}(body) => {{\n                \
                             {number}.encode(to);\n                body.encode(to);\n            }}"
                        );
                    }
                    None => {
                        let _ = writeln!(body, "    {variant},");
                        let _ = writeln!(decode, "            {number} => {name}::{variant},");
                        let _ = writeln!(
                            encode,
                            "            {name}::{variant} => {number}.encode(to),"
                        );
                    }
                }
            }
        }
        match &union.default {
            None if self.is_complete(union) => {}
            None => {
                let _ = writeln!(
                    decode,
                    "            _ => return Err(XdrError::Value {{ what: \"{name}\" }}),"
                );
            }
            Some(None) => {
                let _ = writeln!(body, "    default({by}),");
                let _ = writeln!(decode, "            other => {name}::default(other),");
                let _ = writeln!(
                    encode,
                    "            {name}::default(which) => which.encode(to),"
                );
            }
            Some(Some(field)) => {
                let kind = self.kind(&field.kind)?;
                let _ = writeln!(body, "    default({by}, {kind}),");
                let _ = writeln!(
                    decode,
                    "            other => {name}::default(other, Decode::decode(from)?),"
                );
                let _ = writeln!(
                    encode,
                    "            {name}::default(which, body) => {{\n                \
                     which.encode(to);\n                body.encode(to);\n            }}"
                );
            }
        }
        let _ = write!(
            out,
            "{DERIVE}pub enum {name}{life} {{\n{body}}}\n\
             impl<'a> Decode<'a> for {name}{life} {{\n    \
             fn decode(from: &mut Reader<'a>) -> Result<Self, XdrError> {{\n        \
             Ok(match {by}::decode(from)? {{\n{decode}        }})\n    }}\n}}\n\
             impl Encode for {name}{} {{\n    \
             fn encode(&self, to: &mut Vec<u8>) {{\n        match self {{\n{encode}        }}\n    }}\n}}\n",
            life.replace('a', "_"),
        );
        Ok(())
    }

    /// A case label as the name of a variant and as a value of the type that
    /// the union is switched by.
    fn label(&self, by: &Type, label: &str) -> Result<(String, String), String> {
        Ok(match by {
            Type::Bool => (label.to_owned(), label.to_lowercase()),
            Type::Named(of) if self.is_enum(of) => (label.to_owned(), format!("{of}::{label}")),
            _ => {
                let number = self.number(label)?;
                let variant = match number_of(label) {
                    Some(_) => format!("case_{label}"),
                    None => label.to_owned(),
                };
                (variant, format!("{number}u32"))
            }
        })
    }

    /// Whether every value of what it is switched by has an arm.
    fn is_complete(&self, union: &Union) -> bool {
        let labels: usize = union.arms.iter().map(|(labels, _)| labels.len()).sum();
        let all = match &union.by {
            Type::Bool => Some(2),
            Type::Named(name) => match &self.items[name.as_str()].what {
                Definition::Enum(values) => Some(values.len()),
                _ => None,
            },
            _ => None,
        };
        all == Some(labels)
    }

    fn is_enum(&self, name: &str) -> bool {
        let item = self.items.get(name);
        item.is_some_and(|item| matches!(item.what, Definition::Enum(_)))
    }
}

const DERIVE: &str = "#[derive(Clone, Copy, Debug, PartialEq, Eq)]\n";

fn write_enum(out: &mut String, name: &str, values: &[(String, u32)]) {
    let (mut body, mut decode) = (String::new(), String::new());
    for (value, number) in values {
        let _ = writeln!(body, "    {value} = {number},");
        let _ = writeln!(decode, "            {number} => {name}::{value},");
    }
    let _ = write!(
        out,
        "{DERIVE}#[repr(u32)]\npub enum {name} {{\n{body}}}\n\
         impl Decode<'_> for {name} {{\n    \
         fn decode(from: &mut Reader<'_>) -> Result<Self, XdrError> {{\n        \
         Ok(match u32::decode(from)? {{\n{decode}            \
         _ => return Err(XdrError::Value {{ what: \"{name}\" }}),\n        }})\n    }}\n}}\n\
         impl Encode for {name} {{\n    \
         fn encode(&self, to: &mut Vec<u8>) {{\n        (*self as u32).encode(to);\n    }}\n}}\n"
    );
}

/// Words of Rust's that the standards use as names.
fn field_name(name: &str) -> String {
    match name {
        "type" | "where" | "final" | "in" | "move" | "ref" | "match" => format!("{name}_"),
        _ => name.to_owned(),
    }
}
