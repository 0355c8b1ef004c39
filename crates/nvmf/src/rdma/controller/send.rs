//! What goes to the host.

use iwarp::{DataPart, UpperBatch, Work};
use machine::{Machine, Transmit};
use wire::nvme_rdma::KeyedSgl;
use zerocopy::IntoBytes;

use super::{HostMemory, Qpair};
use crate::queue::Answer;

impl Qpair {
    /// Hands one answer after the other to the stream, so that a tag is free only when its
    /// last byte was named.
    #[inline]
    pub(super) fn transmit(&mut self, out: &mut impl Transmit) {
        loop {
            let may_answer = !self.is_answering && self.may_answer();
            if let Some(answer) = self.queue.answer().filter(|_| may_answer) {
                self.answer(&answer);
            }
            let mut is_answered = false;
            self.qp.poll_transmit(&mut UpperBatch {
                out: &mut *out,
                payload: Transmit::payload,
                release: |_| is_answered = true,
            });
            if !is_answered {
                break;
            }
            self.is_answering = false;
            if let Some(tag) = self.queue.answered() {
                out.release(tag);
            }
        }
        while let Some(tag) = self.queue.next_unanswered() {
            out.release(tag);
        }
    }

    /// Posts the data of an answer as an RDMA Write and its completion as a Send, which
    /// invalidates the host's STag where the host wants that.
    #[inline]
    fn answer(&mut self, answer: &Answer) {
        let memory = self.commands.get_mut(usize::from(answer.tag));
        let HostMemory { keyed, .. } = memory.map(std::mem::take).unwrap_or_default();
        if let Some(keyed) = keyed.filter(|_| answer.data_len > 0) {
            self.qp.post(Work::Write {
                data: DataPart {
                    tag: answer.tag,
                    offset: 0,
                    len: answer.data_len,
                },
                stag: keyed.key.get(),
                to: keyed.address.get(),
                release: None,
            });
        }
        let invalidated = keyed.filter(|keyed| keyed.id == KeyedSgl::INVALIDATE);
        // The host may send the next command when it has the answer.
        self.qp.post_receives(1);
        let completion = self.queue.completion(answer);
        self.qp.post(Work::Send {
            head: completion.as_bytes(),
            body: DataPart::default(),
            invalidate: invalidated.map(|keyed| keyed.key.get()),
            is_solicited: false,
            release: Some(answer.tag),
        });
        self.is_answering = true;
    }
}
