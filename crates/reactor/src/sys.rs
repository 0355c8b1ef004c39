//! Small system calls that both drivers make off the data path.

use crate::types::Nanos;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// What a driver waits, when it is dropped, for operations that are under way.
pub(crate) const DROP_WAIT_NS: Nanos = 2_000_000_000;

/// The result of a system call, or its error.
#[inline]
pub(crate) fn check(rc: i32) -> io::Result<i32> {
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(rc)
}

/// The monotonic clock.
#[inline]
pub(crate) fn now() -> Nanos {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the time is ours. This clock cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn set_option(fd: RawFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: four bytes of ours.
    check(unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), len) })?;
    Ok(())
}

/// TCP_NODELAY, where the socket is TCP at all.
pub(crate) fn set_nodelay(fd: RawFd) -> io::Result<()> {
    match set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
        other => other,
    }
}

pub(crate) fn set_nonblocking(fd: RawFd, nonblocking: bool) -> io::Result<()> {
    // SAFETY: plain calls.
    unsafe {
        let flags = check(libc::fcntl(fd, libc::F_GETFL))?;
        let wanted = match nonblocking {
            true => flags | libc::O_NONBLOCK,
            false => flags & !libc::O_NONBLOCK,
        };
        if wanted != flags {
            check(libc::fcntl(fd, libc::F_SETFL, wanted))?;
        }
    }
    Ok(())
}

/// Raises the soft limit on descriptors to the hard one; the limit then.
pub fn raise_descriptor_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the limit is ours.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        if limit.rlim_cur < limit.rlim_max {
            let before = limit.rlim_cur;
            limit.rlim_cur = limit.rlim_max;
            if libc::setrlimit(libc::RLIMIT_NOFILE, &limit) < 0 {
                return before;
            }
        }
    }
    limit.rlim_cur
}

/// From here on a write to a pipe that nobody reads ends the process by SIGPIPE, as
/// it ends other programs that print. Sends to sockets raise no signal either way.
pub fn end_at_closed_pipe() {
    // SAFETY: plain call; the default action runs no code of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// The number of the device that a descriptor is, or that its file lies on, as
/// the kernel knows it: a disk that does not answer is not asked.
pub(crate) fn disk_of(fd: RawFd) -> u64 {
    // SAFETY: plain numbers, for which zeros are valid.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: the name is empty and ends; the result is ours.
    let rc = unsafe { libc::statx(fd, c"".as_ptr(), flags, libc::STATX_TYPE, &mut stat) };
    let is_device = u32::from(stat.stx_mode) & libc::S_IFMT == libc::S_IFBLK;
    let (major, minor) = match is_device {
        true => (stat.stx_rdev_major, stat.stx_rdev_minor),
        false => (stat.stx_dev_major, stat.stx_dev_minor),
    };
    // It fails for no descriptor that is open; all such would share.
    debug_assert!(rc == 0, "{}", io::Error::last_os_error());
    u64::from(major) << 32 | u64::from(minor)
}

/// A nonblocking TCP socket for connecting to `addr`.
pub(crate) fn tcp_socket(addr: &SocketAddr) -> io::Result<OwnedFd> {
    let family = match addr {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: plain call; a descriptor that is not negative is new and ours.
    let fd = unsafe { OwnedFd::from_raw_fd(check(libc::socket(family, kind, 0))?) };
    set_nodelay(fd.as_raw_fd())?;
    Ok(fd)
}

/// Whether bytes lie in a socket.
pub(crate) fn has_bytes(fd: RawFd) -> bool {
    let mut bytes: libc::c_int = 0;
    // SAFETY: four bytes of ours.
    let result = unsafe { libc::ioctl(fd, libc::FIONREAD, &raw mut bytes) };
    result == 0 && bytes > 0
}

/// The error that a nonblocking operation left on the socket.
pub(crate) fn socket_error(fd: RawFd) -> io::Result<()> {
    let mut value = 0i32;
    let mut len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: four bytes of ours.
    check(unsafe {
        let value = (&raw mut value).cast();
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR, value, &mut len)
    })?;
    if value != 0 {
        return Err(io::Error::from_raw_os_error(value));
    }
    Ok(())
}

pub(crate) fn shutdown(fd: RawFd) {
    // SAFETY: plain call. It fails only where there is no connection to end.
    unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
}

/// A socket address as the kernel wants it.
pub(crate) struct RawAddr {
    storage: libc::sockaddr_storage,
    len: libc::socklen_t,
}

impl RawAddr {
    pub(crate) fn new(addr: &SocketAddr) -> RawAddr {
        // SAFETY: a storage of zeros is valid; the casts are to the layouts
        // that it is made to hold.
        unsafe {
            let mut storage: libc::sockaddr_storage = std::mem::zeroed();
            let len = match addr {
                SocketAddr::V4(v4) => {
                    let to = (&raw mut storage).cast::<libc::sockaddr_in>();
                    (*to).sin_family = libc::AF_INET as _;
                    (*to).sin_port = v4.port().to_be();
                    (*to).sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
                    size_of::<libc::sockaddr_in>()
                }
                SocketAddr::V6(v6) => {
                    let to = (&raw mut storage).cast::<libc::sockaddr_in6>();
                    (*to).sin6_family = libc::AF_INET6 as _;
                    (*to).sin6_port = v6.port().to_be();
                    (*to).sin6_flowinfo = v6.flowinfo();
                    (*to).sin6_addr.s6_addr = v6.ip().octets();
                    (*to).sin6_scope_id = v6.scope_id();
                    size_of::<libc::sockaddr_in6>()
                }
            };
            RawAddr {
                storage,
                len: len as libc::socklen_t,
            }
        }
    }

    pub(crate) fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const self.storage).cast()
    }

    pub(crate) fn len(&self) -> libc::socklen_t {
        self.len
    }

    fn parse(&self) -> io::Result<SocketAddr> {
        let from = &raw const self.storage;
        // SAFETY: the family says which layout the storage holds.
        unsafe {
            match i32::from(self.storage.ss_family) {
                libc::AF_INET => {
                    let v4 = &*from.cast::<libc::sockaddr_in>();
                    let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                    Ok(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
                }
                libc::AF_INET6 => {
                    let v6 = &*from.cast::<libc::sockaddr_in6>();
                    let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                    let port = u16::from_be(v6.sin6_port);
                    Ok(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
                }
                _ => Err(io::ErrorKind::Unsupported.into()),
            }
        }
    }
}

/// The peer of a connected socket.
pub(crate) fn peer_addr(fd: RawFd) -> io::Result<SocketAddr> {
    name_of(fd, libc::getpeername)
}

/// Our side of a connected socket.
pub(crate) fn local_addr(fd: RawFd) -> io::Result<SocketAddr> {
    name_of(fd, libc::getsockname)
}

// SAFETY: whoever calls one passes an address with its length.
type NameCall =
    unsafe extern "C" fn(libc::c_int, *mut libc::sockaddr, *mut libc::socklen_t) -> libc::c_int;

fn name_of(fd: RawFd, call: NameCall) -> io::Result<SocketAddr> {
    let mut addr = RawAddr {
        // SAFETY: a storage of zeros is valid.
        storage: unsafe { std::mem::zeroed() },
        len: size_of::<libc::sockaddr_storage>() as libc::socklen_t,
    };
    // SAFETY: the storage is as long as we say.
    check(unsafe { call(fd, (&raw mut addr.storage).cast(), &mut addr.len) })?;
    addr.parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_knows_both_its_ends() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let there = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (here, peer) = listener.accept().unwrap();
        assert_eq!(peer_addr(here.as_raw_fd()).unwrap(), peer);
        assert_eq!(local_addr(there.as_raw_fd()).unwrap(), peer);
        let ours = local_addr(here.as_raw_fd()).unwrap();
        assert_eq!(ours, listener.local_addr().unwrap());
    }

    #[test]
    fn addresses_survive_the_way_to_the_kernel_form_and_back() {
        for text in ["127.0.0.1:4420", "[fe80::1%3]:8009", "[::1]:1"] {
            let addr: SocketAddr = text.parse().unwrap();
            assert_eq!(RawAddr::new(&addr).parse().unwrap(), addr);
        }
    }
}
