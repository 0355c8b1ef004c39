//! Whether this kernel lets us use io_uring, and if not, why.

use super::ring::Ring;
use io_uring::{Probe, opcode};
use rustix::io::Errno;
use std::io;

/// Why io_uring cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The kernel refuses rings to this process (EPERM, EACCES): a seccomp
    /// filter or the setting `kernel.io_uring_disabled`.
    #[error(
        "io_uring is denied to this process (a seccomp filter, or sysctl \
         kernel.io_uring_disabled)"
    )]
    Denied,
    /// The kernel has no io_uring (ENOSYS), or a filter pretends so.
    #[error("this kernel has no io_uring (or a filter hides it)")]
    Missing,
    /// The kernel is too old: it lacks this.
    #[error("this kernel's io_uring lacks {0}")]
    Lacks(&'static str),
    /// The limit on locked memory (ENOMEM) leaves no room for a ring.
    #[error("io_uring has no room under the locked-memory limit (ulimit -l)")]
    Memory,
    /// Something else was in the way.
    #[error("io_uring cannot be set up: {0}")]
    Failed(io::Error),
}

impl From<io::Error> for ProbeError {
    fn from(error: io::Error) -> ProbeError {
        match Errno::from_io_error(&error) {
            Some(Errno::PERM | Errno::ACCESS) => ProbeError::Denied,
            Some(Errno::NOSYS) => ProbeError::Missing,
            Some(Errno::NOMEM) => ProbeError::Memory,
            _ => ProbeError::Failed(error),
        }
    }
}

/// Operations that the driver cannot do without.
const NEEDED: [(u8, &str); 11] = [
    (opcode::SendMsg::CODE, "SENDMSG"),
    (opcode::RecvMsg::CODE, "RECVMSG"),
    (opcode::Send::CODE, "SEND"),
    (opcode::Recv::CODE, "RECV"),
    (opcode::Accept::CODE, "ACCEPT"),
    (opcode::Connect::CODE, "CONNECT"),
    (opcode::AsyncCancel::CODE, "ASYNC_CANCEL"),
    (opcode::Read::CODE, "READ"),
    (opcode::Write::CODE, "WRITE"),
    (opcode::Fsync::CODE, "FSYNC"),
    (opcode::Fallocate::CODE, "FALLOCATE"),
];

/// Whether the io_uring driver works here.
pub fn probe() -> Result<(), ProbeError> {
    let ring = Ring::new(8)?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    for (code, name) in NEEDED {
        if !probe.is_supported(code) {
            return Err(ProbeError::Lacks(name));
        }
    }
    if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
        return Err(ProbeError::Lacks("waiting with a timeout"));
    }
    // Cancel by descriptor and multishot accept came with these two (5.19).
    if ring.submitter().register_files_sparse(1).is_err() {
        return Err(ProbeError::Lacks("sparse file tables"));
    }
    if super::stages::Stages::register(&ring).is_err() {
        return Err(ProbeError::Lacks("buffer rings"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_error_names_its_cause() {
        let of = |error: Errno| ProbeError::from(io::Error::from(error)).to_string();
        assert!(of(Errno::PERM).contains("denied"));
        assert!(of(Errno::NOSYS).contains("has no io_uring"));
        assert!(of(Errno::NOMEM).contains("ulimit -l"));
        assert!(of(Errno::MFILE).contains("cannot be set up"));
    }
}
