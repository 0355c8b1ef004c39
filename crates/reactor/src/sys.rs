//! Small system calls that both drivers make.

use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, sockopt};
use rustix::process::{Resource, Rlimit};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Nanoseconds of the monotonic clock.
pub type Nanos = u64;

/// What a driver waits, when it is dropped, for operations that are under way.
pub(crate) const DROP_WAIT_NS: Nanos = 2_000_000_000;

/// The result of a system call of the C library, or its error.
#[inline]
pub(crate) fn check(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// The monotonic clock.
#[inline]
pub(crate) fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// TCP_NODELAY, where the socket is TCP at all.
pub(crate) fn set_nodelay(fd: impl AsFd) -> io::Result<()> {
    match sockopt::set_tcp_nodelay(fd, true) {
        Err(Errno::OPNOTSUPP) => Ok(()),
        other => Ok(other?),
    }
}

pub(crate) fn set_nonblocking(fd: impl AsFd, nonblocking: bool) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(&fd)?;
    let mut wanted = flags;
    wanted.set(OFlags::NONBLOCK, nonblocking);
    if wanted != flags {
        rustix::fs::fcntl_setfl(fd, wanted)?;
    }
    Ok(())
}

/// Raises the soft limit on descriptors to the hard one; the limit then.
pub fn raise_descriptor_limit() -> u64 {
    let mut limit = rustix::process::getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let current = limit.maximum;
        let raised = Rlimit { current, ..limit };
        if rustix::process::setrlimit(Resource::Nofile, raised).is_ok() {
            limit.current = current;
        }
    }
    limit.current.unwrap_or(u64::MAX)
}

/// From here on a write to a pipe without a reader ends the process by SIGPIPE, as
/// it ends other programs that print. Sends to sockets raise no signal either way.
pub fn end_at_closed_pipe() {
    // SAFETY: plain call; the default action runs no code of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// The number of the device that a descriptor is, or that its file lies on, as
/// the kernel knows it: a disk that does not answer is not asked.
pub(crate) fn disk_of(fd: impl AsFd) -> u64 {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = match rustix::fs::statx(fd, c"", flags, StatxFlags::TYPE) {
        Ok(stat) => stat,
        // It fails for no descriptor that is open; all such share.
        Err(error) => {
            debug_assert!(false, "{error}");
            return 0;
        }
    };
    let (major, minor) = match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::BlockDevice => (stat.stx_rdev_major, stat.stx_rdev_minor),
        _ => (stat.stx_dev_major, stat.stx_dev_minor),
    };
    u64::from(major) << 32 | u64::from(minor)
}

/// Where `addr` is one of loopback, connections of the socket, or those that come to it, are not
/// paced: they share no link, and BBR, which may be the kernel's default, sends by timers.
/// The kernel looks at it before a connection is there: one that was paced stays so.
pub fn unpace_loopback(fd: impl AsFd, addr: &SocketAddr) {
    if addr.ip().to_canonical().is_loopback() {
        // Every kernel has it, and any process may choose it; without it the default holds.
        let _ = sockopt::set_tcp_congestion(fd, "reno");
    }
}

/// A nonblocking TCP socket for connecting to `addr`.
///
/// # Errors
/// The kernel's: descriptors are used up, or the family is not there.
pub fn tcp_socket(addr: &SocketAddr) -> io::Result<OwnedFd> {
    let family = match addr {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    set_nodelay(&fd)?;
    unpace_loopback(&fd, addr);
    Ok(fd)
}

/// Whether bytes lie in a socket.
pub(crate) fn has_bytes(fd: impl AsFd) -> bool {
    rustix::io::ioctl_fionread(fd).is_ok_and(|bytes| bytes > 0)
}

/// Whether the peer of a socket has closed its side, or the connection has ended.
pub(crate) fn peer_has_closed(fd: impl AsFd) -> bool {
    let ends = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let mut asked = [PollFd::new(&fd, ends)];
    let told = rustix::event::poll(&mut asked, Some(&Timespec::default()));
    told.is_ok() && asked[0].revents().intersects(ends)
}

pub(crate) fn shutdown(fd: impl AsFd) {
    // It fails only where there is no connection to end.
    let _ = rustix::net::shutdown(fd, Shutdown::Both);
}

/// The peer of a connected socket.
pub(crate) fn peer_addr(fd: impl AsFd) -> io::Result<SocketAddr> {
    let peer = rustix::net::getpeername(fd)?.ok_or(io::ErrorKind::NotConnected)?;
    Ok(peer.try_into()?)
}

/// Our side of a connected socket.
pub(crate) fn local_addr(fd: impl AsFd) -> io::Result<SocketAddr> {
    Ok(rustix::net::getsockname(fd)?.try_into()?)
}

/// A message that names nothing.
pub(crate) fn empty_message() -> libc::msghdr {
    // SAFETY: zeros are null pointers and lengths of nothing.
    unsafe { std::mem::zeroed() }
}

/// Fills `events`, up to their capacity. Unlike others it waits for parts of a
/// millisecond (Linux 5.11).
pub(crate) fn epoll_pwait2(
    epoll: &OwnedFd,
    events: &mut Vec<epoll::Event>,
    timeout_ns: Nanos,
) -> io::Result<()> {
    let time = libc::timespec {
        tv_sec: (timeout_ns / 1_000_000_000) as i64,
        tv_nsec: (timeout_ns % 1_000_000_000) as i64,
    };
    let (epoll, max) = (epoll.as_raw_fd(), events.capacity() as i32);
    // SAFETY: there is room for as many events, which lie as the kernel has them, and it
    // fills in as many as it says; the time is ours; there is no signal mask.
    unsafe {
        let (to, no_mask) = (events.as_mut_ptr(), std::ptr::null::<libc::sigset_t>());
        let (call, time) = (libc::SYS_epoll_pwait2, &raw const time);
        let count = check(libc::syscall(call, epoll, to, max, time, no_mask, 0usize) as isize)?;
        events.set_len(count);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_over_loopback_are_not_paced_by_either_side() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = crate::BoundListener::bind(address.parse().unwrap()).unwrap();
            let to = listener.address();
            let listener = std::net::TcpListener::from(listener.into_descriptor());
            let socket = tcp_socket(&to).unwrap();
            set_nonblocking(&socket, false).unwrap();
            rustix::net::connect(&socket, &to).unwrap();
            let (accepted, _) = listener.accept().unwrap();
            for side in [socket.as_fd(), accepted.as_fd()] {
                assert_eq!(sockopt::tcp_congestion(side).as_deref(), Ok("reno"));
            }
        }
    }

    #[test]
    fn sockets_to_other_machines_keep_the_congestion_control_of_the_kernel() {
        let plain = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let default = sockopt::tcp_congestion(plain).unwrap();
        let ours = tcp_socket(&"192.0.2.1:4420".parse().unwrap()).unwrap();
        assert_eq!(sockopt::tcp_congestion(ours).unwrap(), default);
    }

    #[test]
    fn a_socket_has_its_local_and_peer_address() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let there = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (here, peer) = listener.accept().unwrap();
        assert_eq!(peer_addr(&here).unwrap(), peer);
        assert_eq!(local_addr(&there).unwrap(), peer);
        let ours = local_addr(&here).unwrap();
        assert_eq!(ours, listener.local_addr().unwrap());
    }
}
