//! Random bytes of the kernel, fit for keys.

use rustix::io::Errno;
use rustix::rand::GetRandomFlags;
use std::io;

/// Fills `bytes` with random ones. Needs no descriptor, so it works also where
/// all are in use.
///
/// # Errors
/// ENOSYS or EPERM where a container denies the call.
pub fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match rustix::rand::getrandom(&mut *rest, GetRandomFlags::empty()) {
            Ok(filled) => rest = &mut rest[filled..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The same, for those who cannot go on without.
///
/// # Panics
/// The kernel refuses the call.
pub fn must_fill_random(bytes: &mut [u8]) {
    fill_random(bytes).expect("the kernel has random bytes");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_filled_and_never_the_same() {
        // More than the kernel gives at once to a call that is interrupted.
        let (mut a, mut b) = ([0; 4096], [0; 4096]);
        fill_random(&mut a).expect("random bytes");
        fill_random(&mut b).expect("random bytes");
        assert_ne!(a, b);
        for part in a.chunks(16) {
            assert_ne!(part, [0; 16], "a part was left as it was");
        }
        fill_random(&mut []).expect("no byte");
    }
}
