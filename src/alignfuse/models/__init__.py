"""Models with their verbs: what is exported and used, without teacher, queue or tokenizer."""
