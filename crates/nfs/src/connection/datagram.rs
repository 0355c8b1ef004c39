//! Calls of RPC that come in datagrams, one in each, without record marks (RFC 5531, section 4).

use wire::rpc::{RecordMark, accept_stat};
use wire::xdr::{Decode, Reader};

use super::Procedure;
use super::credential::Credential;
use super::reply::{Refusal, Reply};
use super::scan::{self, Header};

/// A call.
#[derive(Clone, Debug)]
pub struct DatagramCall<'a> {
    xid: u32,
    /// The number of its program.
    pub program: u32,
    /// What it calls.
    pub procedure: Procedure,
    /// Who says that it calls.
    pub credential: Credential,
    /// The arguments, which were not read yet.
    pub args: &'a [u8],
}

impl<'a> DatagramCall<'a> {
    /// The call in a datagram.
    ///
    /// # Errors
    /// What is to be answered to one that is refused; nothing to what is no call.
    pub fn read(bytes: &'a [u8]) -> Result<DatagramCall<'a>, Option<Vec<u8>>> {
        let (len, header) = scan::header(bytes).map_err(|_| None)?;
        match header {
            Header::Call {
                xid,
                procedure,
                credential,
            } => {
                // Behind the identifier, the type and the version of RPC.
                let program = u32::decode(&mut Reader::new(&bytes[12..]));
                Ok(DatagramCall {
                    xid,
                    program: program.expect("the header was read"),
                    procedure,
                    credential,
                    args: &bytes[len..],
                })
            }
            Header::Refused { xid, why } => Err(Some(refused(xid, why))),
            // Contexts and TLS belong to connections, and nothing was called by datagrams.
            Header::Probe { .. } | Header::Gss { .. } | Header::Answer { .. } => Err(None),
        }
    }

    /// The answer with these results.
    pub fn results(&self, results: &[u8]) -> Vec<u8> {
        let mut reply = Reply::default();
        reply.begin(self.xid);
        reply.bytes().extend_from_slice(results);
        unmarked(reply)
    }

    /// The answer that says why there are none.
    pub fn refused(&self, why: accept_stat) -> Vec<u8> {
        refused(self.xid, Refusal::stat(why))
    }
}

fn refused(xid: u32, why: Refusal) -> Vec<u8> {
    let mut reply = Reply::default();
    match why {
        Refusal::Accepted(body) => reply.accepted(xid, body, None),
        Refusal::Denied(why) => reply.denied(xid, why),
    }
    unmarked(reply)
}

fn unmarked(mut reply: Reply) -> Vec<u8> {
    reply.bytes().split_off(RecordMark::LEN)
}
