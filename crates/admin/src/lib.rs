//! The admin socket: what a process that serves is asked, and told to change, over
//! HTTP on a Unix socket and on TCP, by a thread beside the reactors; and the client of it.
//!
//! No I/O of a host passes here: where the thread fails, hosts are served as before.
#![forbid(unsafe_code)]

mod access;
mod audit;
mod body;
mod chunks;
mod client;
mod config;
mod connections;
mod console;
mod counters;
mod doctor;
mod document;
mod drain;
mod event_log;
mod events;
mod evict;
mod figures;
mod files;
mod follow;
mod generations;
mod groups;
mod handshake;
mod html;
mod keeper;
mod login;
mod metrics;
mod notes;
mod objects;
mod off_thread;
mod openapi;
mod place;
mod problem;
mod quotas;
mod refused;
mod renewed;
mod rollback;
mod routes;
mod samples;
mod scrubs;
mod secrets;
mod self_test;
mod serve;
mod served;
mod shown;
mod snapshot_streams;
mod snapshots;
mod state;
mod tcp;
#[cfg(test)]
mod tests;
mod transfer;
mod volume_hosts;
mod wrong_logins;

pub use client::{AdminAddress, Answer, Request, ask, encoded, fetch};
pub use counters::{counters, now};
pub use document::Document;
pub use event_log::{EventLog, LogFields};
pub use follow::{Followed, follow};
pub use groups::notes_of_groups;
pub use hyper::Method;
pub use place::{Place, asked_path};
pub use secrets::make_secret;
pub use serve::{AdminPlaces, AdminThread, serve};
pub use served::ServedFile;
pub use state::{sha256, usual_folder};
pub use tcp::{TcpPlace, listen};
pub use transfer::{Download, Upload, download, upload};
