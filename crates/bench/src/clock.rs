//! Time as measured loads need it.

use std::fs;
use std::time::Instant;

/// Nanoseconds since its creation, from the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that stands at 0.
    #[must_use]
    pub fn start() -> Self {
        Clock(Instant::now())
    }

    /// Nanoseconds since the start.
    #[inline]
    #[must_use]
    pub fn now(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// Nanoseconds of CPU time that the calling thread has used, user and kernel;
/// 0 where the kernel does not say (`/proc/thread-self/schedstat`).
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn cpu_time_grows_with_work() {
        let before = super::thread_cpu_ns();
        let mut random = crate::random::Random::new(1);
        let mut sum = 0u64;
        while super::thread_cpu_ns() == before {
            sum = sum.wrapping_add(random.next_u64());
        }
        assert_ne!(sum, 0);
    }
}
