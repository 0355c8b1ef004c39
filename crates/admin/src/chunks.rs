//! A body that goes on, part by part, and how far it was taken.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame};
use tokio::sync::mpsc::Receiver;

/// How much a peer has taken: one that takes nothing is closed.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    bytes: Arc<AtomicU64>,
    /// For how long a peer may take nothing.
    pub patience: Duration,
}

impl Taken {
    pub fn within(patience: Duration) -> Taken {
        Taken {
            bytes: Arc::default(),
            patience,
        }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// A body that has no length before its end. After an error it has no end.
pub(crate) struct Chunks {
    pub chunks: Receiver<io::Result<Bytes>>,
    pub taken: Taken,
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let chunk = self.chunks.poll_recv(context);
        if let Poll::Ready(Some(Ok(bytes))) = &chunk {
            let len = bytes.len() as u64;
            self.taken.bytes.fetch_add(len, Ordering::Relaxed);
        }
        chunk.map(|chunk| chunk.map(|bytes| bytes.map(Frame::data)))
    }
}
