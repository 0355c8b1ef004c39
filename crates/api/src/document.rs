//! The configuration, its generations and their audit.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The document that is served, and what keeps it over a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Document {
    /// Its file, if it has one.
    pub file: Option<String>,
    /// What it was made of at the start.
    pub source: DocumentSource,
    /// The folder of its generations, where there can be one.
    pub folder: Option<String>,
    /// The generation that is served, from 1 on.
    pub generation: u64,
    /// What has it at the next start.
    pub holds: Holds,
    /// Why the file does not have it.
    pub why: Option<String>,
}

impl Document {
    /// Its file, or what it was made of, in words.
    #[must_use]
    pub fn shown(&self) -> &str {
        match (&self.file, self.source) {
            (Some(file), _) => file,
            (None, DocumentSource::Options) => "the options of the command line",
            (None, DocumentSource::BuiltIn) => "what is built in",
            (None, _) => "what came from a pipe",
        }
    }
}

/// What a document was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DocumentSource {
    /// A file.
    File,
    /// What came from a pipe.
    Pipe,
    /// Options of `weft serve`.
    Options,
    /// What weft serves without any.
    BuiltIn,
}

/// What has the document at the next start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Holds {
    /// The file.
    File,
    /// The last generation in the folder.
    Generation,
    /// Nothing: changes cannot be kept, and are refused.
    Nothing,
}

/// A line of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlanLine {
    /// What changes.
    pub text: String,
    /// A host, initiator or client is cut, or what is in memory is lost.
    pub disturbs: bool,
}

/// What a change has done or, of a dry run, would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Changed {
    /// What is served after it.
    #[serde(flatten)]
    pub document: Document,
    /// The changes, a line each.
    pub done: Vec<String>,
    /// What the document names and is not served, with the reason.
    pub not_served: Vec<String>,
    /// What of its text holds from the next start on.
    pub at_restart: Vec<String>,
    /// Keys and secrets that could not be read: what was read before stays good.
    #[serde(default)]
    pub not_read: Vec<String>,
    /// Of a dry run: the changes, and which of them disturb.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Vec<PlanLine>>,
}

/// The document with its text.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ConfigText {
    /// Where it is kept.
    #[serde(flatten)]
    pub document: Document,
    /// TOML.
    pub text: String,
}

/// What made a generation; as it stands beside the generation's text on the disk, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Generation {
    /// Its number, from 1 on.
    pub generation: u64,
    /// When.
    pub unix_s: u64,
    /// The user that asked for it.
    pub uid: u32,
    /// Who that let in and has asked, over TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// What was asked for.
    pub verb: String,
    /// Of its text.
    pub sha256: String,
    /// Of the file that it belongs to, where that has another text: it could not be written.
    pub file_sha256: Option<String>,
    /// The changes that were made.
    pub done: Vec<String>,
    /// What stayed missing.
    pub not_served: Vec<String>,
    /// What of its text holds from the next start on.
    #[serde(default)]
    pub at_restart: Vec<String>,
    /// The request that made it, if it named itself.
    pub request: Option<RequestKey>,
}

impl Generation {
    /// Whether no request has made it: it was found at a start or in the file.
    #[must_use]
    pub fn is_found(&self) -> bool {
        ["start", "edit of the file"].contains(&&*self.verb)
    }
}

/// A request that says by what it is known when it comes again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestKey {
    /// `Idempotency-Key`.
    pub key: String,
    /// Of what it asked for.
    pub sha256: String,
}

/// A generation with its text.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct GenerationText {
    /// What made it.
    #[serde(flatten)]
    pub made: Generation,
    /// TOML.
    pub text: String,
}

/// The generations that are kept, the latest at the end.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct History {
    /// A bounded number.
    pub generations: Vec<HistoryEntry>,
}

/// A generation, or why it cannot be read.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum HistoryEntry {
    /// What made it.
    Made(Box<Generation>),
    /// It cannot be read.
    Damaged {
        /// Its number.
        generation: u64,
        /// Why.
        damaged: String,
    },
}

impl HistoryEntry {
    /// What made it, where that can be read.
    #[must_use]
    pub fn made(&self) -> Option<&Generation> {
        match self {
            HistoryEntry::Made(made) => Some(made),
            HistoryEntry::Damaged { .. } => None,
        }
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u64 {
        match self {
            HistoryEntry::Made(made) => made.generation,
            HistoryEntry::Damaged { generation, .. } => *generation,
        }
    }
}

/// Asks for a former generation.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    /// The one whose text is served again, as a new one.
    pub generation: u64,
}

/// A change that was made or refused; a line of the audit's file, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditRecord {
    /// From 1 on.
    pub number: u64,
    /// When.
    pub unix_s: u64,
    /// The user that asked for it.
    pub uid: u32,
    /// Who that let in and has asked, over TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// What was asked for.
    pub verb: String,
    /// `made`, or what kind of problem it was refused with.
    pub outcome: String,
    /// What was served before it.
    pub generation_before: u64,
    /// What is served after it.
    pub generation: u64,
    /// Of the text before it.
    pub sha256_before: String,
    /// Of the text after it.
    pub sha256: String,
    /// The first of the changes that were made.
    pub changes: Vec<String>,
    /// How many changes there were.
    pub change_count: usize,
    /// SHA-256 of the line before.
    pub prev: String,
}

/// The last records.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Audit {
    /// Where they stand. `None`: nothing is kept.
    pub file: Option<String>,
    /// The latest at the end.
    pub records: Vec<AuditRecord>,
}

/// Whether the audit is as it was written.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct AuditVerified {
    /// The file. `None`: nothing is kept.
    pub file: Option<String>,
    /// The number of its last record.
    pub records: u64,
    /// Lines that a process has left that was killed.
    pub torn: Vec<String>,
    /// What was changed or taken out.
    pub wrong: Vec<String>,
}
