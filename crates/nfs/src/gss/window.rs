//! The sequence numbers that a context has seen (RFC 2203, section 5.3.3.1).

/// Numbers below the highest that are told apart.
pub(super) const WINDOW: u32 = 256;

/// Which of the last [`WINDOW`] numbers were seen.
#[derive(Debug, Default)]
pub(super) struct Window {
    highest: u32,
    has_any: bool,
    seen: [u64; (WINDOW / 64) as usize],
}

impl Window {
    /// Whether a number is neither below the window nor was seen; it was now.
    pub(super) fn take(&mut self, number: u32) -> bool {
        if !self.has_any || number > self.highest {
            self.move_to(number);
        }
        if self.highest - number >= WINDOW {
            return false;
        }
        let (word, bit) = place(number);
        let is_new = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        is_new
    }

    fn move_to(&mut self, number: u32) {
        if !self.has_any || number - self.highest >= WINDOW {
            self.seen = [0; (WINDOW / 64) as usize];
        } else {
            for passed in self.highest + 1..=number {
                let (word, bit) = place(passed);
                self.seen[word] &= !bit;
            }
        }
        (self.highest, self.has_any) = (number, true);
    }
}

fn place(number: u32) -> (usize, u64) {
    let at = number % WINDOW;
    ((at / 64) as usize, 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn window_reaches_256_numbers_down_from_the_highest() {
        let mut window = Window::default();
        assert!(window.take(1000));
        assert!(window.take(1000 - 255), "the lowest in the window");
        assert!(!window.take(1000 - 256), "below it");
        assert!(!window.take(1000) && !window.take(745), "seen");
        assert!(window.take(1255), "all before it but 1000 leave");
        assert!(!window.take(1000) && window.take(1001));
        assert!(window.take(u32::MAX));
        assert!(window.take(u32::MAX - 1) && !window.take(u32::MAX));
    }

    #[test]
    fn window_begins_with_any_number() {
        for first in [0, 1, 500] {
            let mut window = Window::default();
            assert!(window.take(first) && !window.take(first));
        }
    }

    proptest! {
        #[test]
        fn window_agrees_with_a_set_of_all_numbers(
            steps in proptest::collection::vec((-300i64..300, 0usize..3), 1..400),
        ) {
            let (mut window, mut seen) = (Window::default(), HashSet::new());
            let (mut highest, mut at) = (None, 100_000i64);
            for (step, kind) in steps {
                // Near the highest number mostly, and the last one again.
                at = match kind {
                    0 => at,
                    _ => highest.map_or(at, i64::from) + step,
                };
                let number = at as u32;
                let is_above = highest.is_none_or(|highest| number > highest);
                let is_below = highest.is_some_and(|highest| number + WINDOW <= highest);
                if is_above {
                    highest = Some(number);
                }
                prop_assert_eq!(window.take(number), !is_below && seen.insert(number));
            }
        }
    }
}
