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
