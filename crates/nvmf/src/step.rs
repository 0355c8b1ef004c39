//! Steps of a machine that stands on another.

use machine::Step;

/// `step` of the machine below, whose work comes to what `op` says; `None`: there is nothing
/// to do.
#[inline]
pub fn filter_map<O, P>(step: Step<O>, op: impl FnOnce(O) -> Option<P>) -> Option<Step<P>> {
    Some(match step {
        Step::Op(of) => Step::Op(op(of)?),
        Step::Place {
            tag,
            offset,
            at,
            len,
            digest,
        } => Step::Place {
            tag,
            offset,
            at,
            len,
            digest,
        },
        Step::Digest {
            tag,
            offset,
            len,
            seed,
        } => Step::Digest {
            tag,
            offset,
            len,
            seed,
        },
    })
}
