"""What schemathesis does not know by itself."""

import schemathesis

# A configuration is text.
schemathesis.serializer.alias("application/toml", "text/plain")
