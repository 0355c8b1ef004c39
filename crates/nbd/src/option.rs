//! The data of options.

use wire::nbd::{STRING_BYTES_MAX, info_type};

use crate::context::ContextsAsked;

/// What is asked about an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InfoAsked {
    /// The export; empty for the default one.
    pub name: String,
    /// NBD_INFO_NAME is wanted,
    pub wants_name: bool,
    /// and NBD_INFO_DESCRIPTION,
    pub wants_description: bool,
    /// and NBD_INFO_BLOCK_SIZE.
    pub wants_block_size: bool,
}

/// What is left of the data of an option.
struct OptionReader<'a>(&'a [u8]);

impl<'a> OptionReader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (part, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(part)
    }

    fn u16(&mut self) -> Option<u16> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u16::from_be_bytes(*bytes))
    }

    fn u32(&mut self) -> Option<u32> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*bytes))
    }

    fn string(&mut self) -> Option<&'a str> {
        let len = self.u32()? as usize;
        text(self.take(len)?)
    }

    /// `value`, if nothing is left.
    fn end<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

/// A string as the protocol has them (section "Conventions"); `None`: it is none.
pub(crate) fn text(bytes: &[u8]) -> Option<&str> {
    let text = (bytes.len() <= STRING_BYTES_MAX).then(|| str::from_utf8(bytes).ok())??;
    (!text.contains('\0')).then_some(text)
}

/// NBD_OPT_INFO and NBD_OPT_GO; `None`: malformed.
pub(crate) fn info_asked(data: &[u8]) -> Option<InfoAsked> {
    let mut reader = OptionReader(data);
    let mut asked = InfoAsked {
        name: reader.string()?.to_owned(),
        ..InfoAsked::default()
    };
    for _ in 0..reader.u16()? {
        match reader.u16()? {
            info_type::NAME => asked.wants_name = true,
            info_type::DESCRIPTION => asked.wants_description = true,
            info_type::BLOCK_SIZE => asked.wants_block_size = true,
            _ => {}
        }
    }
    reader.end(asked)
}

/// NBD_OPT_LIST_META_CONTEXT and NBD_OPT_SET_META_CONTEXT, which `sets`; `None`: malformed.
pub(crate) fn contexts_asked(data: &[u8], sets: bool) -> Option<ContextsAsked> {
    let mut reader = OptionReader(data);
    let name = reader.string()?.to_owned();
    let count = reader.u32()?;
    let queries: Option<Vec<_>> = (0..count).map(|_| reader.string()).collect();
    let asked = ContextsAsked::new(name, &queries?, sets);
    reader.end(asked)
}
