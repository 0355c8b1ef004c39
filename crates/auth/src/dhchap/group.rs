//! Diffie-Hellman over the finite fields of RFC 7919.

use std::fmt;
use std::sync::OnceLock;

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use zeroize::Zeroize as _;

use crate::Secret;

/// The group that the challenges are made stronger by: the numbers of the messages (Base
/// 2.0, figure 446).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DhchapGroup {
    /// None: a peer that reads along may try secrets.
    Null = 0,
    /// 2,048 bits.
    Ffdhe2048 = 1,
    /// 3,072 bits.
    Ffdhe3072 = 2,
    /// 4,096 bits.
    Ffdhe4096 = 3,
    /// 6,144 bits.
    Ffdhe6144 = 4,
    /// 8,192 bits.
    Ffdhe8192 = 5,
}

/// Of a group that is one: bits of its prime and of an exponent, and the number that
/// makes its prime one. The exponents have as many bits as RFC 7919 wants at least
/// (appendix A), in whole words.
pub(super) struct Field {
    bits: u32,
    exponent_bits: u32,
    x: u32,
}

impl DhchapGroup {
    /// All of them, the strongest first.
    pub const ALL: [DhchapGroup; 6] = [
        DhchapGroup::Ffdhe8192,
        DhchapGroup::Ffdhe6144,
        DhchapGroup::Ffdhe4096,
        DhchapGroup::Ffdhe3072,
        DhchapGroup::Ffdhe2048,
        DhchapGroup::Null,
    ];

    /// The group of a number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        DhchapGroup::ALL
            .into_iter()
            .find(|group| *group as u8 == number)
    }

    /// What people write: `null`, `ffdhe2048` and so on.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            DhchapGroup::Null => "null",
            DhchapGroup::Ffdhe2048 => "ffdhe2048",
            DhchapGroup::Ffdhe3072 => "ffdhe3072",
            DhchapGroup::Ffdhe4096 => "ffdhe4096",
            DhchapGroup::Ffdhe6144 => "ffdhe6144",
            DhchapGroup::Ffdhe8192 => "ffdhe8192",
        }
    }

    /// The group that people write so.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        DhchapGroup::ALL
            .into_iter()
            .find(|group| group.name() == name)
    }

    /// Bytes of a public value; the NULL group has none.
    #[must_use]
    pub const fn value_len(self) -> usize {
        match self.field() {
            Some(field) => field.bits as usize / 8,
            None => 0,
        }
    }

    pub(super) const fn field(self) -> Option<Field> {
        let (bits, exponent_bits, x) = match self {
            DhchapGroup::Null => return None,
            DhchapGroup::Ffdhe2048 => (2048, 256, 560_316),
            DhchapGroup::Ffdhe3072 => (3072, 320, 2_625_351),
            DhchapGroup::Ffdhe4096 => (4096, 384, 5_736_041),
            DhchapGroup::Ffdhe6144 => (6144, 384, 15_705_020),
            DhchapGroup::Ffdhe8192 => (8192, 448, 10_965_728),
        };
        Some(Field {
            bits,
            exponent_bits,
            x,
        })
    }
}

impl fmt::Display for DhchapGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Field {
    /// The prime, most significant byte first: 64 ones, the bits of `e` and `x`, 64 ones
    /// (RFC 7919, appendix A).
    pub(super) fn prime(&self) -> Vec<u8> {
        let len = self.bits as usize / 8;
        let mut prime = vec![0xff; len];
        let middle = &mut prime[8..len - 8];
        middle.copy_from_slice(&digits_of_e()[..len - 16]);
        // The ones at the end are a borrow of one.
        let mut carry = self.x - 1;
        for byte in middle.iter_mut().rev() {
            let sum = u32::from(*byte) + (carry & 0xff);
            *byte = sum as u8;
            carry = (carry >> 8) + (sum >> 8);
        }
        prime
    }

    /// `base` to the power of `exponent`, in a time that depends on their sizes alone.
    fn power(&self, prime: &[u8], base: &[u8], exponent: &BoxedUint) -> Vec<u8> {
        let number = |bytes| BoxedUint::from_be_slice(bytes, self.bits).expect("as long as that");
        let modulus: Odd<BoxedUint> = Option::from(Odd::new(number(prime))).expect("odd");
        let params = BoxedMontyParams::new_vartime(modulus);
        let base = BoxedMontyForm::new(number(base), &params);
        let mut power = base.pow(exponent).retrieve();
        let bytes = power.to_be_bytes().to_vec();
        power.zeroize();
        bytes
    }
}

/// The number `e` in binary, from its first bit on, as far as the largest prime has it.
fn digits_of_e() -> &'static [u8] {
    /// Words of the largest prime without its 128 ones, and some for what rounding takes.
    const WORDS: usize = (8192 - 128) / 32 + 4;
    static DIGITS: OnceLock<Vec<u8>> = OnceLock::new();
    DIGITS.get_or_init(|| {
        // Two bits before the point: the sum of 1/n!.
        let mut term = [0u32; WORDS];
        term[0] = 1 << 30;
        let mut sum = term;
        for n in 1.. {
            let mut rest = 0;
            for word in &mut term {
                let dividend = rest << 32 | u64::from(*word);
                *word = (dividend / n) as u32;
                rest = dividend % n;
            }
            let mut carry = 0;
            for (sum, term) in sum.iter_mut().zip(&term).rev() {
                let total = u64::from(*sum) + u64::from(*term) + carry;
                *sum = total as u32;
                carry = total >> 32;
            }
            if term.iter().all(|word| *word == 0) {
                break;
            }
        }
        sum.iter().flat_map(|word| word.to_be_bytes()).collect()
    })
}

/// One side's exponent, and the public value that follows from it.
pub struct DhchapKeyPair {
    field: Field,
    exponent: BoxedUint,
    public: Vec<u8>,
}

impl DhchapKeyPair {
    /// A new pair, of an exponent that `random` fills in; `None` in the NULL group. It takes
    /// up to tens of milliseconds.
    #[must_use]
    pub fn new(group: DhchapGroup, random: &mut dyn FnMut(&mut [u8])) -> Option<Self> {
        let field = group.field()?;
        let mut bytes = vec![0; field.exponent_bits as usize / 8];
        random(&mut bytes);
        let exponent = BoxedUint::from_be_slice(&bytes, field.exponent_bits);
        let exponent = exponent.expect("as many bits");
        bytes.zeroize();
        let mut generator = vec![0; group.value_len()];
        *generator.last_mut()? = 2;
        let public = field.power(&field.prime(), &generator, &exponent);
        Some(DhchapKeyPair {
            field,
            exponent,
            public,
        })
    }

    /// What the peer is told.
    #[must_use]
    pub fn public(&self) -> &[u8] {
        &self.public
    }

    /// The secret that the peer of the public value `theirs` finds too. `None`: that is no
    /// value of the group, or makes a secret that all know (RFC 7919, section 5.1). It takes
    /// up to tens of milliseconds.
    #[must_use]
    pub fn agree(&self, theirs: &[u8]) -> Option<Secret> {
        let prime = self.field.prime();
        let (last, leading) = theirs.split_last()?;
        let is_above_one = leading.iter().any(|byte| *byte != 0) || *last > 1;
        let mut last_but_one = prime.clone();
        *last_but_one.last_mut()? -= 1;
        if theirs.len() != prime.len() || !is_above_one || theirs >= &last_but_one[..] {
            return None;
        }
        Some(Secret::new(self.field.power(
            &prime,
            theirs,
            &self.exponent,
        )))
    }
}

impl Drop for DhchapKeyPair {
    fn drop(&mut self) {
        self.exponent.zeroize();
    }
}

impl fmt::Debug for DhchapKeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DhchapKeyPair({} bits)", self.field.bits)
    }
}
