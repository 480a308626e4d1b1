"""The bytes of a review and a state become the bytes of an answer."""
