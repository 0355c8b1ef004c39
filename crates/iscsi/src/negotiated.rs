//! What two sides agreed on.

use wire::iscsi::DATA_SEGMENT_LEN_MAX;

/// The values of every key that a session and one of its connections go by,
/// by the names of RFC 7143, section 13. The default is the standard's: what
/// holds for keys that are not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// HeaderDigest is CRC32C. Of the connection.
    pub header_digest: bool,
    /// DataDigest is CRC32C. Of the connection.
    pub data_digest: bool,
    /// MaxRecvDataSegmentLength of ours: what the peer may send, bytes. Of the
    /// connection.
    pub max_recv_data_segment_length: u32,
    /// MaxRecvDataSegmentLength of the peer: what we may send, bytes. Of the
    /// connection.
    pub max_send_data_segment_length: u32,
    /// MaxConnections.
    pub max_connections: u16,
    /// InitialR2T: unsolicited Data-Out is not allowed.
    pub initial_r2t: bool,
    /// ImmediateData: data may come with the command.
    pub immediate_data: bool,
    /// MaxBurstLength, bytes.
    pub max_burst_length: u32,
    /// FirstBurstLength, bytes; not more than `max_burst_length`.
    pub first_burst_length: u32,
    /// DefaultTime2Wait, seconds.
    pub default_time2wait: u16,
    /// DefaultTime2Retain, seconds.
    pub default_time2retain: u16,
    /// MaxOutstandingR2T.
    pub max_outstanding_r2t: u16,
    /// DataPDUInOrder.
    pub data_pdu_in_order: bool,
    /// DataSequenceInOrder.
    pub data_sequence_in_order: bool,
    /// ErrorRecoveryLevel.
    pub error_recovery_level: u8,
    /// RDMAExtensions: data is moved by RDMA, and those that limit data segments limit
    /// other PDUs than Data-In and Data-Out (RFC 7145, section 6).
    pub rdma_extensions: bool,
    /// TaggedBufferForSolicitedDataOnly: the memory of a write begins behind what came with its
    /// command; `None`: the initiator does not say.
    pub solicited_only: Option<bool>,
}

impl Negotiated {
    /// Most data of a Data-In PDU.
    #[inline]
    pub(crate) fn data_in_max(&self) -> u32 {
        match self.rdma_extensions {
            true => self.max_burst_length,
            false => self.max_send_data_segment_length,
        }
    }
}

impl Default for Negotiated {
    fn default() -> Self {
        Negotiated {
            header_digest: false,
            data_digest: false,
            max_recv_data_segment_length: 8192,
            max_send_data_segment_length: 8192,
            max_connections: 1,
            initial_r2t: true,
            immediate_data: true,
            max_burst_length: 256 << 10,
            first_burst_length: 64 << 10,
            default_time2wait: 2,
            default_time2retain: 20,
            max_outstanding_r2t: 1,
            data_pdu_in_order: true,
            data_sequence_in_order: true,
            error_recovery_level: 0,
            rdma_extensions: false,
            solicited_only: None,
        }
    }
}

/// The least value of MaxRecvDataSegmentLength, MaxBurstLength and
/// FirstBurstLength, bytes.
pub const LENGTH_MIN: u32 = 512;
/// The largest value of those three, bytes.
pub const LENGTH_MAX: u32 = DATA_SEGMENT_LEN_MAX;
