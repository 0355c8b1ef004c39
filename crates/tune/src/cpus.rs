//! Sets of CPUs as the kernel writes them.

use std::collections::BTreeSet;
use std::fmt;

/// CPUs by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSet(BTreeSet<usize>);

impl CpuSet {
    /// A list such as `0-3,8`; `None` where it is none.
    pub fn from_list(text: &str) -> Option<CpuSet> {
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: usize = first.trim().parse().ok()?;
            let last: usize = last.trim().parse().ok()?;
            if last < first || last >= CPUS_MAX {
                return None;
            }
            cpus.extend(first..=last);
        }
        Some(CpuSet(cpus))
    }

    /// A mask such as `ff` or `1,00000000`, the highest word first; `None`
    /// where it is none.
    pub fn from_mask(text: &str) -> Option<CpuSet> {
        let mut cpus = BTreeSet::new();
        for (index, word) in text.trim().rsplit(',').enumerate() {
            let word = u32::from_str_radix(word.trim(), 16).ok()?;
            let bits = (0..32).filter(|bit| word & (1 << bit) != 0);
            cpus.extend(bits.map(|bit| index * 32 + bit));
        }
        Some(CpuSet(cpus))
    }

    /// As the kernel writes a mask: words of 32 CPUs, the highest first.
    pub fn mask(&self) -> String {
        let words = self.0.last().map_or(1, |last| last / 32 + 1);
        let word = |index: usize| {
            let bits = (0..32).filter(|bit| self.0.contains(&(index * 32 + bit)));
            bits.fold(0u32, |word, bit| word | 1 << bit)
        };
        let mut text = format!("{:x}", word(words - 1));
        for index in (0..words - 1).rev() {
            text.push_str(&format!(",{:08x}", word(index)));
        }
        text
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// None at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().copied()
    }
}

impl FromIterator<usize> for CpuSet {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> CpuSet {
        CpuSet(cpus.into_iter().collect())
    }
}

impl fmt::Display for CpuSet {
    /// As a list: `0-3,8`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.0.iter().copied().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while cpus.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            match last {
                _ if last == first => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

/// No machine has as many.
const CPUS_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_masks_name_the_same_cpus() {
        for (list, mask) in [
            ("0", "1"),
            ("0-3,8", "10f"),
            ("31-32", "1,80000000"),
            ("64", "1,00000000,00000000"),
        ] {
            let cpus = CpuSet::from_list(list).expect("a list");
            assert_eq!(cpus.to_string(), list);
            assert_eq!(cpus.mask(), mask);
            assert_eq!(CpuSet::from_mask(mask), Some(cpus));
        }
        assert_eq!(CpuSet::default().mask(), "0");
        assert_eq!(CpuSet::from_mask("00000003\n").map(|c| c.len()), Some(2));
    }

    #[test]
    fn invalid_cpu_list_is_none() {
        for text in ["a", "3-1", "0-99999999", "1-", "-1"] {
            assert_eq!(CpuSet::from_list(text), None, "{text}");
        }
        assert_eq!(CpuSet::from_mask("xyz"), None);
        assert_eq!(CpuSet::from_list("\n").map(|cpus| cpus.len()), Some(0));
    }
}
