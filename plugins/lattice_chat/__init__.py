"""Chat formats: how messages become a prompt. The ways are the checkpoint's own Jinja template and bare ChatML."""
