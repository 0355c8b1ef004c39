//! EXTENDED COPY as its parameter list says it.
