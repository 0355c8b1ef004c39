//! Why a request was not done (RFC 9457).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::PlanLine;

/// Problem details. Members beyond the standard's depend on the kind of the problem.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ProblemDetails {
    /// The kind of the problem, a URI; `about:blank` where the status says it all.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind for people.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong with this request.
    pub detail: String,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Mistakes in the text of a configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<FileProblem>,
    /// Mistakes in the fields of objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ObjectProblem>,
    /// What could not be done, a line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// What the change would do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plan: Vec<PlanLine>,
    /// The generation that is served, where another was expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<ServedGeneration>,
    /// The file that was changed by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The generation that is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
}

/// A mistake in the text of a configuration.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FileProblem {
    /// From 1 on.
    pub line: usize,
    /// From 1 on, in characters.
    pub column: usize,
    /// What is wrong, and the remedy.
    pub text: String,
    /// The line, and below it a mark at the column; empty where the problem has no place.
    pub excerpt: String,
}

/// A mistake in an object.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ObjectProblem {
    /// Its kind and names.
    pub object: String,
    /// The key; `None`: the object as a whole.
    pub field: Option<String>,
    /// What is wrong.
    pub reason: String,
    /// What to do.
    pub hint: String,
}

/// The generation that is served.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ServedGeneration {
    /// Its number.
    pub generation: u64,
    /// Since when.
    pub unix_s: u64,
    /// The user that made it.
    pub uid: u32,
    /// What was asked for.
    pub verb: String,
}
