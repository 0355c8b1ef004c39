//! The first SIGINT or SIGTERM asks for an orderly end, the second ends at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::FAILURE;

const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];

/// Becomes true at the first signal; the second ends the process.
pub fn came() -> io::Result<Arc<AtomicBool>> {
    let came = Arc::new(AtomicBool::new(false));
    for signal in SIGNALS {
        // In this order, or the first signal would end the process already.
        flag::register_conditional_shutdown(signal, FAILURE.into(), Arc::clone(&came))?;
        flag::register(signal, Arc::clone(&came))?;
    }
    Ok(came)
}

/// Yields once, at the first signal; the second ends the process.
pub fn first() -> io::Result<Receiver<()>> {
    came()?;
    let mut signals = Signals::new(SIGNALS)?;
    let (tell, told) = mpsc::channel();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            if signals.forever().next().is_some() {
                // Nobody listens if the process is ending anyway.
                let _ = tell.send(());
            }
        })?;
    Ok(told)
}
