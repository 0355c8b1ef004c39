//! What is served: volumes.
