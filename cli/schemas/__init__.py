"""JSON schemas of the configuration file and of the commands' JSON output, generated from the types that the code reads and writes."""

from cli.schemas.answers import empty_answer
from cli.schemas.schema import CONFIGURATION, NAMES, schema_of, schemas_of_types, text_of

__all__ = ["CONFIGURATION", "NAMES", "empty_answer", "schema_of", "schemas_of_types", "text_of"]
