"""JSON schemas, made of the types that the code itself reads and writes: of the configuration file, and of what commands answer."""

from analysis.schemas.schema import CONFIGURATION, NAMES, text_of

__all__ = ["CONFIGURATION", "NAMES", "text_of"]
