//! Single objects of the configuration.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// An object: a table of the configuration that has a name.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ConfigObject {
    /// Its kind and names, for people.
    pub object: String,
    /// Its kind: `volume`, `subsystem/namespace` and so on.
    pub kind: String,
    /// The names of what it is in, and its own at the end.
    pub names: Vec<String>,
    /// The keys that its table has. Secrets are not told.
    #[schema(value_type = HashMap<String, Value>)]
    pub fields: Map<String, Value>,
}

/// Objects of the configuration that is served.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ConfigObjects {
    /// The generation of the configuration.
    pub generation: u64,
    /// In the order of the text.
    pub objects: Vec<ConfigObject>,
}

/// A change of one object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ObjectChange {
    /// What is done with it.
    pub verb: ObjectVerb,
    /// Its kind.
    pub kind: String,
    /// The names of what it is in, and its own at the end.
    pub names: Vec<String>,
    /// The keys that it gets.
    #[schema(value_type = HashMap<String, Value>)]
    pub fields: Map<String, Value>,
}

/// What is done with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ObjectVerb {
    /// It is not there yet.
    Add,
    /// It gets other fields.
    Set,
    /// It goes, with all that is in it.
    Rm,
}

impl ObjectVerb {
    /// As commands say it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ObjectVerb::Add => "add",
            ObjectVerb::Set => "set",
            ObjectVerb::Rm => "rm",
        }
    }
}
