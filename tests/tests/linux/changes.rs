//! A target of this process, changed at each mark of a guest's script.

use interop::guest::Guest;
use nvmf::command::AnaState;
use server::{Change, Running};
use std::net::SocketAddr;
use std::time::Duration;
use store::{Kind, Spec};

/// A mark, and what is done then.
pub type Step<'a> = (&'a str, &'a dyn Fn(&Running));

pub fn ram(name: &str, size_bytes: u64, block_bytes: u32) -> Spec {
    Spec::new(name, Kind::RAM, size_bytes, block_bytes)
}

pub fn change(target: &Running, change: Change) {
    let what = format!("{change:?}");
    if let Err(error) = target.change(change) {
        panic!("{what}: {error}");
    }
}

/// The state of group 1 of a subsystem or target by one path.
pub fn set_ana(target: &Running, name: &str, listener: SocketAddr, state: AnaState) {
    let ana = Change::SetAna {
        nqn: name.into(),
        listener: Some(listener),
        group: 1,
        state,
    };
    change(target, ana);
}

/// Takes every step at its mark, until both sides have come to a good end.
pub fn follow(mut guest: Guest, target: Running, steps: &[Step<'_>]) {
    for (mark, step) in steps {
        guest = guest.until(mark);
        step(&target);
    }
    println!("{}", guest.finish().expect_success());
    target.stop();
    let report = target
        .wait(Duration::from_secs(10))
        .expect("an end in order");
    assert_eq!(report.expect("an end in time").unsynced, 0);
}
