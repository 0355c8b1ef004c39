//! Time as measured loads need it.

use rustix::time::{ClockId, clock_gettime};
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

/// Nanoseconds of CPU time that the calling thread has used, user and kernel.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    #[test]
    fn cpu_time_grows_with_work() {
        let before = super::thread_cpu_ns();
        let mut random = random::Random::new(1);
        let sum = (0..1000).fold(0u64, |sum, _| sum.wrapping_add(random.next_u64()));
        assert!(sum != 0 && super::thread_cpu_ns() > before);
    }
}
