"""Projects and the keys that open them."""
