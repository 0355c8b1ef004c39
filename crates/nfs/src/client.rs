//! The client of NFSv4.1 and 4.2 as pure state: [`ClientConnection`] is one
//! connection of ONC RPC, by records on TCP or by RPC-over-RDMA on iWARP, with calls out and
//! answers in, [`Slots`] are those of a session, [`Backchannel`] answers what the server asks.
//!
//! A COMPOUND is written with [`Compound`], its answer read with [`Results`].
//! What is sent over and over is written once, as a [`Template`].

mod answer;
mod callback;
mod compound;
mod connection;
mod fatal;
mod gss;
mod probe;
mod rdma;
mod receive;
mod requests;
mod slots;
mod template;

pub use answer::{RpcAnswer, RpcRefused};
pub use callback::Backchannel;
pub use compound::{CallData, Compound, Results, Wrong};
pub use connection::{Auth, ClientConnection, ClientOp, RpcClientSettings};
pub use fatal::RpcClientFatalError;
pub use gss::ContextAnswer;
pub use rdma::RdmaClientSettings;
pub use requests::{Channels, create_session, exchange_id};
pub use slots::{Sequenced, Slot, Slots};
pub use template::Template;
