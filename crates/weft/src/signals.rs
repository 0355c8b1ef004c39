//! The first SIGINT or SIGTERM asks for an orderly end, the second ends at once;
//! SIGUSR1 asks a target what it has done so far, SIGHUP to read its configuration
//! again. Other signals that are sent to
//! servers end no target.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::FAILURE;

const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];

/// Becomes true at the first signal; the second ends the process.
pub fn first_signal() -> io::Result<Arc<AtomicBool>> {
    let came = Arc::new(AtomicBool::new(false));
    for signal in SIGNALS {
        // In this order, or the first signal would end the process already.
        flag::register_conditional_shutdown(signal, FAILURE.into(), Arc::clone(&came))?;
        flag::register(signal, Arc::clone(&came))?;
    }
    Ok(came)
}

/// What a target is asked by a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalAsked {
    /// To end in order.
    End,
    /// What it has done so far.
    Counters,
    /// To serve what its configuration says now.
    Reload,
    /// Something that it does not do, by this signal.
    Nothing(&'static str),
}

/// Yields what is asked, until the end is; a second such signal ends the process.
pub fn signal_requests() -> io::Result<Receiver<SignalAsked>> {
    first_signal()?;
    // Writes beyond the limit of files (`ulimit -f`) fail by their error alone.
    flag::register(SIGXFSZ, Arc::default())?;
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGQUIT, SIGUSR2])?;
    let (tell, told) = mpsc::channel();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                let asked = match signal {
                    SIGUSR1 => SignalAsked::Counters,
                    SIGHUP => SignalAsked::Reload,
                    SIGQUIT => SignalAsked::Nothing("SIGQUIT"),
                    SIGUSR2 => SignalAsked::Nothing("SIGUSR2"),
                    _ => SignalAsked::End,
                };
                // The receiver is gone if the process is ending anyway.
                if tell.send(asked).is_err() || asked == SignalAsked::End {
                    break;
                }
            }
        })?;
    Ok(told)
}
