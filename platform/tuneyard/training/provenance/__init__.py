"""The birth certificate of a model, in its folder, and how it is verified: by hashes, by a signature, and by training again."""
