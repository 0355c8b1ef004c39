//! External Data Representation (RFC 4506): what RPC and NFS are written in.
//!
//! Reading borrows: an opaque is a slice of what was read, a list is read again
//! element by element where it is used, so nothing is allocated. All is checked
//! once, when it is decoded. Writing appends to a `Vec` that its owner keeps.
//! Every variable length has a bound.

use std::fmt;
use std::marker::PhantomData;

/// What cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XdrError {
    /// The bytes end before the value does.
    #[error("the bytes end before the value does")]
    Short,
    /// A length beyond its bound.
    #[error("{len} where at most {max} may be")]
    Long {
        /// The length that was sent.
        len: u32,
        /// The most there may be.
        max: u32,
    },
    /// A number that means nothing there.
    #[error("no such {what}")]
    Value {
        /// The type that has no such value.
        what: &'static str,
    },
}

/// Reads values one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// From the first of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, at: 0 }
    }

    /// Bytes read.
    #[inline]
    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }

    /// What was not read yet.
    #[inline]
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// The next `len` bytes, without padding.
    ///
    /// # Errors
    /// [`XdrError::Short`].
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], XdrError> {
        let taken = self.rest().get(..len).ok_or(XdrError::Short)?;
        self.at += len;
        Ok(taken)
    }

    /// The next `len` bytes and their padding (section 4.9), whose value does
    /// not matter.
    ///
    /// # Errors
    /// [`XdrError::Short`].
    #[inline]
    pub fn opaque(&mut self, len: usize) -> Result<&'a [u8], XdrError> {
        let taken = self.take(len)?;
        self.take(pad(len))?;
        Ok(taken)
    }

    /// A length that may be at most `max`.
    ///
    /// # Errors
    /// [`XdrError::Long`], [`XdrError::Short`].
    #[inline]
    pub fn len(&mut self, max: usize) -> Result<usize, XdrError> {
        let len = u32::decode(self)?;
        match len as usize <= max {
            true => Ok(len as usize),
            false => Err(XdrError::Long {
                len,
                max: max as u32,
            }),
        }
    }
}

/// Zero bytes that follow `len` bytes, so that all is a multiple of 4.
#[inline]
#[must_use]
pub const fn pad(len: usize) -> usize {
    len.wrapping_neg() % 4
}

/// What can be read.
pub trait Decode<'a>: Sized {
    /// Reads one value.
    ///
    /// # Errors
    /// The bytes are none; how much of them was read then is not said.
    fn decode(from: &mut Reader<'a>) -> Result<Self, XdrError>;
}

/// What can be written.
pub trait Encode {
    /// Appends one value.
    fn encode(&self, to: &mut Vec<u8>);
}

macro_rules! numbers {
    ($($kind:ty),*) => {$(
        impl Decode<'_> for $kind {
            #[inline]
            fn decode(from: &mut Reader<'_>) -> Result<Self, XdrError> {
                let bytes = from.take(size_of::<$kind>())?;
                Ok(<$kind>::from_be_bytes(bytes.try_into().map_err(|_| XdrError::Short)?))
            }
        }
        impl Encode for $kind {
            #[inline]
            fn encode(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_be_bytes());
            }
        }
    )*};
}

numbers!(u32, i32, u64, i64);

impl Decode<'_> for bool {
    #[inline]
    fn decode(from: &mut Reader<'_>) -> Result<Self, XdrError> {
        match u32::decode(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(XdrError::Value { what: "bool" }),
        }
    }
}

impl Encode for bool {
    #[inline]
    fn encode(&self, to: &mut Vec<u8>) {
        u32::from(*self).encode(to);
    }
}

impl<const LEN: usize> Decode<'_> for [u8; LEN] {
    #[inline]
    fn decode(from: &mut Reader<'_>) -> Result<Self, XdrError> {
        from.opaque(LEN)?.try_into().map_err(|_| XdrError::Short)
    }
}

impl<const LEN: usize> Encode for [u8; LEN] {
    #[inline]
    fn encode(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(self);
        to.extend_from_slice(&[0; 3][..pad(LEN)]);
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Option<T> {
    fn decode(from: &mut Reader<'a>) -> Result<Self, XdrError> {
        match bool::decode(from)? {
            true => T::decode(from).map(Some),
            false => Ok(None),
        }
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, to: &mut Vec<u8>) {
        self.is_some().encode(to);
        if let Some(value) = self {
            value.encode(to);
        }
    }
}

/// Bytes of a length that varies, at most `MAX`: an opaque or a string.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Opaque<'a, const MAX: usize>(pub &'a [u8]);

impl<const MAX: usize> fmt::Debug for Opaque<'_, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl<'a, const MAX: usize> Decode<'a> for Opaque<'a, MAX> {
    #[inline]
    fn decode(from: &mut Reader<'a>) -> Result<Self, XdrError> {
        let len = from.len(MAX)?;
        from.opaque(len).map(Opaque)
    }
}

impl<const MAX: usize> Encode for Opaque<'_, MAX> {
    #[inline]
    fn encode(&self, to: &mut Vec<u8>) {
        debug_assert!(self.0.len() <= MAX);
        (self.0.len() as u32).encode(to);
        to.extend_from_slice(self.0);
        to.extend_from_slice(&[0; 3][..pad(self.0.len())]);
    }
}

/// Values of one type, at most `MAX` of them.
#[derive(Clone, Copy)]
pub enum List<'a, T, const MAX: usize> {
    /// As they were read; all are known to be right.
    Read {
        /// How many.
        count: u32,
        /// Their bytes.
        bytes: &'a [u8],
    },
    /// To be written.
    Of(&'a [T]),
}

impl<'a, T: Decode<'a> + Copy, const MAX: usize> List<'a, T, MAX> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            List::Read { count, .. } => *count as usize,
            List::Of(values) => values.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values in order.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, T, MAX> {
        let (read, of): (_, &'a [T]) = match *self {
            List::Read { bytes, .. } => (bytes, &[]),
            List::Of(values) => (&[][..], values),
        };
        let mut from = Reader::new(read);
        let decoded = std::iter::from_fn(move || match from.rest() {
            [] => None,
            _ => T::decode(&mut from).ok(),
        });
        decoded.chain(of.iter().copied())
    }
}

impl<'a, T: Decode<'a>, const MAX: usize> Decode<'a> for List<'a, T, MAX> {
    fn decode(from: &mut Reader<'a>) -> Result<Self, XdrError> {
        let count = from.len(MAX)?;
        let rest = from.rest();
        let begin = from.position();
        for _ in 0..count {
            T::decode(from)?;
        }
        Ok(List::Read {
            count: count as u32,
            bytes: &rest[..from.position() - begin],
        })
    }
}

impl<T: Encode, const MAX: usize> Encode for List<'_, T, MAX> {
    fn encode(&self, to: &mut Vec<u8>) {
        match self {
            List::Read { count, bytes } => {
                count.encode(to);
                to.extend_from_slice(bytes);
            }
            List::Of(values) => {
                debug_assert!(values.len() <= MAX);
                (values.len() as u32).encode(to);
                values.iter().for_each(|value| value.encode(to));
            }
        }
    }
}

impl<'a, T: Decode<'a> + Copy + fmt::Debug, const MAX: usize> fmt::Debug for List<'a, T, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, T: Decode<'a> + Copy + PartialEq, const MAX: usize> PartialEq for List<'a, T, MAX> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<'a, T: Decode<'a> + Copy + Eq, const MAX: usize> Eq for List<'a, T, MAX> {}

/// Values of one type, each with TRUE before it, and FALSE behind the last: what
/// XDR makes of a struct that points to the next of its kind (section 4.19).
#[derive(Clone, Copy)]
pub struct Chain<'a, T> {
    /// All bytes but the last FALSE; all are known to be right.
    bytes: &'a [u8],
    of: PhantomData<T>,
}

impl<'a, T: Decode<'a>> Chain<'a, T> {
    /// The values in order.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, T> {
        let mut from = Reader::new(self.bytes);
        std::iter::from_fn(move || {
            bool::decode(&mut from).ok()?;
            T::decode(&mut from).ok()
        })
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Chain<'a, T> {
    fn decode(from: &mut Reader<'a>) -> Result<Self, XdrError> {
        let (rest, begin) = (from.rest(), from.position());
        loop {
            let len = from.position() - begin;
            if !bool::decode(from)? {
                return Ok(Chain {
                    bytes: &rest[..len],
                    of: PhantomData,
                });
            }
            T::decode(from)?;
        }
    }
}

impl<T> Encode for Chain<'_, T> {
    fn encode(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(self.bytes);
        false.encode(to);
    }
}

impl<'a, T: Decode<'a> + fmt::Debug> fmt::Debug for Chain<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, T: Decode<'a> + PartialEq> PartialEq for Chain<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<'a, T: Decode<'a> + Eq> Eq for Chain<'a, T> {}

/// Variable-length opaque data whose bytes are in memory of their own: neither
/// they nor their padding are among the bytes that are read or written here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// How many bytes, without the padding.
    pub len: u32,
}

impl Decode<'_> for Payload {
    #[inline]
    fn decode(from: &mut Reader<'_>) -> Result<Self, XdrError> {
        u32::decode(from).map(|len| Payload { len })
    }
}

impl Encode for Payload {
    #[inline]
    fn encode(&self, to: &mut Vec<u8>) {
        self.len.encode(to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(value: &impl Encode) -> Vec<u8> {
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        bytes
    }

    #[test]
    fn lengths_are_bounded_and_padded() {
        let bytes = written(&Opaque::<8>(b"abcde"));
        assert_eq!(bytes, b"\0\0\0\x05abcde\0\0\0");
        let mut from = Reader::new(&bytes);
        assert_eq!(Opaque::<5>::decode(&mut from), Ok(Opaque(&b"abcde"[..])));
        assert!(from.rest().is_empty());
        let long = XdrError::Long { len: 5, max: 4 };
        assert_eq!(Opaque::<4>::decode(&mut Reader::new(&bytes)), Err(long));
        let cut = &bytes[..bytes.len() - 1];
        assert_eq!(
            Opaque::<5>::decode(&mut Reader::new(cut)),
            Err(XdrError::Short)
        );
        // A list of a billion ends with the bytes, not with the memory.
        let many = [0x40, 0, 0, 0];
        let list = List::<u32, { u32::MAX as usize }>::decode(&mut Reader::new(&many));
        assert_eq!(list, Err(XdrError::Short));
    }

    #[test]
    fn a_bool_is_zero_or_one() {
        assert_eq!(bool::decode(&mut Reader::new(&[0, 0, 0, 1])), Ok(true));
        let two = bool::decode(&mut Reader::new(&[0, 0, 0, 2]));
        assert_eq!(two, Err(XdrError::Value { what: "bool" }));
    }

    proptest! {
        #[test]
        fn lists_that_are_encoded_are_decoded(values in proptest::collection::vec(any::<u64>(), 0..20), some in any::<Option<u32>>()) {
            let list = List::<u64, 20>::Of(&values);
            let mut bytes = written(&list);
            some.encode(&mut bytes);
            let mut from = Reader::new(&bytes);
            let read = List::<u64, 20>::decode(&mut from).unwrap();
            prop_assert_eq!(read.iter().collect::<Vec<_>>(), values.clone());
            prop_assert_eq!(read, list);
            prop_assert_eq!(written(&read), written(&list));
            prop_assert_eq!(Option::<u32>::decode(&mut from), Ok(some));
            prop_assert!(from.rest().is_empty());
        }

        #[test]
        fn chains_end_where_they_say(values in proptest::collection::vec(any::<u64>(), 0..20)) {
            let mut bytes = Vec::new();
            for value in &values {
                true.encode(&mut bytes);
                value.encode(&mut bytes);
            }
            let cut = bytes.len();
            false.encode(&mut bytes);
            prop_assert_eq!(Chain::<u64>::decode(&mut Reader::new(&bytes[..cut])), Err(XdrError::Short));
            bytes.push(7);
            let mut from = Reader::new(&bytes);
            let chain = Chain::<u64>::decode(&mut from).unwrap();
            prop_assert_eq!(from.rest(), [7]);
            prop_assert_eq!(chain.iter().collect::<Vec<_>>(), values);
            prop_assert_eq!(written(&chain), &bytes[..bytes.len() - 1]);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = List::<'_, Opaque<'_, 16>, 8>::decode(&mut Reader::new(&bytes));
            let _ = Option::<[u8; 5]>::decode(&mut Reader::new(&bytes));
        }
    }
}
