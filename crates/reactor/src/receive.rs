//! What one receive fills.

use crate::sys;
use mem::{BufRange, Stage};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Where the bytes of a receive go: to `direct` first, and at most `stage_max` of them
/// behind those that `stage` holds. The pieces that are not empty come first.
#[inline]
pub(crate) fn pieces(
    direct: Option<BufRange>,
    stage: Option<&mut Stage>,
    stage_max: u32,
) -> ([libc::iovec; 2], usize) {
    let mut pieces = [piece(std::ptr::null_mut(), 0); 2];
    let mut count = 0;
    if let Some(direct) = direct.filter(|direct| !direct.is_empty()) {
        pieces[0] = piece(direct.as_ptr(), direct.len() as usize);
        count = 1;
    }
    if let Some(stage) = stage {
        let room = stage.room().min(stage_max as usize);
        pieces[count] = piece(stage.spare_ptr(), room);
        count += usize::from(room > 0);
    }
    (pieces, count)
}

#[inline]
fn piece(base: *mut u8, len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: base.cast(),
        iov_len: len,
    }
}

/// One receive, with a plain system call; its bytes.
#[inline]
pub(crate) fn receive(
    fd: impl AsFd,
    direct: Option<BufRange>,
    stage: Option<&mut Stage>,
    stage_max: u32,
    flags: i32,
) -> io::Result<usize> {
    let fd = fd.as_fd().as_raw_fd();
    let (mut pieces, count) = pieces(direct, stage, stage_max);
    assert!(count > 0, "a receive of nothing");
    // SAFETY: the pieces are writable for their lengths: a range of a region, which stays
    // mapped, and room of a stage, which is borrowed while the call lasts.
    let bytes = unsafe {
        match &mut pieces[..count] {
            [one] => libc::recv(fd, one.iov_base, one.iov_len, flags),
            both => {
                let mut message = sys::empty_message();
                message.msg_iov = both.as_mut_ptr();
                message.msg_iovlen = count as _;
                libc::recvmsg(fd, &raw mut message, flags)
            }
        }
    };
    sys::check(bytes)
}
