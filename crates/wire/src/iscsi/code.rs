//! The numbers of RFC 7143 and RFC 7144 that have names: each type knows the
//! number of a name and the name of a number.

macro_rules! codes {
    ($(#[$doc:meta])* $name:ident: $repr:ty {$($(#[$code_doc:meta])* $code:ident = $value:literal $text:literal,)*}) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr($repr)]
        pub enum $name {
            $($(#[$code_doc])* $code = $value,)*
        }
        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$code,)*];

            /// What `value` means, `None` if nothing.
            #[inline]
            pub const fn from_value(value: $repr) -> Option<$name> {
                match value {
                    $($value => Some($name::$code),)*
                    _ => None,
                }
            }

            /// What the standard calls it.
            pub const fn name(self) -> &'static str {
                match self {
                    $($name::$code => $text,)*
                }
            }
        }
        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

codes! {
    /// Task attributes, the ATTR field (section 11.3.1).
    TaskAttribute: u8 {
        /// Untagged.
        Untagged = 0 "Untagged",
        /// Simple.
        Simple = 1 "Simple",
        /// Ordered.
        Ordered = 2 "Ordered",
        /// Head of queue.
        HeadOfQueue = 3 "Head of queue",
        /// ACA.
        Aca = 4 "ACA",
    }
}

codes! {
    /// Task management functions (section 11.5.1; RFC 7144).
    TaskFunction: u8 {
        /// ABORT TASK.
        AbortTask = 1 "ABORT TASK",
        /// ABORT TASK SET.
        AbortTaskSet = 2 "ABORT TASK SET",
        /// CLEAR ACA.
        ClearAca = 3 "CLEAR ACA",
        /// CLEAR TASK SET.
        ClearTaskSet = 4 "CLEAR TASK SET",
        /// LOGICAL UNIT RESET.
        LogicalUnitReset = 5 "LOGICAL UNIT RESET",
        /// TARGET WARM RESET.
        TargetWarmReset = 6 "TARGET WARM RESET",
        /// TARGET COLD RESET.
        TargetColdReset = 7 "TARGET COLD RESET",
        /// TASK REASSIGN.
        TaskReassign = 8 "TASK REASSIGN",
        /// QUERY TASK.
        QueryTask = 9 "QUERY TASK",
        /// QUERY TASK SET.
        QueryTaskSet = 10 "QUERY TASK SET",
        /// I_T NEXUS RESET.
        ItNexusReset = 11 "I_T NEXUS RESET",
        /// QUERY ASYNCHRONOUS EVENT.
        QueryAsynchronousEvent = 12 "QUERY ASYNCHRONOUS EVENT",
    }
}

codes! {
    /// Responses to task management functions (section 11.6.1; RFC 7144).
    TaskResponse: u8 {
        /// Function complete.
        Complete = 0 "Function complete",
        /// Task does not exist.
        NoTask = 1 "Task does not exist",
        /// LUN does not exist.
        NoLun = 2 "LUN does not exist",
        /// Task still allegiant.
        TaskStillAllegiant = 3 "Task still allegiant",
        /// Task allegiance reassignment not supported.
        ReassignmentNotSupported = 4 "Task allegiance reassignment not supported",
        /// Task management function not supported.
        NotSupported = 5 "Task management function not supported",
        /// Function authorization failed.
        AuthorizationFailed = 6 "Function authorization failed",
        /// Function succeeded: of the query functions alone.
        Succeeded = 7 "Function succeeded",
        /// Function rejected.
        Rejected = 255 "Function rejected",
    }
}

codes! {
    /// AsyncEvent of an Asynchronous Message (section 11.9.1).
    AsyncEvent: u8 {
        /// A SCSI asynchronous event; sense data is in the data segment.
        Scsi = 0 "SCSI asynchronous event",
        /// The target requests Logout within Parameter3 seconds.
        LogoutRequest = 1 "target requests Logout",
        /// The target drops or will drop the connection Parameter1.
        DropConnection = 2 "target drops the connection",
        /// The target drops or will drop all connections of the session.
        DropAllConnections = 3 "target drops all connections of the session",
        /// The target requests parameter negotiation on this connection.
        NegotiationRequest = 4 "target requests parameter negotiation",
        /// All active tasks of the logical unit from this I_T nexus are being
        /// terminated.
        TasksTerminated = 5 "all active tasks of the LU are being terminated",
        /// A vendor's event.
        VendorSpecific = 255 "vendor-specific event",
    }
}

codes! {
    /// Reasons of a Reject (section 11.17.1).
    RejectReason: u8 {
        /// Data (payload) digest error: may be sent again.
        DataDigestError = 0x02 "Data (payload) digest error",
        /// SNACK Reject: may be sent again.
        SnackReject = 0x03 "SNACK Reject",
        /// Protocol Error.
        ProtocolError = 0x04 "Protocol Error",
        /// Command not supported.
        CommandNotSupported = 0x05 "Command not supported",
        /// Immediate command reject: too many of them; may be sent again.
        ImmediateCommandReject = 0x06 "Immediate command reject",
        /// Task in progress.
        TaskInProgress = 0x07 "Task in progress",
        /// Invalid DataACK.
        InvalidDataAck = 0x08 "Invalid data ack",
        /// Invalid PDU field.
        InvalidPduField = 0x09 "Invalid PDU field",
        /// Long op reject: no Target Transfer Tag to be had; may be sent again.
        LongOpReject = 0x0a "Long op reject",
        /// Waiting for Logout.
        WaitingForLogout = 0x0c "Waiting for Logout",
    }
}

codes! {
    /// Types of a SNACK Request (section 11.16.1).
    SnackType: u8 {
        /// Data-In or R2T PDUs again.
        DataOrR2t = 0 "Data/R2T SNACK",
        /// Responses again.
        Status = 1 "Status SNACK",
        /// Data-In PDUs arrived.
        DataAck = 2 "DataACK",
        /// Data-In PDUs again, cut anew.
        RData = 3 "R-Data SNACK",
    }
}

codes! {
    /// Reason codes of a Logout Request (section 11.14.1).
    LogoutReason: u8 {
        /// Close the session with all its connections.
        CloseSession = 0 "close the session",
        /// Close the connection.
        CloseConnection = 1 "close the connection",
        /// Remove the connection for recovery: its tasks may move.
        RemoveForRecovery = 2 "remove the connection for recovery",
    }
}

codes! {
    /// Responses to a Logout Request (section 11.15.1).
    LogoutResponseCode: u8 {
        /// Closed.
        Success = 0 "connection or session closed successfully",
        /// CID not found.
        CidNotFound = 1 "CID not found",
        /// Connection recovery is not supported.
        RecoveryNotSupported = 2 "connection recovery is not supported",
        /// Cleanup failed.
        CleanupFailed = 3 "cleanup failed",
    }
}

codes! {
    /// Stages of the Login Phase, the CSG and NSG fields (section 11.12.3).
    Stage: u8 {
        /// SecurityNegotiation.
        Security = 0 "SecurityNegotiation",
        /// LoginOperationalNegotiation.
        Operational = 1 "LoginOperationalNegotiation",
        /// FullFeaturePhase.
        FullFeature = 3 "FullFeaturePhase",
    }
}

codes! {
    /// Status-Class in the upper and Status-Detail in the lower byte of a Login
    /// Response (section 11.13.5).
    LoginStatus: u16 {
        /// Login is proceeding.
        Success = 0x0000 "Success",
        /// The target is at the TargetAddress given, for now.
        MovedTemporarily = 0x0101 "Target moved temporarily",
        /// The target is at the TargetAddress given from now on.
        MovedPermanently = 0x0102 "Target moved permanently",
        /// Miscellaneous initiator errors.
        InitiatorError = 0x0200 "Initiator error",
        /// The initiator could not be authenticated.
        AuthenticationFailure = 0x0201 "Authentication failure",
        /// The initiator may not use the target.
        AuthorizationFailure = 0x0202 "Authorization failure",
        /// There is no target of that name here.
        NotFound = 0x0203 "Not found",
        /// The target was removed and has no forwarding address.
        TargetRemoved = 0x0204 "Target removed",
        /// No version in common.
        UnsupportedVersion = 0x0205 "Unsupported version",
        /// Too many connections on this session.
        TooManyConnections = 0x0206 "Too many connections",
        /// A parameter that is needed is missing.
        MissingParameter = 0x0207 "Missing parameter",
        /// The target cannot have this connection in the session.
        CannotIncludeInSession = 0x0208 "Can't include in session",
        /// The target does not support this type of session.
        SessionTypeNotSupported = 0x0209 "Session type not supported",
        /// There is no such session.
        NoSession = 0x020a "Session does not exist",
        /// A request of the wrong type during login.
        InvalidDuringLogin = 0x020b "Invalid during login",
        /// The target has an error.
        TargetError = 0x0300 "Target error",
        /// The service or the target is not operational now.
        ServiceUnavailable = 0x0301 "Service unavailable",
        /// Not enough resources now.
        OutOfResources = 0x0302 "Out of resources",
    }
}

impl LoginStatus {
    /// Status-Class.
    #[inline]
    pub const fn class(self) -> u8 {
        (self as u16 >> 8) as u8
    }

    /// Status-Detail.
    #[inline]
    pub const fn detail(self) -> u8 {
        self as u16 as u8
    }

    /// What the two bytes of a response mean, `None` if nothing.
    pub const fn from_bytes(class: u8, detail: u8) -> Option<LoginStatus> {
        LoginStatus::from_value((class as u16) << 8 | detail as u16)
    }
}
