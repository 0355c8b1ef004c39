//! What the kernel is to do with what goes over a connection.

use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd};

use rustix::net::{AddressFamily, sockopt};

use crate::sys;

/// Of include/uapi/asm-generic/socket.h of Linux; the C library's bindings have no name for it.
const SO_INCOMING_NAPI_ID: i32 = 56;

/// Options of a socket; `None` leaves one as the kernel has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// SO_SNDBUF, bytes.
    pub send_buffer_bytes: Option<u32>,
    /// SO_RCVBUF, bytes.
    pub receive_buffer_bytes: Option<u32>,
    /// SO_MAX_PACING_RATE, bytes a second.
    pub pacing_bytes: Option<u64>,
    /// SO_PRIORITY.
    pub priority: Option<u32>,
    /// The upper six bits of IP_TOS and IPV6_TCLASS (RFC 2474).
    pub dscp: Option<u8>,
    /// SO_BUSY_POLL, microseconds.
    pub busy_poll_us: Option<u32>,
    /// TCP_CONGESTION.
    pub congestion_control: Option<String>,
}

impl SocketOptions {
    /// Sets those that are there: what the kernel refuses, by the name of the option, and why.
    pub(crate) fn set(&self, socket: impl AsFd) -> Vec<(&'static str, io::Error)> {
        let fd = socket.as_fd();
        let is_v6 = sockopt::socket_domain(fd) == Ok(AddressFamily::INET6);
        let mut refused = Vec::new();
        let mut note = |option, set: Option<io::Result<()>>| {
            if let Some(Err(error)) = set {
                refused.push((option, error));
            }
        };
        let size = |bytes: u32| bytes as usize;
        let send = self.send_buffer_bytes.map(size);
        let send = send.map(|bytes| Ok(sockopt::set_socket_send_buffer_size(fd, bytes)?));
        note("SO_SNDBUF", send);
        let receive = self.receive_buffer_bytes.map(size);
        let receive = receive.map(|bytes| Ok(sockopt::set_socket_recv_buffer_size(fd, bytes)?));
        note("SO_RCVBUF", receive);
        // IP_TOS sets a priority too, which an own one follows.
        let dscp = self.dscp.map(|dscp| dscp << 2);
        let v4 = dscp.map(|tos| Ok(sockopt::set_ip_tos(fd, tos)?));
        note("IP_TOS", v4);
        let v6 = dscp.filter(|_| is_v6);
        note(
            "IPV6_TCLASS",
            v6.map(|class| Ok(sockopt::set_ipv6_tclass(fd, class.into())?)),
        );
        let number = |option, value: u32| set_number(fd, option, &value.to_ne_bytes());
        let priority = self.priority.map(|value| number(libc::SO_PRIORITY, value));
        note("SO_PRIORITY", priority);
        let busy_poll = self.busy_poll_us.map(|us| number(libc::SO_BUSY_POLL, us));
        note("SO_BUSY_POLL", busy_poll);
        let pacing = self.pacing_bytes.map(u64::to_ne_bytes);
        let pacing = pacing.map(|rate| set_number(fd, libc::SO_MAX_PACING_RATE, &rate));
        note("SO_MAX_PACING_RATE", pacing);
        let control = self.congestion_control.as_deref();
        let control = control.map(|name| Ok(sockopt::set_tcp_congestion(fd, name)?));
        note("TCP_CONGESTION", control);
        refused
    }
}

/// Sets an option of SOL_SOCKET that has no other way.
fn set_number(socket: impl AsFd, option: i32, value: &[u8]) -> io::Result<()> {
    let (fd, len) = (socket.as_fd().as_raw_fd(), value.len() as libc::socklen_t);
    // SAFETY: the kernel reads the bytes of `value` and keeps none of them.
    let rc = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, option, value.as_ptr().cast(), len) };
    sys::check(rc as isize).map(drop)
}

/// An option of SOL_SOCKET of up to 8 bytes that has no other way.
fn number(socket: impl AsFd, option: i32) -> io::Result<u64> {
    let (mut value, mut len) = (0u64, 8 as libc::socklen_t);
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes `len` bytes at most, which `value` has.
    let rc = unsafe {
        let value = (&raw mut value).cast();
        libc::getsockopt(fd, libc::SOL_SOCKET, option, value, &raw mut len)
    };
    sys::check(rc as isize)?;
    Ok(value)
}

/// The NAPI ID of the receive queue by which packets of a connection last came; `None` where they come
/// by none (loopback, veth) or the kernel does not say.
pub(crate) fn incoming_napi_id(socket: impl AsFd) -> Option<NonZeroU32> {
    NonZeroU32::new(u32::try_from(number(socket, SO_INCOMING_NAPI_ID).ok()?).ok()?)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn number(socket: &TcpStream, option: i32) -> u64 {
        super::number(socket, option).expect("the kernel has it")
    }

    #[test]
    fn connection_over_loopback_comes_by_no_receive_queue() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = listener.local_addr().expect("it is bound");
        let socket = TcpStream::connect(to).expect("it listens");
        assert_eq!(number(&socket, SO_INCOMING_NAPI_ID), 0);
        assert_eq!(incoming_napi_id(&socket), None);
    }

    #[test]
    fn options_are_what_the_kernel_says_then_and_those_left_out_stay() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).expect("a port");
            let to = listener.local_addr().expect("it is bound");
            let socket = TcpStream::connect(to).expect("it listens");
            let options = SocketOptions {
                send_buffer_bytes: Some(64 << 10),
                receive_buffer_bytes: Some(32 << 10),
                pacing_bytes: Some(10 << 30),
                priority: Some(5),
                dscp: Some(46),
                busy_poll_us: None,
                congestion_control: Some("reno".to_owned()),
            };
            let before = SocketOptions::default().set(&socket);
            assert!(before.is_empty(), "{before:?}");
            let refused = options.set(&socket);
            assert!(refused.is_empty(), "{refused:?}");
            // The kernel keeps as much for itself (socket(7)).
            assert_eq!(sockopt::socket_send_buffer_size(&socket), Ok(128 << 10));
            assert_eq!(sockopt::socket_recv_buffer_size(&socket), Ok(64 << 10));
            assert_eq!(number(&socket, libc::SO_MAX_PACING_RATE), 10 << 30);
            assert_eq!(number(&socket, libc::SO_PRIORITY), 5);
            assert_eq!(sockopt::ip_tos(&socket), Ok(46 << 2));
            if to.is_ipv6() {
                assert_eq!(sockopt::ipv6_tclass(&socket), Ok(46 << 2));
            }
            assert_eq!(sockopt::tcp_congestion(&socket).as_deref(), Ok("reno"));
        }
    }

    #[test]
    fn option_that_the_kernel_refuses_is_named_and_the_others_are_set() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let options = SocketOptions {
            dscp: Some(8),
            congestion_control: Some("none such".to_owned()),
            ..SocketOptions::default()
        };
        let refused = options.set(&socket);
        let [(option, error)] = &refused[..] else {
            panic!("{refused:?}");
        };
        assert_eq!(*option, "TCP_CONGESTION");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(sockopt::ip_tos(&socket), Ok(8 << 2));
    }
}
